"""The verb `migrate`, and `virtctl migrate` and `migrate-cancel`, with a controller that is played.

Nothing else runs: each VM and each phase is as the test says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from livevirt.errors import ApiError, BadRequest, Conflict, Invalid, MethodNotAllowed, NotFound
from livevirt.kube.objects import core
from livevirt.kube.objects.request import ActionPath, Answer, Object
from livevirt.vm import kinds
from livevirt.vm.subresources.router import Actions

from ..manifests import a_pod, a_vmi
from .served import SECONDS, Guests, Served, serving
from .vm_world import ADMIN, NAMESPACE, World

NODES = {"sourceNode": "node01", "targetNode": "node02"}
FINALIZER = "kubevirt.io/migrationJobFinalize"
NO_ROOM = "0/2 nodes are available: 1 Insufficient memory, 1 node(s) didn't match anti-affinity"


class Played:
    """A VM on `node01`, and a migration controller's writes, one at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._client = world.components

    async def run_vm(self, phase: str = "Running") -> None:
        vm = await self.world.create_vm()
        await self._client.create(kinds.VMI, a_vmi(vm["metadata"]["name"]), NAMESPACE)
        migratable = [{"type": "LiveMigratable", "status": "True"}]
        await self.tell(phase=phase, nodeName="node01", conditions=migratable)

    async def tell(self, **status: Any) -> None:
        await self._client.patch(kinds.VMI, "web", NAMESPACE, {"status": status})

    def migrations(self) -> list[Object]:
        return self.world.read.list(kinds.MIGRATION, NAMESPACE)

    def migration(self) -> Object:
        *_, found = self.migrations()  # by name: that of `migrate` is the first
        return found

    async def migrate(self) -> Object:
        """Create a migration that was asked for by somebody else."""
        obj = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": "evacuation", "finalizers": [FINALIZER]},
            "spec": {"vmiName": "web"},
        }
        return await self._client.create(kinds.MIGRATION, obj, NAMESPACE)

    async def goes(self, phase: str, **state: Any) -> None:
        status = {"phase": phase, "migrationState": state}
        name = self.migration()["metadata"]["name"]
        await self._client.patch(
            kinds.MIGRATION, name, NAMESPACE, {"status": status}, subresource="status"
        )

    async def lets_go(self) -> None:
        """Let a deleted migration vanish."""
        name = self.migration()["metadata"]["name"]
        patch = {"metadata": {"finalizers": None}}
        await self._client.patch(kinds.MIGRATION, name, NAMESPACE, patch)

    async def unplaced_pod(self, name: str, why: str, uid: str) -> None:
        """Make a pod for which there is no node, as the target of a migration."""
        labels = {"kubevirt.io/migrationJobUID": uid}
        pod = a_pod(name)
        pod["metadata"]["labels"] = labels
        await self._client.create(core.POD, pod, NAMESPACE)
        unbound = {"type": "PodScheduled", "status": "False", "message": why}
        status = {"phase": "Pending", "conditions": [unbound]}
        await self._client.patch(
            core.POD, name, NAMESPACE, {"status": status}, subresource="status"
        )


@pytest.fixture
def played(quiet: World) -> Played:
    return Played(quiet)


# ---------------------------------------------------------------- the verb


async def put(world: World, body: Any = None, *, name: str = "web", method: str = "PUT") -> Answer:
    actions = Actions(world.components, Guests(world, Path()))
    action = ActionPath("virtualmachines", NAMESPACE, name, "migrate")
    answer = await actions.handle(action, make_mocked_request(method, "/"), ADMIN, body)
    assert isinstance(answer, Answer)
    return answer


async def test_a_running_vm_gets_a_migration(played: Played) -> None:
    await played.run_vm()
    assert (await put(played.world)).code == 202
    made = played.migration()
    assert made["metadata"]["name"].startswith("kubevirt-migrate-vm-")
    assert made["spec"] == {"vmiName": "web"}


async def test_the_target_may_be_narrowed_down(played: Played) -> None:
    await played.run_vm()
    labels = {"kubernetes.io/hostname": "node02"}
    answer = await put(played.world, {"addedNodeSelector": labels, "priority": "high"})
    assert played.migration()["spec"] == {"vmiName": "web", "addedNodeSelector": labels}
    assert answer.warnings == ('unknown field "priority"',)


async def test_a_dry_run_makes_no_migration(played: Played) -> None:
    await played.run_vm()
    assert (await put(played.world, {"dryRun": ["All"]})).code == 202
    assert played.migrations() == []


