"""`virtctl vm update-instance-type` as a person runs it; the test plays the controllers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from livevirt.catalog import controller, series
from livevirt.errors import AlreadyExists
from livevirt.kube.client.local import LocalClient
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.instancetypes.rules import revisions
from livevirt.vm.lifecycle.vm import instances

from ..vm.served import Ran, Served, ended, serving
from ..vm.vm_world import NAMESPACE, NODE, World

pytestmark = pytest.mark.slow  # each command is a process

UPDATE = ("virtctl", "vm", "update-instance-type", "web", "u1.micro")
REFRESH = ("virtctl", "vm", "update-instance-type", "web", "u1.nano", "--wait")


@pytest.fixture
async def served(quiet: World, tmp_path: Path) -> AsyncIterator[Served]:
    await controller.install(quiet.components)
    async with serving(quiet, tmp_path) as server:
        yield server


class Played:
    """A VM of type u1.nano, and what its controller and node would do with it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._node = LocalClient(world.api, NODE)

    async def create(self, strategy: str = "Always") -> None:
        root = {"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}
        spec = {
            "runStrategy": strategy,
            "instancetype": {"name": "u1.nano", "kind": "virtualmachineclusterinstancetype"},
            "template": {"spec": {"domain": {"devices": {}}, "volumes": [root]}},
        }
        obj = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}
        await self._world.owner.create(
            kinds.VM, {**obj, "metadata": {"name": "web"}, "spec": spec}, NAMESPACE
        )
        await self.judged("u1.nano")

    async def start(self) -> None:
        vm, components = self._world.vm(), self._world.components
        await components.create(core.REVISION, instances.revision_of(vm), NAMESPACE)
        instance = instances.instance_of(vm)
        instance["spec"]["domain"] |= {"memory": {"guest": "512Mi"}, "cpu": {"sockets": 1}}
        await components.create(kinds.VMI, instance, NAMESPACE)
        await self.told(phase="Running", **has("512Mi"))

    async def took(self, name: str) -> None:
        """Note what the VM refers to; what is said of it stays."""
        ref = {"name": name, "controllerRevisionRef": {"name": await self._taken(name)}}
        await self._note(instancetypeRef=ref)

    async def said(self, *conditions: Object) -> None:
        """Note what is to be said of the VM as it is now."""
        generation = self._world.vm()["metadata"]["generation"]
        await self._note(desiredGeneration=generation, conditions=[*conditions])

    async def judged(self, name: str, *conditions: Object) -> None:
        """Note what the VM refers to and what is to be said of it."""
        await self.took(name)
        await self.said(*conditions)

    async def _note(self, **status: Any) -> None:
        await self._world.components.patch(
            kinds.VM, "web", NAMESPACE, {"status": status}, subresource="status"
        )

    async def _taken(self, name: str) -> str:
        """Take a revision of an instance type; return what it is called."""
        obj = await self._world.owner.get(kinds.CLUSTER_INSTANCETYPE, name)
        revision = revisions.revision_of(self._world.vm(), obj)
        with contextlib.suppress(AlreadyExists):
            await self._world.components.create(core.REVISION, revision, NAMESPACE)
        return str(revision["metadata"]["name"])

    async def asked(self, memory: str) -> None:
        """Let the instance ask for another size."""
        patch = {"spec": {"domain": {"memory": {"guest": memory}}}}
        change = true("HotMemoryChange", "512Mi -> 1Gi: the pod is resized")
        patch["status"] = {"conditions": [change]}
        await self._world.components.patch(kinds.VMI, "web", NAMESPACE, patch)

    async def told(self, **status: Any) -> None:
        """Let the node say how the guest is."""
        await self._node.patch(kinds.VMI, "web", NAMESPACE, {"status": status})

    async def edit_type(self, name: str) -> None:
        """Let an instance type have what no guest gets while it runs."""
        patch = {"spec": {"ioThreadsPolicy": "auto"}}
        await self._world.owner.patch(kinds.CLUSTER_INSTANCETYPE, name, "", patch)

    async def until_let_go(self) -> None:
        await self._world.until(lambda: "instancetypeRef" not in self._world.vm()["status"])

    async def until_switched(self, name: str = "u1.micro") -> None:
        await self._world.until(lambda: self._world.vm()["spec"]["instancetype"]["name"] == name)


