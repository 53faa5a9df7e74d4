"""A server of actions only, as the aggregated API server of a cluster is one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer, TestClient

from livevirt.errors import Forbidden, Unauthorized
from livevirt.kube.objects.registry import Action, ActionGroup, Registry
from livevirt.kube.objects.request import ActionPath, Answer, User
from livevirt.kube.server.actions import ActionFront
from livevirt.kube.server.metrics import Metrics
from livevirt.kube.server.route import Target

ROOT = "/apis/act.example.com/v1"
REGISTRY = Registry(
    (), ActionGroup("act.example.com", ("v1",), (Action("things", "start", "update"),))
)


class HeaderGuard:
    """Believes a header, and lets only jane do anything."""

    async def authenticate(self, http: web.BaseRequest, path: str) -> User:
        if "User" not in http.headers:
            raise Unauthorized("Unauthorized")
        return User(http.headers["User"])

    async def authorize(
        self, user: User, http: web.BaseRequest, target: Target | ActionPath | None
    ) -> None:
        if user.name != "jane":
            raise Forbidden("forbidden")


async def act(action: ActionPath, http: web.BaseRequest, user: User, body: Any) -> Answer:
    return Answer(200, {"action": action.action, "user": user.name, "body": body}, ("careful",))


@pytest.fixture
async def client() -> AsyncIterator[TestClient[Any, Any]]:
    front = ActionFront(REGISTRY, HeaderGuard(), Metrics(), act)
    async with TestClient(RawTestServer(front.handle)) as started:
        yield started


JANE = {"User": "jane"}


async def test_given_an_action_then_its_handler_answers_for_the_user(
    client: TestClient[Any, Any],
) -> None:
    path = f"{ROOT}/namespaces/default/things/one/start"
    answer = await client.put(path, json={"now": True}, headers=JANE)
    assert answer.status == 200
    assert await answer.json() == {"action": "start", "user": "jane", "body": {"now": True}}
    assert "careful" in answer.headers["Warning"]


@pytest.mark.parametrize("path", [f"{ROOT}/namespaces/default/things/one/start", "/apis", ROOT])
async def test_given_users_who_may_not_then_nothing_is_answered(
    client: TestClient[Any, Any], path: str
) -> None:
    assert (await client.get(path)).status == 401
    assert (await client.get(path, headers={"User": "joe"})).status == 403


async def test_given_discovery_then_there_is_one_group_and_no_resource(
    client: TestClient[Any, Any],
) -> None:
    groups = await (await client.get("/apis", headers=JANE)).json()
    assert [each["name"] for each in groups["groups"]] == ["act.example.com"]
    listed = await (await client.get(ROOT, headers=JANE)).json()
    assert [each["name"] for each in listed["resources"]] == ["things/start"]
    for path in ("/", "/api", "/openapi/v2", "/openapi/v3", "/metrics", "/healthz"):
        assert (await client.get(path, headers=JANE)).status == 200, path
    assert (await client.get("/api/v1/pods", headers=JANE)).status == 404
