from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.volumes.attachment_pods import (
    Attachment,
    CreatePod,
    DeletePod,
    Place,
    Snapshot,
    in_use,
    is_attachment,
    manifest,
    places,
    plan,
    refusal,
)

HOME = Place("virt-launcher-web", "p1", "node-1")
TARGET = Place("virt-launcher-web-2", "p2", "node-2")


def a_volume(name: str, claim: str, hotpluggable: bool = True) -> Object:
    return {
        "name": name,
        "persistentVolumeClaim": {"claimName": claim, "hotpluggable": hotpluggable},
    }


def a_vmi(*volumes: Object, phase: str = "Running", **status: Any) -> Object:
    return {
        "metadata": {"name": "web", "namespace": "default", "uid": "g1"},
        "spec": {"volumes": list(volumes)},
        "status": {"phase": phase, "activePods": {"p1": "node-1"}, **status},
    }


def attached(volume: str, claim: str | None, phase: str = "Ready") -> Object:
    info = {"persistentVolumeClaimInfo": {"claimName": claim}} if claim else {}
    return {"volumeStatus": [{"name": volume, "hotplugVolume": {}, "phase": phase, **info}]}


def a_claim(name: str, mode: str = "Filesystem") -> Object:
    return {"metadata": {"name": name}, "spec": {"volumeMode": mode}}


def a_pod(volume: str, claim: str, place: Place = HOME, **meta: Any) -> Object:
    pod = manifest(a_vmi(), Attachment(place, volume, claim), "livevirt:1")
    pod["metadata"] |= {"uid": f"u-{volume}-{claim}", **meta}
    return pod


def seen(vmi: Object | None, *pods: Object, at: tuple[Place, ...] = (HOME,)) -> Snapshot:
    claims = {name: a_claim(name) for name in ("a", "b")} | {"raw": a_claim("raw", "Block")}
    return Snapshot(vmi, at, claims, pods)


DATA = a_volume("data", "a")
CREATE = CreatePod(Attachment(HOME, "data", "a"))
DELETE = DeletePod(a_pod("data", "a")["metadata"]["name"], "u-data-a")
PLANS = {
    "a hotpluggable volume gets a pod": (seen(a_vmi(DATA)), [CREATE]),
    "a device for a claim that is one": (
        seen(a_vmi(a_volume("disk", "raw"))),
        [CreatePod(Attachment(HOME, "disk", "raw", block=True))],
    ),
    "once": (seen(a_vmi(DATA), a_pod("data", "a")), []),
    "not a volume of the launcher pod": (seen(a_vmi(a_volume("data", "a", False))), []),
    "not without its claim": (seen(a_vmi(a_volume("data", "missing"))), []),
    "not before the launcher pod has a node": (seen(a_vmi(DATA), at=()), []),
    "not for a guest that has ended": (seen(a_vmi(DATA, phase="Succeeded")), []),
    "on both nodes of a migration": (
        seen(a_vmi(DATA), a_pod("data", "a"), at=(HOME, TARGET)),
        [CreatePod(Attachment(TARGET, "data", "a"))],
    ),
    "another claim is another pod, and the old one stays while it is in use": (
        seen(a_vmi(a_volume("data", "b"), **attached("data", "a")), a_pod("data", "a")),
        [CreatePod(Attachment(HOME, "data", "b"))],
    ),
    "the old one goes once the guest has the new one": (
        seen(
            a_vmi(a_volume("data", "b"), **attached("data", "b")),
            a_pod("data", "a"), a_pod("data", "b"),
        ),
        [DELETE],
    ),
    "a volume that is taken away keeps its pod until the guest has released it": (
        seen(a_vmi(**attached("data", "a", "Detaching")), a_pod("data", "a")), [],
    ),
    "and may be about to be attached": (
        seen(a_vmi(**attached("data", None, "Pending")), a_pod("data", "a")), [],
    ),
    "then it goes": (seen(a_vmi(), a_pod("data", "a")), [DELETE]),
    "with its guest": (
        seen(a_vmi(DATA, phase="Failed", **attached("data", "a")), a_pod("data", "a")), [DELETE],
    ),
    "with its instance": (seen(None, a_pod("data", "a"), at=()), [DELETE]),
    "only once": (seen(None, a_pod("data", "a", deletionTimestamp="now"), at=()), []),
    "one bad claim blocks no other": (
        seen(a_vmi(a_volume("x", "missing"), DATA)), [CREATE],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("snapshot", "steps"), PLANS.values(), ids=PLANS)
def test_plan(snapshot: Snapshot, steps: list[object]) -> None:
    assert plan(snapshot) == steps


def test_given_a_plan_is_followed_then_nothing_is_left_to_do() -> None:
    vmi = a_vmi(DATA, a_volume("disk", "raw"))
    pods = [
        manifest(vmi, step.attachment, "livevirt:1")
        for step in plan(seen(vmi))
        if isinstance(step, CreatePod)
    ]
    assert len(pods) == 2
    assert plan(seen(vmi, *pods)) == []


def test_the_pod_only_fits_its_node_and_ends_with_the_launcher_pod() -> None:
    pod = a_pod("data", "a")
    assert is_attachment(pod)
    assert pod["metadata"]["labels"]["kubevirt.io"] == "hotplug-disk"
    [owner] = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", "p1")
    spec = pod["spec"]
    assert "nodeName" not in spec  # the scheduler binds claims that wait for a consumer
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = required["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == ["node-1"]
    assert spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "a"}
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == "/disk"
    device = manifest(a_vmi(), Attachment(HOME, "disk", "raw", block=True), "livevirt:1")
    assert device["spec"]["containers"][0]["volumeDevices"][0]["devicePath"] == "/dev/disk"
    assert "volumeMounts" not in device["spec"]["containers"][0]


def test_launcher_pods_without_a_node_and_ended_ones_are_no_place() -> None:
    def launcher(uid: str, node: str = "n", phase: str = "Running", **meta: Any) -> Object:
        meta = {"name": uid, "uid": uid, **meta}
        return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}

    listed = [
        launcher("a"), launcher("b", ""), launcher("c", phase="Failed"),
        launcher("d", deletionTimestamp="now"),
    ]  # fmt: skip
    assert places(listed) == (Place("a", "a", "n"),)


def test_a_pod_in_use_must_not_be_removed() -> None:
    pod, vmi = a_pod("data", "a"), a_vmi(DATA, **attached("data", "a"))
    assert in_use(pod, vmi)
    assert refusal(pod, vmi)
    assert not refusal(a_pod("data", "b"), vmi)
    assert not refusal(pod, None)
    assert not refusal(pod, vmi | {"metadata": {**vmi["metadata"], "uid": "another"}})
    assert not refusal(a_pod("data", "a", place=TARGET), vmi)  # the guest is elsewhere
    assert not refusal(a_pod("data", "a", deletionTimestamp="now"), vmi)  # by the kubelet
