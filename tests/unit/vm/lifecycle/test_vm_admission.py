from __future__ import annotations

import copy
from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import definitions
from livevirt.vm.config import settings as configs
from livevirt.vm.kinds import KUBEVIRT, VM, VMI, support
from livevirt.vm.spec import defaults
from livevirt.vm.spec.refused_fields import HOOK_SIDECARS

from ..vm_review import COMPONENT, LIVE, STAGE, a_spec, a_vm, a_vmi, review

DISKS = "spec.template.spec.domain.devices.disks"
VOLUMES = "spec.template.spec.volumes"
DOMAIN = "spec.template.spec.domain"


def disk(name: str = "d", **rest: Any) -> Object:
    return {"name": name, **({"disk": {}} if not rest.keys() & {"cdrom", "lun"} else {}), **rest}


def with_disks(*disks: Object, source: Object | None = None) -> Object:
    volumes = [
        {"name": name, **(source or {"emptyDisk": {"capacity": "1Gi"}})}
        for name in dict.fromkeys(each["name"] for each in disks)
    ]
    return a_spec(devices={"disks": list(disks)}, volumes=volumes)


def with_volume(**source: Any) -> Object:
    return a_spec(devices={"disks": [disk()]}, volumes=[{"name": "d", **source}])


def cloud_init(**data: str) -> Object:
    return with_volume(cloudInitNoCloud=data)


def custom(logical: int, physical: int) -> Object:
    return {"custom": {"logical": logical, "physical": physical}}


