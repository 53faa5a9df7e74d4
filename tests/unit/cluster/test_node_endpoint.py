"""A node agent serves the API server of livevirt, by a token that is meant for node agents."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.cluster.node_endpoint import AUDIENCE, CALLER, CallerGuard
from livevirt.errors import Forbidden, Unauthorized
from livevirt.kube.objects.request import ActionPath, Object

GOOD = {"authenticated": True, "audiences": [AUDIENCE], "user": {"username": CALLER}}
BAD: dict[str, Object] = {
    "no valid token": {},
    "a token for kube-apiserver": {**GOOD, "audiences": ["https://kubernetes.default.svc"]},
    "a token for any audience": {"authenticated": True, "user": {"username": CALLER}},
    "another service account": {**GOOD, "user": {"username": "system:serviceaccount:a:b"}},
    "not authenticated": {**GOOD, "authenticated": False},
}


class Reviews:
    """Answers all token reviews with one status, and counts them."""

    def __init__(self, status: Object) -> None:
        self.status, self.count = status, 0

    async def create(self, _: Any, review: Object) -> Object:
        assert review["spec"] == {"token": "t", "audiences": [AUDIENCE]}
        self.count += 1
        return {"status": self.status}


def a_request(authorization: str = "Bearer t") -> Any:
    return SimpleNamespace(headers={"Authorization": authorization})


async def test_the_api_server_is_admitted_and_its_token_reviewed_once_a_minute() -> None:
    reviews: Any = Reviews(GOOD)
    now = [0.0]
    guard = CallerGuard(reviews, lambda: now[0])
    for moment, count in ((0.0, 1), (59.0, 1), (61.0, 2)):
        now[0] = moment
        assert (await guard.authenticate(a_request(), "/")).name == CALLER
        assert reviews.count == count


@pytest.mark.parametrize("status", BAD.values(), ids=BAD)
async def test_others_are_refused(status: Object) -> None:
    reviews: Any = Reviews(status)
    with pytest.raises(Unauthorized):
        await CallerGuard(reviews).authenticate(a_request(), "/healthz")


@pytest.mark.parametrize("header", ["", "Basic t", "Bearer "])
async def test_without_a_token_nothing_is_asked(header: str) -> None:
    reviews: Any = Reviews(GOOD)
    with pytest.raises(Unauthorized):
        await CallerGuard(reviews).authenticate(a_request(header), "/")
    assert reviews.count == 0


async def test_only_instances_are_served() -> None:
    guard, user = CallerGuard(Reviews(GOOD)), Any  # type: ignore[arg-type]
    await guard.authorize(
        user,  # type: ignore[arg-type]
        a_request(),
        ActionPath("virtualmachineinstances", "default", "web", "console"),
    )
    for target in (None, ActionPath("virtualmachines", "default", "web", "start")):
        with pytest.raises(Forbidden):
            await guard.authorize(user, a_request(), target)  # type: ignore[arg-type]
