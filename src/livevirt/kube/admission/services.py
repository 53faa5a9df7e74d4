"""Services: defaulted and validated as in Kubernetes; a controller gives them addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from livevirt.kube.objects import names
from livevirt.kube.objects.field_checks import (
    any_port,
    immutable,
    named,
    one_of,
    optional_one_of,
    port,
)
from livevirt.kube.objects.field_error import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
)
from livevirt.kube.objects.metadata import validate_labels
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules

HEADLESS = "None"  # instead of a cluster IP
NOT_FORWARDED = "Services are stored only: this machine has no node network to forward traffic on"
_EXTERNAL_NAME = "ExternalName"
_TYPES = ("ClusterIP", _EXTERNAL_NAME, "LoadBalancer", "NodePort")
_ON_NODES = ("LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_POLICIES = ("Cluster", "Local")
_AFFINITIES = ("ClientIP", "None")
_AFFINITY_SECONDS = 10800


class ServiceRules(Rules):
    """What a Service must be."""

    name_rule = staticmethod(names.validate_dns1035_label)

    def __init__(self, warning: str = "") -> None:
        """Answer with `warning` to each new service that needs an address."""
        self._warning = warning

    def default(self, obj: Object) -> None:
        """Fill in every default of the API."""
        spec = obj.setdefault("spec", {})
        spec["type"] = spec.get("type") or "ClusterIP"
        spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
        if spec["sessionAffinity"] == "ClientIP":
            config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            config.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
        for each in spec.get("ports") or ():
            each["protocol"] = each.get("protocol") or "TCP"
            if each.get("targetPort") in (None, 0, ""):
                each["targetPort"] = each.get("port", 0)
        if spec["type"] == _EXTERNAL_NAME:
            return
        spec["internalTrafficPolicy"] = spec.get("internalTrafficPolicy") or "Cluster"
        if spec["type"] in _ON_NODES:
            spec["externalTrafficPolicy"] = spec.get("externalTrafficPolicy") or "Cluster"
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
        if (address := spec.get("clusterIP")) and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [address]

    def prepare(self, review: Review) -> None:
        """Set the status of a new service, and warn if it does nothing."""
        if review.old is None:
            review.new["status"] = {"loadBalancer": {}}
            if self._warning:
                review.warnings.append(self._warning)

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with the service."""
        if review.subresource:
            return []
        spec, old = review.new["spec"], review.old
        found = [
            *one_of("spec.type", spec["type"], _TYPES),
            *one_of("spec.sessionAffinity", spec["sessionAffinity"], _AFFINITIES),
            *validate_labels(spec.get("selector") or {}, "spec.selector"),
            *_port_errors(spec),
            *_address_errors(spec),
        ]
        for field in ("internalTrafficPolicy", "externalTrafficPolicy"):
            found += optional_one_of(f"spec.{field}", spec.get(field), _POLICIES)
        if old is not None:
            before = old["spec"]
            named_now = _EXTERNAL_NAME in (spec["type"], before.get("type"))
            if before.get("clusterIP") and not named_now:
                found += immutable("spec.clusterIP", spec.get("clusterIP", ""), before["clusterIP"])
        return found


def _address_errors(spec: Object) -> Iterator[FieldError]:
    address, other = spec.get("clusterIP") or "", spec.get("externalName") or ""
    if spec["type"] == _EXTERNAL_NAME:
        yield from named("spec.externalName", other, names.validate_dns1123_subdomain)
        if address:
            yield forbidden("spec.clusterIP", "may not be set when `type` is 'ExternalName'")
        return
    if address and address != HEADLESS:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            why = "must be empty, 'None', or a valid IP address"
            yield invalid("spec.clusterIP", address, why)
    if address == HEADLESS and spec["type"] in _ON_NODES:
        why = f"may not be set to 'None' for {spec['type']} services"
        yield invalid("spec.clusterIP", address, why)
    if address and (listed := spec.get("clusterIPs") or []) and listed[0] != address:
        yield invalid("spec.clusterIPs", listed, "first value must match `clusterIP`")


def _port_errors(spec: Object) -> Iterator[FieldError]:
    ports = spec.get("ports") or []
    if not ports and spec["type"] != _EXTERNAL_NAME and spec.get("clusterIP") != HEADLESS:
        yield required("spec.ports")
    taken: set[object] = set()
    for number, each in enumerate(ports):
        at = f"spec.ports[{number}]"
        name, protocol = each.get("name") or "", each["protocol"]
        yield from named(f"{at}.name", name, names.validate_dns1123_label, needed=len(ports) > 1)
        yield from port(f"{at}.port", each.get("port", 0))
        yield from one_of(f"{at}.protocol", protocol, _PROTOCOLS)
        yield from any_port(f"{at}.targetPort", each["targetPort"])
        if each.get("nodePort"):
            yield from port(f"{at}.nodePort", each["nodePort"])
            if spec["type"] not in _ON_NODES:
                why = f"may not be used when `type` is '{spec['type']}'"
                yield forbidden(f"{at}.nodePort", why)
        if name and name in taken:
            yield duplicate(f"{at}.name", name)
        if (protocol, each.get("port")) in taken:
            yield duplicate(at, {"port": each.get("port"), "protocol": protocol})
        taken |= {name, (protocol, each.get("port"))}
