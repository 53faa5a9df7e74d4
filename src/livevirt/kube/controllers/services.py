"""Services get addresses, ports of nodes and EndpointSlices with the pods that they select."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

from livevirt.errors import AlreadyExists, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.runtime import Factory, Runtime
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of

log = logging.getLogger(__name__)

COMPONENT = "service-controller"
SERVICE_NAME = "kubernetes.io/service-name"  # the label of a service's slices
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
NODE_PORTS = range(30000, 32768)
_FAMILIES = ("IPv4", "IPv6")
_HEADLESS = "None"
_ON_NODES = ("LoadBalancer", "NodePort")


@dataclass(frozen=True, slots=True)
class Ranges:
    """The addresses that services get."""

    v4: IPv4Network
    v6: IPv6Network


#: Returns the addresses for services; None where traffic cannot be forwarded.
FindRanges = Callable[[], Awaitable[Ranges | None]]


# ---------------------------------------------------------------- addresses


def addressed(service: Object, others: Iterable[Object], ranges: Ranges) -> Object | None:
    """Return what to change in the spec of a service so that it has its addresses. Pure."""
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return None
    listed = [other["spec"] for other in others]
    new: Object = {}
    if not spec.get("clusterIP"):
        taken = {address for other in listed for address in other.get("clusterIPs") or ()}
        new |= _cluster_ips(service, taken, ranges)
    elif not spec.get("ipFamilies"):
        new |= _families(spec, _wanted_families(spec))
    if spec["type"] in _ON_NODES and not all(port.get("nodePort") for port in spec["ports"]):
        used = {port.get("nodePort") for other in listed for port in other.get("ports") or ()}
        new["ports"] = _with_node_ports(service, used)
    return new or None


def _wanted_families(spec: Object) -> list[str]:
    first = spec.get("ipFamilies") or []
    if address := next((each for each in spec.get("clusterIPs") or () if each != _HEADLESS), ""):
        first = first or ["IPv6" if ":" in address else "IPv4"]
    if (spec.get("ipFamilyPolicy") or "SingleStack") == "SingleStack":
        return first[:1] or [_FAMILIES[0]]
    return list(dict.fromkeys([*first, *_FAMILIES]))


def _families(spec: Object, families: list[str]) -> Object:
    policy = spec.get("ipFamilyPolicy") or "SingleStack"
    return {"ipFamilies": families, "ipFamilyPolicy": policy}


def _cluster_ips(service: Object, taken: Collection[str], ranges: Ranges) -> Object:
    families = _wanted_families(service["spec"])
    found = []
    for family in families:
        network = ranges.v4 if family == "IPv4" else ranges.v6
        start, count = _start(service), min(network.num_addresses, 2**12) - 2
        candidates = (str(network[1 + (start + at) % count]) for at in range(count))
        found.append(next(each for each in candidates if each not in taken))
    return {"clusterIP": found[0], "clusterIPs": found, **_families(service["spec"], families)}


def _with_node_ports(service: Object, used: Collection[int]) -> list[Object]:
    ports = service["spec"]["ports"]
    taken = set(used) | {port.get("nodePort") for port in ports}
    start, made = _start(service), []
    for port in ports:
        if not port.get("nodePort"):
            places = (
                NODE_PORTS[(start + number) % len(NODE_PORTS)] for number in range(len(NODE_PORTS))
            )
            port = port | {"nodePort": next(each for each in places if each not in taken)}
            taken.add(port["nodePort"])
        made.append(port)
    return made


def _start(service: Object) -> int:
    """Return where to begin to look for something free: it differs from service to service."""
    return int.from_bytes(hashlib.sha256(service["metadata"]["uid"].encode()).digest()[:4])


# ---------------------------------------------------------------- endpoints


def selects(service: Object, pod: Object) -> bool:
    """Return whether a service has a selector and it selects a pod."""
    selector = service["spec"].get("selector") or {}
    labels = pod["metadata"].get("labels") or {}
    return bool(selector) and selector.items() <= labels.items()


def slices(service: Object, pods: Iterable[Object]) -> list[Object]:
    """Return the EndpointSlices that a service should have, one for each of its families. Pure."""
    spec = service["spec"]
    if not spec.get("selector") or spec.get("type") == "ExternalName":
        return []
    chosen = [pod for pod in pods if selects(service, pod)]
    families = spec.get("ipFamilies") or _wanted_families(spec)
    return [_slice(service, family, chosen) for family in families]


def _slice(service: Object, family: str, pods: Iterable[Object]) -> Object:
    metadata, spec = service["metadata"], service["spec"]
    owner = {
        "apiVersion": "v1",
        "kind": "Service",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": core.ENDPOINT_SLICE.api_version,
        "kind": core.ENDPOINT_SLICE.kind,
        "metadata": {
            "name": f"{metadata['name']}-{family.lower()}",
            "namespace": metadata["namespace"],
            "labels": {SERVICE_NAME: metadata["name"], MANAGED_BY: MANAGER},
            "ownerReferences": [owner],
        },
        "addressType": family,
        "endpoints": _endpoints(service, family, pods),
        "ports": [
            {"name": port.get("name") or "", "protocol": port["protocol"], "port": target}
            for port in spec.get("ports") or ()
            if isinstance(target := port.get("targetPort"), int)
        ],
    }


def _endpoints(service: Object, family: str, pods: Iterable[Object]) -> list[Object]:
    """Return an endpoint for each address; of two pods of a migrating guest the ready one."""
    early = bool(service["spec"].get("publishNotReadyAddresses"))
    found: dict[str, Object] = {}
    for pod in sorted(pods, key=lambda pod: pod["metadata"]["name"]):
        address = _address(pod, family)
        if address is None or status_of(pod).get("phase") in FINAL:
            continue
        made = _endpoint(service, pod, address, early)
        if address not in found or made["conditions"]["ready"]:
            found[address] = made
    return [found[address] for address in sorted(found)]


def _endpoint(service: Object, pod: Object, address: str, early: bool) -> Object:
    metadata, spec = pod["metadata"], pod["spec"]
    serving = conditions.is_true(status_of(pod).get("conditions"), "Ready")
    terminating = "deletionTimestamp" in metadata
    made: Object = {
        "addresses": [address],
        "conditions": {
            "ready": early or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }
    if spec.get("nodeName"):
        made["nodeName"] = spec["nodeName"]
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        made["hostname"] = spec["hostname"]
    return made


def _address(pod: Object, family: str) -> str | None:
    """Return a pod's address of a family; a pod on the host's loopback has none of its own."""
    version = 6 if family == "IPv6" else 4
    for each in status_of(pod).get("podIPs") or ():
        address = ip_address(each["ip"])
        if address.version == version and not address.is_loopback:
            return str(each["ip"])
    return None


# ---------------------------------------------------------------- controller


class ServiceController:
    """Keeps addresses and EndpointSlices of services as they should be."""

    def __init__(self, client: Client, informers: tuple[Informer, ...], ranges: FindRanges) -> None:
        self._client, self._ranges = client, ranges
        self._services, self._pods, self._slices = informers
        self._controller = Controller("services", self.reconcile)
        self._controller.watches(self._services)
        self._controller.watches(self._pods, lambda pod: list(self._selecting(pod)))
        self._controller.watches(self._slices, lambda found: list(_service_of(found)))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _selecting(self, pod: Object) -> Iterator[Key]:
        for service in self._services.list(pod["metadata"]["namespace"]):
            if selects(service, pod):
                yield key_of(service)

    async def reconcile(self, key: Key) -> Result:
        """Bring one service towards its spec."""
        service = self._services.get(key)
        if service is None or "deletionTimestamp" in service["metadata"]:
            return DONE
        ranges = await self._ranges()
        if ranges is not None:
            others = (each for each in self._services.list() if key_of(each) != key)
            new = addressed(service, others, ranges)
            if new is not None:
                await self._write_addresses(service, new)
                return DONE  # the change will wake us
        wanted = slices(service, self._pods.list(key.namespace))
        await self._write_slices(service, wanted)
        return DONE

    async def _write_addresses(self, service: Object, spec: Object) -> None:
        metadata = service["metadata"]
        version = {"resourceVersion": metadata["resourceVersion"]}
        patch = {"metadata": version, "spec": spec}
        await self._client.patch(core.SERVICE, metadata["name"], metadata["namespace"], patch)
        log.info("service addressed", extra={"service": metadata["name"], "spec": spec})

    async def _write_slices(self, service: Object, wanted: Iterable[Object]) -> None:
        namespace = service["metadata"]["namespace"]
        for each in wanted:
            name = each["metadata"]["name"]
            there = self._slices.get(Key(namespace, name))
            if there is None:
                try:
                    await self._client.create(core.ENDPOINT_SLICE, each, namespace)
                except AlreadyExists:
                    continue  # the cache will have it in a moment, and wake us
                continue
            parts = ("endpoints", "ports")
            if any((there.get(part) or []) != each[part] for part in parts):
                patch = {part: each[part] for part in parts}
                try:
                    await self._client.patch(core.ENDPOINT_SLICE, name, namespace, patch)
                except NotFound:
                    continue


def _service_of(found: Object) -> Iterator[Key]:
    labels = found["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY) == MANAGER and SERVICE_NAME in labels:
        yield Key(found["metadata"]["namespace"], labels[SERVICE_NAME])


def factory(ranges: FindRanges) -> Factory:
    """Return what runs the controller; `ranges` finds the addresses of services."""

    async def services(runtime: Runtime) -> None:
        of = runtime.informers.of
        informers = of(core.SERVICE), of(core.POD), of(core.ENDPOINT_SLICE)
        client = runtime.client.for_component(COMPONENT)
        await ServiceController(client, informers, ranges).run()

    return services