def has(memory: str) -> Object:
    return {"memory": {"guestCurrent": memory}, "currentCPUTopology": {"sockets": 1}}


def true(type_: str, message: str) -> Object:
    return {"type": type_, "status": "True", "message": message}


@pytest.fixture
async def played(quiet: World, served: Served) -> Played:
    return Played(quiet)


async def finished(process: asyncio.subprocess.Process) -> Ran:
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


async def line(process: asyncio.subprocess.Process, word: str) -> None:
    """Read what the command shows until a word is in it."""
    assert process.stderr is not None
    while word.encode() not in (found := await process.stderr.readline()):
        assert found, "it ended"


async def test_it_waits_until_the_guest_has_it(served: Served, played: Played) -> None:
    await played.create()
    await played.start()
    process = await served.start(*UPDATE, "--wait")
    async with ended(process):
        await played.until_switched()
        await played.asked("1Gi")
        await played.judged("u1.micro")
        await line(process, "HotMemoryChange: 512Mi -> 1Gi: the pod is resized")
        await played.told(conditions=[], **has("1Gi"))
        ran = await finished(process)
    assert (ran.status, ran.out) == (
        0,
        "VM web was scheduled to use instance type u1.micro\n"
        "VM web runs with instance type u1.micro: 1 vCPU, 1Gi\n",
    )


async def test_it_ends_with_two_when_a_restart_is_required(served: Served, played: Played) -> None:
    await played.create()
    await played.start()
    await played.edit_type("u1.micro")
    process = await served.start(*UPDATE, "-w")
    async with ended(process):
        await played.until_switched()
        await played.judged("u1.micro", true("RestartRequired", "1 field waits"))
        ran = await finished(process)
    assert ran.status == 2
    assert "VM web needs a restart for instance type u1.micro: 1 field waits" in ran.out


async def test_a_failure_from_before_the_command_is_not_its_own(
    served: Served, played: Played, quiet: World
) -> None:
    await played.create()
    await played.start()
    gone = true("Failure", "the revision is gone; `virtctl vm update-instance-type …`")
    await played.judged("u1.nano", gone)
    process = await served.start(*REFRESH)
    async with ended(process):
        await played.until_let_go()
        await played.took("u1.nano")  # as the controller does, before it says more
        ran = await finished(process)
    assert ran.status == 0, ran.err
    assert ran.out.endswith("VM web runs with instance type u1.nano: 1 vCPU, 512Mi\n")
    assert quiet.vm()["metadata"]["generation"] == 1, "only the reference was let go"


async def test_a_failure_after_the_command_ends_it(served: Served, played: Played) -> None:
    gone = true("Failure", "the revision is gone") | {"reason": "FailedFindInstancetype"}
    conflict = true("Failure", "it conflicts") | {"reason": "FailedCreate"}
    await played.create()
    await played.start()
    await played.judged("u1.nano", gone)
    process = await served.start(*REFRESH)
    async with ended(process):
        await played.until_let_go()
        await line(process, "switching web")  # it has looked
        await played.said(conflict)
        ran = await finished(process)
    assert ran.status == 1
    assert "VM web cannot be switched to instance type u1.nano: it conflicts" in ran.err


async def test_a_restart_from_before_the_command_is_not_its_own(
    served: Served, played: Played
) -> None:
    await played.create()
    await played.start()
    await played.judged("u1.nano", true("RestartRequired", "1 field waits"))
    process = await served.start(*REFRESH)
    async with ended(process):
        await played.until_let_go()
        await played.took("u1.nano")
        ran = await finished(process)
    assert ran.status == 0, ran.err


