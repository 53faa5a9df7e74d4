"""The webhook decides as the embedded server does, because the rules are the same."""

from __future__ import annotations

import base64
import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import jsonpatch
import msgspec
import pytest

from livevirt.cluster import reviews
from livevirt.cluster.crds import CONVERTED
from livevirt.cluster.reviews import Admission, LookupFailed
from livevirt.errors import ApiError, BadRequest, Forbidden, NotFound, TooManyRequests
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules
from livevirt.vm import kinds
from livevirt.vm.admission import RULES
from livevirt.vm.volumes import attachment_pods

from ..vm import vm_review
from ..vm.vm_review import COMPONENT, JANE, LIVE, STAGE, a_spec, a_vm, a_vmi

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
UID = "0b5d7a3e-9d0e-4c39-8a54-0d5b6a1c2e3f"


class Caches:
    """Informers that hold some objects."""

    def __init__(self, *held: tuple[Kind, Object]) -> None:
        self.held = held

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        found = (obj for each, obj in self.held if each is kind)
        return next((obj for obj in found if obj["metadata"]["name"] == name), None)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        return [obj for each, obj in self.held if each is kind]

    def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        raise AssertionError("nothing here is resized")


class Server:
    """An API server that has some objects, and counts how often it is asked."""

    def __init__(self, *stored: tuple[Kind, Object]) -> None:
        self.stored = Caches(*stored)
        self.asked: list[tuple[str, str]] = []
        self.refusal: ApiError | None = None

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        self.asked.append((kind.kind, name))
        if self.refusal is not None:
            raise self.refusal
        found = self.stored.get(kind, name, namespace)
        if found is None:
            raise NotFound(f"there is no {name}")
        return found


KUBEVIRT: Object = {"metadata": {"name": "kubevirt"}, "spec": {"configuration": LIVE}}


async def never(pod: Object, *, dry_run: bool) -> None:
    raise TooManyRequests("it migrates")


def an_admission(caches: Caches | None = None, server: Server | None = None) -> Admission:
    return Admission(
        kinds={(kind.group, kind.plural): kind for kind in kinds.KINDS},
        rules=RULES,
        informers=caches or Caches((kinds.KUBEVIRT, KUBEVIRT)),
        client=cast(Client, server or Server()),
        guard=never,
        now=lambda: NOON,
    )


