"""The webhook as Kubernetes objects: Service, webhook configurations and how to reach it.

Validation and defaulting fail closed: without them an object that no rule has checked would be
stored. So do the webhooks for evictions of launcher pods, without which a guest would end with its
pod instead of migrating, and for deletions of attachment pods, without which it would lose a disk
in use. Warnings only inform, so they fail open. No webhook has side effects
except the one for evictions, which marks the instance of the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.kinds.support import COMPONENTS
from livevirt.vm.volumes.attachment_pods import ATTACHMENT, LABEL
from livevirt.vm.volumes.attachment_pods import PREFIX as ATTACHMENT_PREFIX

NAMESPACE = "kubevirt"
LAUNCHER_PREFIX = "virt-launcher-"  # of the names of pods that run guests
NAME = "livevirt-webhook"
PORT = 8443  # of the pods; the Service has 443
LABELS = {"app.kubernetes.io/name": "livevirt", "app.kubernetes.io/component": "webhook"}

DEFAULT_PATH = "/default"
VALIDATE_PATH = "/validate"
WARN_PATH = "/warn"
EVICT_PATH = "/evict"
DETACH_PATH = "/detach"
CONVERT_PATH = "/convert"

_GROUP = "admissionregistration.k8s.io"
MUTATING = Kind(
    _GROUP, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", ("v1",), "",
    namespaced=False,
)  # fmt: skip
VALIDATING = Kind(
    _GROUP, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", ("v1",), "",
    namespaced=False,
)  # fmt: skip

#: Kinds whose rules set fields, and on which writes.
_DEFAULTED: Mapping[Kind, tuple[str, ...]] = {
    kinds.VM: ("CREATE",),
    kinds.VMI: ("CREATE", "UPDATE"),
    kinds.MIGRATION: ("CREATE", "UPDATE"),
    kinds.INSTANCETYPE: ("CREATE", "UPDATE"),
    kinds.CLUSTER_INSTANCETYPE: ("CREATE", "UPDATE"),
}
#: Seconds a write waits for an answer. A warning is not worth a long wait.
_PATIENCE = {"Fail": 10, "Ignore": 3}
_SPEC_UNCHANGED = (
    "has(object.spec) && has(oldObject.spec) && object.spec == oldObject.spec"
    " && object.metadata.?labels == oldObject.metadata.?labels"
)
_OURS = f"request.userInfo.username.startsWith('{COMPONENTS}')"
#: Our components report status all the time; that must neither cost a call nor need the webhook.
_NO_REPORT: Object = {
    "name": "not-a-status-report",
    "expression": f"!(request.operation == 'UPDATE' && {_OURS} && {_SPEC_UNCHANGED})",
}
#: So that evictions of other pods never wait for the webhook.
_GUESTS_ONLY: Object = {
    "name": "pods-of-guests-only",
    "expression": f"request.name.startsWith('{LAUNCHER_PREFIX}')"
    f" || request.name.startsWith('{ATTACHMENT_PREFIX}')",
}
_ATTACHMENTS_ONLY: Object = {
    "name": "attachment-pods-only",
    "expression": f"request.name.startsWith('{ATTACHMENT_PREFIX}')",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where kube-apiserver reaches the webhook: a URL, or the Service if there is none."""

    url: str = ""
    name: str = NAME
    namespace: str = NAMESPACE

    @property
    def server_names(self) -> tuple[str, ...]:
        """The DNS names of the Service."""
        return (f"{self.name}.{self.namespace}.svc", f"{self.name}.{self.namespace}")

    def client_config(self, path: str) -> Object:
        """Return the `clientConfig` for a path; the webhook itself fills in its CA bundle."""
        if self.url:
            return {"url": self.url.rstrip("/") + path}
        service = {"name": self.name, "namespace": self.namespace, "path": path, "port": 443}
        return {"service": service}


def manifests(endpoint: Endpoint) -> list[Object]:
    """Return the objects that make a cluster call the webhook, in the order to apply them."""
    found = [] if endpoint.url else [service(endpoint)]
    return [*found, mutating_configuration(endpoint), validating_configuration(endpoint)]


def service(endpoint: Endpoint) -> Object:
    """Return the Service in front of the webhook's pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": endpoint.name, "namespace": endpoint.namespace, "labels": LABELS},
        "spec": {
            "selector": LABELS,
            "ports": [{"name": "https", "port": 443, "targetPort": PORT, "protocol": "TCP"}],
        },
    }


def mutating_configuration(endpoint: Endpoint) -> Object:
    """Return the configuration of the webhook that sets defaults."""
    rules = [_rule(kind, operations) for kind, operations in _DEFAULTED.items()]
    rules.append(_rule(kinds.MIGRATION, ("UPDATE",), "status"))
    webhook = _webhook("default", endpoint.client_config(DEFAULT_PATH), rules, "Fail")
    return _configuration(MUTATING, endpoint, [webhook])


def validating_configuration(endpoint: Endpoint) -> Object:
    """Return the configuration of the webhooks that refuse writes and warn."""
    checked = list(_checked())
    config = endpoint.client_config
    eviction = _webhook("evict", config(EVICT_PATH), [_rule_of_evictions()], "Fail")
    eviction |= {"sideEffects": "NoneOnDryRun", "matchConditions": [_GUESTS_ONLY]}
    detachment = _webhook("detach", config(DETACH_PATH), [_rule(core.POD, ("DELETE",))], "Fail")
    detachment |= {
        "matchConditions": [_ATTACHMENTS_ONLY],
        "objectSelector": {"matchLabels": {LABEL: ATTACHMENT}},
    }
    webhooks = [
        _webhook("validate", config(VALIDATE_PATH), checked, "Fail"),
        _webhook("warn", config(WARN_PATH), checked, "Ignore"),
        eviction,
        detachment,
    ]
    return _configuration(VALIDATING, endpoint, webhooks)


def _checked() -> Iterator[Object]:
    for kind in kinds.KINDS:
        yield _rule(kind, ("CREATE", "UPDATE"))
    # What a VM is sized by is in its status; a user who edits that resizes the VM.
    yield _rule(kinds.VM, ("UPDATE",), "status")


def _rule(kind: Kind, operations: Iterable[str], subresource: str = "") -> Object:
    return {
        "apiGroups": [kind.group],
        "apiVersions": list(kind.versions),
        "resources": [f"{kind.plural}/{subresource}" if subresource else kind.plural],
        "operations": list(operations),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
    }


def _rule_of_evictions() -> Object:
    return {
        "apiGroups": [core.POD.group],
        "apiVersions": list(core.POD.versions),
        "resources": [f"{core.POD.plural}/eviction"],
        "operations": ["CREATE"],
        "scope": "Namespaced",
    }


def _webhook(name: str, client_config: Object, rules: list[Object], policy: str) -> Object:
    return {
        "name": f"{name}.livevirt.io",
        "clientConfig": client_config,
        "rules": rules,
        "failurePolicy": policy,
        "matchPolicy": "Equivalent",
        "matchConditions": [_NO_REPORT],
        "sideEffects": "None",
        "timeoutSeconds": _PATIENCE[policy],
        "admissionReviewVersions": ["v1"],
    }


def _configuration(kind: Kind, endpoint: Endpoint, webhooks: list[Object]) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": endpoint.name, "labels": LABELS},
        "webhooks": webhooks,
    }