async def test_a_newer_generation_that_needs_a_restart_ends_with_two(
    served: Served, played: Played
) -> None:
    await played.create()
    await played.start()
    await played.edit_type("u1.nano")
    process = await served.start(*REFRESH)
    async with ended(process):
        await played.until_let_go()
        await played.took("u1.nano")
        await played.judged("u1.nano", true("RestartRequired", "1 field waits"))
        ran = await finished(process)
    assert ran.status == 2
    assert "needs a restart for instance type u1.nano: 1 field waits" in ran.out


async def test_where_the_record_of_the_start_is_gone_a_restart_is_what_is_left(
    served: Served, played: Played, quiet: World
) -> None:
    await played.create()
    await played.start()
    record = quiet.vmi()["status"]["virtualMachineRevisionName"]
    await quiet.owner.delete(core.REVISION, record, NAMESPACE)
    process = await served.start(*UPDATE, "--wait")
    async with ended(process):
        await played.until_switched()
        await played.judged("u1.micro", true("RestartRequired", "the record is missing"))
        ran = await finished(process)
    assert ran.status == 2, ran.err
    assert "needs a restart for instance type u1.micro: the record is missing" in ran.out


async def test_until_the_restart_is_told_a_newer_generation_is_not_called_live(
    served: Served, played: Played
) -> None:
    await played.create()
    await played.start()
    await played.edit_type("u1.nano")
    process = await served.start(*REFRESH, "--timeout", "3")
    async with ended(process):
        await played.until_let_go()
        await played.took("u1.nano")
        ran = await finished(process)
    assert ran.status == 1
    assert "virtualmachine web is still" in ran.err


async def test_a_vm_that_does_not_run_has_it_at_its_next_start(
    served: Served, played: Played
) -> None:
    await played.create("Halted")
    process = await served.start(*UPDATE, "--wait")
    async with ended(process):
        await played.until_switched()
        await played.judged("u1.micro")
        ran = await finished(process)
    assert ran.status == 0
    assert ran.out.endswith("VM web does not run; it starts with instance type u1.micro\n")


async def test_what_takes_too_long_is_told_with_its_state(served: Served, played: Played) -> None:
    await played.create()
    await played.start()
    await played.asked("1Gi")
    await played.judged("u1.nano")
    ran = await served.virtctl(
        "vm", "update-instance-type", "web", "u1.micro", "--wait", "--timeout", "1"
    )
    assert ran.status == 1
    assert "virtualmachine web is still" in ran.err
    assert "kubectl describe virtualmachine web -n default" in ran.err


async def test_without_wait_the_spec_is_edited_and_that_is_all(
    served: Served, played: Played, quiet: World
) -> None:
    await played.create("Halted")
    assert await served.succeed(*UPDATE) == "VM web was scheduled to use instance type u1.micro\n"
    assert quiet.vm()["spec"]["instancetype"] == {
        "kind": "virtualmachineclusterinstancetype",
        "name": "u1.micro",
    }
    out = await served.succeed("virtctl", "vm", "update-preference", "web", "alpine")
    assert out == "VM web was scheduled to use preference alpine\n"
    assert quiet.vm()["spec"]["preference"]["name"] == "alpine"


async def test_naming_the_same_type_lets_its_newest_generation_be_taken(
    served: Served, played: Played, quiet: World
) -> None:
    await played.create("Halted")
    assert "instancetypeRef" in quiet.vm()["status"]
    await served.succeed("virtctl", "vm", "update-instance-type", "web", "u1.nano")
    assert "instancetypeRef" not in quiet.vm()["status"]


async def test_what_a_preference_does_not_bear_is_refused_and_the_reference_stays(
    served: Served, played: Played, quiet: World
) -> None:
    await played.create("Halted")
    needs = {"requirements": {"memory": {"guest": "512Mi"}}}
    kind = kinds.CLUSTER_PREFERENCE
    needy = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "needy"}}
    await quiet.owner.create(kind, {**needy, "spec": needs})
    await quiet.patch_vm({"spec": {"preference": {"name": "needy"}}})
    smaller = {"spec": {"memory": {"guest": "256Mi"}}}
    await quiet.components.patch(kinds.CLUSTER_INSTANCETYPE, "u1.nano", "", smaller)
    ran = await served.virtctl("vm", "update-instance-type", "web", "u1.nano")
    assert ran.status == 1
    assert "insufficient Memory resources of 256Mi" in ran.err
    assert "instancetypeRef" in quiet.vm()["status"]


