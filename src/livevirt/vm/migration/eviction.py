"""Evictions of launcher pods: whether the guest migrates instead of ending with its pod.

Embedded, the API server asks `Guard` before it evicts a pod; on Kubernetes a webhook does.
"""

from __future__ import annotations

from typing import NamedTuple

from livevirt.errors import Conflict, NotFound, TooManyRequests
from livevirt.kube.client.interface import Client, if_unchanged
from livevirt.kube.control.turns import Turns
from livevirt.kube.objects import conditions, node_share, refusals
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds
from livevirt.vm.config import settings
from livevirt.vm.config.settings import Config
from livevirt.vm.migration import migratability


class Move(NamedTuple):
    """The guest of a pod leaves instead: its instance is marked, and the eviction tried again."""

    node: str  # the one it has to leave
    refusal: TooManyRequests  # the answer to the caller meanwhile
    marked: bool = False  # already


def instance_of(pod: Object) -> str:
    """Return the name of the instance whose guest may be in a pod, empty if there is none."""
    uid = node_share.instance_of(pod)  # of none, once the pod has ended
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner["name"] for owner in owners if uid and owner["uid"] == uid), "")


def move(pod: Object, vmi: Object | None, config: Config) -> Move | None:
    """Return how the guest of a pod leaves its node, None if it is evicted with the pod.

    A guest that must not be evicted and cannot move raises TooManyRequests.
    """
    if vmi is None or vmi["metadata"]["uid"] != node_share.instance_of(pod):
        return None
    meta, status = vmi["metadata"], status_of(vmi)
    strategy = vmi["spec"].get("evictionStrategy") or config.eviction_strategy
    over = status.get("phase") in FINAL or "deletionTimestamp" in meta
    if strategy == "None" or over:
        return None
    node = pod["spec"].get("nodeName") or ""
    name = f"{meta['namespace']}/{meta['name']}"
    if node != migratability.node_of(vmi):
        if not migratability.moving(vmi):
            return None  # the guest is elsewhere
        raise TooManyRequests(f'Eviction has to wait: VMI "{name}" is being migrated to this pod')
    movable = conditions.is_true(status.get("conditions"), "LiveMigratable")
    if strategy == "LiveMigrate" and not movable:
        raise TooManyRequests(
            f"VMI {meta['name']} is configured with an eviction strategy but is not live-migratable"
        )
    if strategy == "LiveMigrateIfPossible" and not movable:
        return None
    refusal = TooManyRequests(f'Eviction triggered evacuation of VMI "{name}"')
    return Move(node, refusal, status.get("evacuationNodeName") == node)


class Guard:
    """Refuses evictions of pods whose guest migrates instead, and marks its instance for that."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turns = Turns()

    async def __call__(self, pod: Object, *, dry_run: bool) -> None:
        """Raise TooManyRequests if the guest of a pod migrates instead of ending."""
        name = instance_of(pod)
        if not name:
            return
        namespace = pod["metadata"]["namespace"]

        async def mark() -> TooManyRequests | bool | None:
            try:
                vmi = await self._client.get(kinds.VMI, name, namespace)
            except NotFound:
                return True
            found = move(pod, vmi, await self._config())
            if found is None:
                return True
            if not found.marked and not dry_run:
                patch = if_unchanged(vmi, {"status": {"evacuationNodeName": found.node}})
                try:
                    await self._client.patch(kinds.VMI, name, namespace, patch)
                except (Conflict, NotFound):
                    return None
            return found.refusal

        done = await self._turns.write((namespace, name), mark)
        if done is None:
            raise refusals.modified(kinds.VMI, name)
        if isinstance(done, TooManyRequests):
            raise done

    async def _config(self) -> Config:
        try:
            kubevirt = await self._client.get(kinds.KUBEVIRT, settings.NAME, settings.NAMESPACE)
        except NotFound:
            return settings.read(None)
        return settings.read(kubevirt)
