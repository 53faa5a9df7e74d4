from __future__ import annotations

import copy
from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.lifecycle.vmi.kubelet_pod import (
    KVM,
    TUN,
    VHOST_NET,
    Facts,
    complete,
    facts,
    mounts_images,
)
from livevirt.vm.lifecycle.vmi.pod_runtime import EMBEDDED
from livevirt.vm.spec.resources import Namespace

from .test_launcher import a_vmi

IMAGE = "registry.example/livevirt:1"


def volumes(*given: Object) -> Object:
    return a_vmi(volumes=list(given))


def rendered(vmi: Object, namespace: Namespace | None = None, **known: Any) -> Object:
    pod = launcher.pod_of(vmi, namespace or Namespace())
    return complete(pod, vmi, IMAGE, Facts(**known))


def containers(pod: Object) -> dict[str, Object]:
    spec = pod["spec"]
    return {each["name"]: each for each in (*spec["initContainers"], *spec["containers"])}


def mounts(pod: Object, container: str = "compute") -> dict[str, str]:
    listed = containers(pod)[container]["volumeMounts"]
    return {each["name"]: each["mountPath"] for each in listed}


def sources(pod: Object) -> dict[str, Object]:
    return {
        each["name"]: {key: value for key, value in each.items() if key != "name"}
        for each in pod["spec"]["volumes"]
    }


def test_given_the_embedded_runtime_then_the_pod_is_unchanged() -> None:
    vmi = volumes({"name": "data", "persistentVolumeClaim": {"claimName": "c"}})
    pod = launcher.pod_of(vmi, Namespace())
    before = copy.deepcopy(pod)
    assert EMBEDDED.complete(pod, vmi) == before
    assert EMBEDDED.image == launcher.IMAGE
    assert [each["image"] for each in pod["spec"]["containers"]] == [launcher.IMAGE]
    assert not {"command", "lifecycle"} & set(pod["spec"]["containers"][0])


def test_given_a_kubelet_then_the_given_pod_is_not_changed() -> None:
    vmi = a_vmi()
    pod = launcher.pod_of(vmi, Namespace())
    before = copy.deepcopy(pod)
    complete(pod, vmi, IMAGE, Facts())
    assert pod == before


def test_the_pod_waits_for_its_arguments_and_asks_for_a_shutdown() -> None:
    pod = rendered(a_vmi())
    compute = containers(pod)["compute"]
    program, directory = "/usr/libexec/livevirt/launcher", "/run/livevirt"
    assert compute["command"] == [program, "run", directory]
    assert compute["lifecycle"]["preStop"]["exec"]["command"] == [program, "stop", directory]
    assert mounts(pod) == {"livevirt-run": directory, "livevirt-scratch": "/var/lib/livevirt"}
    log = containers(pod)["guest-console-log"]
    assert log["command"] == [program, "log", "/run/livevirt/serial.log"]
    assert log["restartPolicy"] == "Always"
    assert {each["image"] for each in containers(pod).values()} == {IMAGE}
    assert launcher.image_of(pod) == IMAGE


def restricted(pod: Object) -> bool:
    """Return whether a pod meets the restricted Pod Security level in what is not the default."""
    spec = pod["spec"]
    allowed = {
        "configMap", "downwardAPI", "emptyDir", "image", "persistentVolumeClaim", "secret",
    }  # fmt: skip
    return (
        not any(spec.get(each) for each in ("hostNetwork", "hostPID", "hostIPC"))
        and all(set(source) <= allowed for source in sources(pod).values())
        and all(
            context["allowPrivilegeEscalation"] is False
            and context["capabilities"] == {"drop": ["ALL"]}
            and context["runAsNonRoot"] is True
            and context["runAsUser"] == 107
            and context["seccompProfile"] == {"type": "RuntimeDefault"}
            for context in (each["securityContext"] for each in containers(pod).values())
        )
    )


