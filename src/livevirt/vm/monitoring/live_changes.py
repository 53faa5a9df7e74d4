"""How long each step of a live change takes: a state machine over what is seen, without a clock.

A change goes from the edit of the VirtualMachine to the guest. Each step counts from the one before
it, so that the slow one shows. Growing resizes the pod before the guest; shrinking does so after.

    edit accepted → vmi_patched → pod_resized → plugged → confirmed        sockets and memory grow
    edit accepted → vmi_patched → plugged → confirmed → pod_resized        and shrink
    edit accepted → vmi_patched → plugged                                  a volume is attached
    edit accepted → vmi_patched → confirmed                                a volume is detached

`plugged` is reported by QEMU (a volume: phase Ready), `confirmed` by the guest: its agent has the
size, or the guest has released the disk. A guest without an agent confirms no size, so that step
is not counted for it. Changes that began before the server started are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from livevirt.kube.control.cache import Change, Key
from livevirt.kube.control.metrics import Family
from livevirt.kube.objects import conditions
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.lifecycle.vmi.launcher import CREATED_BY
from livevirt.vm.sizing import hot_change
from livevirt.vm.spec.disks import hotpluggable

Resource = Literal["cpu", "memory", "volume"]
Step = Literal["vmi_patched", "pod_resized", "plugged", "confirmed"]

STEPS = Family(
    "livevirt_live_change_step_seconds", "histogram",
    "Time a step of a live change took: vmi_patched counts from the accepted edit, every other one"
    " (pod_resized, plugged, confirmed) from the step before it.",
    ("resource", "step"),
)  # fmt: skip
WHOLE = Family(
    "livevirt_live_change_seconds", "histogram",
    "Time from an accepted edit until nothing of the live change is left to do.", ("resource",),
)  # fmt: skip
FAMILIES = (STEPS, WHOLE)

_SIZES: dict[Resource, str] = {"cpu": hot_change.CPU, "memory": hot_change.MEMORY_TYPE}
_CONTAINER = "compute"
_VOLUME = "volume/"
_LATE = 5.0  # seconds; how long after a change its pod's status may still be seen


class Took(NamedTuple):
    """A duration to be counted; `step` is empty for the whole change."""

    resource: Resource
    step: str
    seconds: float


@dataclass(slots=True)
class _Open:
    """A change under way."""

    resource: Resource
    instance: str  # its uid
    wanted: int  # sockets or bytes; of a volume 1 to attach it, 0 to detach it
    grows: bool
    began: float  # when the edit was accepted, or else when the instance was patched
    last: float  # the step before
    held: str = ""  # what the pod had of the resource when it began
    passed: set[str] = field(default_factory=set)
    ended: float | None = None

    def reached(self, has: int) -> bool:
        """Return whether what there is is what is wanted, or already beyond."""
        return has >= self.wanted if self.grows else has <= self.wanted

    def took(self, step: Step, at: float) -> list[Took]:
        """Return the duration of a step, the first time it is seen."""
        if step in self.passed:
            return []
        self.passed.add(step)
        seconds, self.last = at - self.last, at
        return [Took(self.resource, step, seconds)]

    def end(self, at: float) -> list[Took]:
        """Return the duration of the whole."""
        if self.ended is not None:
            return []
        self.ended = at
        return [Took(self.resource, "", at - self.began)]


class LiveChanges:
    """Follows all live changes. Methods return the durations that have become known."""

    def __init__(self) -> None:
        self._edited: dict[Key, float] = {}
        self._open: dict[Key, dict[str, _Open]] = {}  # by instance, then `cpu` or `volume/data`
        self._held: dict[str, dict[str, str]] = {}  # what pods have, by uid of the instance

    def vm_changed(self, change: Change, at: float) -> None:
        """Take note of an edit of a VirtualMachine."""
        if change.new is None:
            self._edited.pop(change.key, None)
        elif change.old is not None and _generation(change.new) != _generation(change.old):
            self._edited[change.key] = at

    def vmi_changed(self, change: Change, at: float) -> list[Took]:
        """Take note of a change of an instance."""
        if change.new is None:
            self._open.pop(change.key, None)
            if change.old is not None:
                self._held.pop(change.old["metadata"]["uid"], None)
            return []
        found: list[Took] = []
        if (old := change.old) is not None and _runs(old) and old["spec"] != change.new["spec"]:
            for name, begun in self._begun(old, change.new, at).items():
                edited = self._edited.get(change.key)
                if edited is not None:
                    begun.began = begun.last = edited
                    found += begun.took("vmi_patched", at)
                self._open.setdefault(change.key, {})[name] = begun
        for name, each in self._open.get(change.key, {}).items():
            found += _advanced(each, name, change.new, at)
        return found

    def pod_changed(self, change: Change, at: float) -> list[Took]:
        """Take note of what a pod has: a resize that is in force."""
        if change.new is None:
            return []
        meta, has = change.new["metadata"], _in_force(change.new)
        instance = (meta.get("labels") or {}).get(CREATED_BY, "")
        if not instance or has is None or self._held.get(instance) == has:
            return []
        self._held[instance] = has
        found: list[Took] = []
        for changes in self._open.values():
            for each in changes.values():
                late = each.ended is not None and at - each.ended > _LATE
                mine = each.instance == instance and each.resource in _SIZES and not late
                if mine and has.get(each.resource) != each.held:
                    found += each.took("pod_resized", at)
        return found

    def guest_changed(self, key: Key, sockets: int, memory: int, at: float) -> list[Took]:
        """Take note of what QEMU has plugged in."""
        found: list[Took] = []
        for resource, has in (("cpu", sockets), ("memory", memory)):
            each = self._open.get(key, {}).get(resource)
            if each is not None and each.ended is None and each.reached(has):
                found += each.took("plugged", at)
        return found

    def under_way(self, key: Key) -> bool:
        """Return whether it matters now what QEMU has plugged in."""
        open_ = self._open.get(key)
        return open_ is not None and any(each.ended is None for each in open_.values())

    def _begun(self, old: Object, new: Object, at: float) -> dict[str, _Open]:
        """Return the changes that a patch of an instance begins."""
        uid, found = new["metadata"]["uid"], {}
        before, after = _sizes(old), _sizes(new)
        for resource in _SIZES:
            is_, was = after[resource], before[resource]
            if is_ != was:
                held = self._held.get(uid, {}).get(resource, "")
                found[str(resource)] = _Open(resource, uid, is_, is_ > was, at, at, held)
        had, has = _volumes(old), _volumes(new)
        for name in had ^ has:
            there = name in has
            found[f"{_VOLUME}{name}"] = _Open("volume", uid, int(there), there, at, at)
        return found


def _advanced(each: _Open, name: str, vmi: Object, at: float) -> list[Took]:
    """Return the steps of a change that an instance's status shows to be over."""
    if each.ended is not None:
        return []
    status = status_of(vmi)
    listed = status.get("conditions")
    if each.resource == "volume":
        named = {one["name"]: one for one in status.get("volumeStatus") or ()}
        reported = named.get(name.removeprefix(_VOLUME))
        if each.grows and reported is not None and reported.get("phase") == "Ready":
            return [*each.took("plugged", at), *each.end(at)]
        if not each.grows and reported is None:
            return [*each.took("confirmed", at), *each.end(at)]
        return []
    found: list[Took] = []
    if conditions.is_true(listed, "AgentConnected") and _confirmed(each, status):
        found += each.took("confirmed", at)
    under_way = _SIZES[each.resource] in hot_change.under_way(vmi)
    if not under_way and _reported_size(each, status) is not None:
        found += each.end(at)
    return found


