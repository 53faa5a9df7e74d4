"""CPU and memory of running guests changed by an edit of their VM, without restart or migration.

Most of it happens to one guest, which is back at the size it booted with before each test.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator

import pytest

from livevirt.kube.objects.quantity import parse

from .guest_host import IMAGE, GuestHost, Object, a_bare_vm, image_missing, running_host, until
from .live_guest import CPU, MEMORY, MIB, Editor, LiveGuest, a_live_vm

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

SMALL, LARGE = (1, "512Mi"), (3, "1Gi")
#: What a pod needs more for LARGE than for SMALL: the guest's own and, with it, QEMU's.
MORE_CPU, MORE_MEMORY = 200, (512 + 1 + 2 * 8) * MIB
LONGEST_GAP = 1.5  # seconds; a guest that is stopped to be changed stands still for longer
STORM_SECONDS, EVERY = 10.0, 0.05
CALM_SECONDS = 3.0  # after the last edit; a second is usual
ALONE_SECONDS = 1.0  # for an edit and one back, on a machine where nothing else runs
ACCEPT_SECONDS = 20.0  # after which a guest that does nothing is said not to accept


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with running_host() as host:
        yield host


@pytest.fixture(scope="module")
def booted(host: GuestHost) -> LiveGuest:
    guest = LiveGuest(host, a_live_vm("live"))
    host.apply(guest.manifest)
    guest.begin()
    return guest


@pytest.fixture
def guest(booted: LiveGuest) -> LiveGuest:
    """The guest at the size it booted with."""
    if booted.asked != SMALL:
        booted.ask(*SMALL)
    booted.settles()
    return booted


@pytest.fixture
def editor(guest: LiveGuest) -> Iterator[Editor]:
    editor = Editor(guest)
    yield editor
    editor.close()


# ------------------------------------------------------------ growing and shrinking

SIZES = {
    "sockets": [(3, "512Mi"), (2, "512Mi")],
    "memory": [(1, "1Gi"), (1, "768Mi")],
    "both at once, twice in a row": [LARGE, (2, "768Mi"), LARGE, SMALL],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_the_running_guest_follows_its_manifest(
    guest: LiveGuest, sizes: list[tuple[int, str]]
) -> None:
    for size in sizes:
        guest.becomes(*size)


@pytest.mark.long
def test_given_the_guest_is_busy_then_it_goes_on_all_the_time(guest: LiveGuest) -> None:
    with guest.counting() as counter:
        counts = [counter.now()[0]]
        for size in (LARGE, (2, "768Mi"), SMALL):
            guest.becomes(*size)
            counts.append(counter.now()[0])
        _, gap = counter.now()
    print(f"longest gap {gap:.2f} s")
    assert counts == sorted(set(counts))
    assert gap < LONGEST_GAP


def test_events_of_the_vm_tell_the_story(guest: LiveGuest) -> None:
    guest.becomes(*LARGE)
    field = "spec.template.spec.domain"
    guest.describes(
        f'The running guest follows: {field}.cpu.sockets 1 -> 3, {field}.memory.guest "512Mi"'
        ' -> "1Gi"',
        "VCPUsChanged",
        "The guest has 3 CPU sockets",
        "MemoryChanged",
        "The guest has 1Gi of memory",
    )


# ------------------------------------------------------------ changing one's mind


def test_virtctl_shows_a_change_to_its_end(guest: LiveGuest, editor: Editor) -> None:
    editor.ask(*LARGE)
    done = guest.host.attempt("virtctl", "vm", "wait", guest.name)
    applied = f"VM {guest.name}: all changes are applied in the guest\n"
    assert (done.returncode, done.stdout) == (0, applied)
    assert done.stderr.startswith(f"changing {guest.name}: ")
    guest.holds(*LARGE)


def test_given_a_revert_during_the_change_then_it_is_as_if_nothing_had_been(
    guest: LiveGuest, editor: Editor
) -> None:
    editor.ask(*LARGE)
    until("it begins", lambda: set(guest.reasons("vm")) == {CPU, MEMORY})
    editor.ask(*SMALL)
    guest.has_what_it_asked_for()


# ------------------------------------------------------------ the control plane dies


def test_given_the_control_plane_is_killed_meanwhile_then_the_change_and_the_next_are_done(
    guest: LiveGuest, editor: Editor
) -> None:
    editor.ask(*LARGE)
    until("it begins", lambda: guest.reasons("vm"))
    guest.host.server.kill()
    guest.host.server.start()
    guest.has_what_it_asked_for()
    guest.becomes(2, "768Mi")


# ------------------------------------------------------------ no room


@contextlib.contextmanager
def existing(host: GuestHost, kind: str, manifest: Object) -> Iterator[None]:
    """Let an object exist for as long as the block lasts."""
    host.apply(manifest)
    try:
        yield
    finally:
        host.server.kubectl("delete", kind, manifest["metadata"]["name"])


def a_quota(**hard: str) -> Object:
    """Return a quota; `_` in a name stands for its dot."""
    listed = {name.replace("_", "."): amount for name, amount in hard.items()}
    return {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight"},
        "spec": {"hard": listed},
    }  # fmt: skip


def used(host: GuestHost) -> tuple[int, int]:
    """Return how many thousandths of a CPU and bytes of memory the pods ask for."""
    cpu = memory = 0
    for pod in host.get("pod")["items"]:
        for each in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            cpu += parse(each["resources"]["requests"]["cpu"]).milli()
            memory += parse(each["resources"]["requests"]["memory"]).bytes
    return cpu, memory


def test_given_a_quota_lacks_a_little_then_the_edit_waits_and_goes_on_when_there_is_just_enough(
    guest: LiveGuest,
) -> None:
    cpu, memory = used(guest.host)
    cpu, memory = cpu + MORE_CPU, memory + MORE_MEMORY
    short = a_quota(requests_cpu=f"{cpu - 1}m", requests_memory=str(memory - 1))
    with existing(guest.host, "quota", short):
        guest.ask(*LARGE)
        guest.waits("OverQuota")
        lacking = "ResourceQuota tight is missing 1m of requests.cpu, 1 of requests.memory"
        for kind, type_ in (("vmi", CPU), ("vmi", MEMORY), ("vm", CPU), ("vm", MEMORY)):
            assert lacking in guest.message(type_, kind)
        guest.holds(*SMALL)
        guest.nobody_changed_the_manifest()
        guest.host.apply(a_quota(requests_cpu=f"{cpu}m", requests_memory=str(memory)))
        guest.has_what_it_asked_for()
        assert used(guest.host) == (cpu, memory)
    guest.describes("OverQuota", lacking, "VCPUsChanged", "MemoryChanged")


@pytest.mark.long
def test_given_no_quota_for_it_when_the_edit_is_taken_back_then_nothing_waits_any_more(
    guest: LiveGuest,
) -> None:
    cpu, _ = used(guest.host)
    with existing(guest.host, "quota", a_quota(requests_cpu=f"{cpu}m")):
        guest.ask(*LARGE)
        guest.waits("OverQuota")
        guest.becomes(*SMALL)


@pytest.mark.long
def test_given_the_node_is_full_then_the_edit_waits_and_goes_on_when_another_vm_stops(
    guest: LiveGuest,
) -> None:
    host = guest.host
    (node,) = host.read("api/v1/nodes")["items"]
    left = parse(node["status"]["allocatable"]["cpu"]).milli() - used(host)[0]
    filler = a_bare_vm("filler")
    # With the thousandth that its console takes it leaves one less than is needed.
    resources = {"requests": {"cpu": f"{left - MORE_CPU}m"}}
    filler["spec"]["template"]["spec"]["domain"]["resources"] = resources
    with existing(host, "vm", filler):
        until("the node is full", lambda: host.phase("filler") == "Running")
        guest.ask(*LARGE)
        guest.waits("Deferred")
        assert "Node didn't have enough resource: cpu" in guest.message(CPU)
        pod = {each["type"]: each for each in guest.pod["status"]["conditions"]}
        assert pod["PodResizePending"]["reason"] == "Deferred"
        host.run("virtctl", "stop", "filler")
        guest.has_what_it_asked_for()
    guest.describes("Deferred", "Node didn't have enough resource: cpu", "VCPUsChanged")


# ------------------------------------------------------------ guests that do not follow

NOT_BALLOONED = {"confirmed": True, "guestBallooned": "0"}
_DRIVER = "/sys/bus/virtio/drivers/virtio_mem"


@pytest.mark.long
def test_given_the_guest_does_not_accept_then_cause_and_cure_are_told_and_it_may_follow_later(
    guest: LiveGuest,
) -> None:
    host, name = guest.host, guest.name
    device = host.shell(name, f"cd {_DRIVER}; echo virtio*")
    # Without its driver no memory is taken, and where nothing can write no CPU comes online.
    host.shell(name, f"echo {device} > {_DRIVER}/unbind; mount -o remount,ro /sys")
    try:
        guest.ask(*LARGE)
        guest.waits("GuestNotAccepting", seconds=ACCEPT_SECONDS + 15)
        cpu, memory = guest.message(CPU), guest.message(MEMORY)
        assert "the guest uses 1 of 3 sockets" in cpu
        assert "Read-only file system" in cpu
        assert "echo 1 > /sys/devices/system/cpu/cpuN/online" in cpu
        assert "the guest has taken 512Mi of 1Gi" in memory
        assert "virtio-mem driver" in memory
        status = host.get("vmi", name)["status"]
        assert status["currentCPUTopology"]["sockets"] == 1
        del status["memory"]["balloonStatistics"]
        assert status["memory"] | {"guestRequested": "1Gi"} == NOT_BALLOONED | {
            "guestAtBoot": "512Mi", "guestCurrent": "512Mi", "guestRequested": "1Gi",
            "guestPlugged": "512Mi",
        }  # fmt: skip
    finally:
        host.shell(name, f"mount -o remount,rw /sys; echo {device} > {_DRIVER}/bind")
    guest.has_what_it_asked_for()
    guest.describes("GuestNotAccepting", "virtio-mem driver", "VCPUsChanged", "MemoryChanged")


# ------------------------------------------------------------ the next boot


def alone(guest: LiveGuest, editor: Editor) -> float:
    """Return how long the guest needs to follow one edit to LARGE, and another one back."""
    began = time.monotonic()
    for size in (LARGE, SMALL):
        editor.ask(*size)
        guest.settles()
    return time.monotonic() - began


# Late, for it tells so much that events of this guest are cut short after it.
def test_given_a_storm_of_growing_edits_then_the_last_one_wins_soon(
    guest: LiveGuest, editor: Editor
) -> None:
    before = alone(guest, editor)
    most, number, edits, began = int(STORM_SECONDS / EVERY), 0, 0, time.monotonic()
    while number < most:
        time.sleep(max(0.0, began + number * EVERY - time.monotonic()))  # the pace is the test
        due = int((time.monotonic() - began) / EVERY)  # a machine that is too slow leaves some out
        number = min(max(number, due) + 1, most)
        editor.ask(1 + 3 * number // most, f"{512 + 2 * number}Mi")
        edits += 1
    ended = time.monotonic()
    until("all to be given", guest.is_given)
    given = time.monotonic() - ended
    until("the calm", guest.is_settled)
    calm = time.monotonic() - ended
    guest.has_what_it_asked_for()
    # What is ours must be done in time everywhere. How long the guest takes is the machine's
    # affair: where others work too, an emulated CPU comes many times later. What the same guest
    # needs for single edits, before and after, tells how many.
    editor.ask(*SMALL)
    guest.settles()
    slow = max(1.0, before / ALONE_SECONDS, alone(guest, editor) / ALONE_SECONDS)
    print(f"{edits} edits; given after {given:.2f} s, calm after {calm:.2f} s, {slow:.1f} x slow")
    assert given < CALM_SECONDS
    assert calm < CALM_SECONDS * slow


@pytest.mark.long
def test_given_a_restart_then_the_guest_boots_with_the_new_size_and_grows_from_there(
    guest: LiveGuest,
) -> None:
    """Comes last of this guest's: it cannot have less than it boots with."""
    guest.becomes(2, "768Mi")
    before = guest.host.uid(guest.name)
    guest.host.run("virtctl", "restart", guest.name)
    until("another instance", lambda: guest.host.uid(guest.name) not in ("", before))
    guest.begin()
    told = guest.host.get("vmi", guest.name)["status"]["memory"]
    told.pop("balloonStatistics", None)  # the guest's driver may not have reported any yet
    amounts = ("guestAtBoot", "guestCurrent", "guestPlugged", "guestRequested")
    assert told == dict.fromkeys(amounts, "768Mi") | NOT_BALLOONED
    look = guest.born.look
    assert look.cpus == 2
    assert 0.9 < look.memory / (768 * MIB) < 1
    guest.has_what_it_asked_for()
    guest.becomes(*LARGE)


