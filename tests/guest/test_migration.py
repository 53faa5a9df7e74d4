"""Guests that move between two nodes: exactly one of them runs at any time, and it notices little.

What travels is checked inside the guest. Two nodes are two of livevirt's on one machine.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.files import loop_device

from .guest_host import IMAGE, GuestHost, Object, a_bare_vm, image_missing, until
from .hot_volumes import BY_ID, a_claim, a_disc
from .moving_guest import (
    MOVE_SECONDS,
    PAUSE_SECONDS,
    MovingGuest,
    Ticks,
    a_movable_vm,
    phases_seen,
    sent_slowly,
    two_nodes,
)

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

POLICY = {
    "apiVersion": "migrations.kubevirt.io/v1alpha1",
    "kind": "MigrationPolicy",
    "metadata": {"name": "for-all"},
    "spec": {
        "selectors": {"namespaceSelector": {"kubernetes.io/metadata.name": "default"}},
        "completionTimeoutPerGiB": 300,
    },
}


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with two_nodes() as host:
        yield host


@pytest.fixture(scope="module")
def guest(host: GuestHost) -> MovingGuest:
    guest = MovingGuest(host, a_movable_vm("mover"))
    guest.boot()
    return guest


def a_shared_claim(name: str) -> Object:
    claim = a_claim(name)
    claim["spec"]["accessModes"] = ["ReadWriteMany"]
    return claim


def test_a_guest_moves_there_and_back_and_hardly_notices(guest: MovingGuest) -> None:
    first = guest.node
    (source,) = guest.host.pods(guest.name)
    guest.host.apply(POLICY)
    with Ticks(guest.host) as ticks:
        ticks.counts_on()
        with phases_seen(guest.host, "pods") as pods, phases_seen(guest.host, "vmim") as moves:
            until("the watch", lambda: pods(source["metadata"]["name"]), MOVE_SECONDS)
            ended = guest.move("there")
            until("its end", lambda: "Succeeded" in dict(moves("there")).values(), MOVE_SECONDS)
            over = next(version for version, phase in moves("there") if phase == "Succeeded")
            before = {phase for at, phase in pods(source["metadata"]["name"]) if at < over}
        assert before == {"Running"}  # nothing of it ends before the guest is elsewhere
        ticks.counts_on()
        assert guest.node != first
        guest.move("back")
        ticks.counts_on()
    guest.host.server.kubectl("delete", "migrationpolicy", "for-all")
    assert guest.node == first
    guest.went_on()
    ticks.never_went_back()
    ticks.paused_at_most(PAUSE_SECONDS)
    phases = [each["phase"] for each in ended["status"]["phaseTransitionTimestamps"]]
    assert phases == [
        "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running",
        "Succeeded",
    ]  # fmt: skip
    state = ended["status"]["migrationState"]
    assert (state["sourceNode"], state["completed"]) == (first, True)
    assert state["migrationPolicyName"] == "for-all"
    assert state["migrationConfiguration"]["completionTimeoutPerGiB"] == 300
    until(
        "nothing to hold it any more",
        lambda: "finalizers" not in guest.migration("there")["metadata"],
        MOVE_SECONDS,
    )

    def labels() -> tuple[str | None, str | None]:
        found = guest.host.get("vmi", guest.name)["metadata"]["labels"]
        return found.get("kubevirt.io/nodeName"), found.get("kubevirt.io/migrationTargetNodeName")

    until("its labels", lambda: labels() == (first, None), MOVE_SECONDS)


def test_cpus_and_memory_that_were_plugged_travel_and_can_change_on_the_other_side(
    guest: MovingGuest,
) -> None:
    host, name = guest.host, guest.name

    def size(sockets: int, memory: str) -> None:
        domain = {"cpu": {"sockets": sockets}, "memory": {"guest": memory}}
        patch = json.dumps({"spec": {"template": {"spec": {"domain": domain}}}})
        host.server.kubectl("patch", "vm", name, "--type", "merge", "-p", patch)

        def done() -> bool:
            status = host.get("vmi", name)["status"]
            return bool(
                status["currentCPUTopology"]["sockets"] == sockets
                and status["memory"]["guestCurrent"] == memory
                and not host.holds("vmi", name, "HotVCPUChange")
                and not host.holds("vmi", name, "HotMemoryChange")
            )

        until(f"{sockets} sockets and {memory}", done, MOVE_SECONDS)

    def inside() -> tuple[int, int]:
        cpus, kibibytes = host.shell(
            name, "nproc; awk '/^MemTotal/ {print $2}' /proc/meminfo"
        ).split()
        return int(cpus), int(kibibytes)

    cpus, before = inside()
    assert cpus == 1
    size(3, "512Mi")
    grown = inside()
    assert grown == (3, before + 256 * 1024)
    guest.move("grown")
    host.found(name)
    assert inside() == grown
    size(2, "384Mi")
    assert inside() == (2, before + 128 * 1024)
    guest.move("shrunk")
    host.found(name)
    assert inside() == (2, before + 128 * 1024)
    size(1, "256Mi")
    assert inside() == (1, before)
    guest.went_on()


@pytest.mark.long
def test_volumes_that_were_plugged_and_a_disc_travel_with_their_content(
    guest: MovingGuest, tmp_path: Path
) -> None:
    host, name = guest.host, guest.name
    host.apply(*(a_shared_claim(claim) for claim in ("fast", "slow", "disc")))
    disc = a_disc(tmp_path, "red")
    filling = ("--pvc", "disc", "--data-dir", str(host.server.data))
    host.run("livevirt", "volume", "import", str(disc), *filling)
    for claim, bus in (("fast", "virtio"), ("slow", "scsi")):
        added = ("--volume-name", claim, "--bus", bus)
        host.run("virtctl", "addvolume", name, *added)
    cdrom = [
        {"op": "add", "path": "/spec/template/spec/domain/devices/disks/-",
         "value": {"name": "disc", "cdrom": {"bus": "scsi"}}},
        {"op": "add", "path": "/spec/template/spec/volumes/-",
         "value": {"name": "disc", "persistentVolumeClaim":
                   {"claimName": "disc", "hotpluggable": True}}},
    ]  # fmt: skip
    host.server.kubectl("patch", "vm", name, "--type", "json", "-p", json.dumps(cdrom))

    def attached() -> bool:
        told = host.get("vmi", name)["status"]["volumeStatus"]
        ready = {each["name"] for each in told if each.get("phase") == "Ready"}
        return {"fast", "slow", "disc"} <= ready

    until("the volumes", attached, MOVE_SECONDS)
    devices = f"/dev/disk/by-id/virtio-fast {BY_ID}/scsi-0QEMU_QEMU_HARDDISK_slow"
    host.shell(
        name,
        f"i=0; for d in {devices}; do until [ -e $d ]; do usleep 50000; done; i=$((i+1));"
        " mkfs.ext4 -q $d; mkdir -p /mnt/$i; mount $d /mnt/$i; echo kept $i > /mnt/$i/f;"
        " done; sync",
    )
    guest.move("laden")
    host.found(name)
    # Still mounted, and what was written is there; so is what is written from now on.
    assert host.shell(name, "cat /mnt/1/f /mnt/2/f").split("\n") == ["kept 1", "kept 2"]
    again = "for i in 1 2; do echo more >> /mnt/$i/f; umount /mnt/$i; done"
    host.shell(name, again)
    reread = (
        f"i=0; for d in {devices}; do i=$((i+1)); mount $d /mnt/$i; cat /mnt/$i/f;"
        " umount /mnt/$i; done"
    )
    assert host.shell(name, reread).split("\n") == ["kept 1", "more", "kept 2", "more"]
    mounted = "mkdir -p /mnt/cd; mount -o ro /dev/sr0 /mnt/cd; cat /mnt/cd/*; umount /mnt/cd"
    assert host.shell(name, mounted) == "this is red"

    # And what came by plugging goes by unplugging, on the node that never plugged it.
    for claim in ("fast", "slow"):
        host.run("virtctl", "removevolume", name, "--volume-name", claim)
    until(
        "the volumes to go",
        lambda: {"fast", "slow"}.isdisjoint(
            each["name"] for each in host.get("vmi", name)["status"]["volumeStatus"]
        ),
        MOVE_SECONDS,
    )
    assert host.shell(name, f"ls {devices} 2>/dev/null | wc -l") == "0"
    guest.went_on()


@pytest.mark.long
def test_volumes_that_are_edited_during_a_migration_wait_for_its_end(guest: MovingGuest) -> None:
    host, name = guest.host, guest.name
    host.apply(*(a_shared_claim(claim) for claim in ("there", "new")))
    host.run("virtctl", "addvolume", name, "--volume-name", "there", "--wait")
    guest.sees("there")

    def listed() -> set[str]:
        return {each["name"] for each in host.get("vmi", name)["spec"]["volumes"]}

    def judged() -> bool:
        vm = host.get("vm", name)
        return bool(vm["status"]["desiredGeneration"] == vm["metadata"]["generation"])

    with sent_slowly(host):
        guest.ask("edited")
        until("it to run", lambda: guest.phase("edited") == "Running", MOVE_SECONDS)
        host.run("virtctl", "addvolume", name, "--volume-name", "new")
        host.run("virtctl", "removevolume", name, "--volume-name", "there")
        until("the edits to be looked at", judged, MOVE_SECONDS)
        waits = json.loads(host.attempt("virtctl", "plan", name, "-o", "json").stdout)
        assert (waits["verdict"], waits["waits"]) == ("Live", True)
        assert {each["reason"] for each in waits["changes"]} == {"Migrating"}
        assert (listed() >= {"there"}, "new" in listed()) == (True, False)
        assert guest.phase("edited") == "Running"
        host.run("virtctl", "migrate-cancel", name)
        until("an end", lambda: guest.state.get("endTimestamp"), MOVE_SECONDS)
    until("the edits", lambda: "new" in listed() and "there" not in listed(), MOVE_SECONDS)
    guest.sees("new")
    guest.move("then")
    guest.sees("new")
    host.run("virtctl", "removevolume", name, "--volume-name", "new", "--wait")
    guest.went_on()


@pytest.mark.long
@pytest.mark.skipif(bool(loop_device.problem()), reason=loop_device.problem())
def test_a_shared_block_volume_travels_and_can_go_and_come_again(guest: MovingGuest) -> None:
    host, name = guest.host, guest.name
    claim = a_shared_claim("device")
    claim["spec"]["volumeMode"] = "Block"
    host.apply(claim)
    host.run("virtctl", "addvolume", name, "--volume-name", "device", "--wait")
    guest.sees("device")
    host.shell(name, f"printf kept | dd of=$(echo {BY_ID}/*device) conv=fsync")
    assert host.holds("vmi", name, "LiveMigratable")
    guest.move("device")
    host.found(name)
    for _ in range(2):
        assert host.shell(name, f"head -c 4 $(echo {BY_ID}/*device)") == "kept"
        host.run("virtctl", "removevolume", name, "--volume-name", "device", "--wait")
        guest.sees()
        host.run("virtctl", "addvolume", name, "--volume-name", "device", "--wait")
        guest.sees("device")
    host.run("virtctl", "removevolume", name, "--volume-name", "device", "--wait")
    guest.went_on()


@pytest.mark.long
def test_a_paused_guest_arrives_paused(guest: MovingGuest) -> None:
    host, name = guest.host, guest.name
    host.run("virtctl", "pause", "vm", name)
    until("a pause", lambda: host.holds("vmi", name, "Paused"), MOVE_SECONDS)
    guest.move("asleep")
    assert host.holds("vmi", name, "Paused")
    host.run("virtctl", "unpause", "vm", name)
    until("an end of the pause", lambda: not host.holds("vmi", name, "Paused"), MOVE_SECONDS)
    guest.went_on()


def test_given_a_migration_is_cancelled_then_the_guest_stays_and_no_target_is_left(
    guest: MovingGuest,
) -> None:
    host, before = guest.host, guest.node
    with sent_slowly(host), Ticks(host) as ticks:
        ticks.counts_on()
        guest.ask("cancelled")
        until("it to run", lambda: guest.phase("cancelled") == "Running", MOVE_SECONDS)
        refused = host.attempt("virtctl", "pause", "vm", guest.name)
        assert (refused.returncode, "is being migrated" in refused.stderr) == (1, True)
        assert guest.name in host.run("virtctl", "migrate-cancel", guest.name)
        until("an end", lambda: guest.state.get("endTimestamp"), MOVE_SECONDS)
        until("it to go", lambda: not guest.migration("cancelled"), MOVE_SECONDS)
        ticks.counts_on()
    assert (guest.state["failed"], guest.state["abortStatus"]) == (True, "Succeeded")
    assert guest.node == before
    guest.is_alone()
    guest.went_on()
    ticks.never_went_back()
    ticks.paused_at_most(PAUSE_SECONDS)
    guest.move("after-all")
    guest.went_on()


@pytest.mark.long
def test_given_a_claim_only_one_node_can_have_then_the_migration_is_refused_with_the_reason(
    host: GuestHost, guest: MovingGuest
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "single"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    host.apply(claim)
    host.run("virtctl", "addvolume", guest.name, "--volume-name", "single")

    def not_migratable() -> bool:
        return host.condition("vmi", guest.name, "LiveMigratable").get("status") == "False"

    until("the verdict", not_migratable, MOVE_SECONDS)
    refused = host.attempt("virtctl", "migrate", guest.name)
    assert refused.returncode == 1
    assert "DisksNotLiveMigratable" in refused.stderr
    host.run("virtctl", "removevolume", guest.name, "--volume-name", "single")
    until("it to be movable", lambda: host.holds("vmi", guest.name, "LiveMigratable"), MOVE_SECONDS)


@pytest.mark.long
def test_draining_a_node_moves_its_guests(host: GuestHost) -> None:
    vms = [a_bare_vm(name, evictionStrategy="LiveMigrate") for name in ("left", "right")]
    host.apply(*vms)
    guests = [MovingGuest(host, vm) for vm in vms]
    for guest in guests:
        until("it to run", lambda guest=guest: host.phase(guest.name) == "Running", MOVE_SECONDS)
        until(
            "it to be movable",
            lambda guest=guest: host.holds("vmi", guest.name, "LiveMigratable"),
            MOVE_SECONDS,
        )
    drained = guests[0].node
    pids = {guest.name: host.qemu(guest.name) for guest in guests}
    stayed = [guest.name for guest in guests if guest.node != drained]
    # The guest of the other tests has no strategy and would be shut down.
    selector = "--pod-selector=vm.kubevirt.io/name in (left,right)"
    host.server.kubectl(
        "drain", drained, selector, "--delete-emptydir-data", "--force", "--timeout=50s"
    )
    try:
        for guest in guests:
            guest.is_alone()
            assert guest.node != drained
            moved = host.qemu(guest.name) != pids[guest.name]
            assert moved == (guest.name not in stayed)
            until(
                "the note to go",
                lambda guest=guest: (
                    not host.get("vmi", guest.name)["status"].get("evacuationNodeName")
                ),
                MOVE_SECONDS,
            )
    finally:
        host.server.kubectl("uncordon", drained)
        host.discard(*pids)


@pytest.mark.soak
def test_whenever_a_migration_is_cancelled_the_guest_is_in_one_place_and_never_goes_back(
    guest: MovingGuest,
) -> None:
    """Also when the last byte is on its way."""
    host, stayed = guest.host, []
    with Ticks(host) as ticks:
        ticks.counts_on()
        for number in range(12):
            before, name = guest.node, f"early-or-late-{number}"
            guest.ask(name)
            until("it to begin", lambda: guest.state.get("startTimestamp"), MOVE_SECONDS)
            time.sleep(number * 0.05)
            host.server.kubectl("delete", "vmim", name, "--wait=false")
            until("it to go", lambda name=name: not guest.migration(name), MOVE_SECONDS)
            state = guest.state
            assert bool(state.get("failed")) != bool(state.get("completed"))
            assert guest.node == (before if state.get("failed") else state["targetNode"])
            stayed.append(guest.node == before)
            guest.is_alone()
            ticks.counts_on()
    guest.went_on()
    ticks.never_went_back()
    print(f"stayed: {stayed}")


@pytest.mark.long
def test_a_guest_on_its_way_can_power_off_be_stopped_and_be_deleted(host: GuestHost) -> None:
    vm = a_movable_vm("leaver")
    vm["spec"]["runStrategy"] = "Manual"
    guest = MovingGuest(host, vm)
    name = guest.name
    host.apply(vm)

    def sent(migration: str) -> None:
        host.run("virtctl", "start", name)
        host.answers(name)
        guest.ask(migration)
        until("it to run", lambda: guest.phase(migration) == "Running", MOVE_SECONDS)
        until("two QEMUs", lambda: len(host.qemus(name)) == 2, MOVE_SECONDS)

    def gone() -> bool:
        return not (host.qemus(name) or host.pods(name) or host.get("vmi", name))

    with sent_slowly(host):
        sent("off")
        host.attempt("livevirt", "exec", name, "--", "poweroff")
        until("its end", lambda: host.phase(name) == "Succeeded", MOVE_SECONDS)
        assert guest.ends("off")["status"]["phase"] == "Failed"
        until("no QEMU", lambda: not host.qemus(name), MOVE_SECONDS)

        sent("stopped")
        host.run("virtctl", "stop", name)
        until("nothing to be left", gone, MOVE_SECONDS)
        assert guest.ends("stopped")["status"]["phase"] == "Failed"

        sent("deleted")
        host.server.kubectl("delete", "vm", name, "--wait=false")
        until("nothing to be left", lambda: gone() and not host.get("vm", name), MOVE_SECONDS)
