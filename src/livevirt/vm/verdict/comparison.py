"""What runs compared with what is wanted: both specs as trees, and every field that differs."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.config import settings as config
from livevirt.vm.config.settings import Defaults
from livevirt.vm.sizing import baseline
from livevirt.vm.sizing.reservation import Size, reported_size
from livevirt.vm.spec import defaults as spec_defaults
from livevirt.vm.spec import instance, sizes
from livevirt.vm.spec.disks import bus, target
from livevirt.vm.spec.effective import ByName, canonical, filled, plain, refilled
from livevirt.vm.spec.instance import Instance
from livevirt.vm.verdict.judgement import Ruling
from livevirt.vm.verdict.verdict_inputs import VerdictInputs

Path = tuple[str, ...]
Differences = list[tuple[Path, Any, Any]]  # path, value that runs, value that is wanted

TEMPLATE = "spec.template.spec"  # where an instance's spec is in a VirtualMachine

#: Parts that only group fields: the fields in them are reported instead.
GROUPS: frozenset[Path] = frozenset(
    {
        ("domain",),
        *(("domain", part) for part in ("cpu", "devices", "features", "firmware", "machine")),
        *(("domain", part) for part in ("memory", "resources")),
        ("domain", "resources", "requests"),
        ("domain", "resources", "limits"),
    }
)


class Name(str):
    """The part of a path that picks an item of a list by its name."""

    __slots__ = ()


def differences(
    running: Any, wanted: Any, path: Path = (), whole: Set[Path] = frozenset()
) -> Differences:
    """List every field in which two trees differ with both values, None where it is left out.

    The order is that of the first tree, then of the second. Fields in `whole` are compared and
    reported as one value, however deep they are.
    """
    found: Differences = []
    if running != wanted:
        _compare(running, wanted, path, whole, found)
    return found


def _compare(running: Any, wanted: Any, path: Path, whole: Set[Path], found: Differences) -> None:
    """Add every field in which two values differ."""
    if path in whole or not _descends(running, wanted, path):
        found.append((path, running, wanted))
        return
    named = isinstance(running, ByName) or isinstance(wanted, ByName)
    before, after = running or {}, wanted or {}
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if old != new:
            _compare(old, new, (*path, Name(key) if named else key), whole, found)


def _descends(running: Any, wanted: Any, path: Path) -> bool:
    """Return whether the difference is in the fields of two values, not in the values."""
    if running is not None and wanted is not None:
        if not isinstance(running, dict) or not isinstance(wanted, dict):
            return False
        return isinstance(running, ByName) == isinstance(wanted, ByName)
    there = running if wanted is None else wanted
    return isinstance(there, ByName) or (isinstance(there, dict) and path in GROUPS)


def find(tree: Any, path: Path) -> Any:
    """Return what a tree has at a path, None if nothing."""
    for part in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(part)
    return tree


def spell(path: Path) -> str:
    """Return a path as people write it: `domain.devices.disks[root].serial`."""
    return "".join(map(_step, path)).removeprefix(".")


def _step(part: str) -> str:
    plain = part.isascii() and part.isalnum() and not part[0].isdigit()
    return f".{part}" if plain and not isinstance(part, Name) else f"[{part}]"


def about(ruling: Ruling, path: Path, running: Any, wanted: Any, volume: str = "") -> Ruling:
    """Return a ruling that names the field it is about, with both values as JSON."""
    return replace(
        ruling, path=in_vm(path), running=plain(running), wanted=plain(wanted), volume=volume
    )


def in_vm(path: Path) -> str:
    """Return a path as it is in a VirtualMachine."""
    return f"{TEMPLATE}.{spell(path)}"


#: The sizes of a guest, as changes name them.
SOCKETS = in_vm(("domain", "cpu", "sockets"))
MEMORY = in_vm(("domain", "memory", "guest"))


# ---------------------------------------------------------------- the comparison

FOLLOWS: Object = {}  # a field that follows the instance
#: Disks and volumes follow the instance too; `volume_edits` has their rules.
VOLUME_PATHS: tuple[Path, ...] = (("domain", "devices", "disks"), ("volumes",))
#: Requests and limits of the pod, if the owner or an instance type sets them.
AMOUNTS: tuple[Path, ...] = tuple(
    ("domain", "resources", side, name) for name in baseline.NAMES for side in baseline.SIDES
)


class Comparison(msgspec.Struct, frozen=True):
    """What the rules look at.

    `started` and `wanted` are specs with defaults filled in; `before`, `after` and `vmi` the trees
    of what runs, of what is wanted and of the instance itself, without the parts that are written
    the same in all of them. `running` reads the instance and `asked` the template without defaults.
    `has` is the size of the guest; a growth that is blocked has not reached it.
    """

    inputs: VerdictInputs
    spec: Object  # of the instance
    defaults: Defaults
    started: Object
    wanted: Object
    before: Object
    after: Object
    vmi: Object
    running: Instance
    asked: Instance
    has: Size

    @property
    def boot(self) -> Instance:
        """The instance as it was started."""
        return instance.read(self.started)

    @property
    def most_sockets(self) -> int:
        """How many sockets the machine was started for."""
        booted = _topology(self.boot).sockets
        return max(self.running.domain.cpu.max_sockets, booted)

    @property
    def has_drives(self) -> bool:
        """Whether disks or volumes are in the trees, of what runs or of what is wanted."""
        for tree in (self.before, self.after):
            if "volumes" in tree or "disks" in (_devices(tree) or ()):
                return True
        return False

    @property
    def boot_memory(self) -> Quantity | None:
        """The memory the guest started with."""
        status = status_of(self.inputs.vmi)
        reported = (status.get("memory") or {}).get("guestAtBoot")
        return parse(reported) if reported is not None else sizes.guest(self.boot)


@dataclass(frozen=True, slots=True)
class VolumeEdit:
    """The disk and the volume of one name, before and after an edit; None where there is none."""

    name: str
    old_volume: Object | None
    volume: Object | None
    old_disk: Object | None
    disk: Object | None

    @property
    def is_drive(self) -> bool:
        """Whether it is about a CD-ROM, on either side."""
        return any(disk and target(disk) == "cdrom" for disk in (self.old_disk, self.disk))


def compare(inputs: VerdictInputs, vmi: Object, following: Object) -> Comparison:
    """Return the comparison for an instance that runs, and of which some fields follow the VM."""
    recorded = config.recorded(vmi)
    # An instance of an earlier release does not state these two.
    unstated = {"terminationGracePeriodSeconds": spec_defaults.GRACE_SECONDS}
    uid, spec = _identity(vmi), {**unstated, "evictionStrategy": "None", **vmi["spec"]}
    settings = inputs.config.without_maxima(recorded, spec["evictionStrategy"])
    # A type left open means the one the guest has: the next start keeps it.
    machine = status_of(vmi).get("machine") or spec["domain"].get("machine")
    began = baseline.in_force(spec_defaults.kept(inputs.started, machine), vmi)
    started = filled(began, uid, settings)
    source = spec_defaults.kept(_with_buses_of(spec, inputs.wanted), machine)
    wanted = refilled(source, uid, settings, twin=began, as_filled=started)
    before, after, tree = map(canonical, _judged(started, wanted, spec, following))
    found = Comparison(
        inputs,
        spec,
        recorded,
        started,
        wanted,
        before,
        after,
        tree,
        running=instance.read(spec),
        asked=instance.read(inputs.wanted),
        has=reported_size(vmi),
    )
    _set_maxima(found)
    return found


def _judged(
    started: Object, wanted: Object, vmi: Object, following: Object
) -> tuple[Object, Object, Object]:
    """Return what must be compared of the three: disks and volumes go together, by their names."""
    found = _trimmed(started, wanted, vmi, following)
    if any("volumes" in side or "disks" in (_devices(side) or ()) for side in found):
        for side, whole in zip(found, (vmi, wanted, vmi), strict=True):
            side["volumes"] = whole.get("volumes") or []
            devices = side.setdefault("domain", {}).setdefault("devices", {})
            devices["disks"] = (_devices(whole) or {}).get("disks") or []
    return found


def _trimmed(
    started: Object, wanted: Object, vmi: Object, following: Object
) -> tuple[Object, Object, Object]:
    """Return the three without the parts that are written the same: most are, and need no parsing.

    What follows the instance is at its start as the instance has it.
    """
    found: tuple[Object, Object, Object] = ({}, {}, {})
    before, after, now = found
    for name in {**started, **wanted, **following}:
        old, new, has = started.get(name), wanted.get(name), vmi.get(name)
        inner = following.get(name)
        if inner is None:
            if old is new or old == new:
                continue
        elif inner is FOLLOWS:
            if has == new:
                continue
            old = has
        else:
            old, new, has = _trimmed(old or {}, new or {}, has or {}, inner)
            if not (old or new or has):
                continue
        if old is not None:
            before[name] = old
        if new is not None:
            after[name] = new
        if has is not None:
            now[name] = has
    return found


def _devices(spec: Object) -> Object | None:
    found: Object | None = (spec.get("domain") or {}).get("devices")
    return found


def _set_maxima(comparison: Comparison) -> None:
    """Fill in maxima that one side leaves out, in place, with the default of the last start.

    Only where the instance has one: under Stage it starts without.
    """
    for part, name, silent in (("cpu", "maxSockets", _sockets), ("memory", "maxGuest", _memory)):
        trees = (comparison.before, comparison.after)
        said = [find(tree, ("domain", part, name)) is not None for tree in trees]
        if said[0] != said[1] and (meant := silent(comparison)) is not None:
            for tree in trees:
                tree["domain"].setdefault(part, {}).setdefault(name, meant)


def _sockets(comparison: Comparison) -> int | None:
    if not comparison.running.domain.cpu.max_sockets:
        return None
    return sizes.max_sockets(0, _topology(comparison.boot), comparison.defaults)


def _memory(comparison: Comparison) -> Quantity | None:
    if comparison.running.max_guest is None:
        return None
    boot = comparison.boot
    return sizes.max_guest(_without_maximum(boot), sizes.guest(boot), comparison.defaults)


def _topology(view: Instance) -> sizes.Topology:
    return sizes.topology(view.domain.cpu, view.domain.resources)


def _without_maximum(boot: Instance) -> Instance:
    """Return the view as if the owner had left `maxGuest` out."""
    size = replace(boot.domain.memory, max_guest=None)
    return replace(boot, domain=replace(boot.domain, memory=size))


def _with_buses_of(vmi: Object, wanted: Object) -> Object:
    """Return the wanted spec with the bus of each disk that names none as the guest has it.

    The default may have become another one since the guest started.
    """
    written = (_devices(wanted) or {}).get("disks") or []
    if all(map(bus, written)):
        return wanted
    there = {disk["name"]: disk for disk in (_devices(vmi) or {}).get("disks") or ()}
    found = []
    for disk in written:
        shown_as, known = target(disk), there.get(disk["name"])
        has = ((known or {}).get(shown_as) or {}).get("bus")
        if has and not bus(disk):
            found.append({**disk, shown_as: {**(disk.get(shown_as) or {}), "bus": has}})
        else:
            found.append(disk)
    if found == written:
        return wanted
    domain = wanted["domain"]
    return {**wanted, "domain": {**domain, "devices": {**domain["devices"], "disks": found}}}


def _identity(vmi: Object) -> str:
    """Return the uid that the guest's stable names are made from."""
    meta = vmi["metadata"]
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == "VirtualMachine":
            return str(owner["uid"])
    return str(meta.get("uid", ""))


def items(tree: Object, *path: str) -> ByName:
    """Return the named items a tree has at a path."""
    found = tree
    for part in path:
        found = found.get(part) or {}
    return found if isinstance(found, ByName) else ByName()
