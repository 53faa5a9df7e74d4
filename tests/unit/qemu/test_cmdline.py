import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from livevirt.qemu.cmdline import argv
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.machine import MIB, Cpu, Machine, Memory, Nic, NumaNode, Smbios

# Anything but what is refused: control characters and lone surrogates.
TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=30)
PATHS = TEXT.map(lambda text: "/" + text)


def a_machine(**changes: object) -> Machine:
    settings: dict[str, object] = {
        "name": "web",
        "uuid": "12345678-1234-1234-1234-123456789abc",
        "accelerator": "tcg",
        "cpu": Cpu(model="max", max_sockets=4),
        "memory": Memory(boot=64 * MIB, max=128 * MIB),
        "run_dir": "/run/vm",
        "serial_log": "/run/vm/serial.log",
    }
    return Machine(**{**settings, **changes})  # type: ignore[arg-type]


def options(text: str) -> list[tuple[str, str]]:
    """Split `key=value` options as QEMU does: a doubled comma is a comma."""
    parts = text.replace(",,", "\0").split(",")
    pairs = (part.replace("\0", ",").partition("=") for part in parts)
    return [(key, value) for key, _, value in pairs]


def given_to(line: list[str], option: str) -> list[str]:
    return [line[n + 1] for n, word in enumerate(line) if word == option]


def devices(line: list[str]) -> dict[str, dict[str, object]]:
    return {device["id"]: device for device in map(json.loads, given_to(line, "-device"))}


@given(name=TEXT, serial=TEXT, path=PATHS, log=PATHS, run=PATHS, maker=TEXT)
def test_nothing_a_user_writes_can_become_an_option(
    name: str, serial: str, path: str, log: str, run: str, maker: str
) -> None:
    def machine(name: str, serial: str, path: str, log: str, run: str, maker: str) -> Machine:
        disk = Disk(id="ua-root", image=Image(path), serial=serial)
        tables = Smbios(manufacturer=maker or "-")
        return a_machine(
            name=name, disks=(disk,), serial_log=log, run_dir=run[:20], smbios=tables, graphics=True
        )

    line = argv(machine(name, serial, path, log, run, maker))
    plain = argv(machine("n", "s", "/p", "/l", "/r", "m"))
    assert len(line) == len(plain)
    for word, plain_word in zip(line, plain, strict=True):
        if plain_word.startswith("-"):
            assert word == plain_word
        elif plain_word.startswith("{"):
            assert json.loads(word).keys() == json.loads(plain_word).keys()
        else:
            # The first may be a value without a key.
            keys = [key for key, _ in options(word)][1:]
            assert keys == [key for key, _ in options(plain_word)][1:]
    assert dict(options(given_to(line, "-name")[0]))["guest"] == name
    chardevs = [dict(options(text)) for text in given_to(line, "-chardev")]
    assert next(c for c in chardevs if c["id"] == "serial0")["logfile"] == log
    assert json.loads(given_to(line, "-blockdev")[0])["file"]["filename"] == path
    assert devices(line)["ua-root"]["serial"] == serial


def objects(line: list[str]) -> dict[str, dict[str, object]]:
    return {each["id"]: each for each in map(json.loads, given_to(line, "-object"))}


def test_memory_in_huge_pages_is_there_before_the_guest_and_what_is_plugged_is_checked() -> None:
    line = argv(a_machine(memory=Memory(boot=64 * MIB, max=128 * MIB, page=2 * MIB)))
    ram, more = objects(line)["ram0"], objects(line)["vmem0"]
    for each in (ram, more):
        assert (each["qom-type"], each["hugetlbsize"]) == ("memory-backend-memfd", 2 * MIB)
    assert (ram["size"], ram["prealloc"]) == (64 * MIB, True)
    assert (more["size"], more["reserve"]) == (64 * MIB, False)
    assert "memory-backend=ram0" in given_to(line, "-machine")[0]
    assert devices(line)["vm0"]["prealloc"] is True


