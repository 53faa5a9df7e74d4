"""Protobuf bodies give the objects that their JSON would, or a BadRequest, never anything else."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.errors import BadRequest
from livevirt.kube.objects.schema import Type, definitions
from livevirt.kube.server import protobuf

# Each object once as Kubernetes' own Go library writes it to protobuf and once as it writes JSON.
WRITTEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "protobuf.json").read_text()
)
FLOWS = Path(__file__).resolve().parents[5] / "shared" / "golden" / "cases" / "kubectl-flows.json"
BODIES = [base64.b64decode(case["protobuf"]) for case in WRITTEN]
KINDS = [case["kind"] for case in WRITTEN]

# Sent by kubectl 1.37.
RECORDED = {
    "kubectl create configmap": (
        "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEicKHQoDbGl0EgAaCmctbm5ubm5ubm4iACoAMgA4AEIAEgYKAWESAWIaACIA",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "lit", "namespace": "g-nnnnnnnn"},
            "data": {"a": "b"},
        },
    ),
    "kubectl create quota": (
        "azhzAAoTCgJ2MRINUmVzb3VyY2VRdW90YRJDChsKAXESABoKZy1ubm5ubm5ubiIAKgAyADgAQgASIgoLCgRwb2RzEgMK"
        "ATIKEwoMcmVxdWVzdHMuY3B1EgMKATEaABoAIgA=",
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": "g-nnnnnnnn"},
            "spec": {"hard": {"pods": "2", "requests.cpu": "1"}},
        },
    ),
    "kubectl auth can-i": (
        "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSQgoQCgASABoAIgAq"
        "ADIAOABCABIkCiIKCmctbm5ubm5ubm4SA2dldBoAIgAqBHBvZHMyA2xvZzoAGggIABIAGgAgABoAIgA=",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "namespace": "g-nnnnnnnn",
                    "verb": "get",
                    "resource": "pods",
                    "subresource": "log",
                }
            },
        },
    ),
}


def sent(number: int, value: int | bytes | str) -> bytes:
    """One field on the wire; numbers below 128 only."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(data)]) + data


def body(kind: str, *fields: bytes, api_version: str = "v1") -> bytes:
    type_meta = sent(1, api_version) + sent(2, kind)
    return protobuf.MAGIC + sent(1, type_meta) + sent(2, b"".join(fields))


def decoded(kind: str, *fields: bytes) -> dict[str, Any]:
    found = protobuf.decode(body(kind, *fields))[2]
    return {key: value for key, value in found.items() if key not in ("apiVersion", "kind")}


def without_zeros(value: Any) -> Any:
    """The value without what Go writes to JSON and cannot mean: its zeros."""
    if isinstance(value, list):
        return [without_zeros(element) for element in value]
    if isinstance(value, dict):
        kept = {key: without_zeros(below) for key, below in value.items()}
        return {k: v for k, v in kept.items() if v not in ("", 0, "0", False, None, [], {})}
    return value


def differences(found: Any, written: Any, path: str = "") -> list[str]:
    """What was decoded that JSON does not have."""
    match found, written:
        case dict(), dict():
            missing = [f"{path}.{key}" for key in found.keys() - written.keys()]
            below = found.keys() & written.keys()
            return missing + [
                d for k in below for d in differences(found[k], written[k], f"{path}.{k}")
            ]
        case list(), list() if len(found) == len(written):
            return [
                d for pair in zip(found, written, strict=True) for d in differences(*pair, path)
            ]
    return [] if found == written else [f"{path}: {found!r} is not {written!r}"]


@pytest.mark.parametrize(("body", "expected"), RECORDED.values(), ids=RECORDED)
def test_bodies_of_kubectl(body: str, expected: dict[str, Any]) -> None:
    api_version, kind, found = protobuf.decode(base64.b64decode(body))
    assert found == expected
    assert (api_version, kind) == (expected["apiVersion"], expected["kind"])


@pytest.mark.skipif(
    not FLOWS.exists(), reason="the recordings of a real kube-apiserver are not here"
)
def test_every_recorded_body_of_kubectl_is_understood() -> None:
    flows = json.loads(FLOWS.read_text())
    steps = [step for case in flows["cases"] for step in case["steps"] if "bodyBase64" in step]
    assert steps
    for step in steps:
        _, kind, _ = protobuf.decode(base64.b64decode(step["bodyBase64"]))
        assert f"/{kind.lower()}s" in step["path"]


@pytest.mark.parametrize("case", WRITTEN, ids=KINDS)
def test_given_an_object_written_by_go_when_decoded_then_it_is_what_go_writes_as_json(
    case: dict[str, Any],
) -> None:
    _, kind, found = protobuf.decode(base64.b64decode(case["protobuf"]))
    assert kind == case["kind"]
    assert without_zeros(found) == without_zeros(case["json"])
    assert differences(found, case["json"]) == []


def test_given_explicit_zeros_then_those_behind_pointers_are_kept() -> None:
    written = protobuf.decode(BODIES[KINDS.index("Pod")])[2]
    assert written["spec"]["automountServiceAccountToken"] is False
    assert written["spec"]["securityContext"]["fsGroup"] == 0
    assert written["metadata"]["deletionGracePeriodSeconds"] == 0
    assert written["spec"]["volumes"][0] == {"name": "e", "emptyDir": {}}
    assert written["spec"]["volumes"][1]["emptyDir"]["sizeLimit"] == "0"
    assert written["spec"]["containers"][0]["env"][1] == {"name": "E"}
    assert "hostNetwork" not in written["spec"]