CLOUD = f"{VOLUMES}[0].cloudInitNoCloud"
CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
RULES: dict[str, tuple[Object, str, str]] = {
    # disks
    "a disk without a volume": (
        a_spec(devices={"disks": [disk()]}), f"{DISKS}[0].name", f"{DISKS}[0].Name 'd' not found.",
    ),
    "two disks of a name": (
        with_disks(disk(), disk()), f"{DISKS}[1].name",
        f"{DISKS}[0] and {DISKS}[1] must not have the same Name.",
    ),
    "two targets": (
        with_disks(disk(disk={}, cdrom={})), f"{DISKS}[0]",
        f"{DISKS}[0] can only have a single target type defined",
    ),
    "a lun of something else than a claim": (
        with_disks(disk(lun={})), f"{DISKS}[0].lun",
        f"{DISKS}[0].lun can only be mapped to a DataVolume or PersistentVolumeClaim volume.",
    ),
    "the IDE bus": (
        with_disks(disk(disk={"bus": "ide"})), f"{DISKS}[0].disk.bus", "IDE bus is not supported",
    ),
    "a CD-ROM on virtio": (
        with_disks(disk(cdrom={"bus": "virtio"})), f"{DISKS}[0].cdrom.bus",
        "Bus type virtio is invalid for CD-ROM device",
    ),
    "a read-only sata disk": (
        with_disks(disk(disk={"bus": "sata", "readonly": True})), f"{DISKS}[0].disk.bus",
        "sata hard-disks do not support read-only.",
    ),
    "a bus nobody has": (
        with_disks(disk(disk={"bus": "floppy"})), f"{DISKS}[0].disk.bus",
        f"{DISKS}[0] is set with an unrecognized bus floppy, must be one of:"
        " [virtio scsi sata usb]",
    ),
    "an IO thread on scsi": (
        with_disks(disk(disk={"bus": "scsi"}, dedicatedIOThread=True)),
        f"{DISKS}[0].dedicatedIOThread", "IOThreads are not supported for disks on a scsi bus",
    ),
    "boot order 0": (
        with_disks(disk(bootOrder=0)), f"{DISKS}[0].bootOrder",
        f"{DISKS}[0] must have a boot order > 0, if supplied",
    ),
    "the same boot order twice": (
        with_disks(disk("a", bootOrder=1), disk("b", bootOrder=1)), f"{DISKS}[1].bootOrder",
        f"Boot order for {DISKS}[1].bootOrder already set for a different device.",
    ),
    "an odd serial": (
        with_disks(disk(serial="a b")), f"{DISKS}[0].serial",
        f"{DISKS}[0] must be made up of the following characters [A-Za-z0-9_.+-], if specified",
    ),
    "a long serial": (
        with_disks(disk(serial="a" * 257)), f"{DISKS}[0].serial",
        f"{DISKS}[0] must be less than or equal to 256 in length, if specified",
    ),
    "a cache nobody knows": (
        with_disks(disk(cache="all")), f"{DISKS}[0].cache",
        f"{DISKS}[0].cache has invalid value all",
    ),
    "a shared disk that is cached": (
        with_disks(disk(cache="writeback", shareable=True)), f"{DISKS}[0].cache",
        "a sharable disk requires cache = none got: writeback",
    ),
    "an IO mode nobody knows": (
        with_disks(disk(io="fast")), f"{DISKS}[0].io",
        f"Disk IO mode for {DISKS}[0] is not supported. Supported modes are: native, threads.",
    ),
    "an IO mode that its cache does not allow": (
        with_disks(disk(io="native", cache="writethrough")), f"{DISKS}[0].io",
        f"Disk IO mode native for {DISKS}[0] requires cache = none",
    ),
    "an error policy nobody knows": (
        with_disks(disk(errorPolicy="cry")), f"{DISKS}[0].errorPolicy",
        f'{DISKS}[0].errorPolicy has invalid value "cry"',
    ),
    "a PCI address on sata": (
        with_disks(disk(disk={"bus": "sata", "pciAddress": "0000:81:01.0"})),
        f"{DISKS}[0].disk.pciAddress",
        f"disk {DISKS}[0] - setting a PCI address is only possible with bus type virtio.",
    ),
    "a malformed PCI address": (
        with_disks(disk(disk={"bus": "virtio", "pciAddress": "x"})),
        f"{DISKS}[0].disk.pciAddress", f"disk {DISKS}[0] has malformed PCI address (x).",
    ),
    "a block size that is no power of two": (
        with_disks(disk(disk={"bus": "virtio"}, blockSize=custom(513, 1024))),
        f"{DISKS}[0].blockSize.custom.logical", "Provided size of 513 is not a power of 2",
    ),
    "a logical block beyond the physical one": (
        with_disks(disk(disk={"bus": "virtio"}, blockSize=custom(4096, 512))),
        f"{DISKS}[0].blockSize.custom.logical",
        "Logical size 4096 must be the same or less than the physical size of 512",
    ),
    # volumes
    "two volumes of a name": (
        a_spec(volumes=[{"name": "a", "emptyDisk": {"capacity": "1Gi"}}] * 2), f"{VOLUMES}[1].name",
        f"{VOLUMES}[0] and {VOLUMES}[1] must not have the same Name.",
    ),
    "a volume without a source": (
        with_volume(), f"{VOLUMES}[0]", f"{VOLUMES}[0] must have exactly one source type set",
    ),
    "a volume with two": (
        with_volume(emptyDisk={"capacity": "1Gi"}, **CLAIM), f"{VOLUMES}[0]",
        f"{VOLUMES}[0] must have exactly one source type set",
    ),
    "a DataVolume without a name": (
        with_volume(dataVolume={"name": ""}), f"{VOLUMES}[0].name", "DataVolume 'name' must be set",
    ),
    "a disk at the root of its image": (
        with_volume(containerDisk={"image": "i", "path": "/"}), f"{VOLUMES}[0].containerDisk.path",
        f"{VOLUMES}[0].containerDisk.path must not point to root",
    ),
    "a disk that leaves its image": (
        with_volume(containerDisk={"image": "i", "path": "/disk/../../etc"}),
        f"{VOLUMES}[0].containerDisk.path",
        f"{VOLUMES}[0].containerDisk.path must be an absolute path to a file without relative"
        " components",
    ),
    "user data twice": (
        cloud_init(userData="a", userDataBase64="YQ=="), CLOUD,
        f"{CLOUD} must have only one userdatasource set.",
    ),
    "no cloud-init data": (
        cloud_init(), CLOUD,
        f"{CLOUD} must have at least one userdatasource or one networkdatasource set.",
    ),
    "large user data": (
        cloud_init(userData="a" * 2049), f"{CLOUD}.userData",
        f"{CLOUD}.userData userdata exceeds 2048 byte limit. Should use UserDataSecretRef for"
        " larger data.",
    ),
    "an empty disk of nothing": (
        with_volume(emptyDisk={"capacity": "1k"}), f"{VOLUMES}[0].emptyDisk.capacity",
        "the size for volume d is too low",
    ),
    "user data that is no base64": (
        cloud_init(userDataBase64="é"), f"{CLOUD}.userDataBase64",
        f"{CLOUD}.userDataBase64 is not a valid base64 value.",
    ),
    "utility volumes": (
        a_spec(utilityVolumes=[{"name": "u"}]), "spec.template.spec.utilityVolumes",
        "cannot create VMI with utility volumes in spec, utility volumes can only be added via"
        " hotplug",
    ),
    # sizes
    "more sockets than there may be": (
        a_spec(cpu={"sockets": 3, "maxSockets": 2}), f"{DOMAIN}.cpu.sockets",
        "Number of sockets in CPU topology is greater than the maximum sockets allowed",
    ),
    "more cores than can be counted": (
        a_spec(cpu={"cores": 10**12}), f"{DOMAIN}.cpu.cores",
        f"{DOMAIN}.cpu.cores must be equal to or less than 4294967295.",
    ),
    "no memory": (
        a_spec(memory={}), f"{DOMAIN}.memory.guest",
        f"no memory requested, at least one of {DOMAIN}.memory.guest,"
        f" {DOMAIN}.memory.hugepages.size or {DOMAIN}.resources.requests.memory must be set",
    ),
    "more memory than there may be": (
        a_spec(memory={"guest": "2Gi", "maxGuest": "1Gi"}), f"{DOMAIN}.memory.guest",
        "Guest memory is greater than the configured maxGuest memory",
    ),
    "an odd maximum": (
        a_spec(memory={"guest": "1Gi", "maxGuest": "1025Mi"}), f"{DOMAIN}.memory.guest",
        "MaxGuest must be 2Mi aligned",
    ),
    "requests beyond limits": (
        a_spec(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}),
        f"{DOMAIN}.resources.requests.memory",
        f"{DOMAIN}.resources.requests.memory '2Gi' is greater than"
        f" {DOMAIN}.resources.limits.memory '1Gi'",
    ),
    "pages of no size": (
        a_spec(memory={"guest": "128Mi", "hugepages": {"pageSize": "foo"}}),
        f"{DOMAIN}.memory.hugepages.pageSize",
        f"{DOMAIN}.memory.hugepages.pageSize 'foo' must be one of: 2Mi, 1Gi",
    ),
    "more memory than there is": (
        a_spec(memory={"guest": "1e1000"}), f"{DOMAIN}.memory.guest",
        f"{DOMAIN}.memory.guest must be equal to or less than 9223372036854775807.",
    ),
    "a request as large": (
        a_spec(resources={"requests": {"memory": "1e1000"}}),
        f"{DOMAIN}.resources.requests.memory",
        f"{DOMAIN}.resources.requests.memory must be equal to or less than 9223372036854775807.",
    ),
    "a limit of nothing": (
        a_spec(resources={"limits": {"cpu": 0}}), f"{DOMAIN}.resources.limits.cpu",
        f"{DOMAIN}.resources.limits.cpu leaves the pod 0, and it asks for 100m",
    ),
    # the rest
    "a policy nobody knows": (
        a_spec(cpu={"features": [{"name": "vmx", "policy": "disabled"}]}),
        f"{DOMAIN}.cpu.features[0].policy",
        "CPU feature vmx uses policy disabled that is not supported.",
    ),
    "a machine type nobody has": (
        a_spec(machine={"type": "pc"}), f"{DOMAIN}.machine.type",
        f"{DOMAIN}.machine.type is not supported: pc (allowed values: [q35* pc-q35*])",
    ),
    "an interface without a network": (
        a_spec(devices={"interfaces": [{"name": "a", "masquerade": {}}]}),
        f"{DOMAIN}.devices.interfaces[0].name",
        f"{DOMAIN}.devices.interfaces[0].name 'a' not found.",
    ),
    "a network without an interface": (
        a_spec(networks=[{"name": "a", "pod": {}}]), "spec.template.spec.networks[0].name",
        "spec.template.spec.networks[0].name 'a' not found.",
    ),
    "a malformed MAC address": (
        a_spec(
            devices={"interfaces": [{"name": "a", "masquerade": {}, "macAddress": "zz"}]},
            networks=[{"name": "a", "pod": {}}],
        ),
        f"{DOMAIN}.devices.interfaces[0].macAddress",
        f"interface {DOMAIN}.devices.interfaces[0] has malformed MAC address (zz).",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "message"), RULES.values(), ids=RULES)