async def test_a_dry_run_shows_the_plan_and_changes_nothing(
    served: Served, played: Played, quiet: World
) -> None:
    await played.create("Halted")
    before = quiet.store.revision
    ran = await served.run(*UPDATE, "--dry-run")
    assert ran.status == 0
    assert ran.out.startswith("Dry Run execution\nweb: ")
    assert quiet.store.revision == before


async def test_a_type_that_is_not_there_is_refused_before_anything_changes(
    served: Served, played: Played, quiet: World
) -> None:
    await played.create("Halted")
    before = quiet.store.revision
    ran = await served.virtctl("vm", "update-instance-type", "web", "vmf/mine")
    assert ran.status == 1
    assert 'virtualmachineinstancetypes.instancetype.kubevirt.io "mine" not found' in ran.err
    assert quiet.store.revision == before


async def test_every_instance_type_is_told_with_how_it_can_be_had(
    served: Served, played: Played, quiet: World
) -> None:
    await played.create("Halted")
    before = quiet.store.revision
    fits = json.loads(await served.succeed("virtctl", "what-fits", "web", "-o", "json"))
    assert {each["name"] for each in fits} == {
        obj["metadata"]["name"] for obj in series.instancetypes()
    }
    assert [each["name"] for each in fits if each["current"]] == ["u1.nano"]
    micro = next(each for each in fits if each["name"] == "u1.micro")
    assert (micro["reach"], micro["vcpus"], micro["memory"]) == ("next start", 1, "1Gi")
    table = (await served.succeed("virtctl", "what-fits", "web")).splitlines()
    assert table[0].split() == ["INSTANCE", "TYPE", "VCPUS", "MEMORY", "REACHED", "WHY"]
    assert len([line for line in table if not line.startswith(" ")]) == len(fits) + 1  # some wrap
    assert quiet.store.revision == before


