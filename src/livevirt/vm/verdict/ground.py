"""A case made ready for judging: what runs and what is wanted, as comparable trees."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace as change

from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config import settings as config
from livevirt.vm.config.settings import Defaults
from livevirt.vm.sizing.reservation import Size, told
from livevirt.vm.spec import cpu, instance, machine_type, memory
from livevirt.vm.spec.disks import bus, target
from livevirt.vm.spec.effective import ByName, canonical, filled, refilled
from livevirt.vm.spec.instance import Instance
from livevirt.vm.verdict.case import Case
from livevirt.vm.verdict.changes import Path, find

_FOLLOWS: Object = {}  # a field that follows the instance
#: Fields that follow the instance rather than the record of its start, for they change while it
#: runs, and the parts they are in. Everything else is as it was started.
FOLLOWING: Object = {
    "domain": {
        "cpu": {"sockets": _FOLLOWS},
        "memory": {"guest": _FOLLOWS},
        "devices": {"disks": _FOLLOWS},
    },
    "volumes": _FOLLOWS,
    "nodeSelector": _FOLLOWS,
    "affinity": _FOLLOWS,
    "tolerations": _FOLLOWS,
}
#: What a pod asks for its guest's memory, if the owner or an instance type says it.
MEMORY_REQUEST: Path = ("domain", "resources", "requests", "memory")


class Ground(msgspec.Struct, frozen=True):
    """What the rules look at. `started` and `wanted` are specs with defaults filled in; `before`,
    `after` and `vmi` the trees of what runs, of what is wanted and of the instance itself, without
    what is the same in all of them, word for word; `running` reads the instance, and `asked` what
    is wanted in the owner's own words; `has` is the size of the guest, to which a growth that is
    held up has not come."""

    case: Case
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
        status = (self.case.vmi or {}).get("status") or {}
        told = (status.get("memory") or {}).get("guestAtBoot")
        return parse(told) if told is not None else memory.guest(self.boot)


def prepare(case: Case, vmi: Object) -> Ground:
    """Return the ground of a case whose guest runs."""
    recorded = config.recorded(vmi)
    settings = case.config.without_maxima(recorded)
    uid, spec = _identity(vmi), vmi["spec"]
    # A type left open means the one the guest has: the next start keeps it.
    machine = (vmi.get("status") or {}).get("machine") or spec["domain"].get("machine")
    began = machine_type.kept(case.started, machine)
    started = filled(began, uid, settings)
    source = machine_type.kept(_with_buses_of(spec, case.wanted), machine)
    wanted = refilled(source, uid, settings, twin=began, as_filled=started)
    before, after, tree = map(canonical, _judged(started, wanted, spec))
    _follow_request(before, after, tree)
    ground = Ground(
        case,
        spec,
        recorded,
        started,
        wanted,
        before,
        after,
        tree,
        running=instance.read(spec),
        asked=instance.read(case.wanted),
        has=told(vmi),
    )
    _set_maxima(ground)
    return ground


def _judged(started: Object, wanted: Object, vmi: Object) -> tuple[Object, Object, Object]:
    """Return what must be compared of the three: disks and volumes go together, by their names."""
    found = _trimmed(started, wanted, vmi, FOLLOWING)
    if any("volumes" in side or "disks" in (_devices(side) or ()) for side in found):
        for side, whole in zip(found, (vmi, wanted, vmi), strict=True):
            side["volumes"] = whole.get("volumes") or []
            devices = side.setdefault("domain", {}).setdefault("devices", {})
            devices["disks"] = (_devices(whole) or {}).get("disks") or []
    return found


def _trimmed(
    started: Object, wanted: Object, vmi: Object, following: Object
) -> tuple[Object, Object, Object]:
    """Return the three without the parts whose words are the same; most are, and need no reading.

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
        elif inner is _FOLLOWS:
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


def _follow_request(tree: Object, wanted: Object, vmi: Object) -> None:
    """Put the instance's request for memory into the tree of its start, in place.

    Only if the wanted one is another than at the start: else the instance's follows the size of the
    guest, and nobody has asked for that.
    """
    asked = find(wanted, MEMORY_REQUEST)
    if asked is None:
        return
    started, has = find(tree, MEMORY_REQUEST), find(vmi, MEMORY_REQUEST)
    if started is not None and has is not None and started != asked:
        tree["domain"]["resources"]["requests"]["memory"] = has


def _set_maxima(ground: Ground) -> None:
    """Fill in maxima that one side leaves out, in place: silence means what it meant at the start.

    Only where the instance has one: under Stage it starts without.
    """
    for part, name, silent in (("cpu", "maxSockets", _sockets), ("memory", "maxGuest", _memory)):
        trees = (ground.before, ground.after)
        said = [find(tree, ("domain", part, name)) is not None for tree in trees]
        if said[0] != said[1] and (meant := silent(ground)) is not None:
            for tree in trees:
                tree["domain"].setdefault(part, {}).setdefault(name, meant)


def _sockets(ground: Ground) -> int | None:
    if not ground.running.domain.cpu.max_sockets:
        return None
    return cpu.max_sockets(0, _topology(ground.boot), ground.defaults)


def _memory(ground: Ground) -> Quantity | None:
    if ground.running.max_guest is None:
        return None
    boot = ground.boot
    return memory.max_guest(_without_maximum(boot), memory.guest(boot), ground.defaults)


def _topology(view: Instance) -> cpu.Topology:
    return cpu.topology(view.domain.cpu, view.domain.resources)


def _without_maximum(boot: Instance) -> Instance:
    """Return the view as if the owner had left `maxGuest` out."""
    size = change(boot.domain.memory, max_guest=None)
    return change(boot, domain=change(boot.domain, memory=size))


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
