"""Where a guest that does not run could start, as the nodes are now. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.spec import instance, machine_type, resources
from livevirt.vm.spec.effective import filled
from livevirt.vm.verdict import growth, headroom

_MOST_REASONS = 3


def placement(vm: Object, settings: Config, nodes: Sequence[tuple[Object, Share]]) -> Object:
    """Return the nodes with room for the guest of an expanded VM, and why none if so."""
    machine = (vm.get("status") or {}).get("machine")  # of its last start
    template = vm["spec"]["template"].get("spec") or {}
    spec = filled(machine_type.kept(template, machine), "", settings)
    asked = growth.amounts(resources.compute(instance.read(spec), settings.defaults))
    open_ = list(headroom.for_start(spec, asked, nodes))
    short = {bound.name: words for bound, words in growth.shortages(asked, tuple(open_))}
    room = [bound.name for bound in open_ if bound.name not in short]
    return {"nodes": room, "message": "" if room else _why(list(short.values()))}


def _why(lacking: list[str]) -> str:
    if not lacking:
        return "there is no node that takes it"
    more = len(lacking) - _MOST_REASONS
    told = [*lacking[:_MOST_REASONS], *([f"{more} more"] if more > 0 else [])]
    return f"no node has room: {'; '.join(told)}"
