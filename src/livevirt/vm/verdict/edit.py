"""An edit of a VM, read from the objects it is judged by: the same for all who judge it."""

from __future__ import annotations

from dataclasses import dataclass, field

from livevirt.kube.objects.request import Object
from livevirt.vm.config import settings as config
from livevirt.vm.migration.migratability import hindrance
from livevirt.vm.spec.resources import Namespace
from livevirt.vm.spec.run_strategy import run_strategy
from livevirt.vm.verdict.case import NOT_YET, Around, Bound, Case
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.live_patch import MEMORY, SOCKETS

ACCELERATOR = "livevirt.io/accelerator"  # the label of a node


@dataclass(frozen=True, slots=True)
class Found:
    """The objects an edit of a VM is judged by, each None if there is none."""

    vmi: Object | None = None  # of the VM's name
    revision: Object | None = None  # the record of its start
    kubevirt: Object | None = None
    node: Object | None = None  # that runs it
    namespace: Namespace = field(default_factory=Namespace)
    bounds: tuple[Bound, ...] = ()  # that its pod grows within; see `resizes`
    elsewhere: tuple[Bound, ...] | None = None  # the nodes it could migrate to
    second: tuple[Bound, ...] = ()  # quotas, as they bound a second pod


def case(vm: Object, found: Found) -> Case | None:
    """Return the VM as it is wanted against what runs, None if nobody knows how that started.

    `lost` says why. A VM that is to be halted has no guest an edit could reach.
    """
    settings = config.read(found.kubevirt)
    wanted = vm["spec"]["template"].get("spec") or {}
    if found.vmi is None or not _owned(found.vmi, vm) or run_strategy(vm["spec"]) == "Halted":
        return Case(wanted, wanted, None, settings)
    if found.revision is None:
        unjudged = Case(wanted, wanted, found.vmi, settings)
        return None if unjudged.runs else unjudged
    started = found.revision["data"]["spec"]["template"]["spec"]
    labels = ((found.node or {}).get("metadata") or {}).get("labels") or {}
    around = Around(
        accelerator=labels.get(ACCELERATOR, ""),
        namespace=found.namespace,
        bounds=found.bounds,
        migration=hindrance(found.vmi, settings),
        elsewhere=found.elsewhere,
        second=found.second,
        lacking=NOT_YET,
    )
    strategy = vm["spec"].get("updateVolumesStrategy") or ""
    return Case(started, wanted, found.vmi, settings, around, strategy)


def lost(found: Found) -> str:
    """Return why an edit cannot be judged where there is no case, and what to do."""
    name = revision_of(found.vmi) or "none"
    return f"the record of the guest's start ({name}) is missing; a restart makes a new one"


def relabelled(vm: Object, found: Found) -> bool:
    """Tell whether labels or annotations of the template are others than those of the start."""
    if found.revision is None:
        return False
    started = found.revision["data"]["spec"]["template"].get("metadata") or {}
    wanted = vm["spec"]["template"].get("metadata") or {}
    return any((started.get(n) or {}) != (wanted.get(n) or {}) for n in ("labels", "annotations"))


def resizes(judgement: Judgement) -> bool:
    """Tell whether the edit resizes the pod, so that its verdict depends on the room there is."""
    return any(change.live and change.path in (SOCKETS, MEMORY) for change in judgement.changes)


def revision_of(vmi: Object | None) -> str:
    """Return the name of the record of an instance's start, empty if it tells none."""
    return str(((vmi or {}).get("status") or {}).get("virtualMachineRevisionName") or "")


def node_of(vmi: Object | None) -> str:
    """Return the name of the node that runs an instance, empty if none does."""
    return str(((vmi or {}).get("status") or {}).get("nodeName") or "")


def _owned(vmi: Object, vm: Object) -> bool:
    uid = vm["metadata"].get("uid")
    owners = vmi["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == uid and owner.get("controller") for owner in owners)
