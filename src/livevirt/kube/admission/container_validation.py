"""What is wrong with the containers of a pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from livevirt.kube.objects import field_checks, names
from livevirt.kube.objects.field_checks import named, one_of, optional_one_of
from livevirt.kube.objects.field_error import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
)
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object

PULL_POLICIES = frozenset({"Always", "IfNotPresent", "Never"})
PROTOCOLS = frozenset({"TCP", "UDP", "SCTP"})
RESTART_POLICIES = frozenset({"Always", "OnFailure", "Never"})
RESIZE_POLICIES = frozenset({"NotRequired", "RestartContainer"})
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_BLOCK_SOURCES = ("persistentVolumeClaim", "ephemeral")


@dataclass(frozen=True, slots=True)
class Around:
    """What of the pod a container's rules depend on."""

    volumes: Mapping[str, Object]
    host_network: bool
    restart_policy: str


def validate_containers(spec: Object) -> list[FieldError]:
    """List what is wrong with the containers and init containers of a pod's spec."""
    around = Around(
        {volume["name"]: volume for volume in spec.get("volumes") or () if volume.get("name")},
        bool(spec.get("hostNetwork")),
        spec.get("restartPolicy", ""),
    )
    found = [] if spec.get("containers") else [required("spec.containers")]
    taken: set[str] = set()
    for field in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(field) or ()):
            path = f"spec.{field}[{at}]"
            name = container.get("name", "")
            found += named(f"{path}.name", name, names.validate_dns1123_label)
            if name and name in taken:
                found.append(duplicate(f"{path}.name", name))
            taken.add(name)
            found += _container_errors(path, container, around, init=field == "initContainers")
    return found


def _container_errors(
    path: str, container: Object, around: Around, *, init: bool
) -> list[FieldError]:
    image = container.get("image", "")
    found = [] if image else [required(f"{path}.image")]
    if image != image.strip():
        why = "must not have leading or trailing whitespace"
        found.append(invalid(f"{path}.image", image, why))
    found += _port_errors(f"{path}.ports", container.get("ports") or [], around)
    found += _env_errors(f"{path}.env", container.get("env") or [])
    found += _env_from_errors(f"{path}.envFrom", container.get("envFrom") or [])
    found += _mount_errors(path, container, around)
    found += one_of(
        f"{path}.terminationMessagePolicy",
        container.get("terminationMessagePolicy", ""),
        {"File", "FallbackToLogsOnError"},
    )
    found += one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy", ""), PULL_POLICIES)
    found += resource_errors(f"{path}.resources", container.get("resources") or {})
    found += _resize_policy_errors(f"{path}.resizePolicy", container, around)
    found += optional_one_of(
        f"{path}.restartPolicy", container.get("restartPolicy"), RESTART_POLICIES
    )
    sidecar = container.get("restartPolicy") == "Always"
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(field)) is None:
            continue
        if init and not sidecar:
            found.append(forbidden(f"{path}.{field}", _ONLY_SIDECARS))
        else:
            found += _probe_errors(f"{path}.{field}", probe, once=field != "readinessProbe")
    lifecycle = container.get("lifecycle")
    if lifecycle and init and not sidecar:
        found.append(forbidden(f"{path}.lifecycle", _ONLY_SIDECARS))
    elif lifecycle:
        for hook in ("postStart", "preStop"):
            if hook in lifecycle:
                found += _handler_errors(f"{path}.lifecycle.{hook}", lifecycle[hook])
    return found


_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"


# ---------------------------------------------------------------- resources


def resource_errors(path: str, resources: Object) -> list[FieldError]:
    """List bad resource names and amounts, and requests above their limits."""
    found: list[FieldError] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for side, given in (("limits", limits), ("requests", requests)):
        for resource, value in sorted(given.items()):
            at = f"{path}.{side}[{resource}]"
            found += field_checks.container_resource_name(at, resource)
            found += field_checks.quantity(at, resource, value)
    for resource, value in sorted(requests.items()):
        found += _request_errors(path, resource, value, limits.get(resource))
    asked = requests.keys() | limits.keys()
    if any(r.startswith(field_checks.HUGE_PAGES) for r in asked) and not asked & {"cpu", "memory"}:
        found.append(forbidden(path, "HugePages require cpu or memory"))
    return found