def a_review(
    kind: Kind, new: Object, old: Object | None = None, user: str = "jane", **rest: Any
) -> Object:
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    request = {
        "uid": UID,
        "resource": resource,
        "operation": "CREATE" if old is None else "UPDATE",
        "name": new["metadata"].get("name", ""),
        "namespace": new["metadata"].get("namespace", ""),
        "userInfo": {"username": user},
        "object": new,
        "oldObject": old,
        **rest,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def response(review: Object) -> Object:
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    found: Object = review["response"]
    assert found["uid"] == UID
    return found


def patched(obj: Object, answer: Object) -> Object:
    """Return an object as kube-apiserver stores it after a default."""
    if "patch" not in answer:
        return obj
    assert answer["patchType"] == "JSONPatch"
    steps = msgspec.json.decode(base64.b64decode(answer["patch"]))
    return cast(Object, jsonpatch.apply_patch(copy.deepcopy(obj), steps))


EDITED = a_vm(a_spec(cpu={"cores": 2}))
HALTED, RUNNING = a_vm(), a_vm(runStrategy="Always")
WRITES: dict[str, tuple[Kind, Object, Object | None, str]] = {
    "a halted VM": (kinds.VM, HALTED, None, "jane"),
    "a VM that runs": (kinds.VM, RUNNING, None, "jane"),
    "a VM with an unknown strategy": (kinds.VM, a_vm(runStrategy="Now"), None, "jane"),
    "a deprecated field": (kinds.VM, a_vm(runStrategy=None, running=True), None, "jane"),
    "a field nobody acts on": (kinds.VM, a_vm(a_spec(devices={"tpm": {}})), None, "jane"),
    "an edit of a VM": (kinds.VM, EDITED, HALTED, "jane"),
    "an instance": (kinds.VMI, a_vmi(), None, "jane"),
    "an instance of ours": (kinds.VMI, a_vmi(), None, COMPONENT.name),
    "an edit of an instance": (
        kinds.VMI,
        a_vmi(a_spec(cpu={"sockets": 2})),
        a_vmi(a_spec()),
        "jane",
    ),
    "a status of an instance by a user": (
        kinds.VMI,
        {**a_vmi(), "status": {"phase": "Failed"}},
        {**a_vmi(), "status": {"phase": "Running"}},
        "jane",
    ),
}


@pytest.mark.parametrize(("kind", "new", "old", "user"), WRITES.values(), ids=WRITES)
async def test_given_a_write_then_both_servers_decide_alike(
    kind: Kind, new: Object, old: Object | None, user: str
) -> None:
    as_user = COMPONENT if user == COMPONENT.name else JANE
    plain = {key: value for key, value in new["spec"].items() if value is not None}
    stored, errors, warnings = vm_review.review(kind, {**new, "spec": plain}, old, user=as_user)
    admission = an_admission()
    sent = a_review(kind, new, old, user)
    defaulted = patched({**new, "spec": plain}, response(await admission.default(sent)))
    assert defaulted["spec"] == stored["spec"]
    assert defaulted.get("status") == stored.get("status")
    finalizers = [each["metadata"].get("finalizers") for each in (defaulted, stored)]
    assert finalizers[0] == finalizers[1]

    again = a_review(kind, defaulted, old, user)
    verdict = response(await admission.validate(again))
    assert verdict["allowed"] is not bool(errors)
    if errors:
        status = verdict["status"]
        assert (status["code"], status["reason"]) == (422, "Invalid")
        causes = [cause["field"] for cause in status["details"]["causes"]]
        assert causes == [error.field for error in errors]
    warned = response(await admission.warn(again))
    assert warned["allowed"] is True
    assert warned.get("warnings", []) == ([] if errors else list(dict.fromkeys(warnings)))


async def test_given_no_uid_yet_then_the_identity_comes_from_the_request() -> None:
    new = a_vmi()
    del new["metadata"]["uid"]

    async def firmware(uid: str) -> str:
        answer = await an_admission().default(a_review(kinds.VMI, new, uid=uid))
        stored = patched(new, answer["response"])
        assert "uid" not in stored["metadata"]
        return str(stored["spec"]["domain"]["firmware"]["uuid"])

    assert await firmware("one") == await firmware("one")
    assert await firmware("one") != await firmware("another")


def sized_by_small() -> Object:
    matcher = {"kind": kinds.INSTANCETYPE.kind, "name": "small"}
    return a_vm({"domain": {"devices": {}}}, instancetype=matcher)


async def test_given_a_lagging_cache_then_what_it_lacks_is_read_from_the_server() -> None:
    small: Object = {
        "metadata": {"name": "small", "namespace": "default", "uid": "i"},
        "spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}},
    }
    vm = sized_by_small()
    server = Server((kinds.INSTANCETYPE, small))
    warned = response(await an_admission(server=server).warn(a_review(kinds.VM, vm)))
    assert "warnings" not in warned
    assert ("VirtualMachineInstancetype", "small") in server.asked

    missing = response(await an_admission(server=Server()).warn(a_review(kinds.VM, vm)))
    assert len(missing["warnings"]) == 1


async def test_given_a_stale_cache_then_a_refusal_is_decided_again_from_the_server() -> None:
    empty = a_vm(a_spec(devices={"disks": [{"name": "drive", "cdrom": {"bus": "sata"}}]}))
    gated = {"metadata": KUBEVIRT["metadata"], "spec": {"configuration": STAGE}}
    review = a_review(kinds.VM, empty)
    for cached, stored, allowed in ((gated, KUBEVIRT, True), (gated, gated, False)):
        caches, server = Caches((kinds.KUBEVIRT, cached)), Server((kinds.KUBEVIRT, stored))
        verdict = response(await an_admission(caches, server).validate(review))
        assert verdict["allowed"] is allowed
        assert server.asked


async def test_given_a_lookup_that_fails_then_nothing_is_decided() -> None:
    """A right that the webhook itself lacks is no reason to refuse a user's write."""
    server = Server()
    server.refusal = Forbidden("the webhook may not read it")
    review = a_review(kinds.VM, sized_by_small())
    for answer in (an_admission(server=server).validate, an_admission(server=server).warn):
        with pytest.raises(LookupFailed):
            await answer(review)


async def test_given_a_rule_that_refuses_then_warnings_leave_that_to_validation() -> None:
    class Refusing(Rules):
        def validate(self, review: Review) -> list[FieldError]:
            raise Forbidden("not allowed")

    admission = replace(an_admission(), rules={kinds.VM.resource: Refusing()})
    review = a_review(kinds.VM, a_vm())
    assert response(await admission.validate(review))["status"]["code"] == Forbidden.code
    assert response(await admission.warn(review)) == {"uid": UID, "allowed": True}


async def test_given_objects_in_the_caches_then_the_server_is_not_asked() -> None:
    server = Server()
    answer = response(await an_admission(server=server).default(a_review(kinds.VMI, a_vmi())))
    assert "patch" in answer
    assert server.asked == []


async def test_given_a_quantity_beyond_the_schema_then_it_is_refused() -> None:
    vm = a_vm(a_spec(memory={"guest": "1e1.5"}))
    assert "patch" not in response(await an_admission().default(a_review(kinds.VM, vm)))
    refused = response(await an_admission().validate(a_review(kinds.VM, vm)))
    assert refused["allowed"] is False
    assert refused["status"]["details"]["causes"][0]["field"].endswith("memory.guest")


async def test_given_nulls_then_they_count_as_left_out() -> None:
    vm = a_vm(a_spec(nodeSelector=None))
    vm["metadata"]["creationTimestamp"] = None
    assert response(await an_admission().validate(a_review(kinds.VM, vm)))["allowed"] is True


async def test_given_a_kind_without_rules_then_it_is_refused() -> None:
    pod = {"metadata": {"name": "web", "namespace": "default"}}
    refused = response(await an_admission().validate(a_review(core.POD, pod)))
    assert (refused["allowed"], refused["status"]["code"]) == (False, 400)


@pytest.mark.parametrize("body", [None, [], {}, {"request": None}, {"request": {"uid": 7}}])
async def test_given_no_review_then_it_is_a_bad_request(body: Any) -> None:
    with pytest.raises(BadRequest):
        await an_admission().validate(body)


async def test_given_an_eviction_then_the_guard_decides_about_the_pod() -> None:
    pod = {"metadata": {"name": "virt-launcher-web-abcde", "namespace": "default"}}
    eviction = a_review(core.POD, pod)
    kept = response(await an_admission(server=Server((core.POD, pod))).evict(eviction))
    assert (kept["allowed"], kept["status"]["code"]) == (False, TooManyRequests.code)
    gone = response(await an_admission(server=Server()).evict(eviction))
    assert gone["allowed"] is True


async def test_given_a_deletion_then_an_attachment_pod_in_use_is_kept() -> None:
    vmi: Object = {
        "metadata": {"name": "web", "namespace": "default", "uid": "g1"},
        "status": {"phase": "Running", "volumeStatus": [{"name": "d", "hotplugVolume": {}}]},
    }
    place = attachment_pods.Place("virt-launcher-web-abcde", "p1", "node-1")
    pod = attachment_pods.manifest(vmi, attachment_pods.Attachment(place, "d", "data"), "image")
    deletion = a_review(core.POD, pod)
    deletion["request"] |= {"operation": "DELETE", "object": None, "oldObject": pod}
    kept = response(await an_admission(server=Server((kinds.VMI, vmi))).detach(deletion))
    assert (kept["allowed"], kept["status"]["code"]) == (False, Forbidden.code)
    detached = {**vmi, "status": {"phase": "Running"}}
    gone = response(await an_admission(server=Server((kinds.VMI, detached))).detach(deletion))
    assert gone["allowed"] is True
    without = response(await an_admission(server=Server()).detach(deletion))
    assert without["allowed"] is True


# ---------------------------------------------------------------- conversion


def a_conversion(wanted: str, *objects: Object) -> Object:
    request = {"uid": UID, "desiredAPIVersion": wanted, "objects": list(objects)}
    return {"apiVersion": reviews.CONVERSION, "kind": "ConversionReview", "request": request}


def an_instancetype(version: str, cpu: Object) -> Object:
    return {
        "apiVersion": f"instancetype.kubevirt.io/{version}",
        "kind": "VirtualMachineInstancetype",
        "metadata": {"name": "any", "namespace": "default", "uid": "i", "labels": {"a": "b"}},
        "spec": {"cpu": cpu, "memory": {"guest": "1Gi"}},
    }


def test_given_both_versions_then_they_convert_into_each_other() -> None:
    newer = an_instancetype("v1beta2", {})
    shown = an_instancetype("v1beta1", {"guest": 0})
    there = reviews.convert(CONVERTED, a_conversion("instancetype.kubevirt.io/v1beta1", newer))
    assert there["response"]["result"]["status"] == "Success"
    assert there["response"]["convertedObjects"] == [shown]
    back = reviews.convert(CONVERTED, a_conversion("instancetype.kubevirt.io/v1beta2", shown))
    assert back["response"]["convertedObjects"] == [newer]
    assert back["response"]["uid"] == UID


@pytest.mark.parametrize("wanted", ["instancetype.kubevirt.io/v9", "kubevirt.io/v1", ""])
def test_given_a_version_nobody_serves_then_the_conversion_fails(wanted: str) -> None:
    asked = a_conversion(wanted, an_instancetype("v1beta2", {}))
    answer = reviews.convert(CONVERTED, asked)["response"]
    assert answer["result"]["status"] == "Failure"
    assert "convertedObjects" not in answer
