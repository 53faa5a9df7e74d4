"""The kinds every Kubernetes API server has: constants such as `POD` and `NODE`."""

from __future__ import annotations

from livevirt.kube.objects.kind import Column, Kind, Subresource

STATUS = Subresource("status")
_CREATE = ("create",)


def _sub(
    name: str, kind: str = "", group: str = "", version: str = "", verbs: tuple[str, ...] = _CREATE
) -> Subresource:
    return Subresource(name, kind, group, version, verbs)


AGE = Column("Age", ".metadata.creationTimestamp", "date")

# ---------------------------------------------------------------- core

NAMESPACE = Kind(
    "", "Namespace", "namespaces", ("v1",), "core.Namespace", short=("ns",), namespaced=False,
    verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    subresources=(STATUS, _sub("finalize", verbs=("update",))),
    selectable=("status.phase",),
)  # fmt: skip
NODE = Kind(
    "", "Node", "nodes", ("v1",), "core.Node", short=("no",), namespaced=False,
    subresources=(STATUS,), selectable=("spec.unschedulable",),
)  # fmt: skip
POD = Kind(
    "", "Pod", "pods", ("v1",), "core.Pod", short=("po",), categories=("all",),
    subresources=(
        STATUS,
        Subresource("resize"),
        _sub("binding", "Binding"),
        _sub("eviction", "Eviction", "policy", "v1"),
        _sub("log", verbs=("get",)),
    ),
    selectable=(
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
    ),
)  # fmt: skip
CLAIM = Kind(
    "", "PersistentVolumeClaim", "persistentvolumeclaims", ("v1",), "core.PersistentVolumeClaim",
    short=("pvc",), subresources=(STATUS,),
)  # fmt: skip
VOLUME = Kind(
    "", "PersistentVolume", "persistentvolumes", ("v1",), "core.PersistentVolume", short=("pv",),
    namespaced=False, subresources=(STATUS,),
)  # fmt: skip
SERVICE = Kind(
    "", "Service", "services", ("v1",), "core.Service", short=("svc",), categories=("all",),
    subresources=(STATUS,), selectable=("spec.clusterIP", "spec.type"),
)  # fmt: skip
SECRET = Kind("", "Secret", "secrets", ("v1",), "core.Secret", selectable=("type",))
CONFIG_MAP = Kind("", "ConfigMap", "configmaps", ("v1",), "core.ConfigMap", short=("cm",))
SERVICE_ACCOUNT = Kind(
    "", "ServiceAccount", "serviceaccounts", ("v1",), "core.ServiceAccount", short=("sa",),
    subresources=(_sub("token", "TokenRequest", "authentication.k8s.io", "v1"),),
)  # fmt: skip
EVENT = Kind(
    "", "Event", "events", ("v1",), "core.Event", short=("ev",),
    selectable=(
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
        "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
        "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
    ),
)  # fmt: skip
QUOTA = Kind(
    "", "ResourceQuota", "resourcequotas", ("v1",), "core.ResourceQuota", short=("quota",),
    subresources=(STATUS,),
)  # fmt: skip
LIMIT_RANGE = Kind("", "LimitRange", "limitranges", ("v1",), "core.LimitRange", short=("limits",))

# ---------------------------------------------------------------- other built-in groups

REVISION = Kind(
    "apps", "ControllerRevision", "controllerrevisions", ("v1",), "apps.ControllerRevision"
)
LEASE = Kind("coordination.k8s.io", "Lease", "leases", ("v1",), "coordination.Lease")
STORAGE_CLASS = Kind(
    "storage.k8s.io", "StorageClass", "storageclasses", ("v1",), "storage.StorageClass",
    short=("sc",), namespaced=False,
)  # fmt: skip
PRIORITY_CLASS = Kind(
    "scheduling.k8s.io", "PriorityClass", "priorityclasses", ("v1",), "scheduling.PriorityClass",
    short=("pc",), namespaced=False,
)  # fmt: skip
ENDPOINT_SLICE = Kind(
    "discovery.k8s.io", "EndpointSlice", "endpointslices", ("v1",), "discovery.EndpointSlice"
)
EVENT_VIEW = Kind(  # the same events under newer field names; see server.objects
    "events.k8s.io", "Event", "events", ("v1",), "events.Event", short=("ev",),
    selectable=(
        "regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "reason",
        "reportingController", "type",
    ),
)  # fmt: skip


