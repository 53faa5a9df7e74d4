"""What a guest has synced stays, while its disks come and go and the control plane is killed.

A script in the guest writes to every disk it finds, one block after another, and notes each before
it is written and after it is synced. Every round changes the disks by an edit of the VM and kills
the server at a moment the dice choose. In the end each disk is read twice, by the guest and, once
it is detached, from its file on the host: a place holds what was synced there last, or what was
begun there later; a place that was never written holds nothing.
"""

from __future__ import annotations

import asyncio
import collections
import copy
import fcntl
import hashlib
import random
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from livevirt.node import process
from livevirt.qemu.session import Session

from ..guest.guest_host import IMAGE, GuestHost, image_missing, running_host, until
from ..guest.hot_volumes import SECONDS, HotGuest, on_claim
from ..guest.many_disks import import_
from .test_control_plane_kill import nothing_is_left_over, pod_directories

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

NAME = "writing"
KEPT = "kept"  # the claim of the disk that is there from the start
CLAIMS = ("alpha", "beta", "gamma", "delta")  # of those that come and go
#: The disks of the manifest. One name has many claims over time, one claim many names.
DISKS = {"first": "scsi", "second": "scsi", "third": "virtio"}
LATEST = 1.5  # seconds after an edit
BLOCK = 4096  # so small that it is written whole or not at all
BLOCKS = 512
LABEL = "holds-"  # how a disk begins that is to be written, before the name of its claim

# The way in is opened for reading: a disk that has just gone would else be made anew, as a file.
# What a disk says it is decides, so a letter that was given away meanwhile misleads nobody.
WRITER = f"""
cd /tmp
write() {{
    read -r -n 20 label <&3 2> /dev/null
    case $label in {LABEL}*) ;; *) return ;; esac
    number=$((number + 1))
    dd if=/dev/urandom of=block bs={BLOCK} count=1 2> /dev/null
    block="${{label#{LABEL}}} $((number % ({BLOCKS} - 1) + 1)) $(sha256sum < block)"
    echo "begun $block" >> journal
    dd if=block of=/proc/self/fd/3 bs={BLOCK} seek=$((number % ({BLOCKS} - 1) + 1)) \\
        oflag=direct conv=notrunc,fsync 2> /dev/null && echo "synced $block" >> journal
}}
number=0
while [ ! -e stop ]; do
    for disk in /sys/block/[sv]d*; do
        write 3< "/dev/${{disk##*/}}" 2> /dev/null
    done
done
touch stopped
"""
READER = f"""
for disk in /sys/block/[sv]d*; do
    disk=/dev/${{disk##*/}}
    read -r -n 20 label < "$disk"
    case $label in {LABEL}*) ;; *) continue ;; esac
    echo "${{label#{LABEL}}} $(dd if="$disk" bs=1M iflag=direct 2> /dev/null | sha256sum)"
done
"""


@dataclass
class Journal:
    """What was written to the disk of one claim: places, and digests in the order written."""

    begun: dict[int, list[str]] = field(default_factory=lambda: collections.defaultdict(list))
    synced: dict[int, str] = field(default_factory=dict)

    def wrong(self, content: bytes) -> list[str]:
        """Return what is lost, corrupt or should not be there."""
        found = []
        for place in range(1, BLOCKS):
            block = content[place * BLOCK : (place + 1) * BLOCK]
            digest, begun = hashlib.sha256(block).hexdigest(), self.begun.get(place, [])
            last = self.synced.get(place)
            allowed = begun[begun.index(last) :] if last else begun
            if digest not in allowed and (last or any(block)):
                was = f"was number {begun.index(digest)}" if digest in begun else "is unknown"
                found.append(f"block {place}: {was}, of {len(begun)}; synced: {last}")
        return found


def journals(text: str) -> Mapping[str, Journal]:
    """Return what the writer noted, by claim."""
    found: dict[str, Journal] = collections.defaultdict(Journal)
    for line in text.splitlines():
        word, claim, place, digest, _ = line.split()
        if word == "begun":
            found[claim].begun[int(place)].append(digest)
        else:
            found[claim].synced[int(place)] = digest
    return found


