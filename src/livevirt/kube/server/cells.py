"""Columns of the built-in kinds and their cells, as `kubectl get` prints them.

Pods are summarised in `pod_cells`; the kinds of storage are in `storage_cells`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from livevirt.kube.objects.kind import Column
from livevirt.kube.objects.times import age
from livevirt.kube.server.pod_cells import readiness_gates, summarize

Object = dict[str, Any]
Cells = list[Any]

NONE, UNKNOWN = "<none>", "<unknown>"

NAME = Column("Name", format="name", description="the object's name, unique among its kind")
AGE = Column("Age", description="how long ago the object was created")
CREATED = Column("Created At", type="date", description="when the object was created")


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of a kind and the function that fills a row of them."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, datetime], Cells]


_SHOWN, _UNSET = 3, "<unset>"  # addresses of an EndpointSlice, as kubectl shows them


def wide(name: str, description: str = "") -> Column:
    """Return a column that shows with `-o wide` only."""
    return Column(name, priority=1, description=description)


def name(obj: Object) -> str:
    """Return the object's name."""
    return str(obj["metadata"].get("name", ""))


def age_of(obj: Object, now: datetime) -> str:
    """Return how long ago the object was created."""
    return age(obj["metadata"].get("creationTimestamp"), now)


def _pod(pod: Object, now: datetime) -> Cells:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    summary = summarize(pod)
    restarts = str(summary.restarts)
    if summary.restarts and summary.restarted_at:
        restarts += f" ({age(summary.restarted_at, now)} ago)"
    addresses = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return [
        name(pod),
        f"{summary.ready}/{summary.total}",
        summary.reason,
        restarts,
        age_of(pod, now),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        readiness_gates(pod),
    ]