def _review(group: str, kind: str, plural: str, definition: str, namespaced: bool = False) -> Kind:
    return Kind(
        group, kind, plural, ("v1",), definition, namespaced=namespaced, stored=False,
        verbs=_CREATE,
    )  # fmt: skip


_RBAC = "rbac.authorization.k8s.io"
ROLE = Kind(_RBAC, "Role", "roles", ("v1",), "rbac.Role")
ROLE_BINDING = Kind(_RBAC, "RoleBinding", "rolebindings", ("v1",), "rbac.RoleBinding")
CLUSTER_ROLE = Kind(
    _RBAC, "ClusterRole", "clusterroles", ("v1",), "rbac.ClusterRole", namespaced=False
)
CLUSTER_ROLE_BINDING = Kind(
    _RBAC, "ClusterRoleBinding", "clusterrolebindings", ("v1",), "rbac.ClusterRoleBinding",
    namespaced=False,
)  # fmt: skip
_AUTHN, _AUTHZ = "authentication.k8s.io", "authorization.k8s.io"
SELF_REVIEW = _review(
    _AUTHN, "SelfSubjectReview", "selfsubjectreviews", "authentication.SelfSubjectReview"
)
TOKEN_REVIEW = _review(_AUTHN, "TokenReview", "tokenreviews", "authentication.TokenReview")
SELF_ACCESS_REVIEW = _review(
    _AUTHZ, "SelfSubjectAccessReview", "selfsubjectaccessreviews",
    "authorization.SelfSubjectAccessReview",
)  # fmt: skip
ACCESS_REVIEW = _review(
    _AUTHZ, "SubjectAccessReview", "subjectaccessreviews", "authorization.SubjectAccessReview"
)
LOCAL_ACCESS_REVIEW = _review(
    _AUTHZ, "LocalSubjectAccessReview", "localsubjectaccessreviews",
    "authorization.LocalSubjectAccessReview", namespaced=True,
)  # fmt: skip
RULES_REVIEW = _review(
    _AUTHZ, "SelfSubjectRulesReview", "selfsubjectrulesreviews",
    "authorization.SelfSubjectRulesReview",
)  # fmt: skip
CRD = Kind(  # made from this registry; can be read, not written
    "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", ("v1",),
    "apiextensions.CustomResourceDefinition", short=("crd", "crds"), namespaced=False,
    stored=False, verbs=("get", "list", "watch"),
)  # fmt: skip

_METRICS, _READ = "metrics.k8s.io", ("get", "list")
NODE_METRICS = Kind(  # measured when asked for; see server.resource_metrics
    _METRICS, "NodeMetrics", "nodes", ("v1beta1",), "metrics.NodeMetrics", namespaced=False,
    stored=False, verbs=_READ,
)  # fmt: skip
POD_METRICS = Kind(
    _METRICS, "PodMetrics", "pods", ("v1beta1",), "metrics.PodMetrics", stored=False, verbs=_READ,
)  # fmt: skip

KINDS: tuple[Kind, ...] = (
    NAMESPACE, NODE, POD, CLAIM, VOLUME, SERVICE, SECRET, CONFIG_MAP, SERVICE_ACCOUNT, EVENT,
    QUOTA, LIMIT_RANGE, REVISION, LEASE, STORAGE_CLASS, PRIORITY_CLASS, ENDPOINT_SLICE,
    EVENT_VIEW, ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, SELF_REVIEW, TOKEN_REVIEW,
    SELF_ACCESS_REVIEW, ACCESS_REVIEW, LOCAL_ACCESS_REVIEW, RULES_REVIEW, CRD,
    NODE_METRICS, POD_METRICS,
)  # fmt: skip
