"""The loop that gives a guest its volumes, over guests and claims that behave and that do not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.errors import ApiError
from livevirt.node import attacher as attachers
from livevirt.node import guard, volume_status
from livevirt.node.attacher import Attacher
from livevirt.node.attachments import Item, goal
from livevirt.node.volumes import Prepared, VolumeProblem
from livevirt.qemu.agent import AgentCommand, AgentInfo, Filesystem, FilesystemDisk, PciAddress
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.errors import AgentUnavailable, CommandFailed, Disconnected, UnplugRefused
from livevirt.qemu.machine import Cpu, Machine, Memory
from livevirt.qemu.observe import Drive, MemoryState, Observed
from livevirt.qemu.plan import (
    ChangeMedium,
    CloseImage,
    GrowDisk,
    MachineSnapshot,
    PlugDisk,
    Step,
    UnplugDisk,
)

MIB = 2**20
MACHINE = Machine(
    name="web",
    uuid="00000000-0000-0000-0000-000000000001",
    accelerator="tcg",
    cpu=Cpu(model="max"),
    memory=Memory(boot=256 * MIB, max=256 * MIB),
    run_dir="/run/1",
    serial_log="/log",
)
SCSI = PciAddress(1, 0, 0)
IN_USE = Filesystem(
    name="x",
    mountpoint="/mnt",
    type="ext4",
    disk=(FilesystemDisk(unit=0, pci_controller=SCSI),),
)
CD = {"name": "cd", "cdrom": {"bus": "sata"}}


@dataclass
class Stub:
    """A guest that takes all it is given, unless told otherwise."""

    observed: Observed = field(
        default_factory=lambda: Observed(
            "running",
            (),
            MemoryState(0),
            drives=(Drive("ua-cd"),),
            free_ports=("port1",),
            agent_open=True,
        )
    )
    answered: bool = True  # the agent has, once
    mounts: list[Filesystem] = field(default_factory=list)
    silent: Exception | None = None  # what comes of a question
    commands: tuple[str, ...] = ("guest-get-fsinfo",)
    intent: Any = field(
        default_factory=lambda: SimpleNamespace(
            namespace="n", vmi="web", vmi_uid="u", machine=MACHINE
        )
    )
    done: list[Step] = field(default_factory=list)
    fail: Callable[[Step], Exception | None] = lambda _: None

    @property
    def view(self) -> Any:
        agent = object() if self.answered else None
        return SimpleNamespace(observed=self.observed, agent=agent)

    @property
    def seen(self) -> MachineSnapshot | None:
        return MachineSnapshot(MACHINE, self.observed) if self.answered else None

    @property
    def agent(self) -> "Stub":
        return self

    async def filesystems(self) -> list[Filesystem]:
        if self.silent is not None:
            raise self.silent
        return self.mounts

    async def info(self) -> AgentInfo:
        return AgentInfo("1", tuple(AgentCommand(name) for name in self.commands))

    async def refresh(self) -> None:
        await asyncio.sleep(0)

    def qmp(self) -> "Stub":
        return self

    async def execute(self, command: str) -> Any:
        assert command == "query-pci"
        return [{"devices": [{"qdev_id": "scsi0", "bus": 1, "slot": 0, "function": 0}]}]

    async def do(self, step: Step) -> None:
        await asyncio.sleep(0)
        if (error := self.fail(step)) is not None:
            raise error
        self.done.append(step)
        now = self.observed
        match step:
            case PlugDisk(disk, place):
                lun = dict(place).get("lun")
                drive = Drive(disk.id, disk.node, lun=lun, size=MIB)  # type: ignore[arg-type]
                devices = {**now.devices, disk.id: disk.driver}
                ports = tuple(p for p in now.free_ports if p != dict(place)["bus"])
                now = replace(now, drives=(*now.drives, drive), devices=devices, free_ports=ports)
            case UnplugDisk(id, _):
                virtio = now.devices.get(id) == "virtio-blk-pci"
                devices = {each: driver for each, driver in now.devices.items() if each != id}
                now = replace(
                    now,
                    drives=tuple(d for d in now.drives if d.id != id),
                    devices=devices,
                    free_ports=("port1",) if virtio else now.free_ports,
                )
            case ChangeMedium(disk, _):
                drives = [replace(d, node=disk.node) if d.id == disk.id else d for d in now.drives]
                now = replace(now, drives=tuple(drives))
            case GrowDisk(_, node, size):
                drives = [replace(d, size=size) if d.node == node else d for d in now.drives]
                now = replace(now, drives=tuple(drives))
            case CloseImage(node):
                now = replace(now, idle_nodes=tuple(n for n in now.idle_nodes if n != node))
        self.observed = now


@dataclass
class Claims:
    """Volumes of which some cannot be used."""

    problems: dict[str, Exception] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    folder: str = "/"

    async def attachable(self, namespace: str, volume: Any) -> Prepared:
        name = volume["persistentVolumeClaim"]["claimName"]
        if name in self.problems:
            raise self.problems[name]
        claim = {
            "metadata": {"name": name},
            "spec": {"resources": {"requests": {"storage": self.sizes.get(name, "1Mi")}}},
        }
        return Prepared(Image(f"{self.folder}{name}"), claim=claim)

    def release(self, prepared: Prepared) -> None:
        self.released.add(prepared.image.path)

    async def holders(self, namespace: str, claim: str, uid: str) -> list[str]:
        return ["other"]


def a_goal(force: str = "", bus: str = "scsi", **claims: str) -> Any:
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": True}}
        for name, claim in claims.items()
    ]
    disks = [{"name": name, "disk": {"bus": bus}} for name in claims if name != "cd"]
    spec = {"domain": {"devices": {"disks": [CD, *disks]}}, "volumes": volumes}
    return goal({"metadata": {"annotations": {"livevirt.io/force-detach": force}}, "spec": spec})


def a_vmi(told: Sequence[Any] = ()) -> Any:
    """Return an instance that wants no volume, of which so much was told."""
    spec = {"domain": {"devices": {"disks": [CD]}}, "volumes": []}
    return {"metadata": {}, "spec": spec, "status": {"volumeStatus": list(told)}}


def of_data(read_only: bool = False, **settings: Any) -> Any:
    """Return a goal of one disk with settings."""
    claim = {"claimName": "one", "hotpluggable": True} | ({"readOnly": True} if read_only else {})
    disk = {"name": "data", "disk": {"bus": "scsi"}, **settings}
    volumes = [{"name": "data", "persistentVolumeClaim": claim}]
    spec = {"domain": {"devices": {"disks": [CD, disk]}}, "volumes": volumes}
    return goal({"metadata": {}, "spec": spec})


@asynccontextmanager
async def attaching(
    guest: Stub, claims: Claims | None = None
) -> AsyncIterator[tuple[Attacher, Callable[..., Any]]]:
    attacher = Attacher(guest, claims or Claims(), lambda: None)  # type: ignore[arg-type]

    async def tells(**told: str) -> None:
        def found() -> dict[str, str]:
            return {
                name: each.phase if each.phase == "Ready" else f"{each.phase} {each.reason}"
                for name, each in (attacher.reported or {}).items()
            }

        try:
            async with asyncio.timeout(5):
                while attacher.reported is None or found() != told:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"{found()} is not {told}") from None

    try:
        yield attacher, tells
    finally:
        attacher.stop()


def reason(attacher: Attacher) -> str:
    """Return the reason that is reported of volume `data`."""
    found = (attacher.reported or {}).get("data")
    return found.reason if found is not None else ""


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachers, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(attachers, "GUEST_SECONDS", 0.05)


async def test_volumes_come_are_changed_and_go() -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one", cd="iso"))
        await tells(data="Ready", cd="Ready")
        attacher.reported = None
        attacher.want(a_goal(data="two", cd="iso"))
        await tells(data="Ready", cd="Ready")
        attacher.want(a_goal())
        await tells()
        assert guest.observed.drives == (Drive("ua-cd"),)
    assert [type(step) for step in guest.done] == [
        *(ChangeMedium, PlugDisk),
        *(UnplugDisk, PlugDisk),
        *(ChangeMedium, UnplugDisk),
    ]


async def test_given_other_settings_for_a_mounted_disk_then_it_comes_anew_once_it_may() -> None:
    """Removed while it is mounted, and then back with another serial: the last word counts."""
    disk = FilesystemDisk(unit=0, pci_controller=SCSI)
    guest = Stub(mounts=[Filesystem(name="x", mountpoint="/mnt", type="ext4", disk=(disk,))])
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        attacher.want(a_goal())
        await tells(data="Detaching InUseByGuest")
        attacher.want(of_data(serial="other"))
        await asyncio.sleep(0.1)  # a few rounds
        await tells(data="Detaching InUseByGuest")
        guest.mounts.clear()
        await tells(data="Ready")
    plugged = [step.disk.serial for step in guest.done if isinstance(step, PlugDisk)]
    assert plugged == ["data", "other"]


async def test_given_a_claim_that_is_only_read_from_now_on_then_its_disk_comes_anew() -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        attacher.reported = None
        attacher.want(of_data(read_only=True))
        await tells(data="Ready")
    plugged = [step.disk.readonly for step in guest.done if isinstance(step, PlugDisk)]
    assert plugged == [False, True]


async def test_given_the_same_settings_in_other_words_then_nothing_is_done() -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        done = list(guest.done)
        attacher.reported = None
        attacher.want(of_data(serial="data", errorPolicy="stop", bootOrder=2))
        await tells(data="Ready")
    assert guest.done == done


async def test_given_all_is_there_then_whoever_comes_next_does_nothing() -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one", cd="iso"))
        await tells(data="Ready", cd="Ready")
    done = list(guest.done)
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one", cd="iso"))
        await tells(data="Ready", cd="Ready")
    assert guest.done == done


async def test_one_bad_volume_stalls_no_other_and_is_tried_again() -> None:
    missing = VolumeProblem("FailedPvcNotFound", "PVC lost not found")
    claims = Claims({"lost": missing, "odd": OSError("no space left")})
    async with attaching(Stub(), claims) as (attacher, tells):
        attacher.want(a_goal(bad="lost", worse="odd", good="one"))
        await tells(bad="Pending FailedPvcNotFound", worse="Pending FailedMount", good="Ready")
        claims.problems.clear()
        await tells(bad="Ready", worse="Ready", good="Ready")


LOCKS = {
    "a writer": 'Failed to get "write" lock',
    "a reader": 'Failed to get shared "write" lock',
}


@pytest.mark.parametrize("words", LOCKS.values(), ids=LOCKS)
async def test_given_the_image_is_open_elsewhere_then_it_says_by_whom(words: str) -> None:
    locked = CommandFailed("GenericError", words)
    guest = Stub(fail=lambda step: locked if isinstance(step, PlugDisk | ChangeMedium) else None)
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one", cd="two"))
        await tells(data="Pending ClaimInUse", cd="Pending ClaimInUse")
        assert attacher.reported is not None
        for name, claim in (("data", "one"), ("cd", "two")):
            assert f"PVC {claim} is in use by VMI other" in attacher.reported[name].message
        guest.fail = lambda _: None
        await tells(data="Ready", cd="Ready")


async def test_given_nobody_can_be_asked_who_has_the_image_then_it_is_told_without_a_name() -> None:
    class Unknown(Claims):
        async def holders(self, namespace: str, claim: str, uid: str) -> list[str]:
            raise ApiError("the server is busy")

    locked = CommandFailed("GenericError", 'Failed to get "write" lock')
    guest = Stub(fail=lambda step: locked if isinstance(step, PlugDisk) else None)
    async with attaching(guest, Unknown()) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Pending ClaimInUse")
        assert attacher.reported is not None
        assert "PVC one is in use; " in attacher.reported["data"].message


async def test_given_one_step_breaks_the_round_then_no_other_goes_on_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "AGENT_SECONDS", 1000)
    asked, called_off = asyncio.Event(), asyncio.Event()

    class Slow(Stub):
        async def filesystems(self) -> list[Filesystem]:
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                called_off.set()
                raise
            return []

        async def do(self, step: Step) -> None:
            if isinstance(step, PlugDisk) and step.disk.id == "ua-new":
                await asked.wait()
                raise Disconnected("gone")
            await super().do(step)

    async with attaching(Slow()) as (attacher, tells), asyncio.timeout(30):
        attacher.want(a_goal(old="one"))
        await tells(old="Ready")
        attacher.want(a_goal(new="two"))
        await called_off.wait()


async def test_given_another_volume_of_the_guest_has_the_image_then_it_says_which() -> None:
    locked = CommandFailed("GenericError", 'Failed to get "write" lock')
    guest = Stub(fail=lambda s: locked if isinstance(s, PlugDisk) and s.disk.id == "ua-b" else None)
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(a="one", b="one"))
        await tells(a="Ready", b="Pending ClaimInUse")
        assert attacher.reported is not None
        assert "PVC one is in use by volume a of this VM" in attacher.reported["b"].message


async def test_given_qemu_refuses_then_that_one_waits() -> None:
    refused = CommandFailed("GenericError", "no")
    guest = Stub(
        fail=lambda s: refused if isinstance(s, PlugDisk) and s.disk.id == "ua-bad" else None
    )
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(bad="one", good="two"))
        await tells(bad="Pending CannotAttach", good="Ready")


class Told:
    """All that was ever told of the volumes, by phase and reason."""

    def __init__(self, attacher: Attacher, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reasons: set[str] = set()
        show = attacher._show

        def shown(told: Any, copies: Any) -> None:
            self.reasons |= {each.reason for each in told.values()}
            show(told, copies)

        monkeypatch.setattr(attacher, "_show", shown)


@pytest.mark.parametrize("words", LOCKS.values(), ids=LOCKS)
async def test_a_claim_passes_from_one_name_to_another_in_one_edit(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """And without a word: what stands in its way goes in the same edit."""
    monkeypatch.setattr(attachers, "RETRY_SECONDS", 1000)
    guest = Stub()

    def locked(step: Step) -> Exception | None:
        held = any(each.id == "ua-old" for each in guest.observed.drives)
        lost = isinstance(step, PlugDisk) and step.disk.id == "ua-new" and held
        return CommandFailed("GenericError", words) if lost else None

    guest.fail = locked
    async with attaching(guest) as (attacher, tells):
        told = Told(attacher, monkeypatch)
        attacher.want(a_goal(old="one"))
        await tells(old="Ready")
        attacher.want(a_goal(new="one"))
        await tells(new="Ready")
        assert told.reasons == {"VolumeReady"}


async def test_a_port_passes_from_one_disk_to_another_in_one_edit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attachers, "RETRY_SECONDS", 1000)
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        told = Told(attacher, monkeypatch)
        attacher.want(a_goal(bus="virtio", old="one"))
        await tells(old="Ready")
        attacher.want(a_goal(bus="virtio", new="two"))
        await tells(new="Ready")
        assert told.reasons == {"VolumeReady"}
        attacher.want(a_goal(bus="virtio", new="two", more="three"))
        await tells(new="Ready", more="Pending CannotAttach")


@pytest.mark.parametrize("forced", ["", "data"])
async def test_a_mounted_disk_waits_unless_it_is_forced(forced: str) -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        guest.mounts = [IN_USE]
        attacher.want(a_goal())
        await tells(data="Detaching InUseByGuest")
        assert attacher.reported is not None
        assert "mounted at /mnt" in attacher.reported["data"].message
        if forced:
            attacher.want(a_goal(forced))
        else:
            guest.mounts = []
        await tells()


@pytest.mark.parametrize("cure", ["the agent is back", "force"])
async def test_given_the_agent_goes_then_a_disk_it_called_mounted_waits(cure: str) -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        guest.mounts = [IN_USE]
        attacher.want(a_goal())
        await tells(data="Detaching InUseByGuest")
        guest.observed = replace(guest.observed, agent_open=False)
        await tells(data="Detaching GuestAgentNotAnswering")
        if cure == "force":
            attacher.want(a_goal("data"))
        else:
            guest.mounts, guest.observed = [], replace(guest.observed, agent_open=True)
        await tells()


async def test_what_the_agent_called_mounted_is_known_to_whoever_comes_next() -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        guest.mounts = [IN_USE]
        attacher.want(a_goal())
        await tells(data="Detaching InUseByGuest")
    guest.observed = replace(guest.observed, agent_open=False)
    told = attacher.reported or {}
    for _ in range(2):  # what is told while the agent is away counts as well
        async with attaching(guest) as (attacher, tells):
            status = volume_status.volume_statuses(a_vmi(), MACHINE, guest.observed, {}, told)
            attacher.want(goal(a_vmi(status)))
            await tells(data="Detaching GuestAgentNotAnswering")
        told = attacher.reported or {}
    assert not [step for step in guest.done if isinstance(step, UnplugDisk)]


async def test_given_a_disk_came_again_then_what_was_said_of_the_one_before_is_forgotten() -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        guest.mounts = [IN_USE]
        attacher.want(a_goal())
        await tells(data="Detaching InUseByGuest")
        attacher.want(a_goal("data"))
        await tells()
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        guest.observed = replace(guest.observed, agent_open=False)
        attacher.want(a_goal())
        await tells()


FROZEN = CommandFailed("CommandNotFound", "Command guest-get-fsinfo has been disabled")
SILENT: dict[str, tuple[str, bool, Exception | None]] = {
    "does not answer": ("running", True, AgentUnavailable("nobody")),
    "has not answered since we are here": ("running", False, AgentUnavailable("nobody")),
    "is in a guest that is paused": ("paused", True, None),
    "is in a guest that is paused since before we came": ("paused", False, None),
    "cannot read what is mounted": ("running", True, CommandFailed("GenericError", "no memory")),
    "may not tell while the guest is frozen": ("running", True, FROZEN),
}


@pytest.mark.parametrize(("state", "answered", "error"), SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("cure", ["the agent goes", "force", "it tells"])
async def test_given_an_agent_that_does_not_tell_what_is_mounted_then_a_disk_waits(
    state: str, answered: bool, error: Exception | None, cure: str
) -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        guest.answered, guest.silent = answered, error
        guest.observed = replace(guest.observed, run_state=state)
        attacher.want(a_goal())
        await tells(data="Detaching GuestAgentNotAnswering")
        match cure:
            case "the agent goes":
                guest.observed = replace(guest.observed, agent_open=False)
            case "force":
                attacher.want(a_goal("data"))
            case "it tells":
                guest.answered, guest.silent = True, None
                guest.observed = replace(guest.observed, run_state="running")
        await tells()


@pytest.mark.parametrize("locked", [True, False])
async def test_a_drive_goes_without_a_word_of_the_agent_unless_its_tray_is_locked(
    locked: bool,
) -> None:
    guest = Stub(silent=AgentUnavailable("nobody"))
    drive = Drive("ua-stick", removable=True, locked=locked, lun=7)
    devices = {**guest.observed.devices, drive.id: "scsi-cd"}
    guest.observed = replace(
        guest.observed, drives=(*guest.observed.drives, drive), devices=devices
    )
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready", **({"stick": "Detaching InUseByGuest"} if locked else {}))
    assert (UnplugDisk("ua-stick", None) in guest.done) is not locked


async def test_an_agent_that_never_learned_to_tell_what_is_mounted_is_like_none() -> None:
    unknown = CommandFailed("CommandNotFound", "The command guest-get-fsinfo has not been found")
    guest = Stub(silent=unknown, commands=("guest-ping",))
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        attacher.want(a_goal())
        await tells()


async def test_given_the_agent_has_just_come_then_volumes_do_not_wait_for_its_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attachers, "RETRY_SECONDS", 1000)
    async with attaching(Stub(answered=False)) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")


async def test_a_locked_tray_is_asked_for_again_and_opened_by_force() -> None:
    kept = UnplugRefused("locked")
    guest = Stub(
        fail=lambda s: kept if isinstance(s, ChangeMedium) and s.drive.image is None and not s.force
        else None
    )  # fmt: skip
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(cd="iso"))
        await tells(cd="Ready")
        attacher.want(a_goal())
        await tells(cd="Detaching InUseByGuest")
        attacher.want(a_goal("cd"))
        await tells()


async def test_given_the_guest_lets_go_late_then_it_is_seen() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        guest.observed = replace(guest.observed, devices={"ua-data": "virtio-blk-pci"})
        doing, guest.do = guest.do, lambda _: never()  # type: ignore[assignment,method-assign]
        attacher.want(a_goal())
        await tells(data="Detaching WaitingForGuest")
        guest.do = doing  # type: ignore[method-assign]
        await tells()


async def test_given_qemu_is_away_for_a_moment_then_it_goes_on() -> None:
    away = [Disconnected("gone"), Disconnected("gone")]
    guest = Stub(fail=lambda _: away.pop() if away else None)
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")


async def test_a_claim_that_changes_is_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachers, "RETRY_SECONDS", 1000)
    claims = Claims({"one": VolumeProblem("PVCNotReady", "PVC is in phase ClaimPending")})
    async with attaching(Stub(), claims) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Pending PVCNotReady")
        claims.problems.clear()
        attacher.nudge("another")
        attacher.nudge("one")
        await tells(data="Ready")


# ---------------------------------------------------------------- growth


def with_fixed(goal: Any) -> Any:
    """Return a goal of a guest that was started with a disk of the claim `boot`."""
    volume = {"name": "root", "persistentVolumeClaim": {"claimName": "boot"}}
    return replace(goal, fixed=(Item({"name": "root", "disk": {"bus": "virtio"}}, volume),))


def booted() -> Stub:
    """Return a guest that was started so."""
    guest = Stub()
    disk = Disk(id="ua-root", image=Image("/boot"))
    drive = Drive("ua-root", disk.node, size=MIB)
    guest.observed = replace(guest.observed, drives=(*guest.observed.drives, drive))
    return guest


def grown(guest: Stub) -> dict[str, int]:
    return {step.id: step.size for step in guest.done if isinstance(step, GrowDisk)}


async def test_given_a_claim_grows_then_its_disk_does_whenever_it_came() -> None:
    guest, claims = booted(), Claims()
    asked = with_fixed(a_goal(data="one", cd="iso"))
    asked = replace(asked, kept=frozenset({"ua-root"}))
    async with attaching(guest, claims) as (attacher, tells):
        attacher.want(asked)
        await tells(data="Ready", cd="Ready")
        assert grown(guest) == {}
        claims.sizes |= {"one": "4Mi", "boot": "2Mi", "iso": "8Mi"}
        for claim in ("one", "boot", "iso"):
            attacher.nudge(claim)
        await until(lambda: grown(guest) == {"ua-data": 4 * MIB, "ua-root": 2 * MIB})
    async with attaching(guest, claims) as (attacher, tells):
        attacher.want(asked)
        await tells(data="Ready", cd="Ready")
    assert len(grown(guest)) == 2, "whoever comes next finds nothing to do"


async def test_given_a_killed_agent_then_the_next_one_sees_what_has_not_grown() -> None:
    guest, claims = booted(), Claims(sizes={"boot": "2Mi"})
    async with attaching(guest, claims) as (attacher, _):
        attacher.want(replace(with_fixed(a_goal()), kept=frozenset({"ua-root"})))
        await until(lambda: grown(guest) == {"ua-root": 2 * MIB})


async def test_given_qemu_does_not_grow_it_then_it_is_told_and_tried_again() -> None:
    refused = CommandFailed("GenericError", "no")
    guest = Stub(fail=lambda s: refused if isinstance(s, GrowDisk) else None)
    claims = Claims(sizes={"one": "2Mi"})
    async with attaching(guest, claims) as (attacher, _):
        attacher.want(a_goal(data="one"))
        await until(lambda: reason(attacher) == "CannotGrow")
        assert attacher.reported is not None
        assert attacher.reported["data"].phase == "Ready"
        guest.fail = lambda _: None
        await until(lambda: grown(guest) == {"ua-data": 2 * MIB})
        await until(lambda: reason(attacher) == "VolumeReady")


async def test_given_the_disk_has_another_image_then_it_does_not_grow_to_the_size_of_that() -> None:
    guest, claims = Stub(), Claims(sizes={"two": "9Mi"})
    async with attaching(guest, claims) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        guest.mounts = [IN_USE]
        attacher.want(a_goal(data="two"))
        await tells(data="Detaching InUseByGuest")
        assert grown(guest) == {}


async def test_given_a_claim_was_torn_away_and_made_anew_then_the_guest_keeps_what_it_has() -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
    drives = guest.observed.drives
    async with attaching(guest, Claims(folder="/new/")) as (attacher, tells):
        attacher.want(replace(a_goal(data="one"), attached={"data": "one"}))
        await until(lambda: reason(attacher) == "ClaimReplaced")
        assert guest.observed.drives == drives
        attacher.want(a_goal())
        await tells()
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
    assert guest.observed.drives != drives


@pytest.mark.parametrize("serial", ["data", "another"])
async def test_given_we_come_anew_then_the_claim_is_known_whatever_the_settings_are(
    monkeypatch: pytest.MonkeyPatch, serial: str
) -> None:
    guest = Stub()
    async with attaching(guest) as (attacher, tells):
        attacher.want(of_data(serial="data"))
        await tells(data="Ready")
    drives = guest.observed.drives
    async with attaching(guest) as (attacher, tells):
        told = Told(attacher, monkeypatch)
        attacher.want(replace(of_data(serial=serial), attached={"data": "one"}))
        await tells(data="Ready")
        assert told.reasons == {"VolumeReady"}
    assert (guest.observed.drives == drives) is (serial == "data")


async def test_what_qemu_has_opened_is_let_go_of() -> None:
    claims = Claims()
    async with attaching(Stub(), claims) as (attacher, tells):
        attacher.want(a_goal(data="one"))
        await tells(data="Ready")
        assert claims.released == {"/one"}
