"""Reconciles the pods of one node with their guests: observes one, plans, and follows the plan.

Everything it observes can be read again: pods and instances from the API, intents and exit records
from files, guests from their processes. No two reconciles work on the same pod at once.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from livevirt.kube.control.cache import Key
from livevirt.kube.control.controller import DONE, Result
from livevirt.kube.objects import times
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.node import vmi_status
from livevirt.node.local import Local, Locals
from livevirt.node.migration import states
from livevirt.node.migration.migrations import NodeMigrations
from livevirt.node.migration.states import TargetState
from livevirt.node.plan import (
    CallOff,
    Clean,
    Forget,
    Leave,
    PodSnapshot,
    Press,
    Quit,
    Record,
    Remove,
    Report,
    Spawn,
    Stand,
    Start,
    Step,
    Wait,
    Wanted,
    plan,
)
from livevirt.node.report import Reporter
from livevirt.node.runtime import Exit, Runtime
from livevirt.node.start import NotReady, Starter
from livevirt.node.watched import NodeApi
from livevirt.qemu import lifecycle
from livevirt.qemu.errors import QmpError
from livevirt.vm.lifecycle.vmi.launcher import owner
from livevirt.vm.migration.migratability import JOB

log = logging.getLogger(__name__)

PRESS_SECONDS = 2.0  # in which QEMU takes the power button; it is pressed again


class PodReconciler:
    """Runs the pods that are bound to a node, and cleans up after others."""

    def __init__(
        self,
        api: NodeApi,
        locals_: Locals,
        starter: Starter,
        migrations: NodeMigrations,
        reporter: Reporter,
    ) -> None:
        self._client, self._watched, self._now = api.client, api.watched, api.now
        self._locals, self._starter = locals_, starter
        self._migrations, self._reporter = migrations, reporter

    @property
    def _runtime(self) -> Runtime:
        return self._locals.runtime

    async def reconcile(self, key: Key) -> Result:
        """Bring the pods of a name towards their objects."""
        pod = self._watched.pods.get(key)
        uid = pod["metadata"]["uid"] if pod else ""
        waits = []
        for local in self._locals.of_key(key):
            if local.folder.uid != uid:
                waits.append(await self._follow_plan(local, None))
        if pod is not None:
            made_for = owner(pod)
            if made_for is None:
                await self._reporter.pods.refuse(pod)
            else:
                local = self._locals.get(uid) or self._locals.hold(
                    key, uid, made_for["uid"], reserved=JOB in (pod["metadata"].get("labels") or {})
                )
                waits.append(await self._follow_plan(local, pod))
        after = min((wait for wait in waits if wait is not None), default=None)
        return DONE if after is None else Result(after)

    def instance(self, local: Local, pod: Object | None = None) -> Object | None:
        """Return the instance that a pod is for, and not another one of its name."""
        if local.intent is not None:
            name, uid = local.intent.vmi, local.intent.vmi_uid
        else:
            made_for = owner(pod) if pod else None
            if made_for is None:
                return None
            name, uid = made_for["name"], made_for["uid"]
        return self._watched.instance(Key(local.key.namespace, name), uid)

    # ------------------------------------------------------------ what is there

    def _observe(self, local: Local, pod: Object | None) -> PodSnapshot:
        locked = local.look()
        guest = local.guest
        vmi = self.instance(local, pod)
        gone = not locked and local.ending is None
        exited = self._runtime.exit_of(local, pod) if gone else Exit()
        target = self._migrations.target_state(local, vmi)
        may_start = target in (None, TargetState.OFFERED)
        return PodSnapshot(
            wanted=self._wanted(local, pod),
            now=self._now(),
            awaited=target in states.AWAITING,
            unneeded=target is TargetState.CANCELLED,
            left=self._migrations.has_left(local, vmi),
            noted=local.has_left,
            startable=local.intent is None
            and vmi is not None
            and may_start
            and self._may_start(vmi)
            and pod is not None
            and self._runtime.is_ready(pod),
            intent=local.intent is not None,
            spawned=local.spawned,
            rebooted=gone and local.rebooted,
            locked=locked or (exited is None and local.spawned),
            known=guest is not None,
            standing=local.standing,
            ending=local.ending,
            oom_killed=exited is not None and exited.oom_killed,
            complaint=exited.complaint if exited is not None else "",
            deadline=_deadline(pod),
            pressed=local.pressed,
        )

    def _wanted(self, local: Local, pod: Object | None) -> Wanted:
        wanted = _wanted(pod)
        return "stop" if wanted == "run" and self._runtime.is_stopping(local) else wanted

    def _may_start(self, vmi: Object) -> bool:
        """Whether a VMI without a guest of this pod may get one."""
        over = status_of(vmi).get("phase") in FINAL
        uid = vmi["metadata"]["uid"]
        taken = any(
            local.intent is not None and not local.clean for local in self._locals.of_vmi(uid)
        )
        return not over and not taken and "deletionTimestamp" not in vmi["metadata"]

    # ------------------------------------------------------------ what to do

    async def _follow_plan(self, local: Local, pod: Object | None) -> timedelta | None:
        """Take the steps that are due; return when to reconcile again."""
        seen = self._observe(local, pod)
        for step in plan(seen):
            if isinstance(step, Wait):
                return max(step.until - seen.now, timedelta(0))
            wait = await self._do(step, local, pod)
            if wait is not None:
                return wait
        return None

    async def _do(self, step: Step, local: Local, pod: Object | None) -> timedelta | None:
        match step:
            case Start() | Spawn():
                return await self._start(local, pod)
            case Stand():
                assert pod is not None
                await self._reporter.pods.report_place(local, pod)
                if (vmi := self.instance(local, pod)) is not None:
                    await self._migrations.report_cancelled(local, vmi)
            case CallOff():
                if not local.cancel_arrival():
                    return timedelta(0)
            case Leave():
                await asyncio.to_thread(local.folder.migration.write_left)
            case Press():
                await self._press(local, pod)
            case Record(what):
                await asyncio.to_thread(local.folder.write_ending, what)
                local.ending = what
                self._runtime.record_exit(local, f"{what.reason}: {what.message}")
                log.info("guest ended", extra=_facts(local) | {"because": what.reason})
            case Quit():
                if local.guest is not None:
                    await local.guest.quit()
            case Clean():
                self._clean(local, self.instance(local, pod))
            case Report():
                return await self._reporter.report(local, pod, self.instance(local, pod))
            case Forget():
                await asyncio.to_thread(local.folder.remove)
                self._locals.remove(local)
                self._reporter.pods.forget(local)
            case Remove():
                assert pod is not None
                await self._reporter.pods.remove(pod)
        return None

    async def _start(self, local: Local, pod: Object | None) -> timedelta | None:
        vmi = self.instance(local, pod)
        if pod is None:
            return None
        try:
            if local.intent is not None:
                await self._starter.spawn(local)
            elif vmi is not None and local.reserved:
                await self._receive(local, pod, vmi)
            elif vmi is not None:
                await self._starter.start(local, pod, vmi, self._now())
        except NotReady as error:
            if local.reserved and vmi is not None:
                await self._migrations.report_failure(local, vmi, str(error))
            local.attempts += 1
            local.waiting = error.waiting(local.attempts)
            await self._reporter.pods.report(local, pod)
            return error.retry(local.attempts)
        local.waiting = None
        log.info("guest started", extra=_facts(local))
        return None

    async def _receive(self, local: Local, pod: Object, vmi: Object) -> None:
        incoming = self._migrations.incoming(local, vmi)
        if incoming is not None:
            await self._starter.receive(local, pod, vmi, *incoming, self._now())
            self._migrations.follow(local, vmi)

    async def _press(self, local: Local, pod: Object | None) -> None:
        paused = vmi_status.is_paused(local.standing)
        if paused and local.is_sending:
            return  # it must not run here while it may elsewhere; the migration will end
        vmi = self.instance(local, pod)
        if vmi is not None and local.pressed is None:
            self._reporter.say_shutting_down(vmi)
        local.pressed = self._now()
        if local.guest is None:
            return
        try:
            async with asyncio.timeout(PRESS_SECONDS):
                if paused:  # a paused guest does not react to the button
                    await lifecycle.resume(local.guest.qmp())
                await local.guest.power_down()
        except TimeoutError:  # a QEMU that hangs is ended at the deadline
            log.debug("power button not pressed", extra=_facts(local) | {"error": "no answer"})
        except QmpError as error:
            log.debug("power button not pressed", extra=_facts(local) | {"error": str(error)})

    def _clean(self, local: Local, vmi: Object | None) -> None:
        if not local.clean:
            self._runtime.clean(local)
            local.clean = True
        if not self._migrations.may_run_elsewhere(local, vmi):
            self._runtime.remove_disks(self._locals.vmi_uid(local))


def _wanted(pod: Object | None) -> Wanted:
    if pod is None:
        return "gone"
    if "deletionTimestamp" in pod["metadata"]:
        return "stop"
    if status_of(pod).get("phase") in FINAL:
        return "ended"
    return "run"


def _deadline(pod: Object | None) -> datetime | None:
    """Return when a pod that is being deleted must be gone."""
    said = pod["metadata"].get("deletionTimestamp") if pod else None
    return times.parse_time(said) if said else None


def _facts(local: Local) -> dict[str, object]:
    vmi = local.intent.vmi if local.intent else ""
    return {"pod": str(local.key), "vmi": vmi}
