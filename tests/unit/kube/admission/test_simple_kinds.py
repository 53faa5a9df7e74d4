from __future__ import annotations

import base64
import copy

import pytest

from livevirt.errors import Forbidden
from livevirt.kube.admission.builtin import RULES
from livevirt.kube.objects.core import (
    CONFIG_MAP,
    EVENT,
    EVENT_VIEW,
    KINDS,
    LEASE,
    NAMESPACE,
    NODE,
    REVISION,
    SECRET,
)
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.review import Review

from .in_memory_server import NOON, InMemoryServer, Refused


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_every_built_in_kind_that_is_stored_has_rules() -> None:
    stored = {kind.resource for kind in KINDS if kind.stored and not kind.custom}
    assert stored == RULES.keys()


def causes_of(kind: Kind, fields: Object) -> set[tuple[str, str]]:
    try:
        InMemoryServer().create(kind, "a", **copy.deepcopy(fields))
    except Refused as refusal:
        return refusal.causes
    return set()


BAD: dict[str, tuple[Kind, Object, set[tuple[str, str]]]] = {
    "config map: keys of another alphabet": (
        CONFIG_MAP,
        {"data": {"bad key": "x", "..": "y"}},
        {("Invalid", "data[bad key]"), ("Invalid", "data[..]")},
    ),
    "config map: a key in both halves": (
        CONFIG_MAP,
        {"data": {"k": "x"}, "binaryData": {"k": "eA=="}},
        {("Invalid", "data[k]")},
    ),
    "config map: good keys": (
        CONFIG_MAP,
        {"data": {"k.K_-9": "x"}, "binaryData": {"b": "/+8="}},
        set(),
    ),
    "config map: too large": (CONFIG_MAP, {"data": {"k": "x" * 1024 * 1025}}, {("TooLong", "")}),
    "secret: neither user nor password": (
        SECRET,
        {"type": "kubernetes.io/basic-auth"},
        {("Required", "data[username]"), ("Required", "data[password]")},
    ),
    "secret: a password alone will do": (
        SECRET,
        {"type": "kubernetes.io/basic-auth", "stringData": {"password": "x"}},
        set(),
    ),
    "secret: certificate without a key": (
        SECRET,
        {"type": "kubernetes.io/tls", "data": {"tls.crt": "eA=="}},
        {("Required", "data[tls.key]")},
    ),
    "secret: no ssh key": (
        SECRET,
        {"type": "kubernetes.io/ssh-auth"},
        {("Required", "data[ssh-privatekey]")},
    ),
    "secret: docker config that is no JSON": (
        SECRET,
        {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}},
        {("Invalid", "data[.dockerconfigjson]")},
    ),
    "secret: a type of somebody's own": (SECRET, {"type": "example.com/any"}, set()),
    "secret: a token of no account": (
        SECRET,
        {"type": "kubernetes.io/service-account-token"},
        {("Required", "metadata.annotations[kubernetes.io/service-account.name]")},
    ),
    "lease: no time at all": (
        LEASE,
        {"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}},
        {("Invalid", "spec.leaseDurationSeconds"), ("Invalid", "spec.leaseTransitions")},
    ),
    "event: about something elsewhere": (
        EVENT,
        {"involvedObject": {"kind": "Pod", "namespace": "other"}},
        {("Invalid", "involvedObject.namespace")},
    ),
    "event: about a node, outside of default": (
        EVENT,
        {"involvedObject": {"kind": "Node"}},
        {("Invalid", "involvedObject.namespace")},
    ),
    "event: about something here": (
        EVENT,
        {"involvedObject": {"kind": "Pod", "namespace": "team"}},
        set(),
    ),
    "event: new style without its reporter": (
        EVENT,
        {
            "involvedObject": {"kind": "Pod", "namespace": "team"},
            "eventTime": "2030-01-01T00:00:00.000001Z",
        },
        {
            ("Required", "reportingComponent"),
            ("Required", "reportingInstance"),
            ("Required", "action"),
            ("Required", "reason"),
        },
    ),
    "revision: nothing recorded": (REVISION, {"revision": 1}, {("Required", "data")}),
    "revision: something recorded": (REVISION, {"revision": 1, "data": {"spec": {}}}, set()),
    "node: unknown effect and the same taint twice": (
        NODE,
        {
            "spec": {
                "taints": [
                    {"key": "k", "effect": "Never"},
                    {"key": "k", "value": "v", "effect": "Never"},
                ]
            }
        },
        {
            ("NotSupported", "spec.taints[0].effect"),
            ("NotSupported", "spec.taints[1].effect"),
            ("Duplicate", "spec.taints[1]"),
        },
    ),
    "node: less than nothing": (
        NODE,
        {"status": {"capacity": {"cpu": "-1"}, "allocatable": {"cpu": "0"}}},
        {("Invalid", "status.capacity[cpu]")},
    ),
}