def test_a_vm_is_refused(spec: Object, field: str, message: str) -> None:
    _, errors, _ = review(VM, a_vm(spec))
    assert [(error.field, error.message) for error in errors] == [(field, message)]


def refused_vm(**spec: Any) -> list[str]:
    vm = a_vm()
    vm["spec"] = {key: value for key, value in {**vm["spec"], **spec}.items() if value is not None}
    return [error.message for error in review(VM, vm)[1]]


def test_a_vm_says_in_one_way_when_it_runs() -> None:
    assert refused_vm(running=True) == [
        "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please"
        " use RunStrategy instead"
    ]
    assert refused_vm(runStrategy=None) == ["One of Running or RunStrategy must be specified"]
    assert refused_vm(runStrategy="Sometimes") == ["Invalid RunStrategy (Sometimes)"]
    assert refused_vm(runStrategy=None, running=False) == []


def test_a_size_may_come_from_an_instance_type() -> None:
    vm = a_vm(a_spec(memory={}), instancetype={"name": "u1.nano"})
    assert review(VM, vm)[1] == []


def test_under_stage_a_guest_fits_its_limit() -> None:
    spec = a_spec(resources={"limits": {"memory": "512Mi"}})
    assert review(VM, a_vm(spec), settings=LIVE)[1] == []
    [error] = review(VM, a_vm(spec), settings=STAGE)[1]
    assert "must be equal to or less than the memory limit" in error.message


