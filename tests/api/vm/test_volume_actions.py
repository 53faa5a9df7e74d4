"""addvolume and removevolume edit the spec and nothing else, against a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from livevirt.errors import ApiError, BadRequest, Conflict, Invalid, NotFound
from livevirt.kube.objects.request import ActionPath, Answer, Object
from livevirt.vm import kinds
from livevirt.vm.config import settings
from livevirt.vm.subresources.router import Actions

from ..manifests import a_vmi
from .vm_world import ADMIN, NAMESPACE, PlayedNode, World

VM, VMI = "virtualmachines", "virtualmachineinstances"
ROOT = {"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}
ROOT_DISK = {"name": "root", "disk": {"bus": "virtio"}}
DRIVE = {"name": "cd", "cdrom": {"bus": "sata"}}
ALL = {"dryRun": ["All"]}


def on_claim(name: str, claim: str = "") -> Object:
    return {
        "name": name,
        "persistentVolumeClaim": {"claimName": claim or name, "hotpluggable": True},
    }


def adding(name: str = "data", claim: str = "claim", **disk: Any) -> Object:
    return {
        "name": name,
        "disk": disk or {"disk": {"bus": "scsi"}, "serial": name},
        "volumeSource": {"persistentVolumeClaim": {"claimName": claim}},
    }


def a_spec(*volumes: Object, disks: tuple[Object, ...] = ()) -> Object:
    return {
        "domain": {
            "memory": {"guest": "512Mi"},
            "devices": {"disks": [ROOT_DISK, DRIVE, *disks]},
        },
        "volumes": [ROOT, *volumes],
    }


class Verbs:
    """The verbs as an administrator sends them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._actions = Actions(world.components, None)  # type: ignore[arg-type] # no guest is asked

    async def __call__(self, verb: str, body: Any = None, *, of: str = VM) -> Answer:
        http = make_mocked_request("PUT", "/")
        answer = await self._actions.handle(
            ActionPath(of, NAMESPACE, "web", verb), http, ADMIN, body
        )
        assert isinstance(answer, Answer)
        return answer

    async def refused(self, verb: str, body: Any = None, *, of: str = VM) -> ApiError:
        with pytest.raises(ApiError) as error:
            await self(verb, body, of=of)
        return error.value


@pytest.fixture
def verbs(world: World) -> Verbs:
    return Verbs(world)


def lists(obj: Object) -> tuple[list[Object], list[Object]]:
    spec = obj["spec"]["template"]["spec"] if "template" in obj["spec"] else obj["spec"]
    return spec["volumes"], spec["domain"]["devices"]["disks"]


async def create_vm(world: World, strategy: str = "Halted", **spec: Any) -> Object:
    return await world.create_vm(strategy, template={"spec": a_spec(**spec)})


async def create_instance(world: World, *volumes: Object, **spec: Any) -> None:
    await world.owner.create(kinds.VMI, a_vmi(spec=a_spec(*volumes, **spec)), NAMESPACE)


def runs(world: World) -> bool:
    return bool((world.vmi().get("status") or {}).get("phase") == "Running")


async def open_gates(world: World, *gates: str) -> None:
    developer = {"developerConfiguration": {"featureGates": [*gates]}}
    patch = {"spec": {"configuration": developer}}
    await world.owner.patch(kinds.KUBEVIRT, settings.NAME, settings.NAMESPACE, patch)


# ---------------------------------------------------------------- VMs


async def test_a_volume_is_added_to_and_removed_from_a_stopped_vm_even_of_a_claim_to_come(
    world: World, verbs: Verbs
) -> None:
    before = lists(await create_vm(world))
    answer = await verbs("addvolume", adding())
    assert (answer.code, answer.body) == (202, b"")
    volumes, disks = lists(world.vm())
    assert volumes == [ROOT, on_claim("data", "claim")]
    assert disks == [ROOT_DISK, DRIVE, {"name": "data", "disk": {"bus": "scsi"}, "serial": "data"}]
    assert "volumeRequests" not in (world.vm().get("status") or {})
    assert (await verbs("removevolume", {"name": "data"})).code == 202
    assert lists(world.vm()) == before


async def test_a_vm_that_lists_no_disks_gets_a_list(world: World, verbs: Verbs) -> None:
    before = (await world.create_vm("Halted"))["spec"]
    await verbs("addvolume", adding(disk={}))
    volumes, disks = lists(world.vm())
    assert volumes == [ROOT, on_claim("data", "claim")]
    assert disks == [{"name": "data", "disk": {}}], "the bus is chosen when it is plugged"
    await verbs("removevolume", {"name": "data"})
    assert world.vm()["spec"] == before, "the list that became empty is gone"


