"""A VM's own rollout strategy and maintenance window, against a real server and its controllers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from livevirt.errors import Invalid
from livevirt.kube.controllers import embedded
from livevirt.kube.objects import core, times
from livevirt.kube.objects.request import ActionPath, Answer, Object
from livevirt.vm import controllers, kinds
from livevirt.vm.config import controller
from livevirt.vm.config.settings import ALLOW_LOOSER
from livevirt.vm.lifecycle.vm import controller as vm_controller
from livevirt.vm.subresources.router import Actions
from livevirt.vm.verdict.rollout_policy import ROLLOUT, WINDOW

from .edits import configure, edit, plan, required, settled, template, waiting
from .served import serving
from .test_one_verdict import HOT, ROOT
from .test_restart_required import restart
from .vm_world import ADMIN, NAMESPACE, PlayedNode, World, now

SOCKETS = template(domain={"cpu": {"sockets": 2}})
SSD = template(nodeSelector={"disk": "ssd"})
LABEL: Object = {"spec": {"template": {"metadata": {"labels": {"tier": "db"}}}}}


def annotated(**annotations: str | None) -> Object:
    names = {"rollout": ROLLOUT, "window": WINDOW}
    return {"metadata": {"annotations": {names[key]: text for key, text in annotations.items()}}}


def window_in(delay: timedelta, length: str = "1h") -> tuple[str, str]:
    """Return a daily window that opens after a delay, and its start as a time."""
    start = (now() + delay).replace(second=0, microsecond=0)
    return f"{start.minute} {start.hour} * * * {length} UTC", times.format_time(start)


async def annotate_namespace(world: World, **annotations: str | None) -> None:
    await world.owner.patch(core.NAMESPACE, NAMESPACE, "", annotated(**annotations))


async def allow_looser(world: World, value: str = "true") -> None:
    patch = {"metadata": {"annotations": {ALLOW_LOOSER: value}}}
    await world.owner.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", patch)


def sockets(world: World) -> int:
    return int(world.vmi()["spec"]["domain"]["cpu"]["sockets"])


@pytest.fixture
async def guest(world: World, node: PlayedNode) -> World:
    await world.create_vm()
    await world.until(world.ready)
    return world


# ---------------------------------------------------------------- strategies


async def test_a_vm_that_stages_its_edits_gets_them_at_a_restart(guest: World) -> None:
    await guest.patch_vm(annotated(rollout="Stage"))
    await guest.patch_vm(SOCKETS)
    await guest.until(lambda: required(guest))
    assert waiting(guest) == {"domain.cpu.sockets": "StageStrategy"}
    assert sockets(guest) == 1
    await restart(guest)
    assert sockets(guest) == 2


async def test_without_the_annotation_what_waits_is_applied(guest: World) -> None:
    await guest.patch_vm(annotated(rollout="Stage"))
    await guest.patch_vm(SOCKETS)
    await guest.until(lambda: required(guest))
    await guest.patch_vm(annotated(rollout=None))
    await guest.until(lambda: sockets(guest) == 2 and not required(guest))


async def test_a_namespace_stages_the_edits_of_its_vms_until_it_does_not(guest: World) -> None:
    await annotate_namespace(guest, rollout="Stage")
    await guest.patch_vm(SOCKETS)
    await guest.until(lambda: required(guest))
    await annotate_namespace(guest, rollout=None)
    await guest.until(lambda: sockets(guest) == 2)


async def test_the_vm_wins_over_its_namespace(guest: World) -> None:
    await annotate_namespace(guest, rollout="Stage")
    await guest.patch_vm(annotated(rollout="LiveUpdate"))
    await guest.patch_vm(SOCKETS)
    await guest.until(lambda: sockets(guest) == 2)


async def test_looser_than_the_cluster_only_if_it_allows_that(
    world: World, node: PlayedNode
) -> None:
    await allow_looser(world)  # before the start, so that the guest has room to grow
    await configure(world, vmRolloutStrategy="Stage")
    await world.create_vm()
    await world.until(world.ready)
    await allow_looser(world, "false")
    [warning] = await edit(world, annotated(rollout="LiveUpdate"))
    assert ALLOW_LOOSER in warning
    await world.patch_vm(SOCKETS)
    await world.until(lambda: required(world))
    assert sockets(world) == 1
    await allow_looser(world)
    await world.until(lambda: sockets(world) == 2 and not required(world))


async def test_nothing_is_live_without_the_feature_gate(guest: World) -> None:
    await allow_looser(guest)
    await configure(guest, developerConfiguration={"featureGates": []})
    await guest.patch_vm(annotated(rollout="LiveUpdate"))
    await guest.patch_vm(SOCKETS)
    await guest.until(lambda: required(guest))
    assert waiting(guest) == {"domain.cpu.sockets": "FeatureGateMissing"}


# ---------------------------------------------------------------- windows


async def test_an_edit_waits_for_the_window_and_the_status_says_when(guest: World) -> None:
    window, start = window_in(timedelta(hours=5))
    await guest.patch_vm(annotated(rollout="Window", window=window))
    planned = await plan(guest, SOCKETS)
    warnings = await edit(guest, SOCKETS)
    await settled(guest)
    await guest.until(lambda: guest.vm()["status"].get("pendingChanges"))

    [change] = planned["changes"]
    [pending] = guest.vm()["status"]["pendingChanges"]
    assert (change["reason"], change["appliesAt"]) == ("MaintenanceWindow", start)
    assert (pending["reason"], pending["appliesAt"]) == ("MaintenanceWindow", start)
    assert (planned["verdict"], planned["waits"]) == ("LiveAfterResize", True)
    assert [start in each for each in warnings] == [True]
    assert not required(guest)
    assert sockets(guest) == 1


async def test_virtctl_reports_the_window_and_does_not_wait_for_it(
    guest: World, tmp_path: Path
) -> None:
    window, start = window_in(timedelta(hours=5))
    await guest.patch_vm(annotated(rollout="Window", window=window))
    await guest.patch_vm(SOCKETS)
    async with serving(guest, tmp_path) as server:
        waited = await server.virtctl("vm", "wait", "web", "--timeout", "30s")
        planned = await server.virtctl("plan", "web")
        why = await server.virtctl("why", "web")
    assert (waited.status, planned.status, why.status) == (4, 4, 0)
    assert start in waited.out
    assert start in planned.out
    assert start in why.out


async def test_a_volume_is_attached_while_the_window_is_closed(guest: World) -> None:
    window, _ = window_in(timedelta(hours=5))
    await guest.patch_vm(annotated(rollout="Window", window=window))
    await guest.patch_vm(template(volumes=[ROOT, HOT], domain={"cpu": {"sockets": 2}}))
    await guest.until(lambda: len(guest.vmi()["spec"]["volumes"]) == 2)
    await guest.until(lambda: waiting(guest) == {"domain.cpu.sockets": "MaintenanceWindow"})
    assert sockets(guest) == 1
    assert "sizeRevision" not in guest.vmi()["status"]


async def test_a_restart_applies_what_waits_for_the_window(guest: World) -> None:
    window, _ = window_in(timedelta(hours=5))
    await guest.patch_vm(annotated(rollout="Window", window=window))
    await guest.patch_vm(SOCKETS)
    await guest.until(lambda: waiting(guest))
    await restart(guest)
    assert sockets(guest) == 2
    await guest.until(lambda: not waiting(guest))


async def test_a_revert_leaves_nothing_to_wait_for(guest: World) -> None:
    window, _ = window_in(timedelta(hours=5))
    await guest.patch_vm(annotated(rollout="Window", window=window))
    await guest.patch_vm(SSD)
    await guest.until(lambda: waiting(guest))
    await guest.patch_vm(template(nodeSelector=None))
    await guest.until(lambda: not waiting(guest))


async def test_an_edit_in_an_open_window_is_live(guest: World) -> None:
    window, _ = window_in(timedelta(minutes=-5))
    await guest.patch_vm(annotated(rollout="Window", window=window))
    await guest.patch_vm(SOCKETS)
    await guest.until(lambda: sockets(guest) == 2)


# ---------------------------------------------------------------- a clock that tests move


@dataclass
class Hands:
    """A wall clock that jumps ahead when it is told to."""

    ahead: timedelta = timedelta()

    def __call__(self) -> datetime:
        return now() + self.ahead


@contextlib.asynccontextmanager
async def by_clock(world: World, clock: Hands) -> AsyncIterator[None]:
    """Run the controllers of a server by another clock."""
    extra = (controllers.virtual_machines, controllers.instances, controller.run)
    task = asyncio.create_task(
        embedded.run(world.components, world.store, clock, kinds.REGISTRY, extra)
    )
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def calm(world: World) -> None:
    """Return once nothing has been written for a while, so that no controller is about to work."""
    async with asyncio.timeout(30):
        seen = -1
        while seen != world.store.revision:
            seen = world.store.revision
            await asyncio.sleep(1)


async def test_the_controller_wakes_up_when_the_window_opens(
    quiet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not quiet.embedded:
        pytest.skip("the clock of a cluster's controllers cannot be moved")
    monkeypatch.setattr(vm_controller, "LONGEST_WAIT", timedelta(milliseconds=200))
    clock, node = Hands(), PlayedNode(quiet)
    async with by_clock(quiet, clock):
        await node.register()
        playing = asyncio.create_task(node.run())
        await quiet.create_vm()
        await quiet.until(quiet.ready)
        window, start = window_in(timedelta(hours=5))
        await quiet.patch_vm(annotated(rollout="Window", window=window))
        await quiet.patch_vm(SOCKETS | {"metadata": {"labels": {"a": "b"}}})
        await quiet.patch_vm(LABEL)
        await quiet.until(lambda: len(waiting(quiet)) == 2)
        await calm(quiet)  # from here on only the window can wake the controller
        clock.ahead = times.parse_time(start) - now() + timedelta(seconds=1)
        await quiet.until(lambda: sockets(quiet) == 2 and not waiting(quiet))
        assert quiet.vmi()["metadata"]["labels"]["tier"] == "db"
        playing.cancel()


async def test_plan_follows_the_clock_it_is_given(guest: World) -> None:
    window, start = window_in(timedelta(hours=5))
    await guest.patch_vm(annotated(rollout="Window", window=window))
    clock = Hands(times.parse_time(start) - now() + timedelta(seconds=1))
    actions = Actions(guest.components, None, now=clock)  # type: ignore[arg-type] # no guest is asked
    path = ActionPath("virtualmachines", NAMESPACE, "web", "plan")
    answer = await actions.handle(path, make_mocked_request("POST", "/"), ADMIN, SOCKETS)
    assert isinstance(answer, Answer)
    assert isinstance(answer.body, dict)
    assert answer.body["waits"] is False


# ---------------------------------------------------------------- admission

WRONG: dict[str, tuple[Object, str]] = {
    "an unknown strategy": (annotated(rollout="Later"), ROLLOUT),
    "a wrong window": (annotated(rollout="Window", window="0 2 * * 6"), WINDOW),
    "an unknown time zone": (annotated(window="0 2 * * 6 2h Europe/Nowhere"), WINDOW),
    "no window": (annotated(rollout="Window"), WINDOW),
}


@pytest.mark.parametrize(("patch", "name"), WRONG.values(), ids=WRONG)
async def test_wrong_annotations_are_refused_and_planned_as_refused(
    guest: World, patch: Object, name: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        await guest.patch_vm(patch)
    fields = [cause["field"] for cause in (refusal.value.details or {})["causes"]]
    assert fields == [f"metadata.annotations[{name}]"]
    planned = await plan(guest, patch)
    assert [(c["path"], c["verdict"]) for c in planned["changes"]] == [(fields[0], "Refused")]


async def test_a_namespace_that_loses_its_window_stages_edits(guest: World) -> None:
    window, _ = window_in(timedelta(minutes=-5))
    await annotate_namespace(guest, window=window)
    await guest.patch_vm(annotated(rollout="Window"))
    await annotate_namespace(guest, window=None)
    await guest.patch_vm(SOCKETS)
    await guest.until(lambda: required(guest))
    assert waiting(guest) == {"domain.cpu.sockets": "StageStrategy"}


async def test_the_kubevirt_object_allows_it_with_true_or_false(world: World) -> None:
    with pytest.raises(Invalid):
        await allow_looser(world, "yes")
