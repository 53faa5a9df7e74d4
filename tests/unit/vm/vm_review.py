"""Takes writes of virtual machines as a server would, and says what their rules say."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.review import Review
from livevirt.vm.admission import RULES
from livevirt.vm.kinds import KUBEVIRT, VM, VMI

NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
JANE = User("jane")
COMPONENT = User("system:serviceaccount:kubevirt:livevirt-controller")

LIVE: Object = {
    "developerConfiguration": {"featureGates": ["VMLiveUpdateFeatures", "InjectEjectCDROM"]},
    "vmRolloutStrategy": "LiveUpdate",
}
STAGE: Object = {"vmRolloutStrategy": "Stage"}


class Cluster:
    """Only knows its KubeVirt object."""

    def __init__(self, settings: Object) -> None:
        self.settings = settings

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        return {"spec": {"configuration": self.settings}} if kind is KUBEVIRT else None

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        return []


def review(
    kind: Kind,
    new: Object,
    old: Object | None = None,
    *,
    user: User = JANE,
    settings: Object = LIVE,
) -> tuple[Object, list[FieldError], list[str]]:
    """Return the object as it would be stored, what is wrong with it, and the warnings."""
    rules = RULES[kind.resource]
    asked = Review(
        "create" if old is None else "update", kind, kind.version, copy.deepcopy(new), old, user,
        Cluster(settings), NOON,
    )  # fmt: skip
    rules.default(asked.new)
    rules.prepare(asked)
    return asked.new, rules.validate(asked), asked.warnings


def a_spec(**rest: Any) -> Object:
    """An instance's spec; `devices` and other parts of the domain may be given by name."""
    domain: Object = {"devices": rest.pop("devices", {}), "memory": {"guest": "1Gi"}}
    for name in ("cpu", "memory", "resources", "machine", "firmware"):
        if name in rest:
            domain[name] = rest.pop(name)
    return {"domain": domain, **rest}


def a_vm(spec: Object | None = None, **rest: Any) -> Object:
    given: Object = {"runStrategy": "Halted", "template": {"spec": spec or a_spec()}, **rest}
    return {
        "apiVersion": VM.api_version,
        "kind": VM.kind,
        "metadata": {"name": "web", "namespace": "default", "uid": "v1"},
        "spec": given,
    }


def a_vmi(spec: Object | None = None, **meta: Any) -> Object:
    return {
        "apiVersion": VMI.api_version,
        "kind": VMI.kind,
        "metadata": {"name": "web", "namespace": "default", "uid": "i1", **meta},
        "spec": spec or a_spec(),
    }
