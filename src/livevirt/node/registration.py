"""The Node objects of this machine, and the Leases that keep them alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import livevirt
from livevirt.errors import AlreadyExists, ApiError, Conflict, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.pod_resources import CPU_MANAGER, EXCLUSIVE_CPUS, YES
from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.times import format_micro_time, format_time
from livevirt.node import host, intent, pod_dir
from livevirt.node.intent import UnknownIntent
from livevirt.qemu.accelerator import NOTHING, Accelerator, Offer
from livevirt.vm.spec.placement_validation import CPU_FEATURE, CPU_MODEL, MACHINE_TYPE, NO
from livevirt.vm.verdict.verdict_inputs import ACCELERATOR

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0
PODS = 110
MADE_BY = "livevirt-"  # the prefix of the version that our nodes report
_DEVICES = "1k"  # as many guests as KubeVirt's device plugin offers a device to
ACCELERATED, CONFINED = "livevirt.io/Accelerated", "livevirt.io/Confined"
NETWORKED = "livevirt.io/NodeNetwork"
DISK_PRESSURE = "node.kubernetes.io/disk-pressure"  # the taint that keeps new pods away
RETIRED = "livevirt runs with fewer nodes now: this one keeps its guests and takes no new ones"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to say about a node."""

    name: str
    capacity: Mapping[str, Quantity]  # cpu, memory, CPUs to give away and huge pages
    accelerator: Accelerator
    qemu: tuple[int, int, int]
    unconfined: str = ""  # why pods have no cgroup; empty if they have
    address: str = "127.0.0.1"
    offer: Offer = NOTHING
    shared_cpus: str = ""  # why no pod has dedicated CPUs; empty if it can
    retired: bool = False  # it finishes what it has and takes nothing new
    disk_pressure: str = ""  # why the disk is nearly full; empty if it is not
    user_network: str = ""  # why guests share no network; empty if they do


def machine_capacity(nodes: int = 1) -> dict[str, Quantity]:
    """Return what each of so many nodes on this machine has to offer."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpus = len(os.sched_getaffinity(0))
    page = 1024 * 1024
    found = {}
    for name, (size, pages) in host.resources().items():
        memory -= size * pages  # huge pages are not available as small ones
        found[name] = Quantity.from_int(pages // nodes * size, Format.BINARY_SI)
    return {
        "cpu": Quantity.from_milli(cpus * 1000 // nodes),
        "memory": Quantity.from_int(memory // nodes // page * page, Format.BINARY_SI),
        EXCLUSIVE_CPUS: Quantity.from_int((cpus - 1) // nodes),
        **found,
    }


def node(facts: Facts) -> Object:
    """Return the Node without its status. Pure."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": facts.name,
            "labels": {
                "kubernetes.io/hostname": facts.name,
                "kubernetes.io/arch": architecture,
                "kubernetes.io/os": "linux",
                "kubevirt.io/schedulable": NO if facts.retired else YES,
                CPU_MANAGER: NO if facts.shared_cpus else YES,
                f"{MACHINE_TYPE}q35": YES,
                ACCELERATOR: facts.accelerator.name,
                **_offered(facts.offer),
            },
            "annotations": {
                "livevirt.io/accelerator-reason": facts.accelerator.reason,
                "livevirt.io/cpumanager-reason": facts.shared_cpus,
            },
        },
    }


def _offered(offer: Offer) -> dict[str, str]:
    """Return a label for each thing that a guest may name."""
    lists = (
        (MACHINE_TYPE, offer.machine_types),
        (CPU_MODEL, offer.cpu_models),
        (CPU_FEATURE, offer.cpu_features),
    )
    return {f"{prefix}{name}": YES for prefix, names in lists for name in names}


def labels(facts: Facts, old: Mapping[str, str]) -> dict[str, str | None]:
    """Return the labels to set on a Node that has some; what is offered no longer goes. Pure."""
    wanted = node(facts)["metadata"]["labels"]
    ours = (CPU_MODEL, CPU_FEATURE, MACHINE_TYPE)
    return {**{name: None for name in old if name.startswith(ours)}, **wanted}