def _confirmed(each: _Open, status: Object) -> bool:
    reported = _reported_size(each, status)
    field_ = "currentCPUTopology" if each.resource == "cpu" else "memory"
    return reported == each.wanted and (status.get(field_) or {}).get("confirmed") is not False


def _reported_size(each: _Open, status: Object) -> int | None:
    """Return the size that a status reports."""
    if each.resource == "cpu":
        sockets: int | None = (status.get("currentCPUTopology") or {}).get("sockets")
        return sockets
    current = (status.get("memory") or {}).get("guestCurrent")
    return parse(current).bytes if current else None


def _sizes(vmi: Object) -> dict[Resource, int]:
    domain = vmi["spec"].get("domain") or {}
    guest = (domain.get("memory") or {}).get("guest")
    return {
        "cpu": (domain.get("cpu") or {}).get("sockets") or 1,
        "memory": parse(guest).bytes if guest else 0,
    }


def _volumes(vmi: Object) -> set[str]:
    """Return the hotpluggable volumes, each with its claim."""
    return {each["name"] for each in vmi["spec"].get("volumes") or () if hotpluggable(each)}


def _in_force(pod: Object) -> dict[str, str] | None:
    """Return the requests that the node reports for the guest's container."""
    for each in status_of(pod).get("containerStatuses") or ():
        if each["name"] == _CONTAINER and each.get("resources"):
            requests: dict[str, str] = each["resources"].get("requests") or {}
            return requests
    return None


def _runs(vmi: Object) -> bool:
    return status_of(vmi).get("phase") == "Running"


def _generation(vm: Object) -> int:
    return int(vm["metadata"].get("generation", 0))