async def test_a_data_volume_is_added_as_hotpluggable_whatever_is_said(
    world: World, verbs: Verbs
) -> None:
    await create_vm(world)
    source = {"dataVolume": {"name": "dv", "hotpluggable": False}}
    await verbs("addvolume", adding() | {"volumeSource": source})
    assert lists(world.vm())[0][1:] == [
        {"name": "data", "dataVolume": {"name": "dv", "hotpluggable": True}}
    ]


async def test_a_running_vm_says_what_becomes_of_it_and_its_instance_follows(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await create_vm(world, "Always")
    await world.until(world.ready)
    answer = await verbs("addvolume", adding())
    assert len(answer.warnings) == 1
    assert answer.warnings[0].startswith("live: ")
    await world.until(lambda: on_claim("data", "claim") in lists(world.vmi())[0])
    assert world.vmi()["spec"]["domain"]["devices"]["disks"][-1]["name"] == "data"
    await verbs("removevolume", {"name": "data"})
    await world.until(lambda: len(lists(world.vmi())[0]) == 1)
    assert "volumeRequests" not in world.vm()["status"]


async def test_a_bus_that_takes_no_disk_live_is_told_and_waits_for_a_restart(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await create_vm(world, "Always")
    await world.until(world.ready)
    answer = await verbs("addvolume", adding(disk={"bus": "sata"}))
    assert answer.code == 202
    assert [text.partition(":")[0] for text in answer.warnings] == ["at the next restart only"]
    await world.until(lambda: world.vm()["status"].get("pendingChanges"))


@pytest.mark.parametrize("disk", [{}, {"disk": {"bus": "scsi"}, "serial": "cd"}])
async def test_a_volume_named_like_an_empty_drive_is_put_into_it_and_removing_it_leaves_the_drive(
    world: World, verbs: Verbs, disk: Object
) -> None:
    before = lists(await create_vm(world))
    await verbs("addvolume", adding("cd", "disc") | {"disk": disk})
    assert lists(world.vm()) == ([ROOT, on_claim("cd", "disc")], [ROOT_DISK, DRIVE])
    await verbs("removevolume", {"name": "cd"})
    assert lists(world.vm()) == before


async def test_a_volume_is_removed_by_the_name_of_its_claim(world: World, verbs: Verbs) -> None:
    await create_vm(world)
    await verbs("addvolume", adding())
    assert (await verbs("removevolume", {"name": "claim"})).code == 202
    assert lists(world.vm()) == ([ROOT], [ROOT_DISK, DRIVE])


async def test_a_dry_run_is_checked_by_the_same_rules_and_changes_nothing(
    world: World, verbs: Verbs
) -> None:
    await create_vm(world)
    before = world.vm()
    assert (await verbs("addvolume", adding() | ALL)).code == 202
    assert world.vm() == before
    refused = await verbs.refused("addvolume", adding(disk={"bus": "ide"}) | ALL)
    assert "IDE bus is not supported" in refused.message
    await verbs("addvolume", adding())
    await verbs("removevolume", {"name": "data", **ALL})
    assert len(lists(world.vm())[0]) == 2


async def test_many_at_once_all_get_in(world: World, verbs: Verbs) -> None:
    await create_vm(world)
    names = [f"v{number:02}" for number in range(25)]
    await asyncio.gather(*(verbs("addvolume", adding(each, each)) for each in names))
    assert sorted(v["name"] for v in lists(world.vm())[0]) == ["root", *names]
    await asyncio.gather(*(verbs("removevolume", {"name": each}) for each in names))
    assert lists(world.vm()) == ([ROOT], [ROOT_DISK, DRIVE])


NO_BODY = "Request with no body, a new name is expected as the request body"
SAID = 'Operation cannot be fulfilled on virtualmachine.kubevirt.io "web": '
REFUSED: dict[str, tuple[str, Any, type[ApiError], str]] = {
    "no body": ("addvolume", None, BadRequest, NO_BODY),
    "a body that is no object": ("removevolume", ["data"], BadRequest, NO_BODY),
    "an addition without a name": (
        "addvolume", adding(""), BadRequest, "AddVolumeOptions requires name to be set",
    ),
    "an addition without a disk": (
        "addvolume", {"name": "data", "volumeSource": {}}, BadRequest,
        "AddVolumeOptions requires disk to not be nil",
    ),
    "an addition without a source": (
        "addvolume", {"name": "data", "disk": {}}, BadRequest,
        "AddVolumeOptions requires VolumeSource to not be nil",
    ),
    "a removal without a name": (
        "removevolume", {}, BadRequest, "RemoveVolumeOptions requires name to be set",
    ),
    "a disk that is none": (
        "addvolume", adding() | {"disk": "sda"}, BadRequest,
        'disk: Invalid value: "string": disk in body must be of type object: "string"',
    ),
    "a dry run of something": (
        "addvolume", adding() | {"dryRun": ["Some"]}, BadRequest,
        'dryRun: Unsupported value: "Some": supported values: "All"',
    ),
    "a dry run of something else": (
        "removevolume", {"name": "data", "dryRun": ["All", "None"]}, BadRequest,
        'dryRun: Unsupported value: "None": supported values: "All"',
    ),
    "a name that is taken": (
        "addvolume", adding("root"), Conflict,
        f"{SAID}Unable to add volume [root] because volume with that name already exists",
    ),
    "a claim that is used": (
        "addvolume", adding("more", "used"), Conflict,
        f"{SAID}Unable to add volume source [used] because it already exists",
    ),
    "a volume that is not there": (
        "removevolume", {"name": "gone"}, Conflict,
        f"{SAID}Unable to remove volume [gone] because it does not exist",
    ),
    "a volume of the start": (
        "removevolume", {"name": "root"}, Conflict,
        f"{SAID}Unable to remove volume [root] because it is not hotpluggable",
    ),
    "two kinds of device": (
        "addvolume", adding(disk={}, lun={}), Invalid,
        "spec.template.spec.domain.devices.disks[3] can only have a single target type defined",
    ),
    "a source without any": (
        "addvolume", adding() | {"volumeSource": {}}, Invalid,
        "spec.template.spec.volumes[2] must have exactly one source type set",
    ),
    "a source that cannot be plugged": (
        "addvolume", adding() | {"volumeSource": {"containerDisk": {"image": "x"}}}, Invalid,
        "spec.template.spec.volumes[2] must have exactly one source type set",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("verb", "body", "error", "message"), REFUSED.values(), ids=REFUSED)
async def test_a_vm_refuses(
    world: World, verbs: Verbs, verb: str, body: Any, error: type[ApiError], message: str
) -> None:
    held = {"name": "held", "disk": {"bus": "scsi"}}
    spec = a_spec(on_claim("held", "used"), disks=(held,))
    before = await world.create_vm("Halted", template={"spec": spec})
    refused = await verbs.refused(verb, body)
    assert type(refused) is error
    assert message == refused.message or (error is Invalid and message in refused.message)
    assert world.vm()["spec"] == before["spec"]


async def test_a_field_that_nobody_knows_is_named(world: World, verbs: Verbs) -> None:
    await create_vm(world)
    answer = await verbs("addvolume", adding(disk={"buss": "scsi"}))
    assert answer.warnings == ('unknown field "disk.disk.buss"',)


@pytest.mark.parametrize("of", [VM, VMI])
@pytest.mark.parametrize("verb", ["addvolume", "removevolume"])
async def test_what_is_not_there_is_not_found(verbs: Verbs, verb: str, of: str) -> None:
    assert isinstance(await verbs.refused(verb, adding(), of=of), NotFound)


async def test_a_volume_of_a_data_volume_template_stays_while_the_template_does(
    world: World, verbs: Verbs
) -> None:
    made = {
        "metadata": {"name": "made"},
        "spec": {
            "source": {"blank": {}},
            "storage": {"resources": {"requests": {"storage": "1Gi"}}},
        },
    }
    volume = {"name": "data", "dataVolume": {"name": "made", "hotpluggable": True}}
    spec = a_spec(volume, disks=({"name": "data", "disk": {}},))
    await world.create_vm("Halted", template={"spec": spec}, dataVolumeTemplates=[made])
    refused = await verbs.refused("removevolume", {"name": "data"})
    assert isinstance(refused, Invalid)
    assert "must be referenced in the VMI template's 'volumes' list" in refused.message


# ---------------------------------------------------------------- gates

GATES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "none": ((), "HotplugVolumes", "HotplugVolumes"),
    "discs only": (("InjectEjectCDROM",), "HotplugVolumes", ""),
    "disks only": (("HotplugVolumes",), "", "InjectEjectCDROM"),
    "both, by KubeVirt's one name": (("DeclarativeHotplugVolumes",), "", ""),
}


@pytest.mark.parametrize("disc", [False, True], ids=["a disk", "a disc"])
@pytest.mark.parametrize(("gates", "for_disks", "for_discs"), GATES.values(), ids=GATES)
async def test_a_gate_that_is_not_open_is_named(
    world: World, verbs: Verbs, gates: tuple[str, ...], for_disks: str, for_discs: str, disc: bool
) -> None:
    await world.create_vm("Halted", **({"template": {"spec": a_spec()}} if disc else {}))
    await open_gates(world, *gates)
    body, gate = (adding("cd", "disc"), for_discs) if disc else (adding(), for_disks)
    if not gate:
        assert (await verbs("addvolume", body)).code == 202
        assert (await verbs("removevolume", {"name": body["name"]})).code == 202
        return
    refused = await verbs.refused("addvolume", body)
    assert (refused.status_code, refused.message) == (
        400,
        f"Enable DeclarativeHotplugVolumes or {gate} feature gate to use this API.",
    )


# ---------------------------------------------------------------- instances


async def test_an_instance_of_a_vm_is_left_to_its_vm(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await create_vm(world, "Always")
    await world.until(world.ready)
    for verb, body in (("addvolume", adding()), ("removevolume", {"name": "data"})):
        refused = await verbs.refused(verb, body, of=VMI)
        assert (refused.status_code, refused.message) == (400, "VMI default/web is owned by a VM")


async def test_an_instance_without_a_vm_is_edited_itself(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await create_instance(world)
    await world.until(lambda: runs(world))
    before = lists(world.vmi())
    assert (await verbs("addvolume", adding(disk={}) | ALL, of=VMI)).code == 202
    assert lists(world.vmi()) == before
    answer = await verbs("addvolume", adding(disk={}), of=VMI)
    assert (answer.code, answer.body) == (202, b"")
    volumes, disks = lists(world.vmi())
    assert volumes[-1] == on_claim("data", "claim")
    assert disks[-1] == {"name": "data", "disk": {"bus": "scsi"}}
    await verbs("addvolume", adding("cd", "disc"), of=VMI)
    assert lists(world.vmi())[1] == disks, "the drive is there already"
    await verbs("removevolume", {"name": "cd"}, of=VMI)
    await verbs("removevolume", {"name": "claim"}, of=VMI)
    assert lists(world.vmi()) == before


async def test_an_instance_that_does_not_run_yet_takes_no_volume(
    world: World, verbs: Verbs
) -> None:
    await create_instance(world)
    refused = await verbs.refused("addvolume", adding(), of=VMI)
    assert (refused.status_code, refused.message) == (
        409,
        'Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io "web":'
        " VMI is not running",
    )


HOTPLUG = "Hotplug configuration for"
INVALID: dict[str, tuple[str, Object, str]] = {
    "a disk on sata": (
        "addvolume", adding(disk={"bus": "sata"}),
        f"{HOTPLUG} disk [data] requires bus to be 'scsi' or 'virtio'. [sata] is not permitted.",
    ),
    "a LUN on virtio": (
        "addvolume", adding(lun={"bus": "virtio"}),
        f"{HOTPLUG} LUN [data] requires bus to be 'scsi'. [virtio] is not permitted.",
    ),
    "a drive on sata": (
        "addvolume", adding(cdrom={"bus": "sata"}),
        f"{HOTPLUG} cdrom [data] requires bus to be 'scsi' or 'usb'. [sata] is not permitted.",
    ),
    "a LUN of a claim": (
        "addvolume", adding(lun={"bus": "scsi"}),
        "data is a lun: it takes a SCSI device of the host, and no claim is one",
    ),
    "a drive on usb": (
        "addvolume", adding(cdrom={"bus": "usb"}),
        "the guest was started without a usb controller, so data cannot be added",
    ),
    "io that its cache does not allow": (
        "addvolume", adding(disk={"bus": "scsi"}, io="native", cache="writeback"),
        "Disk IO mode native for spec.domain.devices.disks[3] requires cache = none",
    ),
    "a disk of the start that is on sata": (
        "removevolume", {"name": "old"},
        f"{HOTPLUG} disk [old] requires bus to be 'scsi' or 'virtio'. [sata] is not permitted.",
    ),
    "a cache that is none": (
        "addvolume", adding(disk={}, cache="plenty"),
        "spec.domain.devices.disks[3].cache has invalid value plenty",
    ),
    "a thread for a disk on scsi": (
        "addvolume", adding(disk={"bus": "scsi"}, dedicatedIOThread=True),
        "IOThreads are not supported for disks on a scsi bus",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("verb", "body", "message"), INVALID.values(), ids=INVALID)
async def test_an_instance_refuses_what_no_restart_would_ever_apply(
    world: World, node: PlayedNode, verbs: Verbs, verb: str, body: Object, message: str
) -> None:
    old = {"name": "old", "disk": {"bus": "sata"}}
    await create_instance(world, on_claim("old"), disks=(old,))
    await world.until(lambda: runs(world))
    before = lists(world.vmi())
    refused = await verbs.refused(verb, body, of=VMI)
    assert isinstance(refused, Invalid)
    assert message in refused.message
    assert lists(world.vmi()) == before
