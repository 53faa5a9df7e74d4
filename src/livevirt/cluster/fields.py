"""The fields that the caches of a component keep of each object.

A cluster has many pods that run no guest; only what they take of their node matters. They need no
`managedFields`, which is often the larger half of an object.
"""

from __future__ import annotations

from collections.abc import Iterable

from livevirt.kube.control.informer import Transform
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi.launcher import CREATED_BY
from livevirt.vm.volumes.attachment_pods import is_attachment

_POD_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp",
    "labels", "ownerReferences",
)  # fmt: skip
_POD_SPEC = ("nodeName", "nodeSelector", "containers", "initContainers", "overhead", "resources")
_POD_STATUS = ("phase", "conditions", "containerStatuses", "initContainerStatuses", "resources")
_CONTAINER = ("name", "resources", "restartPolicy")
_CONTAINER_STATUS = ("name", "resources", "allocatedResources")
_NODE_STATUS = ("capacity", "allocatable", "conditions", "addresses", "nodeInfo")


def transform(kind: Kind) -> Transform:
    """Return the function that reduces objects of a kind to the fields that are used."""
    return {core.POD.resource: _pod, core.NODE.resource: _node}.get(kind.resource, _any)


def _any(obj: Object) -> Object:
    obj["metadata"].pop("managedFields", None)
    return obj


def _node(node: Object) -> Object:
    return _any(node) | {"status": _only(node.get("status"), _NODE_STATUS)}


def _pod(pod: Object) -> Object:
    if CREATED_BY in (pod["metadata"].get("labels") or {}) or is_attachment(pod):
        return _any(pod)
    spec, status = _only(pod.get("spec"), _POD_SPEC), _only(pod.get("status"), _POD_STATUS)
    for name in ("containers", "initContainers"):
        spec |= _each(spec, name, _CONTAINER)
    for name in ("containerStatuses", "initContainerStatuses"):
        status |= _each(status, name, _CONTAINER_STATUS)
    return {
        "apiVersion": pod.get("apiVersion"),
        "kind": pod.get("kind"),
        "metadata": _only(pod["metadata"], _POD_METADATA),
        "spec": spec,
        "status": status,
    }


def _only(fields: Object | None, names: Iterable[str]) -> Object:
    return {name: fields[name] for name in names if name in fields} if fields else {}


def _each(fields: Object, name: str, names: Iterable[str]) -> Object:
    return {name: [_only(each, names) for each in fields[name]]} if fields.get(name) else {}
