"""Built-in kinds come back the way kube-apiserver's structs write them."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.errors import BadRequest
from livevirt.kube.objects import core, typed

POD = core.POD.schema()
CONFIG_MAP = core.CONFIG_MAP.schema()

KEPT = {
    "nulls vanish": ({"data": None, "metadata": {"labels": None}}, {"metadata": {}}),
    "empty optional maps vanish": ({"data": {}, "metadata": {"labels": {}}}, {"metadata": {}}),
    "an explicit false behind a pointer stays": (
        {"immutable": False},
        {"immutable": False, "metadata": {}},
    ),
    "a null value of a map of texts is empty": (
        {"data": {"k": None}},
        {"data": {"k": ""}, "metadata": {}},
    ),
    "times are told in UTC": (
        {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05+02:00"}},
        {"metadata": {"deletionTimestamp": "2026-01-02T01:04:05Z"}},
    ),
}


@pytest.mark.parametrize(("sent", "kept"), KEPT.values(), ids=KEPT)
def test_a_config_map(sent: dict[str, Any], kept: dict[str, Any]) -> None:
    assert typed.decode(CONFIG_MAP, sent, []) == kept


def test_quantities_take_their_canonical_form_and_structs_are_always_there() -> None:
    sent = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 0.5}}}]}}
    pod = typed.decode(POD, sent, [])
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "500m"}}
    assert pod["status"] == {}


def test_unknown_fields_are_named_by_their_path_and_dropped() -> None:
    unknown: list[str] = []
    sent = {"spec": {"containers": [{"name": "c", "colour": 1}], "x": {}}, "y": 2}
    pod = typed.decode(POD, sent, unknown)
    assert unknown == ["spec.containers[0].colour", "spec.x", "y"]
    assert "y" not in pod


WRONG = {
    "a number for a text": {"data": {"k": 1}},
    "a text for a map": {"data": "x"},
    "a list for an object": {"metadata": []},
    "no base64": {"binaryData": {"k": "!"}},
    "no time": {"metadata": {"deletionTimestamp": "yesterday"}},
    "a number too large": {"metadata": {"generation": 2**63}},
}


@pytest.mark.parametrize("sent", WRONG.values(), ids=WRONG)
def test_wrong_types_are_refused(sent: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        typed.decode(CONFIG_MAP, sent, [])


def test_decoding_twice_changes_nothing_more() -> None:
    sent = {"spec": {"containers": [{"name": "c", "image": "i", "tty": False}]}}
    once = typed.decode(POD, sent, [])
    assert typed.decode(POD, once, []) == once