@pytest.mark.parametrize("phase", ["Scheduling", "Scheduled", "Succeeded", "Failed"])
async def test_a_guest_that_does_not_run_is_not_moved(played: Played, phase: str) -> None:
    await played.run_vm(phase)
    with pytest.raises(Conflict) as refused:
        await put(played.world)
    assert refused.value.message == (
        'Operation cannot be fulfilled on virtualmachine.kubevirt.io "web": VM is not running'
    )
    assert played.migrations() == []


async def test_a_vm_without_a_guest_is_not_moved(quiet: World) -> None:
    await quiet.create_vm("Halted")
    with pytest.raises(Conflict, match="VM is not running"):
        await put(quiet)


BAD: dict[str, tuple[Any, type[ApiError], str]] = {
    "no object": ([], BadRequest, "must be an object"),
    "a selector that is none": ({"addedNodeSelector": "node02"}, BadRequest, "addedNodeSelector"),
    "half a dry run": ({"dryRun": ["Half"]}, BadRequest, "dryRun"),
}


@pytest.mark.parametrize(("body", "error", "message"), BAD.values(), ids=BAD)
async def test_what_cannot_be_understood_is_refused(
    played: Played, body: Any, error: type[ApiError], message: str
) -> None:
    await played.run_vm()
    with pytest.raises(error, match=message):
        await put(played.world, body)
    assert played.migrations() == []


async def test_what_admission_says_of_the_migration_is_passed_on(played: Played) -> None:
    await played.run_vm()
    fixed = {"reason": "DisksNotLiveMigratable", "message": "PVC data is not shared"}
    await played.tell(conditions=[{"type": "LiveMigratable", "status": "False", **fixed}])
    with pytest.raises(
        Invalid, match=r"Reason: DisksNotLiveMigratable, Message: PVC data is not shared"
    ):
        await put(played.world, {"dryRun": ["All"]})
    await played.tell(conditions=[{"type": "LiveMigratable", "status": "True"}])
    await put(played.world)
    with pytest.raises(Invalid, match="in-flight migration detected"):
        await put(played.world)
    assert len(played.migrations()) == 1


async def test_only_vms_that_are_there_are_moved_and_only_by_put(quiet: World) -> None:
    with pytest.raises(NotFound):
        await put(quiet, name="nobody")
    with pytest.raises(MethodNotAllowed):
        await put(quiet, method="GET")


# ---------------------------------------------------------------- virtctl