def taints(facts: Facts, old: Iterable[Object]) -> list[Object]:
    """Return the taints of a Node: those it has, and ours while its disk is nearly full. Pure."""
    others = [each for each in old if each["key"] != DISK_PRESSURE]
    return (
        [*others, {"key": DISK_PRESSURE, "effect": "NoSchedule"}] if facts.disk_pressure else others
    )


def status(facts: Facts, old: Object, now: datetime) -> Object:
    """Return the Node's status; conditions keep the time they last changed. Pure but for uname."""
    kvm = facts.accelerator.name == "kvm"
    resources = {
        **{name: str(amount) for name, amount in facts.capacity.items()},
        "pods": str(PODS),
        "devices.kubevirt.io/kvm": _DEVICES if kvm else "0",
        "devices.kubevirt.io/tun": _DEVICES,
        "devices.kubevirt.io/vhost-net": _DEVICES,
    }
    if facts.shared_cpus:
        resources[EXCLUSIVE_CPUS] = "0"
    found = old.get("conditions")
    for condition in _conditions(facts):
        beat = {"lastHeartbeatTime": format_time(now)}
        found = conditions.with_condition(found, condition | beat, now)
    return {
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": facts.address},
            {"type": "Hostname", "address": facts.name},
        ],
        "nodeInfo": _info(facts),
        "conditions": found,
    }


def _conditions(facts: Facts) -> list[Condition]:
    good = [
        ("MemoryPressure", "KubeletHasSufficientMemory"),
        ("PIDPressure", "KubeletHasSufficientPID"),
    ]
    kvm = facts.accelerator.name == "kvm"
    return [
        *({"type": type_, "status": "False", "reason": reason} for type_, reason in good),
        conditions.condition(
            "DiskPressure",
            bool(facts.disk_pressure),
            "KubeletHasDiskPressure" if facts.disk_pressure else "KubeletHasNoDiskPressure",
            facts.disk_pressure or "the disk has enough free space",
        ),
        conditions.condition(
            ACCELERATED, kvm, "KVM" if kvm else "Emulated", facts.accelerator.reason
        ),
        conditions.condition(
            CONFINED,
            not facts.unconfined,
            "NoCgroups" if facts.unconfined else "Cgroups",
            facts.unconfined or "each pod has a cgroup with its limits",
        ),
        conditions.condition(
            NETWORKED,
            not facts.user_network,
            "UserNetwork" if facts.user_network else "Shared",
            facts.user_network or "guests share a network and have addresses of their own",
        ),
        conditions.condition(
            "Ready",
            True,
            "KubeletReady",
            RETIRED if facts.retired else "livevirt's node agent is running",
        ),
    ]


def _info(facts: Facts) -> Object:
    kernel = platform.uname()
    return {
        "architecture": _ARCHITECTURES.get(kernel.machine, kernel.machine),
        "bootID": intent.boot_id(),
        "containerRuntimeVersion": "qemu://" + ".".join(str(part) for part in facts.qemu),
        "kernelVersion": kernel.release,
        "kubeProxyVersion": "",
        "kubeletVersion": f"{MADE_BY}{livevirt.__version__}",
        "machineID": "",
        "operatingSystem": "linux",
        "osImage": kernel.system,
        "systemUUID": "",
    }


