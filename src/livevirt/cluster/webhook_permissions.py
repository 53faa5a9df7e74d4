"""What the webhook may do in a cluster: its service account, roles and bindings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from livevirt.cluster.crds import CONVERTED
from livevirt.cluster.webhook import LOOKED_UP, SECRET
from livevirt.cluster.webhook_manifests import LABELS, MUTATING, VALIDATING, Endpoint
from livevirt.kube.control.runtime import ROOM
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.instancetypes.rules.inference import DATA_SOURCE, SNAPSHOT

_RBAC = core.CLUSTER_ROLE.group
_WATCHED = ("list", "watch")
#: Read when a rule looks them up and no cache has them.
_FETCHED = (
    core.REVISION, core.CLAIM, core.STORAGE_CLASS, kinds.DATA_VOLUME, DATA_SOURCE, SNAPSHOT,
)  # fmt: skip


def permissions(endpoint: Endpoint) -> list[Object]:
    """Return the webhook's service account with everything it is allowed to do."""
    cached = (*ROOM, *LOOKED_UP)
    cluster_wide = [
        *_rules(cached, ("get", *_WATCHED)),
        *_rules(_FETCHED, ("get",)),
        *_rules((kinds.VMI,), ("patch",)),  # marks the instance of an evicted pod
        *_rules((MUTATING, VALIDATING), (*_WATCHED, "patch"), [endpoint.name]),
        *_rules((core.CRD,), (*_WATCHED, "patch"), [kind.resource for kind in CONVERTED]),
    ]
    own = [
        *_rules((core.SECRET,), ("create",)),
        *_rules((core.SECRET,), (*_WATCHED, "update"), [SECRET]),
    ]
    account = _object(core.SERVICE_ACCOUNT, endpoint, namespaced=True)
    return [
        account,
        _object(core.CLUSTER_ROLE, endpoint) | {"rules": cluster_wide},
        _bound(core.CLUSTER_ROLE_BINDING, core.CLUSTER_ROLE, endpoint),
        _object(core.ROLE, endpoint, namespaced=True) | {"rules": own},
        _bound(core.ROLE_BINDING, core.ROLE, endpoint, namespaced=True),
    ]


def _rules(kinds_: Iterable[Kind], verbs: Sequence[str], names: Sequence[str] = ()) -> list[Object]:
    """Return one rule for each group."""
    by_group: dict[str, list[str]] = {}
    for kind in kinds_:
        by_group.setdefault(kind.group, []).append(kind.plural)
    return [
        {"apiGroups": [group], "resources": sorted(set(resources)), "verbs": list(verbs)}
        | ({"resourceNames": list(names)} if names else {})
        for group, resources in by_group.items()
    ]


def _object(kind: Kind, endpoint: Endpoint, *, namespaced: bool = False) -> Object:
    meta: Object = {"name": endpoint.name, "labels": LABELS}
    if namespaced:
        meta["namespace"] = endpoint.namespace
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}


def _bound(kind: Kind, role: Kind, endpoint: Endpoint, *, namespaced: bool = False) -> Object:
    subject = {
        "kind": core.SERVICE_ACCOUNT.kind, "name": endpoint.name, "namespace": endpoint.namespace,
    }  # fmt: skip
    return _object(kind, endpoint, namespaced=namespaced) | {
        "roleRef": {"apiGroup": _RBAC, "kind": role.kind, "name": endpoint.name},
        "subjects": [subject],
    }
