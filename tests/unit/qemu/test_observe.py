import pytest

from livevirt.qemu.lifecycle import Standing, standing
from livevirt.qemu.machine import Thread
from livevirt.qemu.observe import (
    CpuSlot,
    Drive,
    MemoryState,
    agent_port_open,
    cpu_slots,
    devices_of,
    drives_of,
    idle_nodes,
    memory_state,
)
from livevirt.qemu.session import Event


def a_drive(qdev: str, node: str | None = None, **more: object) -> dict[str, object]:
    found: dict[str, object] = {"qdev": qdev, "removable": False, "locked": False, **more}
    if node is not None:
        found["inserted"] = {"node-name": node, "image": {"virtual-size": 7}}
    return found


def test_cpus_are_read_with_their_ids_lowest_first() -> None:
    def entry(socket: int, **more: str) -> dict[str, object]:
        props = {"socket-id": socket, "core-id": 0, "thread-id": 0}
        return {"type": "max-x86_64-cpu", "props": props, **more}

    plugged = {"qom-path": "/machine/peripheral/cpu-1-0-0"}
    boot = {"qom-path": "/machine/unattached/device[0]"}
    assert cpu_slots([entry(2), entry(1, **plugged), entry(0, **boot)]) == (
        CpuSlot(Thread(0, 0, 0), "max-x86_64-cpu", True, None),
        CpuSlot(Thread(1, 0, 0), "max-x86_64-cpu", True, "cpu-1-0-0"),
        CpuSlot(Thread(2, 0, 0), "max-x86_64-cpu", False, None),
    )


def test_memory_is_what_the_guest_took_and_not_what_it_was_offered() -> None:
    data = {"id": "vm0", "size": 2, "requested-size": 6, "max-size": 8, "memaddr": 32}
    found = memory_state({"base-memory": 10}, [{"type": "virtio-mem", "data": data}])
    assert found == MemoryState(boot=10, plugged=2, requested=6, headroom=8, address=32)
    assert found.total == 12
    assert memory_state({"base-memory": 10}, []) == MemoryState(10)


DRIVES = {
    "a scsi disk is named by its id": (a_drive("ua-a", "n"), Drive("ua-a", "n", size=7, lun=3)),
    "a virtio disk is named by its inner device": (
        a_drive("/machine/peripheral/ua-b/virtio-backend", "n"),
        Drive("ua-b", "n", size=7),
    ),
    "an empty drive has no node": (
        a_drive("ua-cd", removable=True, tray_open=True),
        Drive("ua-cd", removable=True, tray_open=True),
    ),
}


@pytest.mark.parametrize(("entry", "drive"), DRIVES.values(), ids=DRIVES)
def test_drives_are_read(entry: dict[str, object], drive: Drive) -> None:
    assert drives_of([entry], {"ua-a": 3}) == (drive,)


def test_a_drive_without_an_id_is_not_ours() -> None:
    assert drives_of([a_drive("/machine/unattached/device[9]")], {}) == ()
    assert drives_of([{"removable": True, "locked": False}], {}) == ()


def test_images_are_idle_when_no_drive_uses_them() -> None:
    nodes = [{"node-name": name} for name in ("n-used", "n-idle", "#block123")]
    assert idle_nodes(nodes, (Drive("ua-a", "n-used"),)) == ("n-idle",)


def test_only_children_are_devices() -> None:
    listed = [{"name": "type", "type": "string"}, {"name": "ua-a", "type": "child<scsi-hd>"}]
    assert devices_of(listed) == {"ua-a": "scsi-hd"}


def test_the_agents_port_counts_when_the_guest_holds_it_open() -> None:
    assert agent_port_open([{"label": "agent0", "frontend-open": True}])
    assert not agent_port_open([{"label": "agent0", "frontend-open": False}])
    assert not agent_port_open([{"label": "serial0", "frontend-open": True}])


BY_GUEST = Event("SHUTDOWN", {"guest": True, "reason": "guest-shutdown"})
BY_HOST = Event("SHUTDOWN", {"guest": False, "reason": "host-qmp-quit"})
STANDINGS = {
    "the guest shut itself down": (
        ("shutdown", BY_GUEST),
        Standing("shutdown", "guest-shutdown", True),
    ),
    "it was shut down from outside": (
        ("shutdown", BY_HOST),
        Standing("shutdown", "host-qmp-quit", False),
    ),
    "nobody saw why it shut down": (("shutdown", None), Standing("shutdown", "shutdown")),
    "it runs again after a shutdown was seen": (
        ("running", BY_GUEST),
        Standing("running", "running"),
    ),
    "the guest panicked": (("guest-panicked", None), Standing("panicked", "guest-panicked", True)),
    "a disk failed": (("io-error", None), Standing("io-error", "io-error")),
    "KVM gave up": (("internal-error", None), Standing("broken", "internal-error")),
    "a state we do not know": (("dreaming", None), Standing("paused", "dreaming")),
}


@pytest.mark.parametrize(("seen", "expected"), STANDINGS.values(), ids=STANDINGS)
def test_why_it_stopped(seen: tuple[str, Event | None], expected: Standing) -> None:
    assert standing(*seen) == expected


def test_a_machine_has_ended_when_its_guest_will_not_go_on() -> None:
    ended = {"shutdown", "guest-panicked", "internal-error"}
    for state in ("running", "paused", "io-error", "prelaunch", "inmigrate", "postmigrate", *ended):
        assert standing(state).ended == (state in ended), state