class WritingGuest(HotGuest):
    """A guest that writes to all of its disks all the time."""

    def __init__(self, host: GuestHost) -> None:
        super().__init__(host, NAME)
        for claim in (KEPT, *CLAIMS):  # each says what it is
            label = f"{LABEL}{claim}\n".encode()
            import_(host, claim, label.ljust(BLOCKS * BLOCK, b"\0"), f"{claim}.raw")
        self.add(
            {"name": KEPT, "persistentVolumeClaim": {"claimName": KEPT}}, disk={"bus": "virtio"}
        )
        self.start = copy.deepcopy(self.manifest)
        self.apply()
        host.answers(NAME)
        self.pods = pod_directories(host)
        self.boot = self._boot()
        self.nodes = self._killed_and_asked()
        host.server.start()
        host.found(NAME)
        self.shell(
            f"cat > /tmp/writer <<'END'\n{WRITER}END\n"
            "setsid /lib/guest/busybox sh /tmp/writer > /dev/null 2>&1 < /dev/null &"
        )

    def _boot(self) -> tuple[str, int, object]:
        pid = self.host.qemu(NAME)
        return self.host.boot_id(NAME), pid, process.seen(pid)

    # ------------------------------------------------------------ a round

    def wanted(self) -> dict[str, str]:
        return {name: claim for name, claim in super().wanted().items() if name != KEPT}

    def has(self, claims: Mapping[str, str]) -> None:
        """Write these disks, each with its claim, into the manifest, and no others."""
        self.manifest = copy.deepcopy(self.start)
        for name, claim in claims.items():
            self.add(on_claim(name, claim), disk={"bus": DISKS[name]})

    def dies_and_converges(self, moment: float) -> None:
        """Send the edit, kill the server after so many seconds, and expect the next to finish."""
        self.patch()
        time.sleep(moment)  # the moment is what is tested
        self.host.server.kill()
        assert self.host.qemu(NAME) == self.boot[1]
        self.host.server.start()
        self.settles()
        self.host.found(NAME)
        self.is_written()

    def is_written(self) -> None:
        """Return once the guest has synced something new to every disk it should have."""
        before = int(self.shell("cat /tmp/journal 2>/dev/null | wc -l"))
        wanted = {KEPT, *self.wanted().values()}

        def synced() -> set[str]:
            new = self.shell(f"tail -n +{before + 1} /tmp/journal").splitlines()
            return {line.split()[1] for line in new if line.startswith("synced")}

        until(f"blocks on {sorted(wanted)}", lambda: synced() >= wanted, SECONDS)

    # ------------------------------------------------------------ the end

    def stops_writing(self) -> Mapping[str, Journal]:
        self.shell("touch /tmp/stop; until [ -e /tmp/stopped ]; do usleep 50000; done")
        return journals(self.shell("cat /tmp/journal"))

    def read_inside(self, claims: Collection[str]) -> dict[str, str]:
        """Return the digests of the disks as the guest reads them, by claim."""
        self.has(dict(zip(DISKS, claims, strict=False)))
        self.patch()
        self.settles()
        found: dict[str, str] = {}

        def read() -> bool:
            lines = self.shell(READER).splitlines()
            found.update((line.split()[0], line.split()[1]) for line in lines)
            return found.keys() >= {KEPT, *claims}

        until(f"the guest to read {claims}", read, SECONDS)
        return found

    def content(self, claim: str) -> bytes:
        """Return what the file of a claim that no guest has holds; nobody has it locked."""
        with self.host.disk_of(claim).open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if QEMU has a part of it
            return file.read()

    def _killed_and_asked(self) -> tuple[list[str], int]:
        """Kill the server; ask QEMU, which answers one at a time, what block nodes it has.

        Those it names itself it numbers anew each time, so they are counted. Files passed to it
        for hot-plugged disks are counted too.
        """
        self.host.server.kill()
        (path,) = self.host.server.data.glob("run/*/qmp.sock")

        async def asked() -> tuple[list[str], int]:
            async with asyncio.timeout(30), await Session.connect(str(path)) as qmp:
                nodes = await qmp.execute("query-named-block-nodes")
                names = [node["node-name"] for node in nodes]
                given = [name for name in names if not name.startswith("#")]
                return sorted(given), len(names) + len(await qmp.execute("query-fdsets"))

        return asyncio.run(asked())

    def nothing_leaked(self) -> None:
        """Expect the guest to be the one that booted, without a trace of the disks it had."""
        assert self._boot() == self.boot
        assert self._killed_and_asked() == self.nodes
        self.host.server.start()
        nothing_is_left_over(self.host, self.pods)


@pytest.fixture
def guest() -> Iterator[WritingGuest]:
    with running_host() as host:
        yield WritingGuest(host)


@pytest.mark.parametrize(
    "kills", [pytest.param(2, marks=pytest.mark.slow), pytest.param(10, marks=pytest.mark.soak)]
)
def test_given_disks_come_and_go_and_kills_then_no_synced_block_is_lost_or_corrupt(
    guest: WritingGuest, kills: int
) -> None:
    dice = random.Random(kills)
    for _ in range(kills):
        names = dice.sample(list(DISKS), dice.randint(2, len(DISKS)))
        guest.has(dict(zip(names, dice.sample(CLAIMS, len(names)), strict=False)))
        guest.dies_and_converges(dice.uniform(0, LATEST))
    written = guest.stops_writing()
    assert KEPT in written
    assert len(written) > 2
    half = len(CLAIMS) // 2
    inside = guest.read_inside(CLAIMS[:half]) | guest.read_inside(CLAIMS[half:])
    guest.has({})
    guest.patch()
    guest.settles()
    guest.nothing_leaked()
    contents = {claim: guest.content(claim) for claim in CLAIMS}
    guest.host.delete(NAME)
    contents[KEPT] = guest.content(KEPT)
    assert {claim: hashlib.sha256(each).hexdigest() for claim, each in contents.items()} == inside
    wrong = {claim: written[claim].wrong(each) for claim, each in contents.items()}
    assert not any(wrong.values()), wrong
    print({claim: len(each.synced) for claim, each in written.items()}, "places synced")