def test_an_empty_cd_rom_needs_its_gate() -> None:
    vm = a_vm(a_spec(devices={"disks": [disk(cdrom={})]}))
    assert review(VM, vm)[1] == []
    [error] = review(VM, vm, settings=STAGE)[1]
    assert error.message == (
        "InjectEjectCDROM feature gate not enabled, cannot define an empty CD-ROM disk"
    )


SOURCE = {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}}
USED = a_spec(volumes=[{"name": "d", "dataVolume": {"name": "disk"}}])


def templates(*entries: Object, spec: Object = USED) -> list[str]:
    vm = a_vm(copy.deepcopy(spec), dataVolumeTemplates=list(entries))
    return [error.message for error in review(VM, vm)[1]]


def test_data_volume_templates_are_used_and_complete() -> None:
    assert templates({"metadata": {"name": "disk"}, "spec": SOURCE}) == []
    assert templates({"metadata": {"name": "other"}, "spec": SOURCE}) == [
        "DataVolumeTemplate entry spec.dataVolumeTemplate[0] must be referenced in the VMI"
        " template's 'volumes' list"
    ]
    [message] = templates({"metadata": {"name": "My_Disk"}, "spec": SOURCE})
    assert "spec.dataVolumeTemplate[0] has no valid name: a lowercase RFC 1123" in message
    elsewhere = {"metadata": {"name": "disk", "namespace": "x"}, "spec": SOURCE}
    assert templates(elsewhere) == [
        "Embedded DataVolume namespace x differs from VM namespace default"
    ]
    [message] = templates({"metadata": {"name": "disk"}, "spec": {"source": {"blank": {}}}})
    assert "Missing Data volume PVC or Storage" in message


