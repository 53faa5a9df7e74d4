from dataclasses import replace
from typing import Any

import pytest

from livevirt.node import domain
from livevirt.node.domain import BadDomain, Place
from livevirt.node.volumes import Prepared
from livevirt.qemu import cmdline
from livevirt.qemu.accelerator import Accelerator
from livevirt.qemu.disk import Image
from livevirt.qemu.machine import Machine

MIB = 1024 * 1024
TCG = Accelerator("tcg", "")
PLACE = Place("/run/1", "/log/serial")
ROOT = Prepared(Image("/disks/root.qcow2", "qcow2"), direct=True)
SEED = Prepared(Image("/disks/seed.iso"), discard=False)


def a_vmi(disks: Any = (), **parts: Any) -> Any:
    devices = {"disks": list(disks), **parts.pop("devices", {})}
    spec = {"domain": {"memory": {"guest": "256Mi"}, "devices": devices, **parts}}
    return {"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}, "spec": spec}


def machine(vmi: Any, **volumes: Prepared) -> Machine:
    return domain.machine(vmi, volumes, TCG, PLACE)


def test_a_small_manifest_gives_a_small_machine() -> None:
    made = machine(a_vmi())
    assert made.name == "shop_web"
    assert (made.cpu.sockets, made.cpu.max_sockets, made.cpu.model) == (1, 1, "max")
    assert made.memory.boot == made.memory.max == 256 * MIB
    assert made.machine_type == "q35"
    assert made.graphics
    assert made.usb_slots == 0


def test_passthrough_of_clients_gives_four_usb_slots() -> None:
    assert machine(a_vmi(devices={"clientPassthrough": {}})).usb_slots == 4


def test_head_room_is_taken_over() -> None:
    made = machine(
        a_vmi(
            cpu={"sockets": 2, "cores": 2, "threads": 1, "maxSockets": 8, "model": "Haswell"},
            memory={"guest": "512Mi", "maxGuest": "2Gi"},
        )
    )
    assert (made.cpu.sockets, made.cpu.cores, made.cpu.max_sockets) == (2, 2, 8)
    assert made.cpu.model == "Haswell"
    assert made.memory.max == 2048 * MIB


def test_given_memory_only_as_a_request_then_that_is_the_guest_s() -> None:
    vmi = a_vmi(memory={}, resources={"requests": {"memory": "128Mi"}})
    assert machine(vmi).memory.boot == 128 * MIB


def test_disks_keep_what_the_manifest_says() -> None:
    made = machine(
        a_vmi(
            [
                {"name": "root", "disk": {"bus": "scsi"}, "serial": "S1", "cache": "writeback"},
                {"name": "seed", "cdrom": {"bus": "sata"}},
                {"name": "tray", "cdrom": {"bus": "scsi"}},
            ]
        ),
        root=ROOT,
        seed=SEED,
    )
    root, seed, tray = made.disks
    assert (root.id, root.bus, root.serial, root.cache) == ("ua-root", "scsi", "S1", "writeback")
    assert (seed.kind, seed.readonly, seed.discard) == ("cdrom", True, False)
    assert tray.image is None
    assert [disk.boot_index for disk in made.disks] == [101, 102, 103]


def test_a_volume_that_may_come_and_go_is_told_by_its_name_and_may_come_later() -> None:
    disks = [
        {"name": "root", "disk": {"bus": "virtio"}},
        {"name": "data", "disk": {"bus": "scsi"}},
        {"name": "late", "disk": {"bus": "scsi"}},
        {"name": "cd", "cdrom": {"bus": "sata"}},
    ]
    vmi = a_vmi(disks)
    vmi["spec"]["volumes"] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}}
        for name in ("data", "late", "cd")
    ]
    made = machine(vmi, root=ROOT, data=replace(ROOT, image=Image("/claim/disk.img")))
    assert [(disk.id, disk.serial) for disk in made.disks] == [
        ("ua-root", None),
        ("ua-data", "data"),
        ("ua-cd", None),
    ]


BAD_DISKS: dict[str, dict[str, Any]] = {
    "a lun that is a file": {"lun": {"bus": "scsi"}},
    "io that its cache does not allow": {
        "disk": {"bus": "scsi"}, "io": "native", "cache": "writeback",
    },
    "a drive whose io its cache does not allow": {
        "cdrom": {"bus": "scsi"}, "io": "native", "cache": "writeback",
    },
}  # fmt: skip


