"""What refusals are about: by class, by cause, and as a kube-apiserver words them."""

from __future__ import annotations

import pytest

from livevirt.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from livevirt.kube.client.errors import Unreachable
from livevirt.kube.client.refusals import Refusal, causes, classify

PODS = 'pods "a" is forbidden: '

#: The messages are those a kube-apiserver 1.33 gave.
REFUSALS = {
    "quota": (
        Forbidden(
            f"{PODS}exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m,"
            " limited: requests.cpu=1"
        ),
        Refusal.QUOTA,
    ),
    "a quota that demands something": (
        Forbidden(f"{PODS}failed quota: q: must specify limits.memory for: c"), Refusal.OTHER,
    ),
    "maximum of a container": (
        Forbidden(f"{PODS}maximum cpu usage per Container is 1, but limit is 2"),
        Refusal.LIMIT_RANGE,
    ),
    "minimum of a container, among others": (
        Forbidden(
            f"{PODS}[minimum memory usage per Container is 64Mi, but request is 32Mi, maximum"
            " memory usage per Pod is 1Gi, but limit is 1200Mi]"
        ),
        Refusal.LIMIT_RANGE,
    ),
    "ratio": (
        Forbidden(
            f"{PODS}cpu max limit to request ratio per Container is 4, but provided ratio is"
            " 10.000000"
        ),
        Refusal.LIMIT_RANGE,
    ),
    "maximum of a claim": (
        Forbidden(
            'persistentvolumeclaims "a" is forbidden: maximum storage usage per'
            " PersistentVolumeClaim is 10Gi, but request is 20Gi"
        ),
        Refusal.LIMIT_RANGE,
    ),
    "a node that is too small, by its cause": (
        Forbidden("…", details={"causes": [{"reason": "NodeCapacity", "message": "…"}]}),
        Refusal.NODE_CAPACITY,
    ),
    "a node that is too small, by its words": (
        Forbidden(
            f"{PODS}node didn't have enough allocatable resources: cpu, requested: 5000,"
            " allocatable: 4000"
        ),
        Refusal.NODE_CAPACITY,
    ),
    "no right to": (Forbidden('pods is forbidden: User "x" cannot create it'), Refusal.OTHER),
    "words of a quota in another kind of refusal": (
        Invalid("spec.name: Invalid value: exceeded quota: q"), Refusal.OTHER,
    ),
    "somebody else wrote": (Conflict("the object has been modified"), Refusal.CONFLICT),
    "somebody was first": (AlreadyExists('pods "a" already exists'), Refusal.ALREADY_EXISTS),
    "nothing there": (NotFound('pods "a" not found'), Refusal.NOT_FOUND),
    "no server": (Unreachable("https://x cannot be reached: refused"), Refusal.UNREACHABLE),
    "a server without an answer": (
        ApiError("exceeded quota: q", code=503, reason="ServiceUnavailable"), Refusal.OTHER,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("error", "refusal"), REFUSALS.values(), ids=REFUSALS)
def test_what_a_refusal_is_about(error: ApiError, refusal: Refusal) -> None:
    assert classify(error) is refusal
    assert classify(ApiError.of(error.status(), error.status_code)) in (refusal, Refusal.OTHER)


def test_the_causes_of_a_refusal() -> None:
    listed = [{"reason": "A", "message": "m"}, {"message": "no reason"}]
    assert causes(Conflict("…", details={"causes": listed})) == {"A"}
    assert causes(Conflict("…")) == frozenset()