@pytest.mark.parametrize("policy", ["", "force", "require", "optional", "disable", "forbid"])
def test_policies_of_a_cpu_feature(policy: str) -> None:
    spec = a_spec(cpu={"features": [{"name": "vmx", "policy": policy}, {"name": "sse4.1"}]})
    assert review(VM, a_vm(spec))[1] == []


METADATA: dict[str, tuple[Object, set[str]]] = {
    "labels that are none": ({"labels": {"a b": "c d"}}, {"labels"}),
    "a long label": ({"labels": {"a": "v" * 64}}, {"labels"}),
    "an annotation that is none": ({"annotations": {"a b": "c"}}, {"annotations"}),
    "large annotations": ({"annotations": {"a": "v" * 300_000}}, {"annotations"}),
    "both": ({"labels": {"": "x"}, "annotations": {"": "x"}}, {"labels", "annotations"}),
    "good ones": ({"labels": {"app": None, "a/b": "c"}, "annotations": {"a": "b c"}}, set()),
    "neither": ({"labels": None}, set()),
}


@pytest.mark.parametrize(("metadata", "fields"), METADATA.values(), ids=METADATA)
def test_what_is_made_of_a_template_can_have_its_metadata(
    metadata: Object, fields: set[str]
) -> None:
    vm = a_vm(copy.deepcopy(USED))
    vm["spec"]["template"]["metadata"] = metadata
    found = {error.field for error in review(VM, vm)[1]}
    assert found == {f"spec.template.metadata.{field}" for field in fields}
    entry = {"metadata": {"name": "disk", **metadata}, "spec": SOURCE}
    vm = a_vm(copy.deepcopy(USED), dataVolumeTemplates=[entry])
    found = {error.field for error in review(VM, vm)[1]}
    assert found == {f"spec.dataVolumeTemplates[0].metadata.{field}" for field in fields}


# ---------------------------------------------------------------- what a VM becomes


def test_nothing_is_written_into_a_vms_spec() -> None:
    vm = a_vm(runStrategy="Always")
    stored, errors, _ = review(VM, vm)
    assert errors == []
    assert stored["spec"] == vm["spec"]


def test_a_vm_that_runs_is_held_from_the_start_and_a_halted_one_is_left_as_it_is() -> None:
    held, _, _ = review(VM, a_vm(runStrategy="Always"))
    assert held["metadata"]["finalizers"] == ["kubevirt.io/virtualMachineControllerFinalize"]
    halted = a_vm()
    assert review(VM, halted)[0] == halted