@pytest.mark.parametrize("boots", [False, True])
@pytest.mark.parametrize("options", BAD_DISKS.values(), ids=BAD_DISKS)
def test_a_hot_disk_that_cannot_be_is_left_out_unless_the_guest_boots_from_it(
    options: dict[str, Any], boots: bool
) -> None:
    disks = [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "hot", **options}]
    vmi = a_vmi(reversed(disks) if boots else disks)
    claim = {"claimName": "c", "hotpluggable": True}
    vmi["spec"]["volumes"] = [{"name": "hot", "persistentVolumeClaim": claim}]
    prepared = {"root": ROOT, "hot": Prepared(Image("/claim/disk.img"))}
    if boots:
        with pytest.raises(BadDomain, match="disk"):
            machine(vmi, **prepared)
    else:
        assert [disk.id for disk in machine(vmi, **prepared).disks] == ["ua-root"]
    assert domain.hot_drives(vmi["spec"], prepared) == {}


def test_the_drives_that_may_come_and_go() -> None:
    disks = [{"name": name, "disk": {"bus": "scsi"}} for name in ("root", "hot", "late", "fixed")]
    vmi = a_vmi(disks)
    vmi["spec"]["volumes"] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}}
        for name in ("root", "hot", "late")
    ]
    found = domain.hot_drives(vmi["spec"], {"root": ROOT, "hot": ROOT, "fixed": ROOT})
    assert {name: disk.id for name, disk in found.items()} == {
        "root": "ua-root",
        "hot": "ua-hot",
    }


RW, RO = {"disk": {"bus": "scsi"}}, {"disk": {"bus": "scsi", "readonly": True}}
SHARED, CDROM = RW | {"shareable": True}, {"cdrom": {"bus": "scsi"}}
HOT, COLD = {"claimName": "x", "hotpluggable": True}, {"claimName": "x"}
#: The disks of one claim with their volumes, and those that the guest starts without.
CROWDS: dict[str, tuple[list[tuple[Any, Any]], list[str]]] = {
    "two that write": ([(RW, HOT), (RW, HOT)], ["b"]),
    "one that reads beside one that writes": ([(RW, HOT), (RO, HOT)], ["b"]),
    "one that writes beside one that reads": ([(RO, HOT), (RW, HOT)], ["b"]),
    "a disc of what is written": ([(RW, HOT), (CDROM, HOT)], ["b"]),
    "a claim that is only read": ([(RW, HOT), (RW, HOT | {"readOnly": True})], ["b"]),
    "two that read": ([(RO, HOT), (CDROM, HOT)], []),
    "two that share": ([(SHARED, HOT), (SHARED, HOT)], []),
    "only one of two shares": ([(SHARED, HOT), (RW, HOT)], ["b"]),
    "a shared one that reads": ([(RW, HOT), (RO | {"shareable": True}, HOT)], []),
    "one that cannot come later, though it is the last": ([(RW, HOT), (RW, COLD)], ["a"]),
    "two that cannot come later": ([(RW, COLD), (RW, COLD)], []),
    "three": ([(RO, HOT), (RW, HOT), (RO, HOT)], ["b"]),
    "another claim": ([(RW, HOT), (RW, HOT | {"claimName": "y"})], []),
}


@pytest.mark.parametrize(("uses", "left_out"), CROWDS.values(), ids=CROWDS)
def test_a_guest_starts_without_disks_that_do_not_go_with_another_of_its_claim(
    uses: list[tuple[Any, Any]], left_out: list[str]
) -> None:
    names = "abc"[: len(uses)]
    root = {"name": "root", "disk": {"bus": "virtio"}}
    vmi = a_vmi([root, *({"name": n, **disk} for n, (disk, _) in zip(names, uses, strict=True))])
    vmi["spec"]["volumes"] = [
        {"name": n, "persistentVolumeClaim": claim}
        for n, (_, claim) in zip(names, uses, strict=True)
    ]
    prepared = dict.fromkeys(("root", *names), ROOT)
    assert domain.crowded_out(vmi["spec"], prepared) == left_out
    del prepared["a"]
    assert "b" not in domain.crowded_out(vmi["spec"], prepared), "what is not there is in no way"


def test_a_disk_does_not_go_with_an_overlay_on_its_claim() -> None:
    vmi = a_vmi([{"name": name, **RW} for name in ("root", "data")])
    ephemeral = {"persistentVolumeClaim": {"claimName": "x"}}
    vmi["spec"]["volumes"] = [
        {"name": "root", "ephemeral": ephemeral},
        {"name": "data", "persistentVolumeClaim": HOT},
    ]
    assert domain.crowded_out(vmi["spec"], {"root": ROOT, "data": ROOT}) == ["data"]


