from __future__ import annotations

import pytest

from livevirt.errors import Forbidden
from livevirt.kube.objects.core import CLAIM, LIMIT_RANGE, POD
from livevirt.kube.objects.request import Object

from .in_memory_server import InMemoryServer, Refused, a_container, a_pod


def bounded(*items: Object) -> InMemoryServer:
    server = InMemoryServer()
    server.create(LIMIT_RANGE, "a", spec={"limits": list(items)})
    return server


CONTAINER = {
    "type": "Container",
    "max": {"cpu": "1", "memory": "1Gi"},
    "min": {"cpu": "100m", "memory": "32Mi"},
    "maxLimitRequestRatio": {"cpu": "4"},
}
WHOLE_POD = {"type": "Pod", "max": {"memory": "1Gi"}}


def test_containers_without_resources_get_the_defaults_with_a_note() -> None:
    server = bounded(
        {
            "type": "Container",
            "default": {"cpu": "500m", "memory": "128Mi"},
            "defaultRequest": {"cpu": "100m", "memory": "64Mi"},
        }
    )
    pod = server.create(
        POD,
        "p",
        **a_pod(
            a_container("c"),
            a_container("d", requests={"cpu": "200m"}, limits={"memory": "96Mi"}),
        ),
    )
    c, d = (container["resources"] for container in pod["spec"]["containers"])
    assert c == {
        "limits": {"cpu": "500m", "memory": "128Mi"},
        "requests": {"cpu": "100m", "memory": "64Mi"},
    }
    assert d == {
        "limits": {"cpu": "500m", "memory": "96Mi"},
        "requests": {"cpu": "200m", "memory": "96Mi"},
    }
    assert pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container c; "
        "cpu, memory limit for container c; cpu limit for container d"
    )
    assert pod["status"]["qosClass"] == "Burstable"


def test_a_maximum_is_the_default_of_a_container_and_a_minimum_its_request() -> None:
    (item,) = bounded({"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "1Mi"}}).list(
        LIMIT_RANGE
    )[0]["spec"]["limits"]
    assert item["default"] == {"cpu": "1"}
    assert item["defaultRequest"] == {"cpu": "1", "memory": "1Mi"}


def sized(cpu: str, memory: str, cpu_limit: str) -> Object:
    return a_container(
        requests={"cpu": cpu, "memory": memory}, limits={"cpu": cpu_limit, "memory": memory}
    )


BREACHES: dict[str, tuple[Object, str]] = {
    "too wide a ratio": (
        a_pod(sized("100m", "64Mi", "1")),
        "cpu max limit to request ratio per Container is 4, but provided ratio is 10.000000",
    ),
    "two containers too large together": (
        a_pod(
            {**sized("500m", "600Mi", "1"), "name": "c"},
            {**sized("500m", "600Mi", "1"), "name": "d"},
        ),
        "maximum memory usage per Pod is 1Gi, but limit is 1200Mi",
    ),
    "everything at once": (
        a_pod(sized("50m", "64Mi", "2")),
        "[minimum cpu usage per Container is 100m, but request is 50m, "
        "maximum cpu usage per Container is 1, but limit is 2, "
        "cpu max limit to request ratio per Container is 4, but provided ratio is 40.000000]",
    ),
}


def test_a_ratio_wider_than_any_float_is_one_more_breach() -> None:
    server = bounded({"type": "Container", "maxLimitRequestRatio": {"cpu": "4"}})
    with pytest.raises(Forbidden, match=r"is 4, but provided ratio is 10{400}[.]0{6}$"):
        server.create(POD, "p", **a_pod(sized("1", "64Mi", "1e400")))


@pytest.mark.parametrize(("fields", "why"), BREACHES.values(), ids=BREACHES)
def test_a_pod_outside_the_limits_is_forbidden(fields: Object, why: str) -> None:
    with pytest.raises(Forbidden) as refusal:
        bounded(CONTAINER, WHOLE_POD).create(POD, "p", **fields)
    assert refusal.value.message == f'pods "p" is forbidden: {why}'


def test_a_pod_within_the_limits_is_taken_and_may_not_be_resized_out_of_them() -> None:
    server = bounded(CONTAINER, WHOLE_POD)
    pod = server.create(POD, "p", **a_pod(sized("500m", "64Mi", "1")))
    with pytest.raises(Forbidden, match="maximum cpu usage per Container is 1, but limit is 2"):
        server.resize(
            pod, requests={"cpu": "500m", "memory": "64Mi"}, limits={"cpu": "2", "memory": "64Mi"}
        )


def test_a_broken_pod_is_told_what_is_broken_before_what_is_too_much() -> None:
    with pytest.raises(Refused):
        bounded(CONTAINER).create(POD, "p", **a_pod({"name": "Bad Name", "image": "i"}))


CLAIMS = {
    "20Gi": "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 20Gi",
    "500Mi": "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi",
}


@pytest.mark.parametrize(("size", "why"), CLAIMS.items(), ids=CLAIMS)
def test_claims_are_held_to_the_limits(size: str, why: str) -> None:
    server = bounded(
        {"type": "PersistentVolumeClaim", "max": {"storage": "10Gi"}, "min": {"storage": "1Gi"}}
    )
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    with pytest.raises(Forbidden) as refusal:
        server.create(CLAIM, "c", spec=spec)
    assert refusal.value.message == f'persistentvolumeclaims "c" is forbidden: {why}'


BAD: dict[str, tuple[Object, set[tuple[str, str]]]] = {
    "unknown type": ({"type": "Moon"}, {("Invalid", "spec.limits[0].type")}),
    "minimum above maximum": (
        {"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
        {("Invalid", "spec.limits[0].min[cpu]")},
    ),
    "default of a pod": (
        {"type": "Pod", "default": {"cpu": "1"}},
        {("Forbidden", "spec.limits[0].default")},
    ),
    "claim without a bound": (
        {"type": "PersistentVolumeClaim"},
        {("Required", "spec.limits[0]")},
    ),
    "ratio below one": (
        {"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}},
        {("Invalid", "spec.limits[0].maxLimitRequestRatio[cpu]")},
    ),
}


@pytest.mark.parametrize(("item", "causes"), BAD.values(), ids=BAD)
def test_a_bad_limit_range_is_refused(item: Object, causes: set[tuple[str, str]]) -> None:
    with pytest.raises(Refused) as refusal:
        bounded(item)
    assert refusal.value.causes == causes
