"""A case made ready for judging: what runs and what is wanted, as comparable trees."""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec.structs import replace as change

from livevirt.api.quantity import Quantity, parse
from livevirt.api.request import Object
from livevirt.rollout import config, cpu, instance, memory
from livevirt.rollout.case import Case
from livevirt.rollout.config import Defaults
from livevirt.rollout.disks import target
from livevirt.rollout.effective import ByName, canonical, filled, without_nulls
from livevirt.rollout.instance import Instance

#: Fields that follow the instance rather than the record of its start, for they change while it
#: runs. Everything else is as it was started.
FOLLOWING = (
    ("domain", "cpu", "sockets"),
    ("domain", "memory", "guest"),
    ("domain", "devices", "disks"),
    ("volumes",),
    ("nodeSelector",),
    ("affinity",),
    ("tolerations",),
)


@dataclass(frozen=True, slots=True)
class Ground:
    """What the rules look at. `started` and `wanted` are specs with defaults filled in, `before`,
    `after` and `vmi` the trees of what runs, of what is wanted and of the instance itself."""

    case: Case
    defaults: Defaults
    started: Object
    wanted: Object
    before: Object
    after: Object
    vmi: Object
    running: Instance  # the instance
    boot: Instance  # as it was started
    asked: Instance  # as it is wanted, in the owner's own words

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
    settings = replace(case.config, defaults=recorded)
    uid = _identity(vmi)
    spec = without_nulls(vmi["spec"])
    started = filled(case.started, uid, settings)
    running, boot = instance.read(spec), instance.read(started)
    wanted = filled(_with_buses_of(spec, case.wanted), uid, settings)
    tree, before, after = canonical(spec), canonical(started), canonical(wanted)
    _follow(before, tree)
    _set_maxima(before, after, running, boot, recorded)
    return Ground(
        case, recorded, started, wanted, before, after, tree,
        running, boot, instance.read(case.wanted),
    )  # fmt: skip


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


def _set_maxima(
    before: Object, after: Object, running: Instance, boot: Instance, defaults: Defaults
) -> None:
    """Fill in maxima that are left out, in place: silence means what it meant at the start.

    Only where the instance has one: under Stage it starts without.
    """
    if running.domain.cpu.max_sockets:
        chosen = cpu.topology(boot.domain.cpu, boot.domain.resources)
        most = cpu.max_sockets(0, chosen, defaults)
        for tree in (before, after):
            tree["domain"].setdefault("cpu", {}).setdefault("maxSockets", most)
    if running.max_guest is not None:
        room = memory.max_guest(_without_maximum(boot), memory.guest(boot), defaults)
        for tree in (before, after):
            if room is not None:
                tree["domain"].setdefault("memory", {}).setdefault("maxGuest", room)


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
