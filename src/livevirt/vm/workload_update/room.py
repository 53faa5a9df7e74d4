"""Why a guest that finds no room to grow may not migrate to some. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from livevirt.kube.objects.request import Object
from livevirt.vm.config import settings
from livevirt.vm.migration import migratability
from livevirt.vm.sizing.reservation import reservation, told
from livevirt.vm.verdict import edit, growth, headroom
from livevirt.vm.verdict.case import Around


def hindrance(vmi: Object, kubevirt: Object, around: headroom.Seen) -> str:
    """Return why a guest may not go to a node that could hold it; empty if it may.

    The judgement of the edit said the same, if nothing has changed since.
    """
    found = headroom.within(edit.Found(vmi, kubevirt=kubevirt), around)
    whole = growth.amounts(reservation(vmi, told(vmi), found.namespace))
    surroundings = Around(
        bounds=found.bounds,
        migration=migratability.hindrance(vmi, settings.read(kubevirt)),
        elsewhere=found.elsewhere,
        second=found.second,
    )
    return growth.no_migration(surroundings, whole, {})


def pod_of(vmi: Object, pods: Sequence[Object]) -> Object | None:
    """Return the pod a guest runs in now, of all that it has."""
    node = edit.node_of(vmi)
    return next((pod for pod in pods if pod["spec"].get("nodeName") == node), None)
