"""The parts of an instance's spec that sizes depend on, typed and read-only.

Reading is tolerant: fields that are not needed here may hold anything, and null means left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from livevirt.kube.objects import quantity
from livevirt.kube.objects.quantity import Quantity, QuantityError
from livevirt.kube.objects.request import Object

Amount = str | int | float


class View(msgspec.Struct, frozen=True, rename="camel"):
    """A read-only look at a part of an object."""


class Numa(View, frozen=True):
    """How guest memory nodes follow those of the host."""

    guest_mapping_passthrough: dict[str, Any] | None = None


class Cpu(View, frozen=True):
    """The CPUs as written; what is left out is zero."""

    sockets: int = 0
    cores: int = 0
    threads: int = 0
    max_sockets: int = 0
    model: str = ""
    dedicated_cpu_placement: bool = False
    isolate_emulator_thread: bool = False
    realtime: dict[str, Any] | None = None
    numa: Numa | None = None

    @property
    def vcpus(self) -> int:
        """The product of what is given; 0 if nothing is."""
        if not (self.sockets or self.cores or self.threads):
            return 0
        return (self.sockets or 1) * (self.cores or 1) * (self.threads or 1)


class Hugepages(View, frozen=True):
    """Memory in huge pages."""

    page_size: str = ""


class Memory(View, frozen=True):
    """The guest's memory as written."""

    guest: Amount | None = None
    max_guest: Amount | None = None
    hugepages: Hugepages | None = None


class Resources(View, frozen=True):
    """What the owner asks for by Kubernetes' own means."""

    requests: Mapping[str, Amount] = {}
    limits: Mapping[str, Amount] = {}
    overcommit_guest_overhead: bool = False

    def request(self, name: str) -> Quantity | None:
        """Return what is asked for, if it is."""
        return read_amount(self.requests.get(name))

    def limit(self, name: str) -> Quantity | None:
        """Return the limit, if there is one."""
        return read_amount(self.limits.get(name))


class IoThreads(View, frozen=True):
    """Threads for disks, besides those that come by themselves."""

    supplemental_pool_thread_count: int = 0


class Devices(View, frozen=True):
    """The devices that cost memory of their own."""

    autoattach_graphics_device: bool = True
    gpus: list[Any] = []
    host_devices: list[Any] = []
    tpm: dict[str, Any] | None = None


class Domain(View, frozen=True):
    """The machine."""

    cpu: Cpu = Cpu()
    memory: Memory = Memory()
    resources: Resources = Resources()
    devices: Devices = Devices()
    io_threads_policy: str = ""
    io_threads: IoThreads = IoThreads()
    launch_security: dict[str, Any] | None = None


class Instance(View, frozen=True):
    """The spec of an instance."""

    domain: Domain = Domain()
    architecture: str = ""

    @property
    def supplemental_threads(self) -> int:
        """How many IO threads count as CPUs of the pod."""
        domain = self.domain
        if domain.io_threads_policy != "supplementalPool":
            return 0
        return max(0, domain.io_threads.supplemental_pool_thread_count)

    @property
    def guest(self) -> Quantity | None:
        """The guest's memory at boot, if it is set."""
        return read_amount(self.domain.memory.guest)

    @property
    def max_guest(self) -> Quantity | None:
        """The most memory the guest may ever have, if it is set."""
        return read_amount(self.domain.memory.max_guest)

    @property
    def page(self) -> Quantity | None:
        """The size of a huge page, if the guest is to have such and names one."""
        pages = self.domain.memory.hugepages
        if pages is None or not pages.page_size:
            return None
        try:
            return quantity.parse(pages.page_size)
        except QuantityError:
            return None  # any text may stand there; admission checks it


def read(spec: Object) -> Instance:
    """Return the view of a spec that the server's schema has accepted."""
    try:
        return msgspec.convert(spec, Instance, strict=False)
    except msgspec.ValidationError:  # hardly a spec has a null where it matters
        return msgspec.convert(_without_nulls(spec), Instance, strict=False)


def read_amount(value: Amount | None) -> Quantity | None:
    """Return a quantity, or None where nothing is written."""
    return None if value is None else quantity.parse(value)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value
