"""The controller of attachment pods, with caches that the test fills."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key
from livevirt.kube.control.controller import DONE
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.volumes.attachment_controller import SETTLE, Attachments

WEB = Key("default", "web")


def a_vmi(*claims: str, **status: Any) -> Object:
    source = [
        {"name": f"v-{each}", "persistentVolumeClaim": {"claimName": each, "hotpluggable": True}}
        for each in claims
    ]
    return {
        "metadata": {"name": "web", "namespace": "default", "uid": "g1"},
        "spec": {"volumes": source},
        "status": {"phase": "Running", **status},
    }


LAUNCHER: Object = {
    "metadata": {
        "name": "virt-launcher-web",
        "namespace": "default",
        "uid": "p1",
        "ownerReferences": [
            {"kind": kinds.VMI.kind, "name": "web", "uid": "g1", "controller": True}
        ],
    },
    "spec": {"nodeName": "node-1"},
    "status": {"phase": "Running"},
}


class World:
    """Caches, and a client that changes them."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.informers = Informers(cast(Client, None))
        client = cast(Client, self)
        self.controller = Attachments(client, lambda: self.now, self.informers, "livevirt:1")
        self.put(core.POD, LAUNCHER)

    def put(self, kind: Kind, obj: Object) -> None:
        self.informers.of(kind)._cache.put(obj)

    def claims(self, *names: str) -> None:
        for name in names:
            meta = {"name": name, "namespace": "default"}
            self.put(core.CLAIM, {"metadata": meta, "spec": {}})

    def attachments(self) -> list[str]:
        found = self.informers.of(core.POD).list()
        return sorted(
            each["metadata"]["annotations"]["livevirt.io/claim"]
            for each in found
            if each is not LAUNCHER
        )

    async def create(self, kind: Kind, obj: Object, namespace: str) -> None:
        obj["metadata"]["uid"] = f"u-{obj['metadata']['name']}"
        self.put(kind, obj)

    async def delete(self, kind: Kind, name: str, namespace: str, *, uid: str) -> None:
        cache = self.informers.of(kind)._cache
        pod = cache.get(Key(namespace, name))
        assert pod is not None
        assert pod["metadata"]["uid"] == uid
        cache.remove(pod)


async def test_given_hotpluggable_volumes_then_each_has_a_pod_until_it_is_released() -> None:
    world = World()
    world.claims("a", "b")
    world.put(kinds.VMI, a_vmi("a", "b"))
    assert await world.controller.reconcile(WEB) == DONE
    assert world.attachments() == ["a", "b"]
    info = {"persistentVolumeClaimInfo": {"claimName": "a"}}
    used = [{"name": "v-a", "hotplugVolume": {}, "phase": "Detaching", **info}]
    world.put(kinds.VMI, a_vmi(volumeStatus=used))
    world.now += SETTLE
    result = await world.controller.reconcile(WEB)
    assert result.after == SETTLE  # b may be about to be opened
    world.now += SETTLE
    assert await world.controller.reconcile(WEB) == DONE
    assert world.attachments() == ["a"]
    world.put(kinds.VMI, a_vmi())
    await world.controller.reconcile(WEB)
    world.now += SETTLE
    await world.controller.reconcile(WEB)
    assert world.attachments() == []


async def test_given_a_volume_is_wanted_again_in_time_then_its_pod_stays() -> None:
    world = World()
    world.claims("a")
    world.put(kinds.VMI, a_vmi("a"))
    await world.controller.reconcile(WEB)
    world.put(kinds.VMI, a_vmi())
    await world.controller.reconcile(WEB)
    world.put(kinds.VMI, a_vmi("a"))
    assert await world.controller.reconcile(WEB) == DONE
    world.now += 2 * SETTLE
    world.put(kinds.VMI, a_vmi())
    assert (await world.controller.reconcile(WEB)).after == SETTLE
    assert world.attachments() == ["a"]
    world.now += SETTLE - timedelta(seconds=1)
    assert (await world.controller.reconcile(WEB)).after == timedelta(seconds=1)


async def test_given_the_instance_is_gone_then_its_pods_go() -> None:
    world = World()
    world.claims("a")
    world.put(kinds.VMI, a_vmi("a"))
    await world.controller.reconcile(WEB)
    world.informers.of(kinds.VMI)._cache.remove(a_vmi())
    await world.controller.reconcile(WEB)
    world.now += SETTLE
    await world.controller.reconcile(WEB)
    assert world.attachments() == []
