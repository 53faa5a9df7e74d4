"""What the node agent writes about pods of a kubelet: their readiness gate, and events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from livevirt.errors import NotFound
from livevirt.kube.client.interface import Patch
from livevirt.kube.control.cache import Change, Key
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.request import Object, status_of
from livevirt.node import pod_status, vmi_status
from livevirt.node.pod_status import Waiting
from livevirt.node.watched import NodeApi

if TYPE_CHECKING:
    from livevirt.node.local import Local


class ReadinessGate:
    """Keeps the condition `kubevirt.io/virtual-machine-unpaused` of pods current.

    All else in the status of a pod is the kubelet's, which also resizes and removes pods.
    """

    def __init__(self, api: NodeApi) -> None:
        self._client, self._recorder, self._now = api.client, api.recorder, api.now
        self._reported: dict[str, Waiting] = {}  # what a start waits for, by the uid of the pod

    async def report(self, local: Local, pod: Object) -> timedelta | None:
        """Bring the readiness gate up to date; record why a guest cannot be started yet."""
        uid, waiting = local.folder.uid, local.waiting
        if waiting is not None and self._reported.get(uid) != waiting:
            self._recorder.event(pod, "Warning", waiting.reason, waiting.message)
            self._reported[uid] = waiting
        if local.ending is not None or not local.spawned or local.guest is None:
            return None
        wanted = pod_status.unpaused(vmi_status.is_paused(local.standing))
        if local.prober is not None and not local.prober.ready:
            message = "the readiness probe of the guest has not succeeded"
            wanted = conditions.condition(pod_status.UNPAUSED, False, "ProbeFailed", message)
        old = status_of(pod).get("conditions")
        changed = conditions.with_condition(old, wanted, self._now())
        if changed == old:
            return None
        gate = conditions.find(changed, pod_status.UNPAUSED)
        # Conditions merge by type, so that the kubelet's stay as they are.
        patch = Patch("strategic", {"status": {"conditions": [gate]}})
        meta = pod["metadata"]
        try:
            await self._client.patch(
                core.POD, meta["name"], meta["namespace"], patch, subresource="status"
            )
        except NotFound:
            return None
        return None

    async def report_place(self, local: Local, pod: Object) -> None:
        """Do nothing: the kubelet reports that the launcher runs."""

    async def refuse(self, pod: Object) -> None:
        """Do nothing: other pods of the node are not ours."""

    async def remove(self, pod: Object) -> None:
        """Do nothing: the kubelet removes the pod once its containers have ended."""

    def forget(self, local: Local) -> None:
        """Keep nothing about a pod that is gone."""
        self._reported.pop(local.folder.uid, None)

    def waiting(self, change: Change) -> Iterable[Key]:
        """Return no pods: the kubelet resizes them when there is room."""
        return ()
