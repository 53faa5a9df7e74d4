"""A case made ready for judging: what runs and what is wanted, as comparable trees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from msgspec.structs import replace as change

from livevirt.api.quantity import Quantity, parse
from livevirt.api.request import Object
from livevirt.rollout import config, cpu, instance, machine_type, memory
from livevirt.rollout.case import Case
from livevirt.rollout.changes import Path, find
from livevirt.rollout.config import Defaults
from livevirt.rollout.disks import target
from livevirt.rollout.effective import ByName, canonical, filled, without_nulls
from livevirt.rollout.instance import Instance

#: Fields that follow the instance rather than the record of its start, for they change while it
#: runs. Everything else is as it was started.
FOLLOWING: tuple[Path, ...] = (
    ("domain", "cpu", "sockets"),
    ("domain", "memory", "guest"),
    ("domain", "devices", "disks"),
    ("volumes",),
    ("nodeSelector",),
    ("affinity",),
    ("tolerations",),
)
#: What a pod asks for its guest's memory, if the owner or an instance type says it.
MEMORY_REQUEST: Path = ("domain", "resources", "requests", "memory")


#: Parts that are looked into when the same words are left aside.
_OPENED = frozenset(path[:depth] for path in FOLLOWING for depth in range(len(path)))


@dataclass(frozen=True)
class Ground:
    """What the rules look at. `started` and `wanted` are specs with defaults filled in; `before`,
    `after` and `vmi` the trees of what runs, of what is wanted and of the instance itself, without
    what is the same in all of them, word for word."""

    case: Case
    spec: Object  # of the instance
    defaults: Defaults
    started: Object
    wanted: Object
    before: Object
    after: Object
    vmi: Object

    @cached_property
    def running(self) -> Instance:
        """The instance."""
        return instance.read(self.spec)

    @cached_property
    def boot(self) -> Instance:
        """The instance as it was started."""
        return instance.read(self.started)

    @cached_property
    def asked(self) -> Instance:
        """What is wanted, in the owner's own words."""
        return instance.read(self.case.wanted)

    @property
    def most_sockets(self) -> int:
        """How many sockets the machine was started for."""
        booted = cpu.topology(self.boot.domain.cpu, self.boot.domain.resources).sockets
        return max(self.running.domain.cpu.max_sockets, booted)

    @property
    def boot_memory(self) -> Quantity | None:
        """The memory the guest started with."""
        status = (self.case.vmi or {}).get("status") or {}
        told = (status.get("memory") or {}).get("guestAtBoot")
        return parse(told) if told is not None else memory.guest(self.boot)


def prepare(case: Case, vmi: Object) -> Ground:
    """Return the ground of a case whose guest runs."""
    recorded = config.recorded(vmi)
    settings = replace(case.config, defaults=recorded, strategy="")  # which fills no maxima
    uid, spec = _identity(vmi), without_nulls(vmi["spec"])
    # A type left open means the one the guest has: the next start keeps it.
    machine = (vmi.get("status") or {}).get("machine") or spec["domain"].get("machine")
    began = machine_type.kept(case.started, machine)
    started = filled(began, uid, settings)
    source = machine_type.kept(_with_buses_of(spec, case.wanted), machine)
    wanted = started if source == began else filled(source, uid, settings)
    before, after, tree = map(canonical, _judged(started, wanted, spec))
    _follow(before, tree)
    _follow_request(before, after, tree)
    ground = Ground(case, spec, recorded, started, wanted, before, after, tree)
    _set_maxima(ground)
    return ground


def _judged(started: Object, wanted: Object, vmi: Object) -> list[Object]:
    """Return what must be compared of the three: disks and volumes go together, by their names."""
    found = _trimmed(started, wanted, vmi)
    if any("volumes" in side or "disks" in side["domain"]["devices"] for side in found):
        for side, whole in zip(found, (started, wanted, vmi), strict=True):
            side["volumes"] = whole.get("volumes") or []
            side["domain"]["devices"]["disks"] = whole["domain"]["devices"].get("disks") or []
    return found


def _trimmed(started: Object, wanted: Object, vmi: Object, path: Path = ()) -> list[Object]:
    """Return the three without the parts whose words are the same; most are, and need no reading.

    A part that follows the instance is the same if the instance has it already.
    """
    found: list[Object] = [{}, {}, {}]
    for name in {**started, **wanted, **vmi}:
        here = (*path, name)
        sides = [started.get(name), wanted.get(name), vmi.get(name)]
        if here in _OPENED:
            sides = list(_trimmed(sides[0] or {}, sides[1] or {}, sides[2] or {}, here))
        elif sides[1] == sides[2 if here in FOLLOWING else 0]:
            continue
        for kept, side in zip(found, sides, strict=True):
            if side is not None:
                kept[name] = side
    return found


def _follow(tree: Object, vmi: Object) -> None:
    """Put what the instance has by now into the tree of its start, in place."""
    for path in FOLLOWING:
        *above, last = path
        parent, source = tree, vmi
        for part in above:
            parent, source = parent.setdefault(part, {}), source.get(part) or {}
        if last in source:
            parent[last] = source[last]
        else:
            parent.pop(last, None)


def _follow_request(tree: Object, wanted: Object, vmi: Object) -> None:
    """Put the instance's request for memory into the tree of its start, in place.

    Only if the wanted one is another than at the start: else the instance's follows the size of the
    guest, and nobody has asked for that.
    """
    started, asked, has = (find(each, MEMORY_REQUEST) for each in (tree, wanted, vmi))
    if started is not None and asked is not None and has is not None and started != asked:
        tree["domain"]["resources"]["requests"]["memory"] = has


def _set_maxima(ground: Ground) -> None:
    """Fill in maxima that one side leaves out, in place: silence means what it meant at the start.

    Only where the instance has one: under Stage it starts without.
    """
    for part, name, silent in (("cpu", "maxSockets", _sockets), ("memory", "maxGuest", _memory)):
        sides = [tree["domain"].setdefault(part, {}) for tree in (ground.before, ground.after)]
        if (name in sides[0]) != (name in sides[1]):
            meant = silent(ground)
            for side in sides:
                if meant is not None:
                    side.setdefault(name, meant)


def _sockets(ground: Ground) -> int | None:
    if not ground.running.domain.cpu.max_sockets:
        return None
    chosen = cpu.topology(ground.boot.domain.cpu, ground.boot.domain.resources)
    return cpu.max_sockets(0, chosen, ground.defaults)


def _memory(ground: Ground) -> Quantity | None:
    if ground.running.max_guest is None:
        return None
    boot = ground.boot
    return memory.max_guest(_without_maximum(boot), memory.guest(boot), ground.defaults)


def _without_maximum(boot: Instance) -> Instance:
    """Return the view as if the owner had left `maxGuest` out."""
    size = change(boot.domain.memory, max_guest=None)
    return change(boot, domain=change(boot.domain, memory=size))


def _with_buses_of(vmi: Object, wanted: Object) -> Object:
    """Return the wanted spec with the bus of each disk that names none as the guest has it.

    The default may have become another one since the guest started.
    """
    written = ((wanted.get("domain") or {}).get("devices") or {}).get("disks") or []
    there = {disk["name"]: disk for disk in vmi["domain"].get("devices", {}).get("disks") or ()}
    found = []
    for disk in written:
        shown_as, known = target(disk), there.get(disk["name"])
        bus = (known or {}).get(shown_as, {}).get("bus")
        if bus and not (disk.get(shown_as) or {}).get("bus"):
            found.append({**disk, shown_as: {**(disk.get(shown_as) or {}), "bus": bus}})
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