def _node(node: Object, now: datetime) -> Cells:
    status = node.get("status") or {}
    ready = [c for c in status.get("conditions") or [] if c.get("type") == "Ready"]
    states = ["Ready" if c.get("status") == "True" else "NotReady" for c in ready] or ["Unknown"]
    if (node.get("spec") or {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    info = status.get("nodeInfo") or {}
    addresses = {a.get("type"): a.get("address") for a in reversed(status.get("addresses") or [])}
    return [
        name(node),
        ",".join(states),
        ",".join(sorted(_roles(node))) or NONE,
        age_of(node, now),
        info.get("kubeletVersion") or "",
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _roles(node: Object) -> set[str]:
    roles = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        prefix, _, role = key.partition("/")
        if prefix == "node-role.kubernetes.io" and role:
            roles.add(role)
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return roles


def _event(event: Object, now: datetime) -> Cells:
    about = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    series = event.get("series")
    first = age(_either(event, "firstTimestamp", "deprecatedFirstTimestamp", "eventTime"), now)
    last_at = _either(event, "lastTimestamp", "deprecatedLastTimestamp")
    last = age(last_at, now) if last_at else first
    count = _either(event, "count", "deprecatedCount") or 1
    if series:
        last, count = age(series.get("lastObservedTime"), now), series.get("count", 0)
    component = source.get("component") or _either(
        event, "reportingComponent", "reportingController"
    )
    host = source.get("host") or event.get("reportingInstance")
    return [
        last,
        event.get("type") or "",
        event.get("reason") or "",
        "/".join(part for part in (about.get("kind", "").lower(), about.get("name")) if part),
        about.get("fieldPath") or "",
        ", ".join(part for part in (component or "", host) if part),
        str(_either(event, "message", "note") or "").strip(),
        first,
        count,
        name(event),
    ]


def _either(obj: Object, *names: str) -> Any:
    return next((obj[name] for name in names if obj.get(name)), None)


def _quota(quota: Object, now: datetime) -> Cells:
    status = quota.get("status") or {}
    used = status.get("used") or {}
    parts = [
        (name.startswith("limits."), f"{name}: {used.get(name, '0')}/{hard}")
        for name, hard in sorted((status.get("hard") or {}).items())
    ]
    return [
        name(quota),
        ", ".join(text for is_limit, text in parts if not is_limit),
        ", ".join(text for is_limit, text in parts if is_limit),
        age_of(quota, now),
    ]


def _revision(revision: Object, now: datetime) -> Cells:
    owners = revision["metadata"].get("ownerReferences") or []
    owner = next((o for o in owners if o.get("controller")), None)
    controller = NONE
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        kind = f"{owner.get('kind', '')}.{group}" if group else owner.get("kind", "")
        controller = f"{kind.lower()}/{owner.get('name', '')}"
    return [name(revision), controller, revision.get("revision", 0), age_of(revision, now)]


def _binding(binding: Object, now: datetime) -> Cells:
    role = binding.get("roleRef") or {}
    subjects = binding.get("subjects") or []

    def named(kind: str) -> str:
        found = [s for s in subjects if s.get("kind") == kind]
        account = kind == "ServiceAccount"
        return ", ".join(
            f"{s.get('namespace')}/{s['name']}" if account else s["name"] for s in found
        )

    return [
        name(binding),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age_of(binding, now),
        named("User"),
        named("Group"),
        named("ServiceAccount"),
    ]


def _created(obj: Object, _: datetime) -> Cells:
    return [name(obj), obj["metadata"].get("creationTimestamp")]


def _namespace(namespace: Object, now: datetime) -> Cells:
    return [
        name(namespace), (namespace.get("status") or {}).get("phase") or "", age_of(namespace, now)
    ]  # fmt: skip


def _config_map(config: Object, now: datetime) -> Cells:
    entries = len(config.get("data") or {}) + len(config.get("binaryData") or {})
    return [name(config), entries, age_of(config, now)]


def _secret(secret: Object, now: datetime) -> Cells:
    return [
        name(secret), secret.get("type") or "", len(secret.get("data") or {}), age_of(secret, now)
    ]  # fmt: skip


def _service(service: Object, now: datetime) -> Cells:
    spec, status = service.get("spec") or {}, service.get("status") or {}
    balanced = (status.get("loadBalancer") or {}).get("ingress") or []
    reached = [each.get("ip") or each.get("hostname") for each in balanced]
    if spec.get("type") == "ExternalName":
        reached = [spec.get("externalName")]
    elif spec.get("type") == "LoadBalancer" and not reached:
        reached = [*(spec.get("externalIPs") or ()), "<pending>"]
    ports = (
        f"{each.get('port')}{':' + str(each['nodePort']) if each.get('nodePort') else ''}"
        f"/{each.get('protocol')}"
        for each in spec.get("ports") or ()
    )
    chosen = sorted((spec.get("selector") or {}).items())
    return [
        name(service),
        spec.get("type") or "",
        spec.get("clusterIP") or NONE,
        ",".join(filter(None, reached or spec.get("externalIPs") or ())) or NONE,
        ",".join(ports) or NONE,
        age_of(service, now),
        ",".join(f"{key}={value}" for key, value in chosen) or NONE,
    ]


def _endpoint_slice(found: Object, now: datetime) -> Cells:
    ports = [str(each["port"]) for each in found.get("ports") or () if each.get("port")]
    addresses = [at for each in found.get("endpoints") or () for at in each.get("addresses") or ()]
    more = f" + {len(addresses) - _SHOWN} more..." if len(addresses) > _SHOWN else ""
    return [
        name(found),
        found.get("addressType") or "",
        ",".join(ports) or _UNSET,
        ",".join(addresses[:_SHOWN]) + more or _UNSET,
        age_of(found, now),
    ]


def _lease(lease: Object, now: datetime) -> Cells:
    return [name(lease), (lease.get("spec") or {}).get("holderIdentity") or "", age_of(lease, now)]


def _priority_class(class_: Object, now: datetime) -> Cells:
    return [
        name(class_),
        class_.get("value", 0),
        bool(class_.get("globalDefault")),
        age_of(class_, now),
        class_.get("preemptionPolicy") or "",
    ]


def _named(obj: Object, now: datetime) -> Cells:
    return [name(obj), age_of(obj, now)]


DEFAULT = Printer((NAME, CREATED), _created)

_EVENT = Printer(
    (
        Column("Last Seen", description="how long ago it last happened"),
        Column("Type", description="Normal or Warning"),
        Column("Reason", description="why, in CamelCase"),
        Column("Object", description="what it happened to"),
        wide("Subobject", "the part of the object it happened to"),
        wide("Source", "component that reports it"),
        Column("Message", description="what happened"),
        wide("First Seen", "how long ago it first happened"),
        wide("Count", "how often it happened"),
        wide("Name", "the event's own name"),
    ),
    _event,
)
_RBAC_BINDING = Printer(
    (
        NAME,
        Column("Role", description="the role that is granted"),
        AGE,
        wide("Users"),
        wide("Groups"),
        wide("ServiceAccounts"),
    ),
    _binding,
)
_RBAC = "rbac.authorization.k8s.io"

PRINTERS: dict[tuple[str, str], Printer] = {
    ("", "Pod"): Printer(
        (
            NAME,
            Column("Ready", description="containers that are ready, of all"),
            Column("Status", description="the state of the pod"),
            Column("Restarts", description="how often its containers were started again"),
            AGE,
            wide("IP", "the pod's address"),
            wide("Node", "the node it runs on"),
            wide("Nominated Node", "the node that is being cleared for it"),
            wide("Readiness Gates", "extra conditions that are met, of all"),
        ),
        _pod,
    ),
    ("", "Node"): Printer(
        (
            NAME,
            Column("Status", description="whether the node takes pods"),
            Column("Roles", description="what its labels say it is for"),
            AGE,
            Column("Version", description="the version of its agent"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ),
        _node,
    ),
    ("", "Namespace"): Printer(
        (NAME, Column("Status", description="Active or Terminating"), AGE), _namespace
    ),
    ("", "ConfigMap"): Printer(
        (NAME, Column("Data", description="how many entries it has"), AGE), _config_map
    ),
    ("", "Secret"): Printer(
        (
            NAME,
            Column("Type", description="what kind of secret it is"),
            Column("Data", description="how many entries it has"),
            AGE,
        ),
        _secret,
    ),
    ("", "Service"): Printer(
        (
            NAME,
            Column("Type", description="how the service is reached"),
            Column("Cluster-IP", description="its address"),
            Column("External-IP", description="the addresses it has outside of the cluster"),
            Column("Port(s)", description="the ports it is reached at"),
            AGE,
            wide("Selector", "labels of the pods it stands for"),
        ),
        _service,
    ),
    ("", "ServiceAccount"): Printer((NAME, AGE), _named),
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): _EVENT,
    ("", "ResourceQuota"): Printer(
        (
            NAME,
            Column("Request", description="used and hard limits of requests and counts"),
            Column("Limit", description="used and hard limits of limits"),
            AGE,
        ),
        _quota,
    ),
    ("apps", "ControllerRevision"): Printer(
        (
            NAME,
            Column("Controller", description="the object it belongs to"),
            Column("Revision", description="its number"),
            AGE,
        ),
        _revision,
    ),
    ("coordination.k8s.io", "Lease"): Printer(
        (NAME, Column("Holder", description="who holds it"), AGE), _lease
    ),
    ("discovery.k8s.io", "EndpointSlice"): Printer(
        (
            NAME,
            Column("AddressType", description="IPv4 or IPv6"),
            Column("Ports", description="the ports of its pods"),
            Column("Endpoints", description="the addresses of its pods"),
            AGE,
        ),
        _endpoint_slice,
    ),
    (_RBAC, "RoleBinding"): _RBAC_BINDING,
    (_RBAC, "ClusterRoleBinding"): _RBAC_BINDING,
    ("scheduling.k8s.io", "PriorityClass"): Printer(
        (
            NAME,
            Column("Value", type="integer", description="the priority of its pods"),
            Column("Global-Default", description="whether pods that name no class get it"),
            AGE,
            Column("PreemptionPolicy", description="PreemptLowerPriority or Never"),
        ),
        _priority_class,
    ),
}
