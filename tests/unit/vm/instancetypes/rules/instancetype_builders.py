"""Instance types, preferences, revisions and VMs to try rules on."""

from __future__ import annotations

from typing import Any

from livevirt.kube.objects.core import REVISION
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules import revisions
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, VM

SPACE = "default"


class Objects:
    """What can be looked up."""

    def __init__(self, *objects: Object) -> None:
        self.held = {_key(obj): obj for obj in objects}
        self.asked: list[str] = []

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        self.asked.append(f"{kind.kind}/{name}")
        return self.held.get((kind.kind, namespace if kind.namespaced else "", name))


def _key(obj: Object) -> tuple[str, str, str]:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]


def an_object(kind: Kind, name: str, spec: Object | None = None, **meta: Any) -> Object:
    space = {"namespace": SPACE} if kind.namespaced else {}
    metadata = {"name": name, **space, "uid": f"uid-{name}", "generation": 1, **meta}
    return {
        "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata,
        "spec": spec or {},
    }  # fmt: skip


def a_type(
    name: str = "small", cpu: int = 2, memory: str = "1Gi", kind: Kind = CLUSTER_INSTANCETYPE,
    **meta: Any,
) -> Object:  # fmt: skip
    return an_object(kind, name, {"cpu": {"guest": cpu}, "memory": {"guest": memory}}, **meta)


def a_preference(name: str = "linux", spec: Object | None = None, **meta: Any) -> Object:
    return an_object(CLUSTER_PREFERENCE, name, spec or {"machine": {}}, **meta)


def a_vm(template: Object | None = None, status: Object | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": VM.api_version,
        "kind": VM.kind,
        "metadata": {"name": "web", "namespace": SPACE, "uid": "vm-uid"},
        "spec": {
            "runStrategy": "Always",
            "template": {"spec": template or {"domain": {"devices": {}}}},
            **spec,
        },
        "status": status or {},
    }


def taken(obj: Object, vm: Object | None = None, **changes: Any) -> Object:
    """The revision a VM took of an object, as it is stored."""
    made = revisions.revision_of(vm or a_vm(), obj)
    return {**made, **changes}


def reference(revision: Object, **more: Any) -> Object:
    """What the status says of a revision in use."""
    data = revision["data"]
    return {
        "name": data["metadata"]["name"], "kind": data["kind"],
        "controllerRevisionRef": {"name": revision["metadata"]["name"]}, **more,
    }  # fmt: skip


def a_revision(name: str, data: Any, **labels: str) -> Object:
    return {
        "kind": REVISION.kind, "metadata": {"name": name, "namespace": SPACE, "labels": labels},
        "data": data,
    }  # fmt: skip