def test_a_vm_on_its_way_out_can_still_be_edited() -> None:
    vm = a_vm(a_spec(machine={"type": "pc"}))
    vm["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert review(VM, vm, a_vm())[1] == []


def test_a_vm_whose_spec_stays_is_not_judged_again() -> None:
    vm = a_vm(a_spec(machine={"type": "pc"}))
    assert review(VM, vm, copy.deepcopy(vm))[1] == []


def test_a_vm_can_be_halted_whatever_is_wrong_with_it() -> None:
    bad = a_spec(machine={"type": "pc"})
    old = a_vm(bad, runStrategy="Always")
    assert review(VM, a_vm(bad), old)[1] == []
    assert review(VM, a_vm(bad, runStrategy="Manual"), old)[1] != []
    assert review(VM, a_vm(bad, running=True), old)[1] != []
    assert review(VM, a_vm({**bad, "hostname": "other"}), old)[1] != []


# ---------------------------------------------------------------- warnings


def test_fields_nobody_acts_on_are_named() -> None:
    devices = {"tpm": {}, "gpus": [{"name": "g", "deviceName": "x"}], "autoattachVSOCK": False}
    _, errors, warnings = review(VM, a_vm(a_spec(devices=devices)))
    assert errors == []
    assert warnings == [
        f"{DOMAIN}.devices.tpm: stored but ignored by livevirt",
        f"{DOMAIN}.devices.gpus: stored but ignored by livevirt",
    ]


def test_what_is_served_gives_no_warning() -> None:
    spec = with_disks(disk(disk={"bus": "virtio"}, bootOrder=1, cache="none", serial="x"))
    spec |= {"networks": [{"name": "n", "pod": {}}], "hostname": "h"}
    spec["domain"]["devices"]["interfaces"] = [{"name": "n", "masquerade": {}}]
    assert review(VM, a_vm(spec))[2] == []


@pytest.mark.parametrize(("tray", "named"), [("open", True), ("closed", False)])
def test_a_tray_is_closed_whatever_is_asked_for(tray: str, named: bool) -> None:
    warnings = review(VM, a_vm(with_disks(disk(cdrom={"bus": "sata", "tray": tray}))))[2]
    told = f"{DISKS}.cdrom.tray: stored but ignored by livevirt"
    assert warnings == ([told] if named else [])


def test_the_old_running_switch_is_called_deprecated() -> None:
    vm = a_vm(running=True)
    del vm["spec"]["runStrategy"]
    assert review(VM, vm)[2] == ["spec.running is deprecated, please use spec.runStrategy instead."]


FEW_NODES: dict[str, tuple[Object, list[str]]] = {
    "as much as every node starts": (
        {"cpu": {"sockets": 64, "maxSockets": 255}, "memory": {"guest": "240Gi"}}, [],
    ),
    "a maximum of sockets": (
        {"cpu": {"sockets": 1, "cores": 4, "maxSockets": 64}},
        [
            f"{DOMAIN}.cpu: a maximum of 64 sockets of 4x1 CPUs needs a node with KVM and a QEMU"
            " for that many; every node starts 63"
        ],
    ),
    "a maximum of memory": (
        {"memory": {"guest": "1Gi", "maxGuest": "1000Gi"}},
        [f"{DOMAIN}.memory: a maximum of 1000Gi needs a node with KVM; every node starts 960Gi"],
    ),
    "one that is filled in": (
        {"memory": {"guest": "256Gi"}},
        [f"{DOMAIN}.memory: a maximum of 1Ti needs a node with KVM; every node starts 960Gi"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sizes", "expected"), FEW_NODES.values(), ids=FEW_NODES)
def test_sizes_that_few_nodes_start_are_let_in_with_a_warning(
    sizes: Object, expected: list[str]
) -> None:
    _, errors, warnings = review(VM, a_vm(a_spec(**sizes)))
    assert (errors, warnings) == ([], expected)
    alone = [text.replace("spec.template.spec", "spec") for text in expected]
    assert review(VMI, a_vmi(a_spec(**sizes)))[1:] == ([], alone)


def test_sizes_of_the_start_count_where_nothing_grows() -> None:
    spec = a_spec(cpu={"sockets": 256}, memory={"guest": "256Gi"})
    _, errors, warnings = review(VM, a_vm(spec), settings=STAGE)
    assert (errors, len(warnings)) == ([], 1)
    assert "256 sockets" in warnings[0]


def test_many_warnings_are_summed_up() -> None:
    fields = {f"field{n}": 1 for n in range(30)}
    found = support.warnings("spec", fields)
    assert len(found) == support.MOST_WARNINGS
    assert found[-1] == "spec: 21 more fields are not acted on"


def test_every_supported_path_is_one_of_the_api() -> None:
    for path in support.SUPPORTED:
        type_ = definitions()["kubevirt.VirtualMachineInstanceSpec"]
        for name in path.split("."):
            while type_.element is not None:
                type_ = type_.element
            assert name in type_.fields, path
            type_ = type_.fields[name].type


# ---------------------------------------------------------------- instances


def test_a_new_instance_is_made_complete_and_records_the_clusters_defaults() -> None:
    owner = {"kind": "VirtualMachine", "name": "web", "uid": "v1", "controller": True}
    given = a_vmi(ownerReferences=[owner])
    given["status"] = {"virtualMachineRevisionName": "r", "phase": "Running"}
    vmi, errors, _ = review(VMI, given, user=COMPONENT)
    assert errors == []
    assert vmi["spec"]["domain"]["firmware"]["uuid"] == defaults.firmware_uuid("v1")
    assert vmi["spec"]["domain"]["cpu"]["maxSockets"] == 4
    assert vmi["metadata"]["finalizers"] == ["kubevirt.io/foregroundDeleteVirtualMachine"]
    assert configs.recorded(vmi).max_hotplug_ratio == 4
    [ready] = vmi["status"].pop("conditions")
    assert (ready["type"], ready["status"], ready["reason"]) == (
        "Ready", "False", "GuestNotRunning",
    )  # fmt: skip
    assert vmi["status"] == {
        "phase": "Pending",
        "phaseTransitionTimestamps": [
            {"phase": "Pending", "phaseTransitionTimestamp": "2030-01-01T12:00:00Z"}
        ],
        "virtualMachineRevisionName": "r",
        "currentCPUTopology": {"cores": 1, "sockets": 1, "threads": 1},
        "memory": {"guestAtBoot": "1Gi", "guestRequested": "1Gi"},
    }


def test_a_persons_instance_has_its_own_identity_and_no_status_of_theirs() -> None:
    given = a_vmi()
    given["status"] = {"virtualMachineRevisionName": "r", "nodeName": "n"}
    vmi, _, _ = review(VMI, given)
    assert vmi["spec"]["domain"]["firmware"]["uuid"] == defaults.firmware_uuid("i1")
    assert vmi["status"].keys() == {
        "phase", "phaseTransitionTimestamps", "conditions", "currentCPUTopology", "memory",
    }  # fmt: skip


def test_every_volume_of_a_new_instance_gets_a_disk() -> None:
    volumes = [
        {"name": "seen", "containerDisk": {"image": "a"}},
        {"name": "shared", "configMap": {"name": "a"}},
        {"name": "bare", "emptyDisk": {"capacity": "1Gi"}},
        {"name": "dump", "memoryDump": {"claimName": "a"}},
    ]
    devices = {
        "disks": [{"name": "seen", "disk": {"bus": "virtio"}}],
        "filesystems": [{"name": "shared", "virtiofs": {}}],
    }
    vmi, errors, _ = review(VMI, a_vmi(a_spec(devices=devices, volumes=volumes)))
    assert errors == []
    assert vmi["spec"]["domain"]["devices"]["disks"] == [
        {"name": "seen", "disk": {"bus": "virtio"}},
        {"name": "bare", "disk": {"bus": "sata"}},
    ]


HOST_DISK = {"name": "d", "hostDisk": {"path": "/disk.img", "type": "Disk"}}
KERNEL = {"kernelBoot": {"container": {"image": "a", "kernelPath": "/vmlinuz"}}}
NOT_PROVIDED: dict[str, tuple[Object, str]] = {
    "a disk of the host": (a_spec(volumes=[HOST_DISK]), "volumes[0].hostDisk"),
    "a kernel": (a_spec(firmware=KERNEL), "domain.firmware.kernelBoot"),
}


@pytest.mark.parametrize(("spec", "field"), NOT_PROVIDED.values(), ids=NOT_PROVIDED)
def test_what_a_guest_cannot_do_without_and_we_do_not_provide_is_refused(
    spec: Object, field: str
) -> None:
    for kind, obj, path in ((VM, a_vm(spec), "spec.template.spec"), (VMI, a_vmi(spec), "spec")):
        [error] = review(kind, obj)[1]
        assert (error.reason, error.field) == ("FieldValueNotSupported", f"{path}.{field}")


def test_hook_sidecars_are_refused() -> None:
    vmi, vm = a_vmi(), a_vm()
    for sidecars in ("[]", '[{"image": "hook"}]'):
        annotations = {"annotations": {HOOK_SIDECARS: sidecars}}
        vmi["metadata"] |= annotations
        vm["spec"]["template"]["metadata"] = annotations
        [of_vmi], [of_vm] = review(VMI, vmi)[1], review(VM, vm)[1]
        assert of_vmi.field == f"metadata.annotations[{HOOK_SIDECARS}]"
        assert of_vm.field == f"spec.template.metadata.annotations[{HOOK_SIDECARS}]"
    vm["spec"]["template"]["metadata"] = {"annotations": {HOOK_SIDECARS: ""}}
    assert review(VM, vm)[1] == []


def test_people_change_neither_spec_nor_status_of_an_instance() -> None:
    old, _, _ = review(VMI, a_vmi())
    new = copy.deepcopy(old)
    new["status"]["phase"] = "Running"
    new["metadata"]["labels"] = {"a": "b"}
    stored, errors, _ = review(VMI, new, old)
    assert errors == []
    assert stored["status"] == old["status"]
    assert stored["metadata"]["labels"] == {"a": "b"}
    new["spec"]["hostname"] = "other"
    [error] = review(VMI, new, old)[1]
    assert error.message == "update of VMI object is restricted"


def test_not_even_we_change_the_maxima() -> None:
    old, _, _ = review(VMI, a_vmi())
    new = copy.deepcopy(old)
    new["spec"]["domain"]["cpu"] |= {"sockets": 2, "maxSockets": 8}
    new["spec"]["domain"]["memory"]["maxGuest"] = "8Gi"
    errors = review(VMI, new, old, user=COMPONENT)[1]
    assert [error.message for error in errors] == [
        "CPU topology maxSockets changed",
        "Memory maxGuest changed",
    ]
    new["spec"]["domain"] |= {"memory": old["spec"]["domain"]["memory"]}
    new["spec"]["domain"]["cpu"]["maxSockets"] = 4
    assert review(VMI, new, old, user=COMPONENT)[1] == []


# ---------------------------------------------------------------- the KubeVirt object

SETTINGS: dict[str, tuple[Object, str]] = {
    "a gate that is on and off": (
        {"developerConfiguration": {"featureGates": ["A"], "disabledFeatureGates": ["A"]}},
        'feature gate "A" exists on both "FeatureGates" and "DisabledFeatureGates"',
    ),
    "a strategy nobody knows": ({"vmRolloutStrategy": "Later"}, "'Later' is none of"),
    "no ratio": ({"developerConfiguration": {"cpuAllocationRatio": 0}}, "greater than 0"),
    "hardly any memory": ({"developerConfiguration": {"memoryOvercommit": 9}}, "at least 10"),
    "less than the overhead": ({"additionalGuestMemoryOverheadRatio": "0.5"}, "at least 1.0"),
    "no number": ({"additionalGuestMemoryOverheadRatio": "much"}, "at least 1.0"),
    "fewer migrations than none": (
        {"migrations": {"parallelMigrationsPerCluster": -1}},
        "must not be negative",
    ),
    "less bandwidth than none": (
        {"migrations": {"bandwidthPerMigration": "-1Mi"}},
        "must not be negative",
    ),
}


@pytest.mark.parametrize(("settings", "message"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting_that_cannot_be_followed_is_refused(settings: Object, message: str) -> None:
    obj = {"metadata": {"name": "kubevirt"}, "spec": {"configuration": settings}}
    [error] = review(KUBEVIRT, obj)[1]
    assert message in error.message


UPDATES: dict[str, tuple[Object, str]] = {
    "a method nobody knows": ({"workloadUpdateMethods": ["Pray"]}, "'Pray' is none of"),
    "no duration": ({"batchEvictionInterval": "soon"}, "duration"),
    "fewer than none": ({"batchEvictionSize": -1}, "must not be negative"),
}


@pytest.mark.parametrize(("updates", "message"), UPDATES.values(), ids=UPDATES)
def test_an_update_of_workloads_that_cannot_be_done_is_refused(
    updates: Object, message: str
) -> None:
    obj = {"metadata": {"name": "kubevirt"}, "spec": {"workloadUpdateStrategy": updates}}
    [error] = review(KUBEVIRT, obj)[1]
    assert message in error.message


def test_the_settings_of_a_new_cluster_are_fine() -> None:
    obj = {"metadata": {"name": "kubevirt"}, "spec": {"configuration": LIVE}}
    assert review(KUBEVIRT, obj)[1] == []