#: Settings of a disk that another device has, and those that the same has.
OTHERS: dict[str, dict[str, Any]] = {
    "serial": {"serial": "s"},
    "readonly": {"disk": {"bus": "scsi", "readonly": True}},
    "cache": {"cache": "writeback"},
    "io": {"io": "native"},
    "errorPolicy": {"errorPolicy": "report"},
    "shareable": {"shareable": True},
}
SAME: dict[str, dict[str, Any]] = {
    "bootOrder": {"bootOrder": 3},
    "the serial by default": {"serial": "data"},
    "the policy by default": {"errorPolicy": "stop"},
    "not read-only": {"disk": {"bus": "scsi", "readonly": False}},
}


@pytest.mark.parametrize("hot", [True, False])
def test_the_name_of_an_image_tells_a_hot_disk_of_other_settings(hot: bool) -> None:
    data = {"name": "data", "disk": {"bus": "scsi"}}
    name = domain.drive(data, ROOT, hot=hot).node
    assert name is not None
    assert len(name) <= 31
    read_only = domain.drive(data, replace(ROOT, readonly=True), hot=hot).node
    assert (read_only != name) is hot
    for settings in OTHERS.values():
        assert (domain.drive(data | settings, ROOT, hot=hot).node != name) is hot, settings
    for settings in SAME.values():
        assert domain.drive(data | settings, ROOT, hot=hot).node == name, settings
    found_out = replace(ROOT, direct=False, discard=False)
    assert domain.drive(data, found_out, hot=hot).node == name


def test_the_name_of_an_image_tells_whether_a_disk_has_its_own_thread_and_not_which() -> None:
    fast = {"name": "fast", "disk": {"bus": "virtio"}}
    own = domain.drive(fast | {"dedicatedIOThread": True}, ROOT, hot=True)
    plain = domain.drive(fast, ROOT, hot=True)
    assert own.node != plain.node == replace(plain, io_thread="io0").node


def test_the_name_of_a_disc_tells_no_settings_of_its_drive() -> None:
    drive = {"name": "cd", "cdrom": {"bus": "scsi"}}
    other = domain.drive(drive | {"serial": "s"}, ROOT, hot=True)
    assert domain.drive(drive, ROOT, hot=True).node == other.node


@pytest.mark.parametrize("shown_as", ["disk", "cdrom"])
@pytest.mark.parametrize(
    ("policy", "meant"), [("", "stop"), ("report", "report"), ("enospace", "enospace")]
)
def test_given_no_word_on_errors_then_the_guest_stops_at_one(
    policy: str, meant: str, shown_as: str
) -> None:
    disk = {"name": "root", shown_as: {"bus": "scsi"}} | ({"errorPolicy": policy} if policy else {})
    assert [each.on_error for each in machine(a_vmi([disk]), root=ROOT).disks] == [meant]


@pytest.mark.parametrize(
    ("memory", "disks", "spare"),
    [("1Gi", 1, 3), ("2Gi", 4, 3), ("4Gi", 1, 10), ("4Gi", 8, 6)],
)
def test_small_guests_have_fewer_ports_to_spare(memory: str, disks: int, spare: int) -> None:
    listed = [{"name": f"d{number}", "disk": {"bus": "virtio"}} for number in range(disks)]
    volumes = {f"d{number}": replace(ROOT, image=Image(f"/d{number}")) for number in range(disks)}
    made = machine(a_vmi(listed, memory={"guest": memory}), **volumes)
    assert made.spare_ports == spare


def test_every_new_guest_has_a_usb_controller() -> None:
    assert machine(a_vmi([{"name": "cd", "cdrom": {"bus": "sata"}}])).usb


@pytest.mark.parametrize(("attached", "there"), [(None, True), (True, True), (False, False)])
def test_a_guest_has_a_balloon_unless_its_owner_objects(attached: bool | None, there: bool) -> None:
    vmi = a_vmi([])
    if attached is not None:
        vmi["spec"]["domain"]["devices"]["autoattachMemBalloon"] = attached
    assert machine(vmi).balloon is there


def test_once_a_boot_order_is_given_only_those_disks_are_tried() -> None:
    disks = [{"name": "root", "disk": {}}, {"name": "seed", "disk": {}, "bootOrder": 1}]
    made = machine(a_vmi(disks), root=ROOT, seed=SEED)
    assert [disk.boot_index for disk in made.disks] == [None, 1]


@pytest.mark.parametrize(("direct", "cache"), [(True, "none"), (False, "writethrough")])
def test_the_host_s_cache_is_left_out_where_that_works(direct: bool, cache: str) -> None:
    root = Prepared(ROOT.image, direct=direct)
    made = machine(a_vmi([{"name": "root", "disk": {"bus": "virtio"}}]), root=root)
    assert made.disks[0].cache == cache


