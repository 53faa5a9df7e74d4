from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.admission.builtin import RULES
from livevirt.kube.admission.pod_defaults import image_pull_policy
from livevirt.kube.admission.pods import PodRules
from livevirt.kube.objects import pod_resources, typed
from livevirt.kube.objects.core import POD
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.review import Review

from .in_memory_server import NOON, InMemoryServer, Refused, a_container, a_pod


def test_a_minimal_pod_gets_every_default() -> None:
    pod = InMemoryServer().create(POD, "p", **a_pod(automountServiceAccountToken=False))
    tolerated = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    assert pod["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "img:1",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "automountServiceAccountToken": False,
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "securityContext": {},
        "schedulerName": "none",
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", **tolerated},
            {"key": "node.kubernetes.io/unreachable", **tolerated},
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_ports_variables_probes_and_volumes_get_their_defaults() -> None:
    pod = InMemoryServer().create(
        POD,
        "p",
        **a_pod(
            {
                "name": "c",
                "image": "img",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "readinessProbe": {"tcpSocket": {"port": 80}},
                "livenessProbe": {"httpGet": {"port": "web"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            },
            initContainers=[{"name": "i", "image": "img:latest"}],
            volumes=[
                {"name": "v", "configMap": {"name": "x"}},
                {"name": "s", "secret": {"secretName": "x"}},
                {"name": "e", "emptyDir": {}},
                {"name": "n"},
                {"name": "p", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "h", "hostPath": {"path": "/h"}},
            ],
        ),
    )
    container = pod["spec"]["containers"][0]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert container["readinessProbe"] == {
        "tcpSocket": {"port": 80},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert container["livenessProbe"]["httpGet"] == {"port": "web", "path": "/", "scheme": "HTTP"}
    assert container["imagePullPolicy"] == "Always"
    assert pod["spec"]["initContainers"][0]["imagePullPolicy"] == "Always"
    assert pod["spec"]["volumes"] == [
        {"name": "v", "configMap": {"name": "x", "defaultMode": 420}},
        {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
        {"name": "e", "emptyDir": {}},
        {"name": "n", "emptyDir": {}},
        {"name": "p", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "h", "hostPath": {"path": "/h", "type": ""}},
    ]


IMAGES = {
    "img": "Always",
    "img:latest": "Always",
    "img:1": "IfNotPresent",
    "host:5000/img": "Always",
    "host:5000/img:1": "IfNotPresent",
    "img@sha256:00": "IfNotPresent",
}


@pytest.mark.parametrize(("image", "policy"), IMAGES.items(), ids=IMAGES)
def test_an_image_without_a_fixed_tag_is_always_pulled(image: str, policy: str) -> None:
    assert image_pull_policy(image) == policy


def test_limits_become_requests_and_amounts_are_rounded_up_to_thousandths() -> None:
    pod = InMemoryServer().create(
        POD,
        "p",
        **a_pod(
            a_container("a", limits={"cpu": "2", "memory": "1.5Gi"}),
            a_container("b", requests={"cpu": "100u", "memory": "0.5Gi"}),
        ),
    )
    a, b = (container["resources"] for container in pod["spec"]["containers"])
    assert a == {
        "limits": {"cpu": "2", "memory": "1536Mi"},
        "requests": {"cpu": "2", "memory": "1536Mi"},
    }
    assert b == {"requests": {"cpu": "1m", "memory": "512Mi"}}


FULL = {"cpu": "1", "memory": "1Gi"}
CLASSES: dict[str, tuple[list[Object], str]] = {
    "nothing asked for": ([a_container()], "BestEffort"),
    "only zeros": ([a_container(requests={"cpu": "0"})], "BestEffort"),
    "limits equal requests": ([a_container(limits=FULL, requests=FULL)], "Guaranteed"),
    "limits only": ([a_container(limits=FULL)], "Guaranteed"),
    "one limit only": ([a_container(limits={"cpu": "1"})], "Burstable"),
    "requests only": ([a_container(requests=FULL)], "Burstable"),
    "one of two unlimited": (
        [a_container("a", limits=FULL, requests=FULL), a_container("b")],
        "Burstable",
    ),
}


@pytest.mark.parametrize(("containers", "expected"), CLASSES.values(), ids=CLASSES)
def test_quality_of_service(containers: list[Object], expected: str) -> None:
    pod = InMemoryServer().create(POD, "p", **a_pod(*containers))
    assert pod["status"]["qosClass"] == expected


def test_given_sidecars_and_init_containers_then_the_pod_asks_for_the_worst_moment() -> None:
    sidecar = {**a_container("s", requests={"cpu": "100m"}), "restartPolicy": "Always"}
    pod = {
        "spec": {
            "initContainers": [sidecar, a_container("i", requests={"cpu": "2"})],
            "containers": [a_container("c", requests={"cpu": "500m"})],
            "overhead": {"cpu": "10m"},
        }
    }
    assert str(pod_resources.requests(pod)["cpu"]) == "2110m"


BAD: dict[str, tuple[Object, set[tuple[str, str]]]] = {
    "no containers": ({"spec": {"containers": []}}, {("Required", "spec.containers")}),
    "request over limit": (
        a_pod(a_container(requests={"cpu": "2"}, limits={"cpu": "1"})),
        {("Invalid", "spec.containers[0].resources.requests")},
    ),
    "negative request": (
        a_pod(a_container(requests={"memory": "-1"})),
        {("Invalid", "spec.containers[0].resources.requests[memory]")},
    ),
    "unknown resource": (
        a_pod(a_container(requests={"example.com/gpu": "1"})),
        {("Required", "spec.containers[0].resources.limits")},
    ),
    "mount of no volume": (
        a_pod({"name": "c", "image": "i", "volumeMounts": [{"name": "nope", "mountPath": "/v"}]}),
        {("NotFound", "spec.containers[0].volumeMounts[0].name")},
    ),
    "bad name and port": (
        a_pod({"name": "Bad Name", "image": "i", "ports": [{"containerPort": 70000}]}),
        {
            ("Invalid", "spec.containers[0].name"),
            ("Invalid", "spec.containers[0].ports[0].containerPort"),
        },
    ),
    "same name twice": (
        a_pod(a_container("c"), a_container("c")),
        {("Duplicate", "spec.containers[1].name")},
    ),
    "no image": (a_pod({"name": "c"}), {("Required", "spec.containers[0].image")}),
    "unknown restart policy": (
        a_pod(restartPolicy="Sometimes"),
        {("NotSupported", "spec.restartPolicy")},
    ),
    "negative grace": (
        a_pod(terminationGracePeriodSeconds=-1),
        {("Invalid", "spec.terminationGracePeriodSeconds")},
    ),
    "volume of no kind twice": (
        a_pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
        {("Duplicate", "spec.volumes[1].name")},
    ),
    "volume of two kinds": (
        a_pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/h"}}]),
        {("Forbidden", "spec.volumes[0].emptyDir")},
    ),
    "block device of a directory": (
        a_pod(
            {"name": "c", "image": "i", "volumeDevices": [{"name": "v", "devicePath": "/d"}]},
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        {("Invalid", "spec.containers[0].volumeDevices[0].name")},
    ),
    "toleration that outlasts nothing": (
        a_pod(tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 1}]),
        {("Invalid", "spec.tolerations[0].effect")},
    ),
    "affinity without a term": (
        a_pod(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}
                }
            }
        ),
        {
            (
                "Required",
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
                ".nodeSelectorTerms",
            )
        },
    ),
    "restart on resize of a pod that never restarts": (
        a_pod(
            {
                "name": "c",
                "image": "i",
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
            },
            restartPolicy="Never",
        ),
        {("Invalid", "spec.containers[0].resizePolicy[0].restartPolicy")},
    ),
}


@pytest.mark.parametrize(("fields", "causes"), BAD.values(), ids=BAD)
def test_a_bad_pod_is_refused_with_each_cause(fields: Object, causes: set[Any]) -> None:
    with pytest.raises(Refused) as refusal:
        InMemoryServer().create(POD, "p", **fields)
    assert refusal.value.causes == causes


CHANGES: dict[str, tuple[Object, set[tuple[str, str]]]] = {
    "node selector": ({"nodeSelector": {"a": "b"}}, {("Forbidden", "spec")}),
    "restart policy": ({"restartPolicy": "Never"}, {("Forbidden", "spec")}),
    "node": ({"nodeName": "n"}, {("Forbidden", "spec")}),
    "deadline": ({"activeDeadlineSeconds": 60}, set()),
    "later deadline": (
        {"activeDeadlineSeconds": 200},
        {("Invalid", "spec.activeDeadlineSeconds")},
    ),
    "another toleration": ({"tolerations": [{"key": "k", "operator": "Exists"}]}, set()),
    "more containers": (
        {"containers": [a_container("c"), a_container("d")]},
        {("Forbidden", "spec.containers")},
    ),
    "image": ({"containers": [{"name": "c", "image": "img:2"}]}, set()),
    "resources": (
        {"containers": [a_container("c", requests={"cpu": "1"})]},
        {("Forbidden", "spec")},
    ),
}


@pytest.mark.parametrize(("change", "causes"), CHANGES.values(), ids=CHANGES)
def test_only_a_few_fields_of_a_pod_may_change(change: Object, causes: set[Any]) -> None:
    server = InMemoryServer()
    pod = server.create(POD, "p", **a_pod(activeDeadlineSeconds=100))
    changed = {**pod, "spec": {**pod["spec"], **copy.deepcopy(change)}}
    if not causes:
        server.update(POD, changed)
        return
    with pytest.raises(Refused) as refusal:
        server.update(POD, changed)
    assert refusal.value.causes == causes


def test_a_status_write_keeps_the_quality_of_service_class() -> None:
    server = InMemoryServer()
    pod = server.create(POD, "p", **a_pod())
    changed = server.update(
        POD, {**pod, "status": {"phase": "Running", "podIP": "10.0.0.1"}}, "status"
    )
    assert changed["status"] == {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "qosClass": "BestEffort",
    }


GRACE: dict[str, tuple[Object, int | None, int]] = {
    "on a node, by its own wish": ({"nodeName": "n"}, None, 20),
    "on a node, as asked": ({"nodeName": "n"}, 5, 5),
    "on a node, at once": ({"nodeName": "n"}, 0, 0),
    "nowhere": ({}, None, 0),
}


@pytest.mark.parametrize(("spec", "wanted", "seconds"), GRACE.values(), ids=GRACE)
def test_grace(spec: Object, wanted: int | None, seconds: int) -> None:
    pod = InMemoryServer().create(POD, "p", **a_pod(terminationGracePeriodSeconds=20, **spec))
    assert RULES["pods"].grace(pod, wanted) == seconds
    pod["status"]["phase"] = "Succeeded"
    assert RULES["pods"].grace(pod, wanted) == 0


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory"]), st.sampled_from(["0", "100m", "1", "2Gi"])
)
some_containers = st.lists(
    st.builds(lambda limits, requests: {"limits": limits, "requests": requests}, amounts, amounts),
    min_size=1,
    max_size=3,
)


@given(some_containers)
def test_given_any_pod_then_defaults_applied_twice_are_those_applied_once(
    resources: list[Object],
) -> None:
    containers = [a_container(f"c{at}", **each) for at, each in enumerate(resources)]
    pod = typed.decode(POD.schema(), {"metadata": {"name": "p"}, **a_pod(*containers)}, [])
    RULES["pods"].default(pod)
    again = copy.deepcopy(pod)
    RULES["pods"].default(again)
    assert again == pod
    assert typed.decode(POD.schema(), pod, []) == pod


@pytest.mark.parametrize("reason", ["", "no node is for it"])
def test_the_creator_of_a_pod_that_no_node_runs_is_warned(reason: str) -> None:
    server, rules = InMemoryServer(), PodRules(lambda pod: reason)
    pod = typed.decode(POD.schema(), {"metadata": {"name": "p"}, **a_pod()}, [])
    review = Review("create", POD, "v1", pod, None, User("jane"), server, NOON)
    rules.default(pod)
    rules.prepare(review)
    assert len(review.warnings) == (1 if reason else 0)
    stored = copy.deepcopy(review.new)
    review = Review("update", POD, "v1", review.new, stored, User("jane"), server, NOON)
    rules.prepare(review)
    assert review.warnings == []