def _request_errors(path: str, resource: str, value: str, limit: str | None) -> list[FieldError]:
    shared = not resource.startswith(field_checks.HUGE_PAGES) and not field_checks.is_extended(
        resource
    )
    if limit is None:
        why = "Limit must be set for non overcommitable resources"
        return [] if shared else [required(f"{path}.limits", why)]
    at = f"{path}.requests"
    if not shared and parse(value) != parse(limit):
        return [invalid(at, value, f"must be equal to {resource} limit of {limit}")]
    if parse(value) > parse(limit):
        return [invalid(at, value, f"must be less than or equal to {resource} limit of {limit}")]
    return []


def _resize_policy_errors(path: str, container: Object, around: Around) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for at, policy in enumerate(container.get("resizePolicy") or ()):
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            found.append(duplicate(f"{path}[{at}]", resource))
        seen.add(resource)
        found += one_of(f"{path}[{at}].resourceName", resource, {"cpu", "memory"})
        found += one_of(f"{path}[{at}].restartPolicy", restart, RESIZE_POLICIES)
        if around.restart_policy == "Never" and restart == "RestartContainer":
            why = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            found.append(invalid(f"{path}[{at}].restartPolicy", restart, why))
    return found


# ---------------------------------------------------------------- ports and environment


def _port_errors(path: str, ports: list[Object], around: Around) -> list[FieldError]:
    found: list[FieldError] = []
    taken: set[str] = set()
    for at, port in enumerate(ports):
        here = f"{path}[{at}]"
        if name := port.get("name"):
            found += field_checks.port_name(f"{here}.name", name)
            if name in taken:
                found.append(duplicate(f"{here}.name", name))
            taken.add(name)
        number, on_host = port.get("containerPort", 0), port.get("hostPort", 0)
        if number:
            found += field_checks.port(f"{here}.containerPort", number)
        else:
            found.append(required(f"{here}.containerPort"))
        if on_host:
            found += field_checks.port(f"{here}.hostPort", on_host)
        if around.host_network and on_host != number:
            why = "must match `hostPort` when `hostNetwork` is true"
            found.append(invalid(f"{here}.containerPort", number, why))
        found += one_of(f"{here}.protocol", port.get("protocol", ""), PROTOCOLS)
    return found


