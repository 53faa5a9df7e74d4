"""The node agent: sees to it that the pods bound to its node run as QEMU, and says what is true.

It can be killed at any moment. Everything it knows it reads again at start: pods and VMIs from the
API, intents and endings from its files, guests from their processes. A reconcile looks at one pod,
plans, and follows the plan step by step; no two work on the same pod at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from livevirt.api import registry, times
from livevirt.api.quantity import Quantity
from livevirt.api.request import Object
from livevirt.client.interface import Client
from livevirt.control.cache import Change
from livevirt.control.clock import Now
from livevirt.control.controller import DONE, Controller, Result
from livevirt.control.events import Recorder
from livevirt.control.informer import Informer
from livevirt.control.key import Key, key_of
from livevirt.errors import NotFound
from livevirt.node import events, pod_dir, pod_status, vmi_status
from livevirt.node.cgroups import Cgroups
from livevirt.node.guest import Guest
from livevirt.node.host import Host
from livevirt.node.images import ImageStore
from livevirt.node.intent import UnknownIntent
from livevirt.node.local import Local, Locals
from livevirt.node.mover import Mover
from livevirt.node.plan import (
    Clean,
    Forget,
    Press,
    Quit,
    Record,
    Remove,
    Report,
    Seen,
    Spawn,
    Stand,
    Start,
    Step,
    Wait,
    Wanted,
    plan,
)
from livevirt.node.pod_dir import PodDir
from livevirt.node.registration import Facts, Registration
from livevirt.node.report import Reporter
from livevirt.node.scratch import Scratch
from livevirt.node.start import NotReady, Starter
from livevirt.node.volumes import Volumes
from livevirt.paths import DataDir
from livevirt.qemu import lifecycle
from livevirt.qemu.errors import QmpError
from livevirt.rollout.migratability import JOB
from livevirt.rollout.volume_lists import claim_of

log = logging.getLogger(__name__)

WORKERS = 8
OWNER_UID = "owner-uid"
_ENDED = ("Succeeded", "Failed")


class Agent:
    """One node. `run` it; ask it for guests."""

    def __init__(
        self,
        name: str,
        client: Client,
        data: DataDir,
        images: ImageStore,
        capacity: Mapping[str, Quantity],
        host: Host,
        now: Now,
    ) -> None:
        self.name = name
        self._client, self._now = client, now
        self._pods_dir, self._run_dir = data.nodes / name / "pods", data.run
        self._cgroups = Cgroups.discover(name, capacity["cpu"].milli())
        owner = host.account.owner if host.account else None
        volumes = Volumes(client, images, (data.volumes,), owner)
        self._cpus = host.cpus
        self._starter = Starter(
            name,
            volumes,
            self._cgroups,
            host.cpus,
            host.accelerator,
            host.account,
            Scratch(data.scratch),
        )
        facts = Facts(
            name,
            capacity,
            host.accelerator,
            host.qemu,
            self._cgroups.problem,
            offer=host.offer,
            shared_cpus=self._cgroups.cpuset_problem,
        )
        self._registration = Registration(client, facts, now)
        self._recorder = Recorder(client, events.COMPONENT, now, name)
        self._locals = Locals()
        self._pods = Informer(client, registry.POD, fields=f"spec.nodeName={name}")
        self._vmis = Informer(client, registry.VMI)
        self._claims = Informer(client, registry.CLAIM)
        self._data_volumes = Informer(client, registry.DATA_VOLUME)
        self._mover = Mover(name, client, self._recorder, self._starter, host.handovers, now)
        self._reporter = Reporter(
            client,
            self._recorder,
            self._starter,
            self._pods,
            self._claims,
            self._mover,
            capacity,
            now,
        )
        self._controller = Controller(f"node-{name}", self._reconcile, workers=WORKERS)

    async def run(self) -> None:
        """Work until cancelled; guests run on."""
        self._pods.index(OWNER_UID, _owner_uids)
        self._controller.watches(self._pods).watches(self._vmis, self._pods_of)
        self._controller.watches(self._claims, self._pods_with)
        self._pods.on_change(self._retry_deferred)
        for claims in (self._claims, self._data_volumes):  # a DataVolume's claim has its name
            claims.on_change(self._retry_volumes)
        self._adopt()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pods.run(), name=f"{self.name}-pods")
                group.create_task(self._vmis.run(), name=f"{self.name}-vmis")
                group.create_task(self._claims.run(), name=f"{self.name}-claims")
                group.create_task(self._data_volumes.run(), name=f"{self.name}-data-volumes")
                group.create_task(self._recorder.run(), name=f"{self.name}-events")
                group.create_task(self._registration.run(), name=f"{self.name}-registration")
                group.create_task(self._controller.run(), name=f"{self.name}-pods-controller")
        finally:
            for local in self._locals:
                await local.close()

    @property
    def unconfined(self) -> str:
        """Why pods have no limits here; empty if they have."""
        return self._cgroups.problem

    @property
    def shares_cpus(self) -> str:
        """Why no pod can have CPUs of its own here; empty if it can."""
        return self._cgroups.cpuset_problem

    def guest(self, namespace: str, vmi: str) -> Guest | None:
        """Return the running guest of a VMI, if it is on this node."""
        for local in self._locals:
            guest = local.guest
            if guest is None or local.awaits or local.has_left:
                continue
            if (guest.intent.namespace, guest.intent.vmi) == (namespace, vmi):
                return guest
        return None

    def moves(self, namespace: str, vmi: str) -> bool:
        """Tell whether a guest of this node is about to leave it."""
        return any(
            local.intent is not None
            and (local.intent.namespace, local.intent.vmi) == (namespace, vmi)
            and local.departure is not None
            and not local.has_left
            for local in self._locals
        )

    def held_pod(self, key: Key) -> Local | None:
        """Return what this node has of a pod, once it was started."""
        pod = self._pods.get(key)
        local = self._locals.get(pod["metadata"]["uid"]) if pod else None
        return local if local and local.intent else None

    # ------------------------------------------------------------ what is there

    def _adopt(self) -> None:
        """Take in what an earlier run left; whether it is still wanted, the API will say."""
        for folder in pod_dir.all_in(self._pods_dir, self._run_dir):
            try:
                intent = folder.read_intent()
            except UnknownIntent as error:
                log.error("left alone", extra={"pod_uid": folder.uid, "error": str(error)})
                continue
            if intent is None:
                folder.remove()  # a start that came to nothing: an intent comes before a process
                continue
            local = self._hold(Key(intent.namespace, intent.pod), folder, intent.vmi_uid)
            own = intent.exclusive.cpus if intent.exclusive else ()
            self._cpus.adopt(folder.uid, own, local.cgroup)
            self._controller.queue.add(Key(intent.namespace, intent.pod))

    def _hold(self, key: Key, folder: PodDir, vmi_uid: str, *, target: bool = False) -> Local:
        local = Local(key, folder, lambda: self._controller.queue.add(key), target=target)
        self._locals.add(local, vmi_uid)
        return local

    def _pods_of(self, vmi: Object) -> list[Key]:
        return [key_of(pod) for pod in self._pods.by(OWNER_UID, vmi["metadata"]["uid"])]

    def _pods_with(self, claim: Object) -> list[Key]:
        """Return the pods whose guests have a claim, for their status tells of it."""
        named = key_of(claim)
        return [
            local.key
            for local in self._locals
            if local.key.namespace == named.namespace
            and (vmi := self._vmi_of(local, None)) is not None
            and any(claim_of(each) == named.name for each in vmi["spec"].get("volumes") or ())
        ]

    def _retry_deferred(self, change: Change) -> None:
        for key in self._reporter.deferred - {change.key}:
            self._controller.queue.add(key)

    def _retry_volumes(self, change: Change) -> None:
        for local in self._locals:
            if local.attacher is not None and local.key.namespace == change.key.namespace:
                local.attacher.nudge(change.key.name)

    def _vmi_of(self, local: Local, pod: Object | None) -> Object | None:
        """Return the VMI the pod is for, and not another one of its name."""
        if local.intent is not None:
            name, uid = local.intent.vmi, local.intent.vmi_uid
        else:
            owner = _owner(pod) if pod else None
            if owner is None:
                return None
            name, uid = owner["name"], owner["uid"]
        vmi = self._vmis.get(Key(local.key.namespace, name))
        return vmi if vmi is not None and vmi["metadata"]["uid"] == uid else None

    def _see(self, local: Local, pod: Object | None) -> Seen:
        locked = local.look()
        guest = local.guest
        vmi = self._vmi_of(local, pod)
        gone = not locked and local.ending is None
        part = self._mover.part(local, vmi)
        may_start = part.offered if local.target else True
        return Seen(
            wanted=_wanted(pod),
            now=self._now(),
            awaited=part.awaited,
            unneeded=part.unneeded,
            left=part.left,
            startable=local.intent is None
            and vmi is not None
            and may_start
            and self._may_start(vmi),
            intent=local.intent is not None,
            spawned=local.spawned,
            rebooted=gone and local.rebooted,
            locked=locked,
            known=guest is not None,
            standing=guest.view.standing if guest else None,
            ending=local.ending,
            oom_killed=gone and local.cgroup.oom_killed(),
            complaint=local.folder.complaint() if gone else "",
            deadline=_deadline(pod),
            pressed=local.pressed,
        )

    def _may_start(self, vmi: Object) -> bool:
        """Whether a VMI without a guest of this pod may get one."""
        over = (vmi.get("status") or {}).get("phase") in _ENDED
        uid = vmi["metadata"]["uid"]
        taken = any(
            local.intent is not None and not local.clean for local in self._locals.of_vmi(uid)
        )
        return not over and not taken and "deletionTimestamp" not in vmi["metadata"]

    # ------------------------------------------------------------ what to do

    async def _reconcile(self, key: Key) -> Result:
        pod = self._pods.get(key)
        uid = pod["metadata"]["uid"] if pod else ""
        waits = []
        for local in self._locals.of_key(key):
            if local.folder.uid != uid:
                waits.append(await self._follow_plan(local, None))
        if pod is not None:
            owner = _owner(pod)
            if owner is None:
                await self._refuse(pod)
            else:
                local = self._locals.get(uid) or self._hold(
                    key,
                    PodDir(self._pods_dir, self._run_dir, uid),
                    owner["uid"],
                    target=JOB in (pod["metadata"].get("labels") or {}),
                )
                waits.append(await self._follow_plan(local, pod))
        after = min((wait for wait in waits if wait is not None), default=None)
        return DONE if after is None else Result(after)

    async def _follow_plan(self, local: Local, pod: Object | None) -> timedelta | None:
        """Do what is to be done now; return when to look again."""
        seen = self._see(local, pod)
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
                await self._reporter.report_place(local, pod)
                if (vmi := self._vmi_of(local, pod)) is not None:
                    await self._mover.give_up(local, vmi)
            case Press():
                await self._press(local, pod)
            case Record(what):
                await asyncio.to_thread(local.folder.write_ending, what)
                local.ending = what
                log.info("guest ended", extra=_facts(local) | {"because": what.reason})
            case Quit():
                if local.guest is not None:
                    await local.guest.quit()
            case Clean():
                self._clean(local)
            case Report():
                return await self._reporter.report(local, pod, self._vmi_of(local, pod))
            case Forget():
                await asyncio.to_thread(local.folder.remove)
                self._locals.remove(local)
                self._reporter.deferred.discard(local.key)
            case Remove():
                assert pod is not None
                await self._remove(pod)
        return None

    async def _start(self, local: Local, pod: Object | None) -> timedelta | None:
        vmi = self._vmi_of(local, pod)
        if pod is None:
            return None
        try:
            if local.intent is not None:
                await self._starter.spawn(local)
            elif vmi is not None and local.target:
                await self._receive(local, pod, vmi)
            elif vmi is not None:
                await self._starter.start(local, pod, vmi, self._now())
        except NotReady as error:
            if local.target and vmi is not None:
                await self._mover.refuse(local, vmi, str(error))
            local.attempts += 1
            local.waiting = error.waiting(local.attempts)
            await self._reporter.report_pod(local, pod)
            return error.retry(local.attempts)
        local.waiting = None
        log.info("guest started", extra=_facts(local))
        return None

    async def _receive(self, local: Local, pod: Object, vmi: Object) -> None:
        offer = self._mover.offer(local, vmi)
        if offer is not None:
            await self._starter.receive(local, pod, vmi, *offer, self._now())
            self._mover.follow(local, vmi)

    async def _press(self, local: Local, pod: Object | None) -> None:
        vmi = self._vmi_of(local, pod)
        if vmi is not None and local.pressed is None:
            events.shutting_down(self._recorder, vmi)
        local.pressed = self._now()
        if local.guest is None:
            return
        try:
            if vmi_status.is_paused(local.guest.view.standing):
                await lifecycle.resume(local.guest.qmp())  # a guest that stands still hears nothing
            await local.guest.power_down()
        except QmpError as error:
            log.debug("power button not pressed", extra=_facts(local) | {"error": str(error)})

    def _clean(self, local: Local) -> None:
        if not local.clean:
            self._cpus.release(local.folder.uid)
            local.cgroup.remove()
            local.folder.remove_run()
            # They stay where the guest is, which is not here if it has left or never came.
            if not local.has_left and (local.arrived or not local.target):
                self._starter.remove_disks(self._locals.vmi_uid(local))
            local.clean = True

    async def _remove(self, pod: Object) -> None:
        metadata = pod["metadata"]
        try:
            await self._client.delete(
                registry.POD,
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                grace_seconds=0,
            )
        except NotFound:
            return

    async def _refuse(self, pod: Object) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            await self._remove(pod)
        elif (pod.get("status") or {}).get("phase") not in _ENDED:
            message = "this node runs virtual machines only; the pod belongs to none"
            await self._reporter.write_pod(pod, pod_status.refused(pod, message, self._now()))


def _owner(pod: Object) -> Object | None:
    """Return the reference to the VMI that a pod runs, if it runs one."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == registry.VMI.kind:
            found: Object = owner
            return found
    return None


def _owner_uids(pod: Object) -> list[str]:
    owner = _owner(pod)
    return [owner["uid"]] if owner else []


def _wanted(pod: Object | None) -> Wanted:
    if pod is None:
        return "gone"
    if "deletionTimestamp" in pod["metadata"]:
        return "stop"
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return "ended"
    return "run"


def _deadline(pod: Object | None) -> datetime | None:
    """Return when a pod that is being deleted must be gone."""
    said = pod["metadata"].get("deletionTimestamp") if pod else None
    return times.parse_time(said) if said else None


def _facts(local: Local) -> dict[str, object]:
    vmi = local.intent.vmi if local.intent else ""
    return {"pod": str(local.key), "vmi": vmi}