@pytest.mark.parametrize(("kind", "fields", "causes"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_named_by_its_path(
    kind: Kind, fields: Object, causes: set[tuple[str, str]]
) -> None:
    assert causes_of(kind, fields) == causes


def test_string_data_becomes_data_and_wins_over_it() -> None:
    secret = InMemoryServer().create(
        SECRET, "a", data={"k": "djE=", "x": "eA=="}, stringData={"k": "plain", "n": "ü"}
    )
    assert secret["data"] == {"k": encoded("plain"), "n": encoded("ü"), "x": "eA=="}
    assert "stringData" not in secret
    assert secret["type"] == "Opaque"


def test_the_type_of_a_secret_stays() -> None:
    server = InMemoryServer()
    secret = server.create(SECRET, "a", type="example.com/any")
    with pytest.raises(Refused) as refusal:
        server.update(SECRET, {**secret, "type": "Opaque"})
    assert refusal.value.causes == {("Invalid", "type")}


@pytest.mark.parametrize("kind", [CONFIG_MAP, SECRET], ids=str)
def test_what_is_immutable_changes_in_its_metadata_only(kind: Kind) -> None:
    server = InMemoryServer()
    made = server.create(kind, "a", data={"k": "eA=="}, immutable=True)
    labelled = {**made, "metadata": {**made["metadata"], "labels": {"x": "1"}}}
    server.update(kind, labelled)
    with pytest.raises(Refused) as refusal:
        server.update(kind, {**labelled, "data": {"k": "eQ=="}, "immutable": False})
    assert refusal.value.causes == {("Forbidden", "immutable"), ("Forbidden", "data")}


def test_the_data_of_a_revision_stays_and_its_number_may_grow() -> None:
    server = InMemoryServer()
    revision = server.create(REVISION, "a", revision=1, data={"spec": {"x": 1}})
    server.update(REVISION, {**revision, "revision": 2})
    with pytest.raises(Refused) as refusal:
        server.update(REVISION, {**revision, "data": {"spec": {"x": 2}}})
    assert refusal.value.causes == {("Invalid", "data")}


REPORTED = {
    "eventTime": "2030-01-01T00:00:00.000001Z",
    "type": "Normal",
    "action": "Start",
    "reason": "Started",
    "reportingInstance": "x-1",
}
NEWER_EVENTS: dict[str, tuple[Object, set[tuple[str, str]]]] = {
    "with all it needs": (
        {**REPORTED, "involvedObject": {"namespace": "team"}, "reportingComponent": "x"},
        set(),
    ),
    "without time and type": (
        {"involvedObject": {"namespace": "team"}},
        {("FieldValueRequired", "eventTime"), ("FieldValueInvalid", "type")},
    ),
    "about nothing here, by nobody": (
        REPORTED,
        {
            ("FieldValueInvalid", "involvedObject.namespace"),
            ("FieldValueRequired", "reportingController"),
        },
    ),
}


@pytest.mark.parametrize(("fields", "causes"), NEWER_EVENTS.values(), ids=NEWER_EVENTS)
def test_an_event_of_the_newer_group(fields: Object, causes: set[tuple[str, str]]) -> None:
    event: Object = {"metadata": {"name": "e", "namespace": "team"}, **fields}
    review = Review("create", EVENT_VIEW, "v1", event, None, User("jane"), InMemoryServer(), NOON)
    found = RULES[EVENT_VIEW.resource].validate(review)
    assert {(error.reason, error.field) for error in found} == causes


def test_what_a_node_has_can_be_handed_out_unless_it_says_otherwise() -> None:
    has = {"cpu": "4", "memory": "8Gi"}
    node = InMemoryServer().create(NODE, "n", status={"capacity": has})
    assert node["status"]["allocatable"] == has
    node = InMemoryServer().create(NODE, "n", status={"capacity": has, "allocatable": {"cpu": "3"}})
    assert node["status"]["allocatable"] == {"cpu": "3"}


def test_a_node_belongs_to_one_machine() -> None:
    server = InMemoryServer()
    node = server.create(NODE, "n", spec={"unschedulable": True})
    node = server.update(NODE, {**node, "spec": {"providerID": "rack://1"}})
    with pytest.raises(Refused) as refusal:
        server.update(NODE, {**node, "spec": {"providerID": "rack://2"}})
    assert refusal.value.causes == {("Forbidden", "spec.providerID")}


# ---------------------------------------------------------------- namespaces

RULES_OF_NAMESPACES = RULES[NAMESPACE.resource]


def test_a_namespace_gets_label_finalizer_and_phase() -> None:
    namespace = InMemoryServer().create(NAMESPACE, "n", status={"phase": "Terminating"})
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["status"] == {"phase": "Active"}


def test_label_and_finalizer_come_back_whatever_an_update_says() -> None:
    server = InMemoryServer()
    namespace = server.create(NAMESPACE, "n")
    emptied: Object = {
        **namespace,
        "metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "other", "x": "1"}},
        "spec": {},
    }
    updated = server.update(NAMESPACE, emptied)
    assert updated["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n", "x": "1"}
    assert updated["spec"] == {"finalizers": ["kubernetes"]}


def test_finalize_lets_a_deleted_namespace_go() -> None:
    server = InMemoryServer()
    namespace = server.create(NAMESPACE, "n")
    assert RULES_OF_NAMESPACES.held(namespace)
    namespace["metadata"] |= {"deletionTimestamp": "2030-01-01T12:00:00Z"}
    RULES_OF_NAMESPACES.on_marked(namespace)
    assert namespace["status"]["phase"] == "Terminating"
    emptied = server.update(NAMESPACE, {**namespace, "spec": {}, "status": {}}, "finalize")
    assert not RULES_OF_NAMESPACES.held(emptied)
    assert emptied["status"] == namespace["status"]


def test_a_phase_must_fit_the_deletion_timestamp() -> None:
    server = InMemoryServer()
    namespace = server.create(NAMESPACE, "n")
    with pytest.raises(Refused) as refusal:
        server.update(NAMESPACE, {**namespace, "status": {"phase": "Terminating"}}, "status")
    assert refusal.value.causes == {("Invalid", "status.phase")}


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_may_not_be_deleted(name: str) -> None:
    server = InMemoryServer()
    for each in (name, "mine"):
        namespace = server.create(NAMESPACE, each)
        review = Review("delete", NAMESPACE, "v1", namespace, namespace, User("jane"), server, NOON)
        if each == "mine":
            RULES_OF_NAMESPACES.check_delete(review)
        else:
            with pytest.raises(Forbidden, match="may not be deleted"):
                RULES_OF_NAMESPACES.check_delete(review)


def test_namespace_names_have_no_dots() -> None:
    assert RULES_OF_NAMESPACES.name_rule("a.b") == ["must not contain dots"]
    assert RULES_OF_NAMESPACES.name_rule("a-b") == []