class Registration:
    """Keeps the Node there and its Lease fresh, while `run` runs."""

    def __init__(
        self,
        client: Client,
        facts: Facts,
        now: Now,
        pressure: Callable[[], str] = lambda: "",
        user_network: Callable[[], str] = lambda: "",
    ) -> None:
        self._client, self._facts, self._now = client, facts, now
        self._pressure, self._user_network = pressure, user_network

    async def run(self) -> None:
        """Register, then renew the lease until cancelled."""
        registered = False
        while True:
            try:
                changed = await self._look_at_disk() | self._look_at_network()
                if changed or not registered or not await self._exists():
                    await self.register()
                    registered = True
                await self.renew()
            except ApiError as error:
                log.warning(
                    "heartbeat failed", extra={"node": self._facts.name, "error": str(error)}
                )
            await asyncio.sleep(RENEW_SECONDS)

    async def _look_at_disk(self) -> bool:
        """Find out whether the disk is nearly full; return whether that has changed."""
        try:
            found = await asyncio.to_thread(self._pressure)
        except OSError as error:
            found = f"the file system does not answer: {error}"
        changed = bool(found) != bool(self._facts.disk_pressure)
        if changed:
            log.warning("disk pressure", extra={"node": self._facts.name, "why": found or "ended"})
            self._facts = replace(self._facts, disk_pressure=found)
        return changed

    def _look_at_network(self) -> bool:
        """Find out whether guests share a network; return whether that has changed."""
        found = self._user_network()
        changed = found != self._facts.user_network
        self._facts = replace(self._facts, user_network=found)
        return changed

    async def _exists(self) -> bool:
        try:
            await self._client.get(core.NODE, self._facts.name)
        except NotFound:
            return False  # it was deleted
        return True

    async def register(self) -> None:
        """Create the Node or bring it up to date."""
        wanted = node(self._facts)
        try:
            found = await self._client.create(core.NODE, wanted)
        except AlreadyExists:
            there = await self._client.get(core.NODE, self._facts.name)
            metadata = {
                "labels": labels(self._facts, there["metadata"].get("labels") or {}),
                "annotations": wanted["metadata"]["annotations"],
            }
            found = await self._client.patch(
                core.NODE, self._facts.name, "", {"metadata": metadata}
            )
        old = (found.get("spec") or {}).get("taints") or []
        if (wanted_taints := taints(self._facts, old)) != old:
            patch = {"spec": {"taints": wanted_taints}}
            await self._client.patch(core.NODE, self._facts.name, "", patch)
        new = status(self._facts, status_of(found), self._now())
        await self._client.patch(
            core.NODE, self._facts.name, "", {"status": new}, subresource="status"
        )
        log.info(
            "node registered",
            extra={
                "node": self._facts.name,
                "accelerator": self._facts.accelerator.name,
                "because": self._facts.accelerator.reason,
                "unconfined": self._facts.unconfined,
            },
        )

    async def renew(self) -> None:
        """Renew the lease of this node."""
        renewed = {"renewTime": format_micro_time(self._now())}
        name = self._facts.name
        try:
            await self._client.patch(core.LEASE, name, LEASE_NAMESPACE, {"spec": renewed})
        except NotFound:
            lease = {
                "apiVersion": core.LEASE.api_version,
                "kind": "Lease",
                "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
                "spec": renewed | {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS},
            }
            try:
                await self._client.create(core.LEASE, lease, LEASE_NAMESPACE)
            except (AlreadyExists, Conflict):
                return  # by another start of ours; renewed next time


def asked(count: int) -> list[str]:
    """Return the names of so many nodes."""
    return [f"node{number:02}" for number in range(1, count + 1)]


async def settle(client: Client, wanted: Collection[str], nodes: Path, run: Path) -> list[str]:
    """Return the nodes beyond those wanted that have something left; remove the other ones.

    To be done before anything is scheduled.
    """
    pods = (await client.list(core.POD)).items
    there = (await client.list(core.NODE)).items
    left = set(_bound(pods)) & {each["metadata"]["name"] for each in there if _is_ours(each)}
    left |= set(with_intents(nodes, run))
    for each in there:
        name = each["metadata"]["name"]
        if _is_ours(each) and name not in wanted and name not in left:
            await _remove(client, name)
    return sorted(left - set(wanted))


def with_intents(nodes: Path, run: Path) -> Iterable[str]:
    """Yield the nodes that have begun to run a guest and have not forgotten it."""
    with contextlib.suppress(FileNotFoundError):
        for node in nodes.iterdir():
            if any(_is_begun(folder) for folder in pod_dir.all_in(node / "pods", run)):
                yield node.name


def _is_begun(folder: pod_dir.PodDir) -> bool:
    try:
        return folder.read_intent() is not None
    except UnknownIntent:
        return True


def _bound(pods: Iterable[Object]) -> Iterable[str]:
    for pod in pods:
        if name := pod["spec"].get("nodeName"):
            yield name


def _is_ours(node: Object) -> bool:
    """Return whether a node belongs to this machine."""
    info = status_of(node).get("nodeInfo") or {}
    return str(info.get("kubeletVersion") or "").startswith(MADE_BY)


async def _remove(client: Client, name: str) -> None:
    with contextlib.suppress(NotFound):
        await client.delete(core.NODE, name)
    with contextlib.suppress(NotFound):
        await client.delete(core.LEASE, name, LEASE_NAMESPACE)
