"""virtctl as a person runs it, against a server on a socket and a node that is only played."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livevirt.kube.objects import conditions

from .served import Served, serving
from .vm_world import NAMESPACE, PlayedNode, World

pytestmark = pytest.mark.slow  # each command is a process


@pytest.fixture
async def served(world: World, node: PlayedNode, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(world, tmp_path) as server:
        yield server


async def test_a_vm_is_started_restarted_and_stopped_and_each_can_be_waited_for(
    served: Served, world: World
) -> None:
    await world.create_vm("Halted")
    ran = await served.virtctl("start", "web", "--wait")
    assert (ran.status, ran.out) == (0, "VM web was scheduled to start\n")
    assert "starting web: Running" in ran.err
    assert world.ready()
    first = world.vmi()["metadata"]["uid"]
    ran = await served.virtctl("restart", "web", "--wait")
    assert (ran.status, ran.out) == (0, "VM web was scheduled to restart\n")
    assert world.vmi()["metadata"]["uid"] != first
    ran = await served.virtctl("stop", "web", "--wait")
    assert (ran.status, ran.out) == (0, "VM web was scheduled to stop\n")
    assert world.vmi() == {}


async def test_a_vm_that_does_not_get_there_is_named_with_its_state(
    served: Served, world: World, node: PlayedNode
) -> None:
    node.stuck = True
    await world.create_vm("Halted")
    ran = await served.virtctl("start", "web", "--wait", "--timeout", "1")
    assert ran.status == 1
    assert "virtualmachine web is still Starting after 1 s" in ran.err
    assert "kubectl describe virtualmachine web -n default" in ran.err


async def test_given_a_vm_waits_for_a_node_then_start_shows_why(
    served: Served, world: World, node: PlayedNode
) -> None:
    domain = {"devices": {}, "memory": {"guest": "64Mi"}}
    template = {"spec": {"domain": domain, "nodeSelector": {"disk": "none-has-it"}}}
    await world.create_vm("Halted", template=template)
    ran = await served.virtctl("start", "web", "--wait", "--timeout", "3")
    assert ran.status == 1
    why = conditions.find(world.vm()["status"]["conditions"], "PodScheduled")
    assert why is not None
    assert f"starting web: ErrorUnschedulable: {why['message']}" in ran.err
    assert f"is still ErrorUnschedulable: {why['message']} after 3 s" in ran.err


async def test_given_a_vm_that_cannot_start_then_start_does_not_wait_for_the_timeout(
    served: Served, world: World, node: PlayedNode
) -> None:
    await world.create_vm(
        "Halted",
        template={"spec": {"domain": {"devices": {}}}},
        instancetype={"name": "nobody-made-it"},
    )
    ran = await served.virtctl("start", "web", "--wait", "--timeout", "0")
    assert ran.status == 1
    failure = conditions.find(world.vm()["status"]["conditions"], "Failure")
    assert failure is not None
    assert failure["message"] in ran.err
    assert "kubectl describe virtualmachine web -n default" in ran.err


async def test_a_force_stop_shortens_the_grace_period(served: Served, world: World) -> None:
    await world.create_vm("Always")
    await world.until(world.ready)
    out = await served.succeed("virtctl", "stop", "web", "--force=true", "--grace-period=0")
    assert out == "VM web was scheduled to stop\n"
    await world.until(lambda: world.shown() == "Stopped")


async def test_a_dry_run_changes_nothing(served: Served, world: World) -> None:
    await world.create_vm("Halted")
    out = await served.succeed("virtctl", "start", "web", "--dry-run")
    assert out == "Dry Run execution\nVM web was scheduled to start\n"
    assert world.vm()["spec"]["runStrategy"] == "Halted"


async def test_a_guest_is_paused_by_the_name_of_its_vm_or_its_instance(
    served: Served, world: World
) -> None:
    await world.create_vm("Always")
    await world.until(world.ready)
    assert await served.succeed("virtctl", "pause", "vm", "web") == (
        "VMI web was scheduled to pause\n"
    )
    ran = await served.virtctl("pause", "vmi", "web")
    assert ran.status == 1
    assert ran.err == (
        "Error pausing VirtualMachineInstance web: Operation cannot be fulfilled on"
        ' virtualmachineinstance.kubevirt.io "web": VMI is already paused\n'
    )
    assert await served.succeed("virtctl", "unpause", "vmi", "web") == (
        "VMI web was scheduled to unpause\n"
    )


async def test_a_guest_is_rebooted_and_reset(served: Served, world: World) -> None:
    await world.create_vm("Always")
    await world.until(world.ready)
    assert await served.succeed("virtctl", "soft-reboot", "web") == (
        "VMI web was scheduled to soft-reboot\n"
    )
    assert await served.succeed("virtctl", "reset", "web") == "VMI web was scheduled to reset\n"
    assert [words for words, _ in served.guests.commands] == [
        ["soft reboot", "web"],
        ["reset", "web"],
    ]


async def test_what_the_agent_says_is_shown_as_indented_json(served: Served, world: World) -> None:
    await world.create_vm("Always")
    await world.until(world.ready)
    ran = await served.virtctl("guestosinfo", "web")
    assert ran.status == 1
    assert ran.err.startswith("Error getting guestosinfo of VirtualMachineInstance web, ")
    assert "VMI does not have guest agent connected" in ran.err
    await served.guests.connect_agent()
    out = await served.succeed("virtctl", "guestosinfo", "web")
    assert out.startswith('{\n  "hostname": "web"')
    assert "Größe" in out
    users = json.loads(await served.succeed("virtctl", "userlist", "web"))
    assert users["items"] == [{"userName": "root"}]
    disks = json.loads(await served.succeed("virtctl", "fslist", "web"))
    assert disks["items"] == [{"mountPoint": "/"}]


async def test_both_versions_are_printed(served: Served) -> None:
    client, server = (await served.succeed("virtctl", "version")).splitlines()
    assert client.startswith('Client Version: version.Info{GitVersion:"v')
    assert server == client.replace("Client", "Server", 1)


async def test_the_namespace_may_stand_before_or_behind_the_verb(
    served: Served, world: World
) -> None:
    await world.create_vm("Halted")
    for args in (["-n", "kubevirt", "start", "web"], ["start", "web", "--namespace=kubevirt"]):
        ran = await served.virtctl(*args)
        assert (ran.status, "not found" in ran.err) == (1, True), ran
    await served.succeed("virtctl", "-n", NAMESPACE, "start", "web")


REFUSED = {
    "a VM that runs is not started": (
        "Always",
        ["start", "web"],
        "Error starting VirtualMachine Operation cannot be fulfilled on"
        ' virtualmachine.kubevirt.io "web": VM is already running',
    ),
    "a VM that does not run is not stopped": (
        "Manual",
        ["stop", "web"],
        "error stopping VirtualMachine Operation cannot be fulfilled on"
        ' virtualmachine.kubevirt.io "web": VM is not running',
    ),
    "a halted VM is not restarted": (
        "Halted",
        ["restart", "web"],
        "error restarting VirtualMachine: Operation cannot be fulfilled on"
        ' virtualmachine.kubevirt.io "web":'
        " RunStategy Halted does not support manual restart requests",
    ),
    "a forced restart is at once or not at all": (
        "Halted",
        ["restart", "web", "--force", "--grace-period=9"],
        "error force restarting VirtualMachine:"
        " For force restart, only gracePeriod=0 is supported for now",
    ),
    "force needs a grace period": (
        "Halted",
        ["stop", "web", "--force"],
        "error: Must both use --force=true and set --grace-period.",
    ),
    "a halted VM has nothing to pause": (
        "Halted",
        ["pause", "vm", "web"],
        "Error pausing VirtualMachineInstance web: VirtualMachine web is not set to run; start it"
        " with `virtctl start web`",
    ),
    "a VM that is not there is not started": (
        "Halted",
        ["start", "nobody"],
        'Error starting VirtualMachine virtualmachines.kubevirt.io "nobody" not found;'
        " see `kubectl get vm --all-namespaces`",
    ),
}


@pytest.mark.parametrize(("strategy", "args", "text"), REFUSED.values(), ids=REFUSED)
async def test_refusals_are_one_line_and_status_one(
    served: Served, world: World, strategy: str, args: list[str], text: str
) -> None:
    await world.create_vm(strategy)
    if strategy == "Always":
        await world.until(world.ready)
    ran = await served.virtctl(*args)
    assert (ran.status, ran.out, ran.err) == (1, "", text + "\n")


async def test_only_vm_and_vmi_can_be_paused(served: Served) -> None:
    ran = await served.virtctl("pause", "pod", "web")
    assert ran.status == 1
    assert "'pod' is neither vm nor vmi" in ran.err


async def test_a_server_that_is_not_there_is_said_to_be_so(served: Served) -> None:
    ran = await served.virtctl("-s", "https://127.0.0.1:9", "start", "web")
    assert ran.status == 1
    assert "https://127.0.0.1:9 cannot be reached" in ran.err
    assert "livevirt up --detach" in ran.err
    assert ran.err.count("\n") == 1


async def test_a_generated_manifest_is_what_the_server_takes(served: Served, world: World) -> None:
    out = await served.succeed(
        "virtctl", "create", "vm", "--name=made", "--run-strategy=halted", "--user=me",
        "--volume-containerdisk=src:livevirt/guest:latest,bootorder:1", "--memory=1Gi",
    )  # fmt: skip
    ran = await served.run("kubectl", "apply", "-f", "-", stdin=out.encode())
    assert (ran.status, ran.err) == (0, ""), ran
    made = world.vm("made")["spec"]
    assert made["runStrategy"] == "Halted"
    assert made["template"]["spec"]["domain"]["memory"] == {"guest": "1Gi"}
