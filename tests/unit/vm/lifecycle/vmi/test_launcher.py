from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.admission import builtin
from livevirt.kube.objects import names, pod_resources
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import RECORDED, Defaults
from livevirt.vm.lifecycle.vmi.launcher import claim_names, grace, hostname, pod_name, pod_of
from livevirt.vm.spec.resources import Namespace


def a_vmi(name: str = "web", **spec: Any) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": "g1",
            "labels": {"app": "x"},
            "annotations": {
                "note": "kept",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "kubevirt.io/latest-observed-api-version": "v1",
            },
        },
        "spec": {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}, **spec},
    }


def test_a_launcher_pod_carries_what_others_look_for() -> None:
    pod = pod_of(a_vmi(), Namespace())
    meta, spec = pod["metadata"], pod["spec"]
    assert meta["labels"] == {
        "app": "x",
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": "g1",
        "vm.kubevirt.io/name": "web",
        "vmi.kubevirt.io/id": "web",
    }
    assert meta["annotations"] == {
        "note": "kept",
        "kubevirt.io/domain": "web",
        "kubectl.kubernetes.io/default-container": "compute",
        "kubevirt.io/migrationTransportUnix": "true",
        "descheduler.alpha.kubernetes.io/request-evict-only": "",
        "kubevirt.io/memory-overhead-bytes": meta["annotations"][
            "kubevirt.io/memory-overhead-bytes"
        ],
    }
    assert meta["generateName"] == "virt-launcher-web-"
    [owner] = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (
        "VirtualMachineInstance", "g1", True,
    )  # fmt: skip
    assert spec["restartPolicy"] == "Never"
    assert spec["terminationGracePeriodSeconds"] == 60
    assert spec["nodeSelector"] == {
        "kubevirt.io/schedulable": "true",
        "kubernetes.io/arch": "amd64",
    }
    assert [each["name"] for each in spec["containers"]] == ["compute"]


def test_a_guest_that_names_its_cpu_is_for_nodes_that_have_it() -> None:
    spec = a_vmi()["spec"]
    spec["domain"] |= {"cpu": {"model": "Westmere"}, "machine": {"type": "q35"}}
    spec["nodeSelector"] = {"rack": "7"}
    assert pod_of(a_vmi(**spec), Namespace())["spec"]["nodeSelector"] == {
        "kubevirt.io/schedulable": "true",
        "kubernetes.io/arch": "amd64",
        "cpu-model.node.kubevirt.io/Westmere": "true",
        "machine-type.node.kubevirt.io/q35": "true",
        "rack": "7",
    }


def test_the_pod_is_one_the_server_accepts() -> None:
    pod = pod_of(a_vmi(), Namespace())
    rules = builtin.RULES["pods"]
    rules.default(pod)
    assert pod["spec"]["dnsPolicy"] == "ClusterFirst"


def test_a_guest_cannot_be_given_more_time_than_a_pod() -> None:
    vmi = a_vmi(terminationGracePeriodSeconds=10**30)
    seconds = pod_of(vmi, Namespace())["spec"]["terminationGracePeriodSeconds"]
    assert grace(vmi) < seconds < 2**63, "what a pod's field can hold"


def test_the_defaults_of_the_instances_own_time_count() -> None:
    vmi = a_vmi()
    vmi["metadata"]["annotations"][RECORDED] = Defaults(cpu_allocation_ratio=2).recorded()
    [container] = pod_of(vmi, Namespace())["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "500m"


def test_claims_are_in_the_pod_but_for_what_is_plugged_later() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "one"}},
        {"name": "b", "dataVolume": {"name": "two"}},
        {"name": "c", "ephemeral": {"persistentVolumeClaim": {"claimName": "three"}}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "later", "hotpluggable": True}},
        {"name": "e", "containerDisk": {"image": "i"}},
    ]
    vmi = a_vmi(volumes=volumes)
    assert claim_names(vmi) == ["one", "two", "three"]
    pod = pod_of(vmi, Namespace())
    assert [each["name"] for each in pod["spec"]["volumes"]] == ["a", "b", "c"]


dns_names = st.from_regex(
    r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]{1,60}){0,3}", fullmatch=True
)


@given(dns_names)
def test_every_instance_name_gives_a_valid_pod(name: str) -> None:
    vmi = a_vmi(name)
    assert names.validate_dns1123_subdomain(pod_name(vmi)) == []
    assert names.validate_dns1123_label(hostname(vmi)) == []
    for value in pod_of(vmi, Namespace())["metadata"]["labels"].values():
        assert names.validate_label_value(value) == []


def test_a_pods_name_is_the_same_for_the_same_instance_only() -> None:
    vmi, other = a_vmi(), a_vmi()
    assert pod_name(vmi) == pod_name(a_vmi())
    other["metadata"]["uid"] = "g2"
    assert pod_name(vmi) != pod_name(other)


def test_the_console_log_asks_for_next_to_nothing_of_what_compute_asks_for() -> None:
    pod = pod_of(a_vmi(), Namespace())
    (sidecar,) = pod["spec"]["initContainers"]
    compute = pod["spec"]["containers"][0]["resources"]
    assert sidecar["name"] == "guest-console-log"
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["resources"]["requests"] == {"cpu": "1m", "memory": "1Mi"}
    assert sidecar["resources"]["limits"].keys() == compute["limits"].keys()


def test_a_guest_with_cpus_of_its_own_wants_a_node_that_gives_some_away() -> None:
    vmi = a_vmi(nodeSelector={"rack": "7"})
    vmi["spec"]["domain"]["cpu"] = {"cores": 2, "dedicatedCpuPlacement": True}
    pod = pod_of(vmi, Namespace())
    selector = pod["spec"]["nodeSelector"]
    assert (selector["kubevirt.io/cpumanager"], selector["rack"]) == ("true", "7")
    assert pod_resources.exclusive_cpus(pod) == 2