def test_a_disk_whose_volume_is_not_served_is_left_out() -> None:
    assert machine(a_vmi([{"name": "odd", "disk": {}}])).disks == ()


def test_uuid_and_mac_stay_the_same_over_restarts_of_a_vm() -> None:
    interfaces = {"interfaces": [{"name": "default", "masquerade": {}}]}
    first, second = a_vmi(devices=interfaces), a_vmi(devices=interfaces)
    owner = {"kind": "VirtualMachine", "controller": True, "uid": "vm1", "name": "web"}
    for vmi, uid in ((first, "u1"), (second, "u2")):
        vmi["metadata"] |= {"uid": uid, "ownerReferences": [owner]}
    assert machine(first).uuid == machine(second).uuid
    assert machine(first).nics == machine(second).nics
    assert machine(first).nics[0].mac.startswith("02:")


def test_memory_is_made_of_the_pages_asked_for() -> None:
    memory = {"guest": "1Gi", "hugepages": {"pageSize": "1Gi"}}
    assert machine(a_vmi(memory=memory)).memory.page == 2**30


def a_numa_vmi() -> Any:
    cpu = {"cores": 3, "sockets": 1, "maxSockets": 2, "numa": {"guestMappingPassthrough": {}}}
    return a_vmi(cpu=cpu, memory={"guest": "10Mi", "hugepages": {"pageSize": "2Mi"}})


def test_the_guest_s_numa_nodes_are_those_of_its_cpus() -> None:
    place = Place("/run/1", "/log/serial", cells=(1, 0, 1))
    first, second = domain.machine(a_numa_vmi(), {}, TCG, place).numa
    assert (first.host, second.host) == (0, 1)
    assert (first.memory, second.memory) == (6 * MIB, 4 * MIB)  # whole pages
    assert [cpu.core for cpu in first.cpus] == [1]
    later = [cpu for cpu in second.cpus if cpu.socket == 1]
    assert [cpu.core for cpu in second.cpus if cpu.socket == 0] == [0, 2]
    assert len(later) == 3, "QEMU wants every CPU that may ever be in a node"


def test_numa_nodes_without_cpus_of_its_own_are_refused() -> None:
    with pytest.raises(BadDomain, match="dedicated CPUs"):
        machine(a_numa_vmi())


@pytest.mark.parametrize(
    "parts",
    [
        {"memory": {}},
        {"machine": {"type": "q35,dump=/etc"}},
        {"cpu": {"model": "max,-x"}},
        {"devices": {"interfaces": [{"name": "a", "model": "toy"}]}},
    ],
    ids=["no memory", "machine type", "CPU model", "NIC model"],
)
def test_what_no_machine_can_be_is_refused(parts: Any) -> None:
    with pytest.raises(BadDomain, match="cannot make a machine of web"):
        machine(a_vmi(**parts))


# ---------------------------------------------------------------- a hypervisor Linux recognises


def line(made: Machine) -> str:
    return " ".join(cmdline.argv(made))


def test_an_emulated_machine_is_recognised_as_a_virtual_one() -> None:
    made = machine(a_vmi())
    shown = line(made)
    assert ",vmport=on," in shown
    assert "-cpu max,la57=off,hypervisor=off " in shown
    assert f"serial=VMware-{made.uuid}" in shown


def test_a_machine_with_kvm_is_as_it_was() -> None:
    made = domain.machine(a_vmi(), {}, Accelerator("kvm", ""), PLACE)
    shown = line(made)
    assert ",vmport=off," in shown
    assert "-cpu host " in shown
    assert "VMware" not in shown


CHOICES: dict[str, tuple[Any, str]] = {
    "a serial number": ({"firmware": {"serial": "mine"}}, "-cpu max,la57=off "),
    "a chassis": ({"chassis": {"serial": "mine"}}, "-cpu max,la57=off "),
    "the hypervisor flag": (
        {"cpu": {"features": [{"name": "hypervisor", "policy": "require"}]}},
        "-cpu max,hypervisor=on,la57=off ",
    ),
}


@pytest.mark.parametrize(("parts", "cpu"), CHOICES.values(), ids=CHOICES)
def test_what_the_owner_chose_stays(parts: Any, cpu: str) -> None:
    shown = line(machine(a_vmi(**parts)))
    assert ",vmport=off," in shown
    assert cpu in shown
    assert "VMware" not in shown


def test_five_level_paging_can_be_chosen() -> None:
    made = machine(a_vmi(cpu={"features": [{"name": "la57"}]}))
    assert "-cpu max,la57=on,hypervisor=off " in line(made)