def _env_errors(path: str, variables: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    for at, variable in enumerate(variables):
        here = f"{path}[{at}]"
        found += named(f"{here}.name", variable.get("name", ""), names.validate_env_var_name)
        if (source := variable.get("valueFrom")) is None:
            continue
        chosen = [kind for kind in _ENV_SOURCES if source.get(kind) is not None]
        at_source = f"{here}.valueFrom"
        if not chosen:
            why = (
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or "
                "`secretKeyRef`"
            )
            found.append(invalid(at_source, "", why))
        elif variable.get("value"):
            found.append(invalid(at_source, "", "may not be specified when `value` is not empty"))
        elif len(chosen) > 1:
            why = "may not have more than one field specified at a time"
            found.append(invalid(at_source, "", why))
        for kind in chosen:
            found += _env_source_errors(f"{at_source}.{kind}", kind, source[kind])
    return found


def _env_source_errors(path: str, kind: str, source: Object) -> list[FieldError]:
    match kind:
        case "fieldRef":
            return [] if source.get("fieldPath") else [required(f"{path}.fieldPath")]
        case "resourceFieldRef":
            return [] if source.get("resource") else [required(f"{path}.resource")]
        case "configMapKeyRef" | "secretKeyRef":
            found = [] if source.get("name") else [required(f"{path}.name")]
            return found + named(f"{path}.key", source.get("key", ""), names.validate_config_key)
        case _:
            return []


def _env_from_errors(path: str, sources: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    for at, source in enumerate(sources):
        here = f"{path}[{at}]"
        if prefix := source.get("prefix"):
            found += named(f"{here}.prefix", prefix, names.validate_env_var_name)
        chosen = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        if len(chosen) != 1:
            why = (
                "may not have more than one field specified at a time"
                if chosen
                else "must specify one of: `configMapRef` or `secretRef`"
            )
            found.append(invalid(here, "", why))
        for kind in chosen:
            if not source[kind].get("name"):
                found.append(required(f"{here}.{kind}.name"))
    return found


# ---------------------------------------------------------------- mounts and devices


def _mount_errors(path: str, container: Object, around: Around) -> list[FieldError]:
    found: list[FieldError] = []
    places: set[str] = set()
    mounts = container.get("volumeMounts") or []
    for at, mount in enumerate(mounts):
        here = f"{path}.volumeMounts[{at}]"
        found += _volume_name_errors(f"{here}.name", mount.get("name", ""), around)
        place = mount.get("mountPath", "")
        if not place:
            found.append(required(f"{here}.mountPath"))
        elif place in places:
            found.append(invalid(f"{here}.mountPath", place, "must be unique"))
        places.add(place)
        if (below := mount.get("subPath")) and mount.get("subPathExpr"):
            why = "subPathExpr and subPath are mutually exclusive"
            found.append(invalid(f"{here}.subPathExpr", mount["subPathExpr"], why))
        elif below:
            found += field_checks.relative_path(f"{here}.subPath", below)
    mounted = {mount.get("name") for mount in mounts}
    devices: set[str] = set()
    for at, device in enumerate(container.get("volumeDevices") or ()):
        here = f"{path}.volumeDevices[{at}]"
        name, place = device.get("name", ""), device.get("devicePath", "")
        found += _volume_name_errors(f"{here}.name", name, around)
        volume = around.volumes.get(name)
        if volume is not None and not any(kind in volume for kind in _BLOCK_SOURCES):
            why = (
                "can only use volume source type of PersistentVolumeClaim or Ephemeral "
                "for block mode"
            )
            found.append(invalid(f"{here}.name", name, why))
        if not place:
            found.append(required(f"{here}.devicePath"))
        else:
            found += field_checks.no_climbing(f"{here}.devicePath", place)
        if place in devices or place in places:
            found.append(invalid(f"{here}.devicePath", place, "must be unique"))
        devices.add(place)
        if name in mounted:
            found.append(invalid(f"{here}.name", name, "must not already exist in volumeMounts"))
    return found


def _volume_name_errors(path: str, name: str, around: Around) -> list[FieldError]:
    if not name:
        return [required(path)]
    return [] if name in around.volumes else [not_found(path, name)]


# ---------------------------------------------------------------- probes and hooks


def _probe_errors(path: str, probe: Object, *, once: bool) -> list[FieldError]:
    found = _handler_errors(path, probe)
    for field in (
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ):
        found += field_checks.not_negative(f"{path}.{field}", probe.get(field))
    if once and probe.get("successThreshold", 1) != 1:
        found.append(invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and not once:
        why = "must not be set for readinessProbes"
        found.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, why))
    elif grace is not None and grace <= 0:
        why = "must be greater than 0"
        found.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, why))
    return found


def _handler_errors(path: str, handler: Object) -> list[FieldError]:
    chosen = [kind for kind in _HANDLERS if handler.get(kind) is not None]
    if not chosen:
        return [required(path, "must specify a handler type")]
    found = [
        forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
        for extra in chosen[1:]
    ]
    here, action = f"{path}.{chosen[0]}", handler[chosen[0]]
    match chosen[0]:
        case "exec":
            found += [] if action.get("command") else [required(f"{here}.command")]
        case "httpGet":
            found += [] if action.get("path") else [required(f"{here}.path")]
            found += field_checks.any_port(f"{here}.port", action.get("port", 0))
            found += one_of(f"{here}.scheme", action.get("scheme", ""), {"HTTP", "HTTPS"})
        case "tcpSocket" | "grpc":
            found += field_checks.any_port(f"{here}.port", action.get("port", 0))
    return found
