"""Objects to send, as plain dicts."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def a_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    meta: Object = {"name": name}
    if labels:
        meta["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def a_pod(name: str, **spec: Any) -> Object:
    """A pod for a scheduler that does not exist, so that nobody runs it."""
    containers = [{"name": "main", "image": "none"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "nobody", "containers": containers, **spec},
    }


def a_vm(name: str, sockets: int = 1, memory: str = "512Mi", **labels: str) -> Object:
    """A VM that is not to run."""
    domain = {
        "cpu": {"sockets": sockets},
        "memory": {"guest": memory},
        "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
    }
    volumes = [{"name": "root", "emptyDisk": {"capacity": "1Gi"}}]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "runStrategy": "Halted",
            "template": {"spec": {"domain": domain, "volumes": volumes}},
        },
    }


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
