"""A node's access to the API, and what it watches: its pods, instances, claims and DataVolumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.control.clock import Now
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi.launcher import owner
from livevirt.vm.volumes.volume_lists import claim_of

_OWNER_UID = "owner-uid"


class Watched:
    """What a node knows of the objects that concern it."""

    def __init__(self, client: Client, node: str) -> None:
        self.pods = Informer(client, core.POD, fields=f"spec.nodeName={node}")
        self.vmis = Informer(client, kinds.VMI)
        self.claims = Informer(client, core.CLAIM)
        self.data_volumes = Informer(client, kinds.DATA_VOLUME)
        self.pods.index(_OWNER_UID, _owner_uids)

    def __iter__(self) -> Iterator[tuple[str, Informer]]:
        yield "pods", self.pods
        yield "vmis", self.vmis
        yield "claims", self.claims
        yield "data-volumes", self.data_volumes

    def pods_of(self, vmi: Object) -> list[Key]:
        """Return the pods of an instance on this node."""
        return [key_of(pod) for pod in self.pods.by(_OWNER_UID, vmi["metadata"]["uid"])]

    def instance(self, key: Key, uid: str) -> Object | None:
        """Return an instance, and not another one of its name."""
        vmi = self.vmis.get(key)
        return vmi if vmi is not None and vmi["metadata"]["uid"] == uid else None

    def claims_of(self, vmi: Object) -> dict[str, Object]:
        """Return the claims of an instance's volumes that exist, by volume."""
        namespace, found = vmi["metadata"]["namespace"], {}
        for volume in vmi["spec"].get("volumes") or ():
            claim = self.claims.get(Key(namespace, claim_of(volume)))
            if claim is not None:
                found[volume["name"]] = claim
        return found


@dataclass(frozen=True, slots=True)
class NodeApi:
    """A node's access to the API: cached reads, writes and events, under the node's name."""

    node: str
    client: Client
    watched: Watched
    recorder: Recorder
    now: Now


def _owner_uids(pod: Object) -> list[str]:
    found = owner(pod)
    return [found["uid"]] if found else []
