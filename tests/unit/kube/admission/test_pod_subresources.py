from __future__ import annotations

import copy

import pytest

from livevirt.errors import ApiError, Forbidden
from livevirt.kube.admission.pod_binding import bind, evict
from livevirt.kube.objects.core import NODE, POD
from livevirt.kube.objects.request import Object

from .in_memory_server import NOON, InMemoryServer, Refused, a_container, a_pod

SMALL = {"cpu": "100m", "memory": "64Mi"}
LARGE = {"cpu": "200m", "memory": "128Mi"}


@pytest.fixture
def server() -> InMemoryServer:
    server = InMemoryServer()
    server.put(NODE, "n", status={"allocatable": {"cpu": "2", "memory": "1Gi"}})
    return server


def place(server: InMemoryServer, container: Object, node: str = "n") -> Object:
    return server.create(POD, "p", **a_pod(container, nodeName=node))


# ---------------------------------------------------------------- resize


def test_a_resize_changes_resources_and_nothing_else(server: InMemoryServer) -> None:
    pod = place(server, a_container(requests=SMALL, limits=LARGE))
    asked = copy.deepcopy(pod)
    asked["metadata"]["labels"] = {"x": "2"}
    asked["spec"]["containers"][0] |= {
        "image": "other:2",
        "resources": {"requests": LARGE, "limits": LARGE | {"cpu": "1"}},
    }
    asked["spec"]["nodeName"] = "elsewhere"
    resized = server.update(POD, asked, "resize")
    expected = copy.deepcopy(pod)
    expected["spec"]["containers"][0]["resources"] = {
        "requests": LARGE,
        "limits": LARGE | {"cpu": "1"},
    }
    assert resized == expected


def test_given_a_request_taken_away_then_it_falls_back_to_its_limit(server: InMemoryServer) -> None:
    pod = place(server, a_container(requests=SMALL, limits={"cpu": "200m"}))
    resized = server.resize(pod, requests={"memory": "64Mi"}, limits={"cpu": "200m"})
    assert resized["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "200m",
        "memory": "64Mi",
    }


REFUSED: dict[str, tuple[Object, set[tuple[str, str]]]] = {
    "request without a limit taken away": (
        {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}},
        {("Forbidden", "spec.containers[0].resources.requests")},
    ),
    "class would change": (
        {"requests": SMALL, "limits": SMALL},
        {("Invalid", "spec")},
    ),
    "something other than cpu and memory": (
        {"requests": SMALL | {"ephemeral-storage": "1Gi"}, "limits": {"cpu": "200m"}},
        {("Forbidden", "spec")},
    ),
    "request above limit": (
        {"requests": SMALL | {"cpu": "300m"}, "limits": {"cpu": "200m"}},
        {("Invalid", "spec.containers[0].resources.requests")},
    ),
}


@pytest.mark.parametrize(("resources", "causes"), REFUSED.values(), ids=REFUSED)
def test_a_resize_is_refused(
    server: InMemoryServer, resources: Object, causes: set[tuple[str, str]]
) -> None:
    pod = place(server, a_container(requests=SMALL, limits={"cpu": "200m"}))
    with pytest.raises(Refused) as refusal:
        server.resize(pod, **resources)
    assert refusal.value.causes == causes


def test_the_resize_policy_is_kept_as_given_and_cannot_change(server: InMemoryServer) -> None:
    policy = {"resourceName": "memory", "restartPolicy": "RestartContainer"}
    pod = place(server, {**a_container(requests=SMALL), "resizePolicy": [policy]})
    assert pod["spec"]["containers"][0]["resizePolicy"] == [policy]
    asked = copy.deepcopy(pod)
    asked["spec"]["containers"][0]["resizePolicy"][0]["restartPolicy"] = "NotRequired"
    with pytest.raises(Refused) as refusal:
        server.update(POD, asked, "resize")
    assert refusal.value.causes == {("Forbidden", "spec")}


def test_containers_can_be_neither_added_nor_renamed_by_a_resize(server: InMemoryServer) -> None:
    pod = place(server, a_container(requests=SMALL))
    for containers in ([a_container("d")], [a_container("c"), a_container("d")]):
        asked = copy.deepcopy(pod)
        asked["spec"]["containers"] = containers
        with pytest.raises(Refused) as refusal:
            server.update(POD, asked, "resize")
        assert refusal.value.causes == {("Forbidden", "spec.containers")}


