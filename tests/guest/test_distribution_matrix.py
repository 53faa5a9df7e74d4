"""Every live capability in each distribution, and random edits: `make test-soak` runs all of it.

What the guest has is asked on its serial console, never by our guest agent code.
"""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.kube.objects.quantity import parse

from .debian_guest import AUTO_ONLINE, MIB, DebianGuest, Inside, a_debian, booted, missing
from .guest_host import GuestHost, until
from .hot_volumes import a_claim, a_disc, on_claim
from .moving_guest import two_nodes

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
]

DISTRIBUTIONS = ("12-cloud", "12-generic", "13-cloud", "13-generic")
UDEV_RULE = 'SUBSYSTEM=="cpu", ACTION=="add", TEST=="online", ATTR{online}=="0", ATTR{online}="1"'
#: What the guest does by itself: as cloud-init sets it up.
USER_DATA = {
    "auto-online off": f"""#cloud-config
bootcmd:
  - echo offline > {AUTO_ONLINE}
runcmd:
  - echo cloud-init was here > /root/seeded
""",
    "auto-online on": f"""#cloud-config
bootcmd:
  - echo online_movable > {AUTO_ONLINE}
write_files:
  - path: /etc/udev/rules.d/80-hotplug-cpu.rules
    content: |
      {UDEV_RULE}
runcmd:
  - udevadm control --reload
  - echo cloud-init was here > /root/seeded
""",
}
AGENTS = ("stopped", "hanging", "without commands")
CHANGE_SECONDS = 120.0


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with two_nodes() as host:
        yield host


