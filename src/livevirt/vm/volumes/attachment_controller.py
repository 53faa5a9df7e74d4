"""Keeps the attachment pods of running guests on a cluster."""

from __future__ import annotations

import contextlib
import logging
from datetime import datetime, timedelta

from livevirt.errors import AlreadyExists, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key, key_of, owner_key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.spec.disks import hotpluggable
from livevirt.vm.volumes import attachment_pods
from livevirt.vm.volumes.attachment_pods import CreatePod, DeletePod, Snapshot, plan
from livevirt.vm.volumes.volume_lists import claim_of

log = logging.getLogger(__name__)

NAME = "attachment-controller"
#: How long a pod stays that is not needed any more: its guest may be opening it right now.
SETTLE = timedelta(seconds=3)
_LAUNCHERS, _ATTACHMENTS, _BY_CLAIM = "attachments-launchers", "attachments", "attachments-claim"


class Attachments:
    """Watches instances, their pods and claims."""

    def __init__(self, client: Client, now: Now, informers: Informers, image: str) -> None:
        """Create it; `image` is livevirt's own."""
        self._client, self._now, self._image = client, now, image
        self._instances, self._pods = informers.of(kinds.VMI), informers.of(core.POD)
        self._claims = informers.of(core.CLAIM)
        self._unneeded: dict[Key, dict[str, datetime]] = {}  # by instance: uid → since when
        self._pods.index(_LAUNCHERS, _instance_uids)
        self._pods.index(_ATTACHMENTS, _attached_uids)
        self._instances.index(_BY_CLAIM, _claim_keys)
        self._controller = Controller("attachments", self.reconcile)
        self._controller.watches(self._instances)
        self._controller.watches(self._pods, _instance_keys)
        self._controller.watches(self._claims, self._users)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _users(self, claim: Object) -> list[Key]:
        return [key_of(vmi) for vmi in self._instances.by(_BY_CLAIM, key_of(claim))]

    async def reconcile(self, key: Key) -> Result:
        """Create the pods that an instance needs, and delete those it does not need."""
        vmi, now = self._instances.get(key), self._now()
        steps = plan(self._snapshot(key, vmi))
        before = self._unneeded.pop(key, {})
        since = {s.uid: before.get(s.uid, now) for s in steps if isinstance(s, DeletePod)}
        if since:
            self._unneeded[key] = since
        waits = []
        for step in steps:
            match step:
                case CreatePod(attachment=attachment) if vmi is not None:
                    await self._create(vmi, attachment)
                case DeletePod(name=name, uid=uid) if now - since[uid] >= SETTLE:
                    await self._delete(key, name, uid)
                case DeletePod(uid=uid):
                    waits.append(since[uid] + SETTLE - now)
        return Result(after=min(waits)) if waits else DONE

    def _snapshot(self, key: Key, vmi: Object | None) -> Snapshot:
        if vmi is None:
            pods = [
                pod
                for pod in self._pods.list(key.namespace)
                if attachment_pods.is_attachment(pod)
                and attachment_pods.instance_key(pod) == (key.namespace, key.name)
            ]
            return Snapshot(None, (), {}, tuple(pods))
        uid = vmi["metadata"]["uid"]
        pods = self._pods.by(_ATTACHMENTS, uid)
        names = map(claim_of, vmi["spec"].get("volumes") or ())
        found = {name: self._claims.get(Key(key.namespace, name)) for name in names if name}
        claims = {name: claim for name, claim in found.items() if claim is not None}
        launchers = attachment_pods.places(self._pods.by(_LAUNCHERS, uid))
        return Snapshot(vmi, launchers, claims, tuple(pods))

    async def _create(self, vmi: Object, attachment: attachment_pods.Attachment) -> None:
        pod = attachment_pods.manifest(vmi, attachment, self._image)
        meta = pod["metadata"]
        with contextlib.suppress(AlreadyExists):
            await self._client.create(core.POD, pod, meta["namespace"])
            fields = {"vmi": str(key_of(vmi)), "volume": attachment.volume, "pod": meta["name"]}
            log.info("attachment pod created", extra=fields)

    async def _delete(self, key: Key, name: str, uid: str) -> None:
        with contextlib.suppress(NotFound):
            await self._client.delete(core.POD, name, key.namespace, uid=uid)
            log.info("attachment pod deleted", extra={"vmi": str(key), "pod": name})


def _instance_uids(pod: Object) -> list[str]:
    owner = launcher.owner(pod)
    return [owner["uid"]] if owner is not None else []


def _attached_uids(pod: Object) -> list[str]:
    if not attachment_pods.is_attachment(pod):
        return []
    return [attachment_pods.label(pod, attachment_pods.INSTANCE)]


def _instance_keys(pod: Object) -> list[Key]:
    if attachment_pods.is_attachment(pod):
        return [Key(*attachment_pods.instance_key(pod))]
    return list(owner_key(kinds.VMI)(pod))


def _claim_keys(vmi: Object) -> list[Key]:
    namespace = vmi["metadata"]["namespace"]
    volumes = vmi["spec"].get("volumes") or ()
    return [Key(namespace, claim_of(each)) for each in volumes if hotpluggable(each)]
