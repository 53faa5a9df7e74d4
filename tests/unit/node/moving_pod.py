"""One pod of a migration, kept by the classes that do so in a node; API and QEMU are not real."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from livevirt.errors import Conflict
from livevirt.kube.control.cache import Key
from livevirt.kube.server import patches
from livevirt.node import intent as intents
from livevirt.node.intent import Incoming, Intent, Limits
from livevirt.node.kubelet_role import KubeletRole
from livevirt.node.local import Local, Locals
from livevirt.node.migration.handover import Handovers, MigrationNotes
from livevirt.node.migration.migrations import NodeMigrations
from livevirt.node.pod_dir import PodDir
from livevirt.node.pod_reconciler import PodReconciler
from livevirt.node.process_runtime import Directories, ProcessRuntime
from livevirt.node.report import Reporter
from livevirt.node.watched import NodeApi
from livevirt.vm import kinds

from .moving_qemu import MACHINE, Qmp, a_guest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = "2026-01-01T12:00:00Z"
LATER = "2026-01-01T12:10:00Z"
SOURCE, TARGET = ("s", "n1"), ("t", "n2")  # pod and node
_UID = "pod-uid"


class Api:
    """The instance and the pod, and who changed them when."""

    def __init__(self, pod: str, node: str, state: dict[str, Any]) -> None:
        handed = {"migrationUid": "m", "sourcePod": "s", "targetPod": "t", "startTimestamp": AT}
        self.vmi: Any = {
            "metadata": {
                "name": "web", "namespace": "default", "uid": "vmi-uid", "resourceVersion": "1",
            },
            "spec": {},
            "status": {
                "phase": "Running", "nodeName": "n1", "migrationState": {**handed, **state},
            },
        }  # fmt: skip
        owner = {"kind": "VirtualMachineInstance", "name": "web", "uid": "vmi-uid"}
        self.pod: Any = {
            "metadata": {
                "name": pod, "namespace": "default", "uid": _UID, "resourceVersion": "1",
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {"nodeName": node, "containers": [{"name": "compute"}]},
        }  # fmt: skip

    @property
    def state(self) -> Any:
        return self.vmi["status"]["migrationState"]

    def change(self, **state: Any) -> None:
        """Have the instance say something else of its migration."""
        self.vmi = copy.deepcopy(self.vmi)
        self.vmi["status"]["migrationState"] |= state
        self._bump(self.vmi)

    def delete_pod(self) -> None:
        self.pod = copy.deepcopy(self.pod)
        self.pod["metadata"]["deletionTimestamp"] = LATER
        self._bump(self.pod)

    async def patch(
        self, kind: Any, name: str, namespace: str, patch: Any, *, subresource: str = ""
    ) -> None:
        await asyncio.sleep(0)
        what = "vmi" if kind is kinds.VMI else "pod"
        old = getattr(self, what)
        if patch["metadata"].pop("resourceVersion") != old["metadata"]["resourceVersion"]:
            raise Conflict("somebody was faster")
        new = patches.apply_merge_patch(old, patch)
        self._bump(new)
        setattr(self, what, new)

    async def delete(self, *_: Any, **__: Any) -> None:
        self.pod = None

    @staticmethod
    def _bump(obj: Any) -> None:
        obj["metadata"]["resourceVersion"] = str(int(obj["metadata"]["resourceVersion"]) + 1)


class SlowNotes(MigrationNotes):
    """Takes its time to write, in which other things can happen."""

    def __init__(self, folder: Path, linger: Callable[[str], None]) -> None:
        super().__init__(folder)
        self._linger = linger

    def sync(self) -> None:
        self._linger("arrival")
        super().sync()


class SlowDir(PodDir):
    """Takes its time to write, in which other things can happen."""

    seconds = 0.0
    meanwhile: Callable[[str], None] = staticmethod(lambda _: None)

    def __init__(self, pods: Path, run: Path, uid: str) -> None:
        super().__init__(pods, run, uid)
        self.migration = SlowNotes(self.root, self._linger)

    def write_ending(self, what: Any) -> None:
        self._linger("ending")
        super().write_ending(what)

    def _linger(self, what: str) -> None:
        self.meanwhile(what)
        time.sleep(self.seconds)


class MovingRuntime(ProcessRuntime):
    """Starts and cleans nothing."""

    def __init__(self, pods: Path, run: Path) -> None:
        nothing: Any = None
        super().__init__(Directories(pods, run), nothing, nothing, nothing, nothing)
        self.disks_removed = 0

    def clean(self, local: Local) -> None:
        pass

    def remove_disks(self, vmi_uid: str) -> None:
        self.disks_removed += 1


class MovingPod:
    """The source or the target of the migration `m`."""

    def __init__(self, root: Path, qmp: Qmp, at: tuple[str, str] = TARGET, **state: Any) -> None:
        pod, self.node = at
        self.qmp, self.api = qmp, Api(pod, self.node, state)
        self.key = Key("default", pod)
        self.folder = SlowDir(root / "nodes" / self.node / "pods", root / "run", _UID)
        self.folder.create(None)
        self.folder.spawned.touch()
        intent = Intent(
            boot_id=intents.boot_id(), node=self.node, namespace="default", pod=pod, pod_uid=_UID,
            vmi="web", vmi_uid="vmi-uid", argv=(), machine=MACHINE, cgroups=(), limits=Limits(),
            incoming=Incoming(uid="m") if at == TARGET else None, created=AT,
        )  # fmt: skip
        self.folder.write_intent(intent)
        self.woken = asyncio.Event()
        self.runtime = MovingRuntime(self.folder.root.parent, root / "run")
        locals_ = Locals(self.runtime, lambda _: self.woken.set())
        self.local = locals_.hold(self.key, _UID, "vmi-uid")
        self.local.folder = self.folder
        self.local.guest = a_guest(qmp, intent)
        informer = SimpleNamespace(get=lambda _: self.api.pod, on_change=lambda _: None)
        watched: Any = SimpleNamespace(
            pods=informer, instance=lambda *_: self.api.vmi, claims_of=lambda _: {}
        )
        client: Any = self.api
        starter: Any = SimpleNamespace(described=self._described, migrates=True)
        recorder: Any = SimpleNamespace(event=lambda *_: None)

        def now() -> datetime:
            return NOON

        self.handovers = Handovers()
        api = NodeApi(self.node, client, watched, recorder, now)
        self.migrations = NodeMigrations(api, starter, self.handovers)
        reporter = Reporter(api, starter, self.migrations, KubeletRole(api, {}))
        self.reconciler = PodReconciler(api, locals_, starter, self.migrations, reporter)

    @property
    def disks_removed(self) -> int:
        """How often the disks were removed that end with the guest."""
        return self.runtime.disks_removed

    def restart(self) -> None:
        """Have the agent killed, and another one take over what it finds."""
        locals_ = Locals(self.runtime, lambda _: self.woken.set())
        list(locals_.adopt())
        self.reconciler._locals = locals_

    async def _described(self, *_: Any) -> Any:
        return MACHINE

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Have it kept for as long as the block lasts, by one reconcile after the other."""
        keeping = asyncio.create_task(self.keep())
        try:
            yield
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            await self._let_go()

    async def keep(self) -> None:
        """Keep it until something goes wrong."""
        while True:
            with contextlib.suppress(Conflict):
                await self.reconciler.reconcile(self.key)
            await asyncio.sleep(0.002)

    async def _let_go(self) -> None:
        if self.local.migration is not None:
            self.local.migration.stop()
        await asyncio.sleep(0)

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(30):
            while True:
                if holds():
                    return
                await asyncio.sleep(0.005)

    async def stays(self, holds: Callable[[], Any]) -> None:
        """Expect it to hold however often the pod is looked at."""
        for _ in range(30):
            await asyncio.sleep(0.005)
            assert holds()