@pytest.fixture(scope="module")
def discs(host: GuestHost, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Claims that hold a disc."""
    folder: Path = tmp_path_factory.mktemp("discs")
    for label in ("red", "blue"):
        filling = ("--pvc", label, "--data-dir", str(host.server.data))
        host.run("livevirt", "volume", "import", str(a_disc(folder, label)), *filling)


def built(distribution: str) -> str:
    """Return the distribution, or skip the test."""
    if missing(distribution):
        pytest.skip(f"image {distribution} is not built: make distributions")
    return distribution


# ---------------------------------------------------------------- every capability


@pytest.mark.soak
@pytest.mark.parametrize("setup", USER_DATA)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_every_live_capability(host: GuestHost, discs: None, distribution: str, setup: str) -> None:
    manifest = a_debian("matrix", built(distribution), USER_DATA[setup])
    devices = manifest["spec"]["template"]["spec"]["domain"]["devices"]
    devices["disks"].append({"name": "cd", "cdrom": {"bus": "scsi"}})
    with booted(host, manifest) as guest:
        seeded = "test -e /root/seeded && echo yes || echo no"
        until("cloud-init", lambda: guest.console.run(seeded) == "yes")
        sizes(guest)
        if setup == "auto-online on":
            sizes_without_agent(guest)
        for bus in ("virtio", "scsi"):
            disk(guest, bus)
        disc(guest)
        migration(guest)
        sizes(guest)
        reboots(guest)


def sizes(guest: DebianGuest) -> None:
    """Grow and shrink, at once and one by one."""
    for sockets, memory in ((2, "1536Mi"), (3, "1536Mi"), (3, "2Gi"), (1, "1Gi")):
        guest.becomes(sockets, memory)


def sizes_without_agent(guest: DebianGuest) -> None:
    """Expect the guest to follow by itself, and the status not to claim that it knows."""
    guest.stop_agent()
    guest.ask(2, "1536Mi")
    guest.wait()
    until("it follows", lambda: guest.inside() == Inside(2, 1536 * MIB), CHANGE_SECONDS)
    assert guest.status["memory"]["confirmed"] is False
    guest.start_agent()
    guest.becomes(1, "1Gi")


def disk(guest: DebianGuest, bus: str) -> None:
    """Attach a disk, use it, grow it and detach it."""
    name = f"data-{bus}"
    guest.host.apply(a_claim(name, "64Mi"))
    kept = copy.deepcopy(guest.manifest)
    spec = guest.manifest["spec"]["template"]["spec"]
    spec["volumes"].append(on_claim(name))
    spec["domain"]["devices"]["disks"].append({"name": name, "disk": {"bus": bus}})
    guest.host.apply(guest.manifest)
    find = f'lsblk -dno NAME,SERIAL | awk \'$2 == "{name}" {{print "/dev/" $1}}\''
    until(f"{name} in the guest", lambda: guest.console.run(find), CHANGE_SECONDS)
    device = guest.console.run(find)
    text = guest.console.run(
        f"mkfs.ext4 -q {device} && mount {device} /mnt && echo kept > /mnt/f && sync && cat /mnt/f"
    )
    assert text == "kept"
    guest.host.grow(name, "128Mi")
    size = f"blockdev --getsize64 {device}"
    until(f"{name} of 128Mi", lambda: guest.console.run(size) == str(128 * MIB), CHANGE_SECONDS)
    guest.console.run(f"resize2fs {device} && umount /mnt")
    guest.manifest = kept
    guest.host.apply(kept)
    until(f"{name} to be gone", lambda: not guest.console.run(find), CHANGE_SECONDS)


def disc(guest: DebianGuest) -> None:
    """Inject, swap and eject a disc, one of them mounted until it is asked for."""
    spec = guest.manifest["spec"]["template"]["spec"]
    fixed = [each for each in spec["volumes"] if each["name"] != "cd"]
    read = "mount -r /dev/sr0 /mnt 2>/dev/null; cat /mnt/text 2>/dev/null; umount /mnt; true"
    for label in ("red", "blue", ""):
        spec["volumes"] = [*fixed, *([on_claim("cd", label)] if label else [])]
        guest.host.apply(guest.manifest)
        expected = f"this is {label}" if label else ""
        found = lambda: guest.console.run(read).splitlines()[:1]  # noqa: E731
        wanted = [expected] if expected else []
        until(f"disc {label}", lambda: found() == wanted, CHANGE_SECONDS)  # noqa: B023


def migration(guest: DebianGuest) -> None:
    """Move it to the other node; it runs on."""
    before, boot = guest.status["nodeName"], guest.boot_id()
    guest.console.close()
    guest.host.run("virtctl", "migrate", guest.name)
    moved = lambda: guest.status["nodeName"] != before and len(guest.host.qemus(guest.name)) == 1  # noqa: E731
    until("another node", moved, CHANGE_SECONDS)
    guest.connect()
    assert guest.boot_id() == boot


def reboots(guest: DebianGuest) -> None:
    """Expect a plugged size to be there after a soft reboot, and after a restart."""
    guest.becomes(2, "1536Mi")
    before = guest.boot_id()
    guest.host.run("virtctl", "soft-reboot", guest.name)
    until("another boot", lambda: guest.boot_again() != before)
    guest.settles(2, "1536Mi")
    uid = guest.host.uid(guest.name)
    guest.console.close()
    guest.host.run("virtctl", "restart", guest.name)
    until("another instance", lambda: guest.host.uid(guest.name) not in ("", uid))
    until("QEMU", lambda: guest.host.qemus(guest.name))
    guest.connect()
    assert guest.console.run("nproc") == "2"
    guest.agent_is(True)
    assert guest.reported == Inside(2, 1536 * MIB)


@pytest.mark.soak
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_an_instance_type_is_switched(host: GuestHost, distribution: str) -> None:
    manifest = a_debian("switched", built(distribution))
    domain = manifest["spec"]["template"]["spec"]["domain"]
    del domain["cpu"], domain["memory"]
    manifest["spec"]["instancetype"] = {"name": "u1.micro"}
    with booted(host, manifest) as guest:
        before = guest.inside()
        host.run("virtctl", "vm", "update-instance-type", guest.name, "u1.small", "--wait")
        assert guest.inside() == Inside(before.cpus, parse("2Gi").bytes)


@pytest.mark.soak
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_size_that_no_agent_confirms(host: GuestHost, distribution: str, agent: str) -> None:
    with booted(host, a_debian("unsure", built(distribution))) as guest:
        match agent:
            case "stopped":
                guest.stop_agent()
            case "hanging":
                guest.console.run("pkill -STOP qemu-ga")
            case _:
                guest.start_agent("guest-get-memory-blocks", "guest-get-vcpus")
        guest.ask(2, "1536Mi")
        guest.wait()
        status = guest.status
        assert status["memory"]["confirmed"] is False
        assert status["currentCPUTopology"]["confirmed"] is False
        assert guest.reason("SizeConfirmed")


# ---------------------------------------------------------------- random edits


@pytest.mark.parametrize(
    ("distribution", "edits"),
    [
        pytest.param("12-cloud", 4, marks=pytest.mark.long),
        pytest.param("12-cloud", 60, marks=pytest.mark.soak),
        pytest.param("13-cloud", 60, marks=pytest.mark.soak),
    ],
)
def test_confirmed_values_never_exceed_what_the_guest_reports(
    host: GuestHost, distribution: str, edits: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with booted(host, a_debian("random", built(distribution))) as guest:
        for number in range(edits):
            disturb(guest, chance)
            before = guest.reported
            sockets, memory = chance.randint(1, 4), 1024 + 64 * chance.randint(0, 16)
            if not guest.host.holds("vmi", guest.name, "AgentConnected"):
                sockets = max(sockets, before.cpus)  # emulated CPUs go with the agent's help only
            print(f"edit {number}: {sockets} sockets, {memory}Mi after {before}")
            guest.ask(sockets, f"{memory}Mi")
            follow(guest, Inside(sockets, memory * MIB))


def disturb(guest: DebianGuest, chance: random.Random) -> None:
    """Change what helps the guest to follow, now and then."""
    match chance.randrange(6):
        case 0:
            guest.stop_agent()
        case 1:
            guest.start_agent()
        case 2:
            guest.start_agent(chance.choice(("guest-file-open", "guest-set-memory-blocks")))
        case 3:
            guest.console.run(f"echo {chance.choice(('offline', 'online'))} > {AUTO_ONLINE}")


def follow(guest: DebianGuest, wanted: Inside) -> None:
    """Compare status and guest until the change is done or the guest does not accept it."""

    def over() -> bool:
        changing, given = guest.changes(), guest.given() == wanted
        compare(guest, wanted)
        stuck = all(guest.reason(type_) == "GuestNotAccepting" for type_ in changing)
        return (given and stuck) or guest.host.holds("vm", guest.name, "RestartRequired")

    until(f"{wanted}", over, CHANGE_SECONDS)


def compare(guest: DebianGuest, wanted: Inside) -> None:
    """Expect no more in the status than in the guest, which is asked after it.

    More than is wanted is left out: while the guest shrinks it is ahead of its status.
    """
    status, inside = guest.status, guest.inside()
    topology, memory = status["currentCPUTopology"], status["memory"]
    if topology["confirmed"] and topology["sockets"] <= wanted.cpus:
        assert topology["sockets"] <= inside.cpus, status
    if memory["confirmed"] and (current := parse(memory["guestCurrent"]).bytes) <= wanted.memory:
        assert current <= inside.memory, status
