"""start, stop, restart and the verbs that reach into a guest, against a real server."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.errors import ApiError, BadRequest, Conflict, MethodNotAllowed, NotFound
from livevirt.kube.client.refusals import causes
from livevirt.kube.objects.request import ActionPath, Answer, Object
from livevirt.vm import kinds

from .vm_world import NAMESPACE, PlayedNode, World

VM, VMI = "virtualmachines", "virtualmachineinstances"


class Door:
    """A guest that does what it is asked for, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def pause(self, namespace: str, vmi: str) -> None:
        self.asked.append(f"pause {namespace}/{vmi}")

    async def unpause(self, namespace: str, vmi: str) -> None:
        self.asked.append(f"unpause {namespace}/{vmi}")

    async def soft_reboot(self, namespace: str, vmi: str) -> None:
        self.asked.append(f"soft reboot {namespace}/{vmi}")

    async def reset(self, namespace: str, vmi: str) -> None:
        self.asked.append(f"reset {namespace}/{vmi}")

    async def guest_os_info(self, namespace: str, vmi: str) -> Object:
        return {"hostname": vmi}

    async def user_list(self, namespace: str, vmi: str) -> Object:
        return {"items": []}

    def agent_answered(self, namespace: str, vmi: str) -> bool:
        return False

    async def filesystem_list(self, namespace: str, vmi: str) -> Object:
        return {"items": []}


class Verbs:
    def __init__(self, world: World) -> None:
        self.door = Door()
        self._world = world

    async def __call__(
        self, verb: str, body: Any = None, *, name: str = "web", of: str = VM, method: str = "PUT"
    ) -> Answer:
        action = ActionPath(of, NAMESPACE, name, verb)
        return await self._world.act(action, method, body, self.door)


@pytest.fixture
def verbs(world: World) -> Verbs:
    return Verbs(world)


def uid_of(vmi: Object) -> str:
    return str((vmi.get("metadata") or {}).get("uid", ""))


# ---------------------------------------------------------------- start


