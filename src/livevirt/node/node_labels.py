"""The labels and the heartbeat by which a Node of a cluster shows that it runs virtual machines.

The Node is the kubelet's: it is never created here, and its status is not written.
"""

from __future__ import annotations

import asyncio
import logging

from livevirt.errors import ApiError
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.objects import core
from livevirt.kube.objects.pod_resources import CPU_MANAGER, YES
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.times import format_time
from livevirt.node import registration
from livevirt.node.registration import Facts

log = logging.getLogger(__name__)

HEARTBEAT = "kubevirt.io/heartbeat"
AGENT_ADDRESS = "livevirt.io/agent-address"  # where `livevirt api` reaches the agent
SCHEDULABLE = "kubevirt.io/schedulable"
BEAT_SECONDS = 60.0
RETRY_SECONDS = 5.0
#: Set by the kubelet, or by an administrator for a CPU manager whose policy is static.
_NOT_OURS = ("kubernetes.io/", CPU_MANAGER)


def patch(facts: Facts, node: Object, heartbeat: str, address: str = "") -> Object:
    """Return the merge patch that labels a Node which runs virtual machines. Pure."""
    wanted = registration.labels(facts, node["metadata"].get("labels") or {})
    labels = {name: value for name, value in wanted.items() if not name.startswith(_NOT_OURS)}
    reason = facts.accelerator.reason
    annotations = {
        HEARTBEAT: heartbeat,
        "livevirt.io/accelerator-reason": reason,
        AGENT_ADDRESS: address or None,
    }
    return {"metadata": {"labels": {**labels, SCHEDULABLE: YES}, "annotations": annotations}}


class NodeLabels:
    """Keeps labels and heartbeat of a Node current, while `run` runs."""

    def __init__(self, client: Client, facts: Facts, now: Now, address: str = "") -> None:
        self._client, self._facts, self._now, self._address = client, facts, now, address

    async def run(self) -> None:
        """Label the Node and renew its heartbeat until cancelled."""
        while True:
            try:
                await self.beat()
            except ApiError as error:  # also while the kubelet has not registered it
                fields = {"node": self._facts.name, "error": str(error)}
                log.warning("node not labelled", extra=fields)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await asyncio.sleep(BEAT_SECONDS)

    async def beat(self) -> None:
        """Label the Node once; raises ApiError."""
        node = await self._client.get(core.NODE, self._facts.name)
        changed = patch(self._facts, node, format_time(self._now()), self._address)
        await self._client.patch(core.NODE, self._facts.name, "", changed)