EVERYTHING = (
    {"name": "files", "persistentVolumeClaim": {"claimName": "f"}},
    {"name": "blocks", "dataVolume": {"name": "b"}},
    {"name": "later", "persistentVolumeClaim": {"claimName": "l", "hotpluggable": True}},
    {"name": "below", "ephemeral": {"persistentVolumeClaim": {"claimName": "e"}}},
    {"name": "root", "containerDisk": {"image": "guest:1", "imagePullSecret": "pull"}},
    {"name": "seed", "cloudInitNoCloud": {
        "secretRef": {"name": "user"}, "networkDataSecretRef": {"name": "net"}}},
    {"name": "inline", "cloudInitNoCloud": {"userData": "#!/bin/sh"}},
    {"name": "hidden", "secret": {"secretName": "s", "optional": True}},
    {"name": "config", "configMap": {"name": "m"}},
    {"name": "labels", "downwardAPI": {"fields": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    {"name": "token", "serviceAccount": {"serviceAccountName": "robot"}},
    {"name": "empty", "emptyDisk": {"capacity": "1Gi"}},
)  # fmt: skip


@pytest.mark.parametrize("image_volumes", [True, False])
def test_volumes_are_where_the_node_agent_expects_them(image_volumes: bool) -> None:
    known = {"block_claims": frozenset({"b"}), "image_volumes": image_volumes}
    pod = rendered(volumes(*EVERYTHING), **known)
    private = "/var/run/kubevirt-private"
    found = mounts(pod)
    disk = found.pop("root" if image_volumes else "container-disks")
    assert disk == "/var/run/kubevirt/container-disks" + ("/root" if image_volumes else "")
    assert found == {
        "files": f"{private}/vmi-disks/files",
        "below": f"{private}/vmi-disks/below",
        "seed-udata": f"{private}/secret/seed/udata",
        "seed-ndata": f"{private}/secret/seed/ndata",
        "hidden": f"{private}/secret/hidden",
        "config": f"{private}/config-map/config",
        "labels": f"{private}/downwardapi/labels",
        "livevirt-run": "/run/livevirt",
        "livevirt-scratch": "/var/lib/livevirt",
    }
    devices = containers(pod)["compute"]["volumeDevices"]
    assert devices == [{"name": "blocks", "devicePath": "/dev/blocks"}]
    given = sources(pod)
    assert given["blocks"] == {"persistentVolumeClaim": {"claimName": "b"}}
    assert given["below"] == {"persistentVolumeClaim": {"claimName": "e"}}
    assert given["seed-udata"] == {"secret": {"secretName": "user"}}
    assert given["hidden"] == {"secret": {"secretName": "s", "optional": True}}
    assert "later" not in given
    assert "empty" not in given
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["spec"]["serviceAccountName"] == "robot"
    assert pod["spec"]["automountServiceAccountToken"] is True
    assert restricted(pod)
    for container in containers(pod):  # every volume that is mounted exists
        assert set(mounts(pod, container)) <= set(given)


def test_given_image_volumes_then_container_disks_are_mounted_by_the_kubelet() -> None:
    disk = {"image": "guest:1", "imagePullPolicy": "Never"}
    pod = rendered(volumes({"name": "root", "containerDisk": disk}))
    assert sources(pod)["root"] == {"image": {"reference": "guest:1", "pullPolicy": "Never"}}
    assert set(containers(pod)) == {"guest-console-log", "compute"}
    assert "shareProcessNamespace" not in pod["spec"]


def test_given_no_image_volumes_then_containers_hold_the_disks() -> None:
    disk = {"image": "guest:1", "imagePullPolicy": "Never"}
    pod = rendered(volumes({"name": "root", "containerDisk": disk}), image_volumes=False)
    assert list(containers(pod)) == [
        "install-launcher", "volumeroot", "guest-console-log", "compute",
    ]  # fmt: skip
    holder, install = containers(pod)["volumeroot"], containers(pod)["install-launcher"]
    assert (holder["image"], holder["imagePullPolicy"]) == ("guest:1", "Never")
    link = "/var/run/kubevirt/container-disks/root"
    assert holder["command"] == ["/livevirt/launcher", "hold", link]
    assert holder["restartPolicy"] == "Always"
    assert install["command"][1:] == ["install", "/livevirt/launcher"]
    assert pod["spec"]["shareProcessNamespace"] is True
    assert restricted(pod)


@pytest.mark.parametrize("limits", [{}, {"memory": "2Gi"}, {"cpu": "1", "memory": "1Gi"}])
def test_small_containers_leave_the_quality_of_service_as_it_is(limits: dict[str, str]) -> None:
    vmi = volumes({"name": "root", "containerDisk": {"image": "guest:1"}})
    vmi["spec"]["domain"]["resources"] = {"limits": limits, "requests": limits}
    pod = rendered(vmi, image_volumes=False)
    for name, container in containers(pod).items():
        if name != "compute":
            resources = container["resources"]
            assert set(resources["limits"]) == set(limits)
            assert resources["requests"].items() >= resources["limits"].items()


DEVICES = {
    "by default": ({}, {KVM, TUN, VHOST_NET}),
    "no network": ({"autoattachPodInterface": False}, {KVM}),
    "e1000": ({"interfaces": [{"name": "default", "model": "e1000"}]}, {KVM, TUN}),
    "virtio": ({"interfaces": [{"name": "default"}]}, {KVM, TUN, VHOST_NET}),
}


@pytest.mark.parametrize(("devices", "asked"), DEVICES.values(), ids=DEVICES)
def test_devices_of_the_node(devices: Object, asked: set[str]) -> None:
    vmi = a_vmi()
    vmi["spec"]["domain"]["devices"] = devices
    resources = containers(rendered(vmi))["compute"]["resources"]
    for side in ("requests", "limits"):
        assert {name for name in resources[side] if "/" in name} == asked
    emulated = containers(rendered(vmi, emulation=True))["compute"]["resources"]
    assert emulated == launcher.pod_of(vmi, Namespace())["spec"]["containers"][0]["resources"]


NODES = {
    "containerd://1.6.20~ds1": False,
    "containerd://2.0.4": False,
    "containerd://2.1.0-rc.1": True,
    "containerd://v3.0.0": True,
    "cri-o://1.32.4": False,
    "cri-o://1.34.0": True,
    "fakeRuntime://0.1.0": True,
    "": True,
}


@pytest.mark.parametrize(("version", "supported"), NODES.items())
def test_image_volumes_follow_the_container_runtime(version: str, supported: bool) -> None:
    node = {"status": {"nodeInfo": {"containerRuntimeVersion": version}}}
    assert mounts_images(node) is supported
    new = {"status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2.2.0"}}}
    assert facts((), None, (new, node)).image_volumes is supported


def test_facts_come_from_claims_and_settings() -> None:
    claims = [
        None,
        {"metadata": {"name": "b"}, "spec": {"volumeMode": "Block"}},
        {"metadata": {"name": "f"}, "spec": {}},
    ]
    kubevirt = {"spec": {"configuration": {"developerConfiguration": {"useEmulation": True}}}}
    assert facts(claims, kubevirt, ()) == Facts(frozenset({"b"}), emulation=True)
    assert facts((), None, ()) == Facts()