async def test_a_halted_vm_is_started_by_its_strategy(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await world.create_vm("Halted")
    assert (await verbs("start")).code == 202
    assert world.vm()["spec"]["runStrategy"] == "Always"
    await world.until(world.ready)
    with pytest.raises(Conflict) as refused:
        await verbs("start")
    assert refused.value.message == (
        'Operation cannot be fulfilled on virtualmachine.kubevirt.io "web": VM is already running'
    )


async def test_a_manual_vm_is_started_by_a_request(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await world.create_vm("Manual")
    await world.until(lambda: world.shown() == "Stopped")
    await verbs("start")
    await world.until(world.ready)
    assert world.vm()["spec"]["runStrategy"] == "Manual"
    await world.until(lambda: "stateChangeRequests" not in world.vm()["status"])


async def test_a_vm_can_be_started_paused(world: World, verbs: Verbs) -> None:
    await world.create_vm("Halted")
    await verbs("start", {"paused": True})
    await world.until(world.vmi)
    assert world.vmi()["spec"]["startStrategy"] == "Paused"
    assert world.vm()["spec"]["runStrategy"] == "Always"


async def test_an_ended_manual_guest_is_replaced(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await world.create_vm("Manual")
    await verbs("start")
    await world.until(world.ready)
    first = uid_of(world.vmi())
    await node.power_off()
    await world.until(lambda: world.shown() == "Stopped")
    await verbs("start")
    await world.until(lambda: uid_of(world.vmi()) not in ("", first) and world.ready())


# ---------------------------------------------------------------- stop


async def test_a_vm_that_always_runs_is_halted(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    assert (await verbs("stop")).code == 202
    assert world.vm()["spec"]["runStrategy"] == "Halted"
    await world.until(lambda: not world.vmi() and world.shown() == "Stopped")


async def test_a_manual_vm_is_stopped_by_a_request(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await world.create_vm("Manual")
    await verbs("start")
    await world.until(world.ready)
    await verbs("stop")
    await world.until(lambda: not world.vmi() and world.shown() == "Stopped")
    assert world.vm()["spec"]["runStrategy"] == "Manual"


async def test_a_guest_that_takes_too_long_can_be_stopped_by_force(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    node.stuck = True
    await verbs("stop")
    await world.until(lambda: "deletionTimestamp" in world.pods()[0]["metadata"])
    assert world.pods()[0]["metadata"]["deletionGracePeriodSeconds"] == 30
    with pytest.raises(Conflict, match="only supports manual stop requests with a shorter"):
        await verbs("stop")
    await verbs("stop", {"gracePeriod": 0})
    await world.until(lambda: world.pods()[0]["metadata"]["deletionGracePeriodSeconds"] == 1)
    assert world.vmi(), "the instance stays until its pod is gone"


# ---------------------------------------------------------------- restart


@pytest.mark.parametrize("strategy", ["Always", "Manual", "RerunOnFailure"])
async def test_a_restart_replaces_the_guest(
    world: World, node: PlayedNode, verbs: Verbs, strategy: str
) -> None:
    await world.create_vm(strategy)
    if strategy == "Manual":
        await verbs("start")
    await world.until(world.ready)
    first = uid_of(world.vmi())
    await world.until(lambda: "stateChangeRequests" not in world.vm()["status"])
    assert (await verbs("restart", {"gracePeriodSeconds": 0})).code == 202
    await world.until(lambda: uid_of(world.vmi()) not in ("", first) and world.ready())
    await world.until(lambda: "stateChangeRequests" not in world.vm()["status"])


async def test_a_second_request_waits_for_the_first(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    node.stuck = True
    await verbs("restart")
    with pytest.raises(Conflict, match="stop/start already underway"):
        await verbs("restart")


@pytest.mark.parametrize("options", [None, {"gracePeriod": 0}], ids=["stop", "force"])
async def test_given_a_restart_under_way_when_the_vm_is_stopped_then_it_stays_off(
    world: World, node: PlayedNode, verbs: Verbs, options: Object | None
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    node.stuck = True
    await verbs("restart")
    await world.until(lambda: "deletionTimestamp" in world.pods()[0]["metadata"])
    await verbs("stop", options)
    node.stuck = False
    await world.patch_vm({"metadata": {"labels": {"go": "on"}}})  # wakes the played node
    await world.until(lambda: not world.vmi() and world.shown() == "Stopped")
    assert world.vm()["spec"]["runStrategy"] == "Halted"
    assert "stateChangeRequests" not in world.vm()["status"]


async def test_given_a_restart_under_way_when_the_vm_is_halted_then_nothing_is_left_of_it(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    node.stuck = True
    await verbs("restart")
    await world.until(lambda: "deletionTimestamp" in world.pods()[0]["metadata"])
    await world.patch_vm({"spec": {"runStrategy": "Halted"}})
    node.stuck = False
    await world.patch_vm({"metadata": {"labels": {"go": "on"}}})  # wakes the played node
    await world.until(lambda: not world.vmi() and world.shown() == "Stopped")
    await world.until(lambda: "stateChangeRequests" not in world.vm()["status"])
    assert (await verbs("start", {"paused": True})).code == 202


# ---------------------------------------------------------------- refusals

REFUSED: dict[str, tuple[str, str, Any, type[ApiError], str]] = {
    "start of Always": ("Always", "start", None, Conflict, "VM is already running"),
    "start of Once": ("Once", "start", None, Conflict, "VM is already running"),
    "restart of Once": (
        "Once", "restart", None, Conflict,
        "RunStategy Once does not support manual restart requests",
    ),
    "restart with a grace period": (
        "Always", "restart", {"gracePeriodSeconds": 5}, BadRequest,
        "For force restart, only gracePeriod=0 is supported for now",
    ),
    "a negative grace period": (
        "Always", "stop", {"gracePeriod": -1}, BadRequest,
        "gracePeriod has to be greater or equal to 0",
    ),
    "options that are no object": ("Always", "stop", [], BadRequest, "must be an object"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "verb", "body", "error", "message"), REFUSED.values(), ids=REFUSED
)
async def test_what_a_running_vm_refuses(
    world: World,
    node: PlayedNode,
    verbs: Verbs,
    strategy: str,
    verb: str,
    body: Any,
    error: type[ApiError],
    message: str,
) -> None:
    await world.create_vm(strategy)
    await world.until(world.ready)
    with pytest.raises(error, match=message):
        await verbs(verb, body)


STOPPED: dict[str, tuple[str, str, str]] = {
    "stop of Halted": ("Halted", "stop", "VM is not running"),
    "stop of Manual": ("Manual", "stop", "VM is not running"),
    "restart of Halted": ("Halted", "restart", "RunStategy Halted does not support"),
    "restart of Manual": ("Manual", "restart", "VM is not running"),
}


@pytest.mark.parametrize(("strategy", "verb", "message"), STOPPED.values(), ids=STOPPED)
async def test_what_a_stopped_vm_refuses(
    world: World, verbs: Verbs, strategy: str, verb: str, message: str
) -> None:
    await world.create_vm(strategy)
    with pytest.raises(Conflict, match=message):
        await verbs(verb)


async def test_always_without_a_guest_cannot_be_started(quiet: World) -> None:
    verbs = Verbs(quiet)
    await quiet.create_vm()
    with pytest.raises(Conflict, match="Always does not support manual start requests"):
        await verbs("start")


UNREADABLE: dict[str, tuple[Object, str]] = {
    "a dry run that is no list": ({"dryRun": True}, "dryRun in body must be of type array"),
    "a dry run of something": ({"dryRun": ["Al"]}, 'Unsupported value: "Al"'),
}
UNREADABLE_BY: dict[str, tuple[Object, str]] = {
    "start": ({"paused": "false"}, "paused in body must be of type boolean"),
    "stop": ({"gracePeriod": 10**30}, "type integer with format int64 in gracePeriod"),
    "restart": ({"gracePeriodSeconds": "0"}, "gracePeriodSeconds in body must be of type integer"),
}
WITH_OPTIONS = {"start": VM, "stop": VM, "restart": VM, "pause": VMI, "unpause": VMI}


@pytest.mark.parametrize(
    ("verb", "body", "message"),
    [(verb, *row) for verb in WITH_OPTIONS for row in UNREADABLE.values()]
    + [(verb, *row) for verb, row in UNREADABLE_BY.items()],
)
async def test_options_that_mean_nothing_are_refused(
    quiet: World, verb: str, body: Object, message: str
) -> None:
    await quiet.create_vm("Halted")
    with pytest.raises(BadRequest, match=message):
        await Verbs(quiet)(verb, body, of=WITH_OPTIONS[verb])
    assert quiet.vm()["spec"]["runStrategy"] == "Halted"


KEPT = {"apiVersion": "v1", "kind": "Some", "dryRun": None, "colour": "red"}
IN_TURN = {"start": 202, "pause": 200, "unpause": 200, "restart": 202, "stop": 202}


async def test_fields_that_nobody_knows_are_told_and_do_not_hinder(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await world.create_vm("Halted")
    for verb, code in IN_TURN.items():
        if verb == "pause":
            await world.until(world.ready)
        if verb == "unpause":
            await set_condition(world, "Paused")
        answer = await verbs(verb, KEPT, of=WITH_OPTIONS[verb])
        assert (answer.code, answer.warnings) == (code, ('unknown field "colour"',)), verb


async def test_a_dry_run_changes_nothing(world: World, verbs: Verbs) -> None:
    await world.create_vm("Halted")
    assert (await verbs("start", {"dryRun": ["All"]})).code == 202
    assert world.vm()["spec"]["runStrategy"] == "Halted"


async def test_what_is_not_there_is_not_found(world: World, verbs: Verbs) -> None:
    with pytest.raises(NotFound):
        await verbs("start", name="nobody")
    with pytest.raises(NotFound):
        await verbs("pause", name="nobody", of=VMI)
    with pytest.raises(NotFound):
        await verbs("dance")
    with pytest.raises(MethodNotAllowed):
        await verbs("start", method="GET")


# ---------------------------------------------------------------- guests


async def set_condition(world: World, type_: str, value: str = "True") -> None:
    for _ in range(20):
        vmi = world.vmi()
        others = [c for c in vmi["status"]["conditions"] if c["type"] != type_]
        patch = {
            "metadata": {"resourceVersion": vmi["metadata"]["resourceVersion"]},
            "status": {"conditions": [*others, {"type": type_, "status": value}]},
        }
        try:
            await world.components.patch(kinds.VMI, "web", NAMESPACE, patch)
        except Conflict:
            continue
        return


async def test_a_running_guest_is_paused_once(world: World, node: PlayedNode, verbs: Verbs) -> None:
    await world.create_vm()
    await world.until(world.ready)
    with pytest.raises(Conflict, match="VMI is not paused"):
        await verbs("unpause", of=VMI)
    assert (await verbs("pause", of=VMI)).code == 200
    await set_condition(world, "Paused")
    await world.until(lambda: world.shown() == "Paused")
    for verb, message in (("pause", "VMI is already paused"), ("softreboot", "VMI is paused")):
        with pytest.raises(Conflict, match=message):
            await verbs(verb, of=VMI)
    await verbs("unpause", of=VMI)
    await verbs("reset", of=VMI)
    assert verbs.door.asked == ["pause default/web", "unpause default/web", "reset default/web"]


async def test_a_guest_tells_about_itself_by_its_agent_only(
    world: World, node: PlayedNode, verbs: Verbs
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    with pytest.raises(Conflict, match="VMI does not have guest agent connected"):
        await verbs("guestosinfo", of=VMI, method="GET")
    await set_condition(world, "AgentConnected")
    answer = await verbs("guestosinfo", of=VMI, method="GET")
    assert (answer.code, answer.body) == (200, {"hostname": "web"})


async def test_a_guest_that_does_not_run_cannot_be_reached(world: World, verbs: Verbs) -> None:
    await world.create_vm()
    await world.until(world.vmi)
    for verb in ("pause", "softreboot", "reset"):
        with pytest.raises(Conflict, match="VMI is not running") as refused:
            await verbs(verb, of=VMI)
        assert causes(refused.value) == {"GuestNotRunning"}