async def test_of_a_stopped_vm_it_is_told_which_types_a_node_has_room_for(
    served: Served, played: Played, quiet: World
) -> None:
    await played.create("Halted")
    labels = ("kubevirt.io/schedulable", "machine-type.node.kubevirt.io/q35")
    meta = {"labels": {**dict.fromkeys(labels, "true"), "kubernetes.io/arch": "amd64"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", **meta}}
    await quiet.components.create(core.NODE, node)
    room = {"status": {"allocatable": {"cpu": "2", "memory": "3Gi"}}}
    await quiet.components.patch(core.NODE, "node-1", "", room, subresource="status")
    fits = json.loads(await served.succeed("virtctl", "what-fits", "web", "-o", "json"))
    told = {each["name"]: (each["reach"], each["why"]) for each in fits}
    assert told["u1.micro"] == ("next start", "")
    reach, why = told["u1.medium"]
    assert reach == "next start, will wait"
    assert why.startswith("no node has room: Node node-1 is missing ")
    assert why.endswith(" of memory")
    assert told["cx1.medium"] == ("next start, will wait", "there is no node that takes it")


async def test_a_vm_is_expanded_from_the_server_and_from_a_file(
    served: Served, played: Played
) -> None:
    await played.create("Halted")
    stored = yaml.safe_load(await served.succeed("virtctl", "expand", "--vm", "web"))
    assert "instancetype" not in stored["spec"]
    assert stored["spec"]["template"]["spec"]["domain"]["memory"]["guest"] == "512Mi"
    text = await served.succeed(
        "virtctl", "create", "vm", "--name=new", "--instancetype=u1.2xmedium"
    )
    ran = await served.run("virtctl", "expand", "-f", "-", "-o", "json", stdin=text.encode())
    assert ran.status == 0, ran.err
    assert ran.out.startswith('{\n "apiVersion"')
    domain = json.loads(ran.out)["spec"]["template"]["spec"]["domain"]
    assert (domain["cpu"]["sockets"], domain["memory"]["guest"]) == (2, "4Gi")


NOT_EXPANDED = {
    "neither": ([], "error invalid arguments - VirtualMachine name or file must be provided"),
    "both": (["--vm=a", "-f-"], "VirtualMachine name or file must be provided"),
    "an output nobody knows": (
        ["--vm=a", "-oxml"], "error not supported output format defined: xml",
    ),
    "a VM that is not there": (
        ["--vm=a"], "error expanding VirtualMachine - a in namespace - default: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("args", "text"), NOT_EXPANDED.values(), ids=NOT_EXPANDED)
async def test_what_cannot_be_expanded_is_told(served: Served, args: list[str], text: str) -> None:
    ran = await served.virtctl("expand", *args)
    assert (ran.status, ran.out) == (1, "")
    assert text in ran.err


# ---------------------------------------------------------------- a VM that sets its size itself

FIELD = "spec.template.spec.domain.memory.guest"


async def create_sized(world: World) -> None:
    """Create a VM that sets its memory and has no instance type."""
    domain = {"devices": {}, "memory": {"guest": "512Mi"}, "cpu": {"model": "host-model"}}
    spec = {"runStrategy": "Halted", "template": {"spec": {"domain": domain}}}
    obj = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "web"}}
    await world.owner.create(kinds.VM, {**obj, "spec": spec}, NAMESPACE)


async def test_given_the_vm_sets_its_memory_then_what_fits_names_the_field(
    served: Served, quiet: World
) -> None:
    await create_sized(quiet)
    before = quiet.store.revision
    fits = json.loads(await served.succeed("virtctl", "what-fits", "web", "-o", "json"))
    told = {each["name"]: each for each in fits}
    assert (told["u1.micro"]["reach"], told["u1.micro"]["conflicts"]) == ("no", [FIELD])
    assert told["u1.micro"]["why"] == "the VM sets memory.guest"
    custom = told["m1.custom"]
    assert FIELD not in custom["conflicts"], "it leaves the memory to the VM"
    table = await served.succeed("virtctl", "what-fits", "web")
    assert f"VM web sets {FIELD}." in table
    assert "virtctl vm update-instance-type web NAME --take-over" in table

    command = ("virtctl", "what-fits", "web", "--take-over", "-o", "json")
    fits = json.loads(await served.succeed(*command))
    told = {each["name"]: each for each in fits}
    assert (told["u1.micro"]["reach"], told["u1.micro"]["conflicts"]) == ("next start", [])
    assert quiet.store.revision == before


@pytest.mark.parametrize("flag", [(), ("--dry-run",), ("--wait",)])
async def test_given_the_vm_sets_its_memory_then_a_switch_names_the_field_and_changes_nothing(
    served: Served, quiet: World, flag: tuple[str, ...]
) -> None:
    await create_sized(quiet)
    before = quiet.store.revision
    ran = await served.run(*UPDATE, *flag)
    assert (ran.status, ran.out) == (1, "")
    assert FIELD in ran.err
    assert "--take-over" in ran.err
    assert quiet.store.revision == before


async def test_given_take_over_then_the_instance_type_replaces_the_field(
    served: Served, quiet: World
) -> None:
    await create_sized(quiet)
    before = quiet.store.revision
    tried = await served.run(*UPDATE, "--take-over", "--dry-run")
    assert tried.status == 0, tried.err
    assert quiet.store.revision == before
    said = await served.succeed(*UPDATE, "--take-over")
    assert FIELD in said
    spec = quiet.vm()["spec"]
    assert spec["instancetype"]["name"] == "u1.micro"
    domain = spec["template"]["spec"]["domain"]
    assert "guest" not in domain["memory"]
    assert domain["cpu"] == {"model": "host-model"}, "no instance type sets it"