# ------------------------------------------------------------ limits, and a disk of its own


@pytest.fixture(scope="module")
def limited(host: GuestHost) -> Iterator[LiveGuest]:
    """A guest whose pod must have limits, with a claim that only one node can use."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "own"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
        },
    }
    vm = a_live_vm("limited")
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"].append({"name": "own", "disk": {"bus": "virtio"}})
    spec["volumes"].append({"name": "own", "persistentVolumeClaim": {"claimName": "own"}})
    with existing(host, "quota", a_quota(limits_cpu="20", limits_memory="20Gi")):
        host.apply(claim, vm)
        guest = LiveGuest(host, vm)
        guest.begin()
        yield guest


def test_given_limits_and_a_claim_of_one_node_then_the_guest_follows_all_the_same(
    limited: LiveGuest,
) -> None:
    migratable = limited.host.condition("vmi", limited.name, "LiveMigratable")
    assert (migratable["status"], migratable["reason"]) == ("False", "DisksNotLiveMigratable")
    assert set(limited.resources["limits"]) == {"cpu", "memory"}
    for size in (LARGE, (2, "768Mi"), SMALL):
        limited.becomes(*size)


def a_limit_range(memory: int) -> Object:
    return {
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "ceiling"},
        "spec": {"limits": [{"type": "Container", "max": {"memory": str(memory)}}]},
    }  # fmt: skip


@pytest.mark.long
def test_given_a_limit_range_lacks_a_byte_then_the_edit_waits_and_goes_on_when_it_is_raised(
    limited: LiveGuest,
) -> None:
    if limited.asked != SMALL:
        limited.becomes(*SMALL)
    needed = parse(limited.resources["limits"]["memory"]).bytes + 2 * MORE_MEMORY
    with existing(limited.host, "limitrange", a_limit_range(needed - 1)):
        limited.ask(*LARGE)
        limited.waits("OverLimitRange")
        assert "LimitRange ceiling is missing 1 of limits.memory" in limited.message(MEMORY)
        limited.holds(*SMALL)
        limited.nobody_changed_the_manifest()
        limited.host.apply(a_limit_range(needed))
        limited.has_what_it_asked_for()
    limited.describes("OverLimitRange", "VCPUsChanged")