@pytest.fixture
async def served(quiet: World, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(quiet, tmp_path) as server:
        yield server


class Watching:
    """A command that waits, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said: list[str] = []

    async def says(self, text: str) -> None:
        """Return once a line on standard error has this in it."""
        assert self._process.stderr is not None
        while line := (await self._process.stderr.readline()).decode():
            self.said.append(line)
            if text in line:
                return
        raise AssertionError(f"{text!r} was never said: {self.said}")

    async def ends(self) -> tuple[int | None, str, str]:
        """Return its exit status, what it printed, and the rest of what it said."""
        out, err = await self._process.communicate()
        return self._process.returncode, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def watching(served: Served, *args: str) -> AsyncIterator[Watching]:
    process = await served.start("virtctl", *args)
    try:
        async with asyncio.timeout(SECONDS):
            yield Watching(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.slow
async def test_a_migration_is_asked_for(served: Served, played: Played) -> None:
    await played.run_vm()
    out = await served.succeed("virtctl", "migrate", "web", "--dry-run")
    assert out == "Dry Run execution\nVM web was scheduled to migrate\n"
    assert played.migrations() == []
    out = await served.succeed("virtctl", "migrate", "web", "--addedNodeSelector=disk=ssd,zone=")
    assert out == "VM web was scheduled to migrate\n"
    assert played.migration()["spec"]["addedNodeSelector"] == {"disk": "ssd", "zone": ""}


@pytest.mark.slow
async def test_given_wait_then_each_phase_is_shown_until_the_guest_has_moved(
    served: Served, played: Played
) -> None:
    await played.run_vm()
    async with watching(served, "migrate", "web", "-w") as command:
        await command.says("migrating web: accepted, on node01 (")
        await played.goes("Scheduling")
        await command.says("Scheduling, on node01 (")
        await played.unplaced_pod("other", "another migration's", "other")
        await played.unplaced_pod("target", NO_ROOM, played.migration()["metadata"]["uid"])
        await command.says(f"Scheduling, on node01: {NO_ROOM} (")
        for phase in ("PreparingTarget", "Running"):
            await played.goes(phase, **NODES)
            await command.says(f"{phase}, node01 -> node02")
        await played.goes("Succeeded", completed=True, **NODES)
        status, out, _ = await command.ends()
    assert status == 0
    assert "another migration's" not in "".join(command.said)
    assert out == "VM web was scheduled to migrate\nVM web moved from node01 to node02\n"


@pytest.mark.slow
async def test_given_wait_when_it_fails_then_the_reason_and_the_next_step_are_told(
    served: Served, played: Played
) -> None:
    await played.run_vm()
    await played.migrate()
    await played.goes("Succeeded", completed=True, **NODES)  # one from before
    async with watching(served, "migrate", "web", "--wait") as command:
        await command.says("accepted")
        await played.goes("Failed", failed=True, failureReason="the target's QEMU died", **NODES)
        status, out, err = await command.ends()
    assert (status, out) == (1, "VM web was scheduled to migrate\n")
    name = played.migration()["metadata"]["name"]
    assert err.splitlines()[-1] == (
        "VM web was not migrated: the target's QEMU died; the guest runs on node01; see"
        f" `kubectl describe vmim {name} -n default`,"
        " try again with `virtctl migrate web -n default`"
    )


@pytest.mark.slow
async def test_a_migration_that_somebody_else_asked_for_can_be_waited_for(
    served: Served, played: Played
) -> None:
    await played.run_vm()
    await played.migrate()
    ran = await served.virtctl("migrate", "web", "--wait", "--timeout", "1s")
    assert (ran.status, ran.out) == (1, "VM web is migrating already\n")
    assert "error: VM web still migrates after 1 s (accepted, on node01), and goes on" in ran.err
    assert "virtctl migrate-cancel web -n default" in ran.err
    async with watching(served, "migrate", "web", "--wait") as command:
        await command.says("accepted")
        await played.goes("Succeeded", completed=True, **NODES)
        status, out, _ = await command.ends()
    assert status == 0
    assert out == "VM web is migrating already\nVM web moved from node01 to node02\n"


@pytest.mark.slow
async def test_a_migration_is_cancelled(served: Served, played: Played) -> None:
    await played.run_vm()
    await played.migrate()
    out = await served.succeed("virtctl", "migrate-cancel", "web", "--dry-run")
    assert out == "Dry Run execution\nVM web was scheduled to migrate-cancel\n"
    assert "deletionTimestamp" not in played.migration()["metadata"]
    async with watching(served, "migrate-cancel", "web", "--wait") as command:
        await command.says("it is being stopped")
        assert "deletionTimestamp" in played.migration()["metadata"]
        await played.goes("Failed", abortRequested=True, abortStatus="Succeeded", **NODES)
        status, out, err = await command.ends()
    assert status == 0, err
    assert out == (
        "VM web was scheduled to migrate-cancel\n"
        "the migration of VM web was cancelled; the guest runs on node01\n"
    )
    ran = await served.virtctl("migrate-cancel", "web")  # a failed one is none to cancel
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("error: Found no migration to cancel for web; `kubectl get vmim`")


@pytest.mark.slow
async def test_given_a_guest_that_has_arrived_when_it_is_cancelled_then_that_is_too_late(
    served: Served, played: Played
) -> None:
    await played.run_vm()
    await played.migrate()
    async with watching(served, "migrate-cancel", "web", "-w") as command:
        await command.says("it is being stopped")
        await played.goes("Succeeded", completed=True, abortStatus="Failed", **NODES)
        await played.lets_go()
        status, out, err = await command.ends()
    assert (status, out) == (1, "VM web was scheduled to migrate-cancel\n")
    assert err.splitlines()[-1] == "too late: VM web moved from node01 to node02"


REFUSED = {
    "a VM that is not there": (
        ["migrate", "nobody"],
        'Error migrating VirtualMachine virtualmachines.kubevirt.io "nobody" not found;'
        " see `kubectl get vm --all-namespaces`",
    ),
    "a VM that does not run": (
        ["migrate", "web", "--wait"],
        "Error migrating VirtualMachine Operation cannot be fulfilled on"
        ' virtualmachine.kubevirt.io "web": VM is not running',
    ),
    "a selector without a value": (
        ["migrate", "web", "--addedNodeSelector=node02"],
        'error: failed to parse "--addedNodeSelector" flag: node02 must be formatted as key=value',
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("args", "text"), REFUSED.values(), ids=REFUSED)
async def test_refusals_are_one_line_and_status_one(
    served: Served, quiet: World, args: list[str], text: str
) -> None:
    await quiet.create_vm("Halted")
    ran = await served.virtctl(*args)
    assert (ran.status, ran.out, ran.err) == (1, "", text + "\n")
