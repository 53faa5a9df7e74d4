"""Permissions on a cluster: what each component may do, and the roles to grant to users.

Every rule of a component has a reason, which the docs show. There are no wildcards, and no
component reads Secrets other than the one that holds its own certificates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from livevirt.cluster import (
    api,
    api_manifests,
    controller,
    node_endpoint,
    node_manifests,
    webhook,
    webhook_manifests,
)
from livevirt.cluster.crds import CONVERTED
from livevirt.cluster.webhook_manifests import MUTATING, VALIDATING
from livevirt.kube.control.runtime import ROOM
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import controller as config
from livevirt.vm.config.settings import NAMESPACE
from livevirt.vm.instancetypes.rules.inference import DATA_SOURCE, SNAPSHOT
from livevirt.vm.kinds import subresources
from livevirt.vm.kinds.subresources import SUBRESOURCES
from livevirt.vm.monitoring.collector import LEASES

_RBAC = core.CLUSTER_ROLE.group
READ = ("get", "list", "watch")
CACHE = ("list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on resources of one API group, and what they are needed for."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    reason: str = ""
    names: tuple[str, ...] = ()  # of the only objects it holds for
    checked_indirectly: bool = False  # by an admission plugin, so no request shows its use

    def manifest(self) -> Object:
        """Return the rule as a role contains it."""
        found: Object = {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }
        return found | {"resourceNames": list(self.names)} if self.names else found


def rule(
    verbs: Sequence[str], reason: str, *of: Kind, subresource: str = "", names: Iterable[str] = ()
) -> Rule:
    """Return a rule on kinds, which share a group, or on one subresource of them."""
    suffix = f"/{subresource}" if subresource else ""
    resources = tuple(f"{kind.plural}{suffix}" for kind in of)
    return Rule(of[0].group, resources, tuple(verbs), reason, tuple(names))


def _rule_per_group(verbs: Sequence[str], reason: str, *of: Kind) -> list[Rule]:
    """Return a rule on kinds for each of their groups."""
    by_group: dict[str, list[Kind]] = {}
    for kind in of:
        by_group.setdefault(kind.group, []).append(kind)
    return [rule(verbs, reason, *members) for members in by_group.values()]


@dataclass(frozen=True, slots=True)
class Component:
    """A component and its permissions."""

    name: str  # of its service account, its roles and their bindings
    cluster_rules: tuple[Rule, ...]
    namespace_rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    existing_roles: tuple[tuple[str, str], ...] = ()  # namespace and name of roles of Kubernetes

    @property
    def user(self) -> str:
        """The user name of its service account."""
        return f"system:serviceaccount:{NAMESPACE}:{self.name}"


_INSTANCETYPES = (
    kinds.INSTANCETYPE, kinds.CLUSTER_INSTANCETYPE, kinds.PREFERENCE, kinds.CLUSTER_PREFERENCE,
)  # fmt: skip

_OWN_CERTIFICATES, _LOOKED_UP = "its own certificates", "what rules look up"


def _certificate_rules(secret: str) -> tuple[Rule, ...]:
    """Return the rules for the Secret in which a component keeps its certificates."""
    return (
        rule(("create",), _OWN_CERTIFICATES, core.SECRET),
        rule((*CACHE, "update"), _OWN_CERTIFICATES, core.SECRET, names=(secret,)),
    )


def _trusting(kind: Kind, names: Iterable[str]) -> Rule:
    """Return the rule for objects whose CA bundle a component keeps current."""
    return rule((*CACHE, "patch"), "CA bundle", kind, names=names)


API = Component(
    api_manifests.NAME,
    (
        rule(("get", "patch"), "start, stop, restart, addvolume, removevolume, plan", kinds.VM),
        rule(("patch",), "requests to start and stop", kinds.VM, subresource="status"),
        rule(("get", "patch"), "grace periods, volumes of instances without a VM", kinds.VMI),
        rule(("create",), "migrate", kinds.MIGRATION),
        rule(("get",), "feature gates and defaults", kinds.KUBEVIRT),
        rule(("get",), "plan and expand-spec", *_INSTANCETYPES),
        rule(("get",), "plan: the spec a guest was started with", core.REVISION),
        rule(("get", "list"), "plan: capacity of nodes", core.NODE),
        rule(("list",), "plan: what the pods of a node use", core.POD),
        rule(("list",), "plan: what a resize may use", core.QUOTA, core.LIMIT_RANGE),
        rule(("get",), "plan: defaults of the namespace", core.NAMESPACE),
        rule(("get",), "plan: the class that a VM names", core.PRIORITY_CLASS),
        rule(("create",), "authorize users", core.ACCESS_REVIEW),
        rule(("create",), "authenticate clients that read metrics", core.TOKEN_REVIEW),
        _trusting(
            api_manifests.API_SERVICE, map(api_manifests.registration_name, subresources.VERSIONS)
        ),
    ),
    {
        NAMESPACE: (
            *_certificate_rules(api.SECRET),
            rule(("get",), "trust node agents", core.SECRET, names=(node_endpoint.SECRET,)),
            rule(
                ("create",),
                "identify itself to node agents",
                core.SERVICE_ACCOUNT,
                subresource="token",
                names=(api_manifests.NAME,),
            ),
        )
    },
    existing_roles=(("kube-system", "extension-apiserver-authentication-reader"),),
)


_CACHED = (*ROOM, *webhook.LOOKED_UP)
#: What the rules of the webhook only list, which caches answer.
_LISTED = (core.QUOTA, core.LIMIT_RANGE, kinds.MIGRATION)
#: What they look up and no cache holds.
_FETCHED = (core.REVISION, core.CLAIM, kinds.DATA_VOLUME, DATA_SOURCE, SNAPSHOT)

WEBHOOK = Component(
    webhook_manifests.NAME,
    (
        *_rule_per_group(READ, _LOOKED_UP, *(each for each in _CACHED if each not in _LISTED)),
        *_rule_per_group(CACHE, _LOOKED_UP, *_LISTED),
        *_rule_per_group(("get",), _LOOKED_UP, *_FETCHED),
        rule(("patch",), "evictions: mark the instance to be moved", kinds.VMI),
        *(_trusting(kind, (webhook_manifests.NAME,)) for kind in (MUTATING, VALIDATING)),
        _trusting(core.CRD, (kind.resource for kind in CONVERTED)),
    ),
    {NAMESPACE: _certificate_rules(webhook.SECRET)},
)

CONTROLLER = Component(
    controller.NAME,
    (
        rule((*READ, "patch", "update"), "reconcile", kinds.VM),
        rule(("patch",), "report", kinds.VM, kinds.MIGRATION, kinds.KUBEVIRT, subresource="status"),
        rule((*READ, "create", "delete", "patch"), "reconcile", kinds.VMI, kinds.MIGRATION),
        rule(READ, "feature gates and defaults", kinds.KUBEVIRT),
        rule(CACHE, "policies of migrations", kinds.MIGRATION_POLICY),
        rule((*CACHE, "create"), "dataVolumeTemplates", kinds.DATA_VOLUME),
        rule(READ, "sizes of VMs", *_INSTANCETYPES),
        rule((*READ, "create", "delete"), "records of starts and instance types", core.REVISION),
        rule((*READ, "create", "delete", "patch"), "launcher pods and their labels", core.POD),
        rule(("patch",), "live CPU and memory", core.POD, subresource="resize"),
        rule(("create",), "workload updates", core.POD, subresource="eviction"),
        rule(READ, "volumes", core.CLAIM),
        rule(CACHE, "placement and resizes", core.NODE, core.QUOTA, core.LIMIT_RANGE),
        rule(READ, "labels and rollout strategies of namespaces", core.NAMESPACE),
        rule(CACHE, "VMs that name one", core.PRIORITY_CLASS),
        rule(("create", "patch"), "events", core.EVENT),
        replace(
            rule(("update",), "owners of pods, instances and volumes, which admission may check",
                 kinds.VM, kinds.VMI, subresource="finalizers"),
            checked_indirectly=True,
        ),
    ),
    {
        NAMESPACE: (
            rule(("create",), "leader election", core.LEASE),
            rule(("get", "update"), "leader election", core.LEASE, names=(controller.NAME,)),
        ),
        LEASES: (rule(("list",), "metrics of nodes", core.LEASE),),
    },
)  # fmt: skip

#: Agents read objects of all nodes: RBAC cannot limit a DaemonSet's pod to those of its own node.
NODE = Component(
    node_manifests.NAME,
    (
        rule(("get", "patch"), "labels and heartbeat of its node", core.NODE),
        rule(READ, "pods of its node", core.POD),
        rule(("patch",), "readiness of guests", core.POD, subresource="status"),
        rule((*READ, "patch"), "guests, and their status", kinds.VMI),
        rule(READ, "disks of guests", core.CLAIM),
        rule(READ, "disks that are still being filled", kinds.DATA_VOLUME),
        rule(("create", "patch"), "events", core.EVENT),
        rule(("create",), "authenticate the API server of livevirt", core.TOKEN_REVIEW),
    ),
    {NAMESPACE: _certificate_rules(node_endpoint.SECRET)},
)

#: Every component that `livevirt install` sets up.
COMPONENTS: tuple[Component, ...] = (CONTROLLER, WEBHOOK, API, NODE)


def merged(first: Component, *others: Component) -> Component:
    """Return a component that has the permissions of several, under the name of the first."""
    every = (first, *others)
    namespaces = dict.fromkeys(name for each in every for name in each.namespace_rules)
    return Component(
        first.name,
        tuple(rule for each in every for rule in each.cluster_rules),
        {
            name: tuple(rule for each in every for rule in each.namespace_rules.get(name, ()))
            for name in namespaces
        },
        tuple(role for each in every for role in each.existing_roles),
    )


def component_manifests(component: Component) -> list[Object]:
    """Return the service account of a component, its roles and their bindings."""
    name = component.name
    found: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": core.SERVICE_ACCOUNT.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
        },
        _role(name, component.cluster_rules),
        _binding(name, _account(name), core.CLUSTER_ROLE.kind, name),
    ]
    for namespace, rules in component.namespace_rules.items():
        found.append(_role(name, rules, namespace))
        found.append(_binding(name, _account(name), core.ROLE.kind, name, namespace))
    for namespace, role in component.existing_roles:
        found.append(_binding(name, _account(name), core.ROLE.kind, role, namespace))
    return found


def _role(name: str, rules: Iterable[Rule], namespace: str = "") -> Object:
    kind = core.ROLE if namespace else core.CLUSTER_ROLE
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "rules": [each.manifest() for each in rules],
    }


def _binding(
    name: str, subjects: list[Object], role_kind: str, role: str, namespace: str = ""
) -> Object:
    kind = core.ROLE_BINDING if namespace else core.CLUSTER_ROLE_BINDING
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": subjects,
    }


def _account(name: str) -> list[Object]:
    return [{"kind": core.SERVICE_ACCOUNT.kind, "name": name, "namespace": NAMESPACE}]


# ---------------------------------------------------------------- roles of users

_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_EVERYBODY = ("system:authenticated", "system:unauthenticated")
_MACHINES = (kinds.VM, kinds.VMI)
_OWN_SIZES = (kinds.INSTANCETYPE, kinds.PREFERENCE)
#: Subresources that change nothing, whatever their verb is.
_READ_ONLY = ("expand-spec", "expand-vm-spec", "filesystemlist", "guestosinfo", "plan", "userlist")
_MIGRATE = ("migrate",)


def _subresource_rules(names: Iterable[str] | None = None) -> tuple[Rule, ...]:
    """Return rules for the subresources of these names, or for all but migrations."""
    by_verb: dict[str, list[str]] = {}
    for each in SUBRESOURCES:
        if each.name in names if names is not None else each.name not in _MIGRATE:
            by_verb.setdefault(each.verb, []).append(each.path)
    return tuple(
        Rule(subresources.GROUP, tuple(paths), (verb,)) for verb, paths in sorted(by_verb.items())
    )


VIEW_RULES: tuple[Rule, ...] = (
    rule(READ, "", *_MACHINES, kinds.MIGRATION),
    rule(("get", "list"), "", kinds.KUBEVIRT),
    rule(READ, "", *_OWN_SIZES),
    rule(READ, "", kinds.DATA_VOLUME),
    rule(READ, "", kinds.MIGRATION_POLICY),
    *_subresource_rules(_READ_ONLY),
)
EDIT_RULES: tuple[Rule, ...] = (
    rule((*READ, "create", "delete", "patch", "update"), "", *_MACHINES),
    rule(READ, "", kinds.MIGRATION),
    rule(("get", "list"), "", kinds.KUBEVIRT),
    rule((*READ, "create", "delete", "patch", "update"), "", *_OWN_SIZES),
    rule((*READ, "create", "delete", "patch", "update"), "", kinds.DATA_VOLUME),
    rule(READ, "", kinds.MIGRATION_POLICY),
    *_subresource_rules(),
)
ADMIN_RULES: tuple[Rule, ...] = (
    rule((*READ, *_WRITE), "", *_MACHINES),
    rule(READ, "", kinds.MIGRATION),
    rule(("get", "list"), "", kinds.KUBEVIRT),
    rule((*READ, *_WRITE), "", *_OWN_SIZES),
    rule((*READ, *_WRITE), "", kinds.DATA_VOLUME),
    rule(READ, "", kinds.MIGRATION_POLICY),
    *_subresource_rules(),
)
MIGRATE_RULES: tuple[Rule, ...] = (
    rule((*READ, *_WRITE), "", kinds.MIGRATION),
    *_subresource_rules(_MIGRATE),
)
#: Clients ask for the version before anything else, and do not wait for a login.
DEFAULT_RULES: tuple[Rule, ...] = (Rule(subresources.GROUP, ("version",), ("get", "list")),)


def user_manifests() -> list[Object]:
    """Return the roles to grant to users, and those that everybody has."""
    aggregated = {"admin": ADMIN_RULES, "edit": EDIT_RULES, "view": VIEW_RULES}
    found = []
    for name, rules in aggregated.items():
        role = _role(f"kubevirt.io:{name}", rules)
        role["metadata"]["labels"] = {f"{_AGGREGATE}{name}": "true"}
        found.append(role)
    found.append(_role("kubevirt.io:migrate", MIGRATE_RULES))
    found.append(_role("kubevirt.io:default", DEFAULT_RULES))
    everybody: list[Object] = [
        {"apiGroup": _RBAC, "kind": "Group", "name": group} for group in _EVERYBODY
    ]
    name = "kubevirt.io:default"
    found.append(_binding(name, everybody, core.CLUSTER_ROLE.kind, name))
    name = config.VIEW_ROLE["metadata"]["name"]
    found.append(config.VIEW_ROLE)
    found.append(_binding(name, everybody[:1], core.CLUSTER_ROLE.kind, name))
    return found