WIRE: dict[str, tuple[str, list[bytes], dict[str, Any]]] = {
    "nothing": ("Pod", [], {}),
    "a field nobody knows is passed over": (
        "ConfigMap",
        [sent(15, b"x"), sent(14, 1), b"\x6d1234", b"\x6912345678", sent(4, 1)],
        {"immutable": True},
    ),
    "a message in two pieces is one": (
        "ConfigMap",
        [sent(1, sent(1, "a")), sent(1, sent(3, "b"))],
        {"metadata": {"name": "a", "namespace": "b"}},
    ),
    "the last of several values counts": (
        "ConfigMap",
        [sent(1, sent(1, "a") + sent(1, "b"))],
        {"metadata": {"name": "b"}},
    ),
    "a zero at last is none": ("ConfigMap", [sent(1, sent(1, "a") + sent(1, ""))], {}),
    "numbers may come packed": (
        "Pod",
        [sent(2, sent(14, sent(4, 7) + sent(4, b"\x01\x80\x01")))],
        {"spec": {"securityContext": {"supplementalGroups": [7, 1, 128]}}},
    ),
    "a negative number has ten bytes": (
        "Pod",
        [sent(2, b"\x20" + b"\xff" * 9 + b"\x01")],
        {"spec": {"terminationGracePeriodSeconds": -1}},
    ),
    "an entry without key and value is empty": ("ConfigMap", [sent(2, b"")], {"data": {"": ""}}),
    "the epoch is a time": (
        "ConfigMap",
        [sent(1, sent(8, sent(1, 0)))],
        {"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}},
    ),
    "an empty time is none": ("ConfigMap", [sent(1, sent(8, b"") + sent(9, b""))], {}),
}
MALFORMED: dict[str, bytes] = {
    "no magic": b"{}",
    "empty": b"",
    "nothing but magic": protobuf.MAGIC,
    "an unknown kind": body("Frob"),
    "an unknown group": body("Pod", api_version="frob/v1"),
    "a type that is no kind": body("Container"),
    "a custom kind": body("VirtualMachine", api_version="kubevirt.io/v1"),
    "an encoded object": body("Pod") + sent(3, "gzip"),
    "a field cut off": body("ConfigMap", b"\x0a\x05a"),
    "a number cut off": body("ConfigMap", b"\x20\x80"),
    "a number too long": body("ConfigMap", b"\x20" + b"\xff" * 11),
    "a field number 0": body("ConfigMap", b"\x00\x00"),
    "a group": body("ConfigMap", b"\x0b\x0c"),
    "a number for a message": body("ConfigMap", sent(1, 1)),
    "bytes for a number": body("ConfigMap", sent(4, "x")),
    "a text that is not UTF-8": body("ConfigMap", sent(1, sent(1, b"\xff"))),
    "a time beyond the calendar": body(
        "ConfigMap", sent(1, sent(8, b"\x08" + b"\xff" * 8 + b"\x7f"))
    ),
    "a revision that is not JSON": body(
        "ControllerRevision", sent(2, sent(1, "{")), api_version="apps/v1"
    ),
    "a revision without end": body(
        "ControllerRevision", sent(2, sent(1, "[" * 99)), api_version="apps/v1"
    ),
}


@pytest.mark.parametrize(("kind", "fields", "expected"), WIRE.values(), ids=WIRE)
def test_wire(kind: str, fields: list[bytes], expected: dict[str, Any]) -> None:
    assert decoded(kind, *fields) == expected


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_given_what_cannot_be_read_then_it_is_a_bad_request(data: bytes) -> None:
    with pytest.raises(BadRequest):
        protobuf.decode(data)


@pytest.mark.parametrize("api_version", ["v1", "apps/v1", "meta.k8s.io/v1", "kubevirt.io/v1"])
def test_the_options_of_a_delete_exist_in_every_group(api_version: str) -> None:
    options = body("DeleteOptions", sent(1, 0), sent(5, "All"), api_version=api_version)
    assert protobuf.decode(options)[2] == {
        "apiVersion": api_version,
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "dryRun": ["All"],
    }


def test_every_field_of_every_kind_has_a_number_and_a_form() -> None:
    forms = {"object", "list", "map", *protobuf._SCALARS}
    tables = {*protobuf._TABLES.values(), "meta"}
    seen: set[Type] = set()

    def check(type_: Type, name: str) -> None:
        assert type_.form in forms, name
        if type_ in seen:
            return
        seen.add(type_)
        if type_.element is not None:
            check(type_.element, name)
        for field in type_.fields.values():
            assert field.number, f"{name}.{field.name}"
            check(field.type, f"{name}.{field.name}")

    for name in definitions().names():
        if name.partition(".")[0] in tables:
            check(definitions()[name], name)


def understood_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        assert isinstance(protobuf.decode(data)[2], dict)


@given(st.binary(max_size=64), st.sampled_from(["Pod", "Event", "Node", "ConfigMap"]))
def test_given_any_bytes_then_they_are_understood_or_refused(data: bytes, kind: str) -> None:
    understood_or_refused(data)
    understood_or_refused(protobuf.MAGIC + data)
    understood_or_refused(body(kind, data))


@given(st.sampled_from(BODIES), st.data())
def test_given_a_body_cut_or_flipped_then_it_is_understood_or_refused(
    data: bytes, draw: st.DataObject
) -> None:
    understood_or_refused(data[: draw.draw(st.integers(0, len(data)))])
    flipped = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        flipped[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    understood_or_refused(bytes(flipped))
