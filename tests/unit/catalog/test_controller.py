"""What the catalog's controller writes, and what it leaves alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from livevirt import catalog
from livevirt.catalog import series
from livevirt.catalog.controller import enabled, plan

Object = dict[str, Any]

NANO, MICRO = series.instancetypes()[:2]


def stored(obj: Object, version: str | None = catalog.VERSION, **labels: str) -> Object:
    found = copy.deepcopy(obj)
    meta = found["metadata"]
    meta |= {"uid": "1", "resourceVersion": "7"}
    if version is None:
        del meta["labels"][catalog.LABEL]
    else:
        meta["labels"][catalog.LABEL] = version
    meta["labels"] |= labels
    return found


def old(obj: Object) -> Object:
    found = stored(obj, "livevirt-0")
    found["spec"] = {"cpu": {"guest": 9}, "memory": {}}
    return found


RULES: dict[str, tuple[list[Object], list[str], list[str]]] = {
    "given nothing, then all are created": ([], ["u1.nano", "u1.micro"], []),
    "given all, then nothing is written": ([stored(NANO), stored(MICRO)], [], []),
    "given one was deleted, then it comes back": ([stored(NANO)], ["u1.micro"], []),
    "given another version, then it is replaced": ([old(NANO), stored(MICRO)], [], ["u1.nano"]),
    "given a user's of the same name, then it stays": ([stored(NANO, None), stored(MICRO)], [], []),
    "given KubeVirt's own bundle, then it stays": ([stored(NANO, "v1.7.0"), stored(MICRO)], [], []),
    "given others, then they are left alone": (
        [stored(NANO), stored(MICRO), {"metadata": {"name": "mine"}}], [], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("found", "created", "replaced"), RULES.values(), ids=RULES)
def test_plan(found: list[Object], created: list[str], replaced: list[str]) -> None:
    writes = plan([NANO, MICRO], found)
    assert [obj["metadata"]["name"] for obj in writes.create] == created
    assert [obj["metadata"]["name"] for obj in writes.replace] == replaced


def test_an_upgrade_keeps_the_identity_and_what_others_noted() -> None:
    before = old(NANO)
    before["metadata"]["labels"] |= {"team": "blue", f"{catalog.PREFIX}dropped": "x"}
    [after] = plan([NANO], [before]).replace
    assert after["spec"] == NANO["spec"]
    meta = after["metadata"]
    assert (meta["uid"], meta["resourceVersion"]) == ("1", "7")
    assert meta["labels"] == {**NANO["metadata"]["labels"], "team": "blue"}
    assert plan([NANO], [after]) == ([], [])


def deployment(**settings: Any) -> Object:
    return {"spec": {"configuration": {"commonInstancetypesDeployment": settings}}}


@pytest.mark.parametrize(
    ("kubevirt", "wanted"),
    [
        ({}, True),
        (deployment(), True),
        (deployment(enabled=True), True),
        (deployment(enabled=False), False),
    ],
)
def test_it_is_wanted_unless_the_kubevirt_object_says_otherwise(
    kubevirt: Object, wanted: bool
) -> None:
    assert enabled(kubevirt) is wanted
