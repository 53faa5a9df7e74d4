"""What a pod's author may leave out, filled in as a kube-apiserver does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from livevirt.kube.objects.pod_resources import containers, round_up
from livevirt.kube.objects.request import Object, status_of

FILE_MODE = 0o644
TOLERATION_SECONDS = 300
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def set_defaults(pod: Object) -> None:
    """Fill in every default of a pod, in place."""
    spec = pod.setdefault("spec", {})
    for container in _all_containers(spec):
        _container(container)
    for container in containers(pod):
        _requests_from_limits(container)
    for volume in spec.get("volumes") or ():
        _volume(volume)
    _resources(spec)
    _requests_from_limits(spec)
    round_up(spec.get("overhead"))
    if spec.get("hostNetwork"):
        for container in containers(pod):
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port["containerPort"])
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    _addresses(status_of(pod))


def add_tolerations(pod: Object) -> None:
    """Let the pod stay five minutes on a node that fails, unless it sets tolerations for that."""
    spec = pod["spec"]
    given = spec.get("tolerations") or []
    missing = [key for key in (NOT_READY, UNREACHABLE) if not _tolerates(given, key)]
    added = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": TOLERATION_SECONDS,
        }
        for key in missing
    ]
    if added:
        spec["tolerations"] = [*given, *added]


def image_pull_policy(image: str) -> str:
    """Return when to fetch an image: one without a fixed tag may change at any time."""
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return "Always" if not colon or tag == "latest" else "IfNotPresent"


def _all_containers(spec: Object) -> Iterator[Object]:
    for field in ("containers", "initContainers", "ephemeralContainers"):
        yield from spec.get(field) or ()


def _container(container: Object) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", image_pull_policy(container.get("image", "")))
    container.setdefault("resources", {})
    _resources(container)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        _field_source(variable.get("valueFrom") or {})
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := container.get(field):
            _probe(probe)
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        _http_get((lifecycle.get(hook) or {}).get("httpGet"))


def _resources(holder: Object) -> None:
    resources = holder.get("resources") or {}
    round_up(resources.get("limits"))
    round_up(resources.get("requests"))


def _requests_from_limits(holder: Object) -> None:
    resources = holder.get("resources") or {}
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _probe(probe: Object) -> None:
    defaults = {
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    for field, value in defaults.items():
        probe.setdefault(field, value)
    _http_get(probe.get("httpGet"))
    if (grpc := probe.get("grpc")) is not None:
        grpc.setdefault("service", "")


def _http_get(action: Object | None) -> None:
    if action is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")


def _field_source(source: Object) -> None:
    if (field := source.get("fieldRef")) is not None:
        field.setdefault("apiVersion", "v1")
    if (resource := source.get("resourceFieldRef")) is not None:
        resource.setdefault("divisor", "0")


# ---------------------------------------------------------------- volumes


def _volume(volume: Object) -> None:
    if volume.keys() == {"name"}:
        volume["emptyDir"] = {}
    for kind, fill in _VOLUMES.items():
        if (source := volume.get(kind)) is not None:
            fill(source)


def _files(source: Object) -> None:
    source.setdefault("defaultMode", FILE_MODE)


def _downward(source: Object) -> None:
    _files(source)
    for item in source.get("items") or ():
        _field_source(item)


def _projected(source: Object) -> None:
    _files(source)
    for projection in source.get("sources") or ():
        for item in (projection.get("downwardAPI") or {}).get("items") or ():
            _field_source(item)
        if (token := projection.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", 3600)


def _host_path(source: Object) -> None:
    source.setdefault("type", "")


def _ephemeral(source: Object) -> None:
    template = source.get("volumeClaimTemplate") or {}
    template.get("spec", {}).setdefault("volumeMode", "Filesystem")


def _iscsi(source: Object) -> None:
    source.setdefault("iscsiInterface", "default")


def _image(source: Object) -> None:
    source.setdefault("pullPolicy", image_pull_policy(source.get("reference", "")))


_VOLUMES: dict[str, Callable[[Object], None]] = {
    "secret": _files,
    "configMap": _files,
    "downwardAPI": _downward,
    "projected": _projected,
    "hostPath": _host_path,
    "ephemeral": _ephemeral,
    "iscsi": _iscsi,
    "image": _image,
}


# ---------------------------------------------------------------- the rest


def _tolerates(tolerations: list[Object], key: str) -> bool:
    return any(
        each.get("key", "") in (key, "") and each.get("effect", "") in ("NoExecute", "")
        for each in tolerations
    )


def _addresses(status: Object) -> None:
    """Keep the single address and the first of the list the same."""
    for one, many in (("podIP", "podIPs"), ("hostIP", "hostIPs")):
        listed = status.get(many) or []
        if address := status.get(one):
            if not listed or listed[0].get("ip") != address:
                status[many] = [{"ip": address}]
        elif listed:
            status[one] = listed[0]["ip"]