def test_numa_nodes_have_memory_of_theirs_on_the_host_and_all_cpus() -> None:
    cpu = Cpu(model="max", sockets=1, cores=2)
    first, second = cpu.threads_of(range(1))
    nodes = (
        NumaNode(host=1, memory=32 * MIB, cpus=(first,)),
        NumaNode(host=3, memory=32 * MIB, cpus=(second,)),
    )
    memory = Memory(boot=64 * MIB, max=64 * MIB, page=2 * MIB)
    line = argv(a_machine(cpu=cpu, memory=memory, numa=nodes))
    assert given_to(line, "-numa") == [
        "node,nodeid=0,memdev=ram0-0",
        "cpu,node-id=0,socket-id=0,core-id=0,thread-id=0",
        "node,nodeid=1,memdev=ram0-1",
        "cpu,node-id=1,socket-id=0,core-id=1,thread-id=0",
    ]
    assert objects(line)["ram0-1"]["host-nodes"] == [3]
    assert objects(line)["ram0-1"]["policy"] == "bind"
    assert "memory-backend" not in given_to(line, "-machine")[0]


def test_disks_are_served_by_the_threads_they_name() -> None:
    disk = Disk(id="ua-a", image=Image("/a"), io_thread="io0")
    line = argv(a_machine(disks=(disk,), io_threads=("io0",)))
    assert objects(line)["io0"] == {"qom-type": "iothread", "id": "io0"}
    assert devices(line)["ua-a"]["iothread"] == "io0"


def test_equal_machines_give_equal_lines_and_a_target_only_waits() -> None:
    machine = a_machine(disks=(Disk(id="ua-a", image=Image("/a")),))
    line = argv(machine)
    assert argv(replace(machine)) == line
    assert argv(replace(machine, incoming=True)) == [*line, "-incoming", "defer"]


def test_socket_0_comes_from_smp_and_every_other_is_a_device_that_can_be_named() -> None:
    cpu = Cpu(model="Nehalem", sockets=3, cores=2, max_sockets=8)
    line = argv(a_machine(cpu=cpu))
    [smp] = given_to(line, "-smp")
    assert smp == "cpus=2,sockets=8,cores=2,threads=1,maxcpus=16"
    found = [d for d in devices(line).values() if d["driver"] == "Nehalem-x86_64-cpu"]
    assert [d["id"] for d in found] == ["cpu-1-0-0", "cpu-1-1-0", "cpu-2-0-0", "cpu-2-1-0"]


def test_head_room_for_memory_costs_a_device_only_where_there_is_any() -> None:
    line = argv(a_machine(memory=Memory(boot=64 * MIB, max=96 * MIB)))
    assert given_to(line, "-m") == [f"size={64 * MIB}B,maxmem={96 * MIB}B"]
    assert devices(line)["vm0"]["requested-size"] == 0
    fixed = argv(a_machine(memory=Memory(boot=64 * MIB, max=64 * MIB)))
    assert given_to(fixed, "-m") == [f"size={64 * MIB}B"]
    assert "vm0" not in devices(fixed)


def test_no_two_devices_share_a_port_and_the_spare_ones_stay_free() -> None:
    disks = tuple(Disk(id=f"ua-{n}", image=Image(f"/{n}")) for n in range(9))
    nics = (Nic(id="nic0", mac="02:00:00:00:00:01"),)
    found = devices(argv(a_machine(disks=disks, nics=nics, spare_ports=3)))
    ports = {id for id, device in found.items() if device["driver"] == "pcie-root-port"}
    used = [device["bus"] for device in found.values() if device.get("bus") in ports]
    assert len(set(used)) == len(used)
    assert len(ports) == len(used) + 3
    assert len({found[port]["addr"] for port in ports}) == len(ports)
    assert len({found[port]["chassis"] for port in ports}) == len(ports)


def test_drives_keep_the_slots_they_name_and_the_others_take_what_is_left() -> None:
    disks = tuple(
        Disk(id=f"ua-{n}", image=Image(f"/{n}"), bus="scsi", slot=slot)
        for n, slot in enumerate([None, 0, None, 2])
    )
    found = devices(argv(a_machine(disks=disks)))
    assert [found[f"ua-{n}"]["lun"] for n in range(4)] == [1, 0, 3, 2]


def test_qemu_stays_to_tell_why_it_stopped_and_may_do_nothing_but_run_a_guest() -> None:
    line = argv(a_machine())
    assert given_to(line, "-action") == ["reboot=reset,shutdown=pause,panic=pause"]
    assert "spawn=deny" in given_to(line, "-sandbox")[0]
    assert {"-nodefaults", "-no-user-config"} <= set(line)
    assert "panic0" in devices(line)


def test_emulated_code_has_a_bounded_cache() -> None:
    assert given_to(argv(a_machine()), "-accel") == ["tcg,thread=multi,tb-size=256"]
    assert given_to(argv(a_machine(accelerator="kvm")), "-accel") == ["kvm"]
