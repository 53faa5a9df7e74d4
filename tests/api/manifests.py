"""Objects to send, as plain dicts: the builders that all tests of the API share."""

from __future__ import annotations

from typing import Any

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.vm import kinds

Object = dict[str, Any]

ROOT: Object = {"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}


def an_object(kind: Kind, name: str, version: str = "", **rest: Any) -> Object:
    """Return an object of a kind, in its preferred version or another; `metadata` adds to it."""
    api = kind.api_version_of(version or kind.version)
    metadata = {"name": name, **rest.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind.kind, "metadata": metadata, **rest}


# ---------------------------------------------------------------- core kinds


def a_map(
    name: str, labels: dict[str, str] | None = None, namespace: str = "", **data: str
) -> Object:
    given = {"labels": labels, "namespace": namespace}
    metadata = {key: value for key, value in given.items() if value}
    return an_object(core.CONFIG_MAP, name, metadata=metadata, data=data)


def a_namespace(name: str) -> Object:
    return an_object(core.NAMESPACE, name)


def a_node(name: str, labels: dict[str, str]) -> Object:
    return an_object(core.NODE, name, metadata={"labels": labels})


def a_container(name: str = "main", **resources: Any) -> Object:
    return {"name": name, "image": "none", **({"resources": resources} if resources else {})}


def a_pod(name: str, **spec: Any) -> Object:
    """Return a pod for a scheduler that does not exist, so that no node runs it."""
    given = {"schedulerName": "nobody", "containers": [a_container()], **spec}
    return an_object(core.POD, name, spec=given)


def a_claim(name: str, size: str = "1Gi") -> Object:
    resources = {"requests": {"storage": size}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    return an_object(core.CLAIM, name, spec=spec)


def a_quota(name: str, **hard: str) -> Object:
    """Return a quota; names with dots or slashes are given as `**{"requests.cpu": "1"}`."""
    return an_object(core.QUOTA, name, spec={"hard": hard})


def a_priority_class(name: str, value: int, **rest: Any) -> Object:
    return an_object(core.PRIORITY_CLASS, name, value=value, **rest)


def owned_by(owner: Object, dependent: Object) -> Object:
    """Return the dependent with an owner reference to a stored object."""
    meta = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "blockOwnerDeletion": True,
    }
    return {**dependent, "metadata": {**dependent["metadata"], "ownerReferences": [reference]}}


# ---------------------------------------------------------------- virtual machines


def a_domain(memory: str = "512Mi", **rest: Any) -> Object:
    return {"devices": {}, "memory": {"guest": memory}, **rest}


def a_vmi(name: str = "web", spec: Object | None = None, **metadata: Any) -> Object:
    """Return an instance, of a domain without disks unless its spec is given."""
    given = spec or {"domain": a_domain()}
    return an_object(kinds.VMI, name, metadata=metadata, spec=given)


def a_vm(
    name: str = "web", strategy: str = "Always", instance: Object | None = None, **spec: Any
) -> Object:
    """Return a VM that boots the test guest, or has the given instance; `spec` adds to its own."""
    template = {"spec": instance or {"domain": a_domain(), "volumes": [dict(ROOT)]}}
    return an_object(kinds.VM, name, spec={"runStrategy": strategy, "template": template, **spec})


def a_halted_vm(name: str, sockets: int = 1, memory: str = "512Mi", **labels: str) -> Object:
    """Return a VM that is not to run, with an empty disk."""
    disks = [{"name": "root", "disk": {"bus": "virtio"}}]
    domain = a_domain(memory, cpu={"sockets": sockets}, devices={"disks": disks})
    volumes = [{"name": "root", "emptyDisk": {"capacity": "1Gi"}}]
    vm = a_vm(name, "Halted", {"domain": domain, "volumes": volumes})
    vm["metadata"]["labels"] = labels
    return vm


def an_unsized_vm(instance: Object | None = None, **spec: Any) -> Object:
    """Return a halted VM that leaves its size to an instance type."""
    return a_vm("web", "Halted", instance or {"domain": {"devices": {}}}, **spec)


def a_type(name: str, cpu: int = 1, memory: str = "512Mi") -> Object:
    """Return an instance type of the cluster."""
    spec = {"cpu": {"guest": cpu}, "memory": {"guest": memory}}
    return an_object(kinds.CLUSTER_INSTANCETYPE, name, spec=spec)
