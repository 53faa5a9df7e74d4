from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from livevirt.kube.controllers.namespaces import Content, Finish, Report, plan
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EMPTY = Content()
HELD = Content({"secrets": 1, "pods": 2}, {"example.com/hold": 1})


def a_namespace(*finalizers: str, deleting: bool = True, status: Any = None) -> Object:
    metadata: Object = {"name": "n", "uid": "u"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"finalizers": list(finalizers)}, "status": status or {}}


def test_a_namespace_in_use_is_left_alone() -> None:
    assert plan(a_namespace("kubernetes", deleting=False), EMPTY, NOON) is None


def test_an_empty_namespace_is_let_go_but_for_the_finalizers_of_others() -> None:
    assert plan(a_namespace("kubernetes", "x/y"), EMPTY, NOON) == Finish(("x/y",))


def test_a_namespace_that_was_let_go_is_left_alone() -> None:
    assert plan(a_namespace("x/y"), EMPTY, NOON) is None


def test_what_a_namespace_waits_for_is_in_its_conditions_and_said_once() -> None:
    step = plan(a_namespace("kubernetes"), HELD, NOON)
    assert isinstance(step, Report)
    content = conditions.find(step.conditions, "NamespaceContentRemaining")
    held = conditions.find(step.conditions, "NamespaceFinalizersRemaining")
    assert content is not None
    assert held is not None
    assert (content["status"], held["status"]) == ("True", "True")
    again = a_namespace("kubernetes", status={"conditions": step.conditions})
    assert plan(again, HELD, NOON) is None


@pytest.mark.wording
def test_what_a_namespace_waits_for_is_counted() -> None:
    step = plan(a_namespace("kubernetes"), HELD, NOON)
    assert isinstance(step, Report)
    content = conditions.find(step.conditions, "NamespaceContentRemaining") or {}
    held = conditions.find(step.conditions, "NamespaceFinalizersRemaining") or {}
    assert "pods (2), secrets (1)" in content["message"]
    assert "example.com/hold (1)" in held["message"]


def test_content_that_may_not_be_deleted_keeps_the_namespace() -> None:
    step = plan(a_namespace("kubernetes"), Content(refusals=("no",)), NOON)
    assert isinstance(step, Report)
    assert conditions.is_true(step.conditions, "NamespaceDeletionContentFailure")