@pytest.mark.parametrize("over", [{"cpu": "2001m"}, {"memory": "2Gi"}], ids=str)
def test_given_a_node_too_small_then_a_resize_is_forbidden_with_a_cause(
    server: InMemoryServer, over: Object
) -> None:
    pod = place(server, a_container(requests=SMALL))
    with pytest.raises(Forbidden) as refusal:
        server.resize(pod, requests=SMALL | over)
    assert refusal.value.details["causes"][0]["reason"] == "NodeCapacity"
    server.resize(pod, requests={"cpu": "2", "memory": "1Gi"})


def test_given_no_node_then_a_resize_has_no_bound(server: InMemoryServer) -> None:
    pod = server.create(POD, "p", **a_pod(a_container(requests=SMALL)))
    server.resize(pod, requests=SMALL | {"cpu": "100"})


def test_given_a_node_nobody_knows_then_a_resize_is_forbidden(server: InMemoryServer) -> None:
    pod = place(server, a_container(requests=SMALL), "nowhere")
    with pytest.raises(Forbidden, match='pods "p" is forbidden: node "nowhere" not found'):
        server.resize(pod, requests=LARGE)


def test_given_a_running_container_without_known_resources_then_no_resize(
    server: InMemoryServer,
) -> None:
    pod = place(server, a_container(requests=SMALL))
    pod["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {}}}]
    with pytest.raises(Refused) as refusal:
        server.resize(pod, requests=LARGE)
    assert refusal.value.causes == {("Forbidden", "spec")}


# ---------------------------------------------------------------- binding


def a_binding(name: str = "p", node: str = "n", **meta: str) -> Object:
    return {"metadata": {"name": name, **meta}, "target": {"kind": "Node", "name": node}}


def test_a_binding_sets_node_and_condition_and_brings_annotations(server: InMemoryServer) -> None:
    pod = server.create(POD, "p", **a_pod())
    binding = a_binding()
    binding["metadata"]["annotations"] = {"a": "b"}
    bound = bind(pod, binding, NOON)
    assert bound["spec"]["nodeName"] == "n"
    assert bound["metadata"]["annotations"] == {"a": "b"}
    assert bound["status"]["conditions"] == [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2030-01-01T12:00:00Z"}
    ]
    assert "nodeName" not in pod["spec"]


REFUSED_BINDINGS = {
    "another pod": (a_binding("q"), 400, "BadRequest"),
    "no node": (a_binding(node=""), 500, ""),
    "another uid": (a_binding(uid="u-2"), 409, "Conflict"),
    "another version": (a_binding(resourceVersion="9"), 409, "Conflict"),
}


@pytest.mark.parametrize(
    ("binding", "code", "reason"), REFUSED_BINDINGS.values(), ids=REFUSED_BINDINGS
)
def test_a_binding_is_refused(
    server: InMemoryServer, binding: Object, code: int, reason: str
) -> None:
    pod = server.create(POD, "p", **a_pod())
    pod["metadata"] |= {"uid": "u-1", "resourceVersion": "1"}
    with pytest.raises(ApiError) as refusal:
        bind(pod, binding, NOON)
    assert (refusal.value.status_code, refusal.value.status_reason) == (code, reason)


def test_a_second_binding_is_a_conflict_that_names_the_node(server: InMemoryServer) -> None:
    pod = place(server, a_container())
    with pytest.raises(ApiError) as refusal:
        bind(pod, a_binding(node="other"), NOON)
    assert refusal.value.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n"'
    )
    assert refusal.value.details == {"name": "p", "kind": "pods/binding"}


def test_a_pod_that_is_going_gets_no_node(server: InMemoryServer) -> None:
    pod = server.create(POD, "p", **a_pod())
    pod["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    with pytest.raises(ApiError, match="being deleted"):
        bind(pod, a_binding(), NOON)


# ---------------------------------------------------------------- eviction


def test_an_eviction_notes_the_cause_and_passes_the_options_on(server: InMemoryServer) -> None:
    pod = place(server, a_container())
    options = {"gracePeriodSeconds": 5}
    evicted = evict(pod, {"metadata": {"name": "p"}, "deleteOptions": options}, NOON)
    assert evicted.options == options
    assert evicted.pod["status"]["conditions"][0]["reason"] == "EvictionByEvictionAPI"
    with pytest.raises(ApiError) as refusal:
        evict(pod, {"metadata": {"name": "q"}}, NOON)
    assert refusal.value.status_code == 400
