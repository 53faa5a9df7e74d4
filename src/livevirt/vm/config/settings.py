"""What the KubeVirt object sets for the whole cluster, with defaults for what it leaves out.

Two kinds of settings: those in force at once (strategy, gates), and defaults that are read when an
instance is created and recorded in it, so that changing them later alters nothing that runs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.vm.spec.instance import Amount, View, read_amount

NAMESPACE, NAME = "kubevirt", "kubevirt"  # of the KubeVirt object
RECORDED = "livevirt.io/recorded-config"  # the annotation of an instance
#: The annotation of the KubeVirt object: may a VM's rollout strategy be looser than the cluster's?
ALLOW_LOOSER = "livevirt.io/allow-looser-rollout"

LIVE_UPDATE_GATE = "VMLiveUpdateFeatures"
IN_PLACE_GATE = "InPlaceHotplug"
HOTPLUG_GATE = "HotplugVolumes"
CDROM_GATE = "InjectEjectCDROM"
_BOTH_VOLUME_GATES = "DeclarativeHotplugVolumes"  # KubeVirt's one name for the two
_ON_BY_DEFAULT = frozenset({IN_PLACE_GATE})

USUAL_CPU_REQUEST = parse("100m")


class Defaults(View, frozen=True):
    """The defaults an instance is created with; this is what is recorded in it."""

    max_hotplug_ratio: int = 4
    max_cpu_sockets: int = 0  # 0: by the ratio
    max_guest: Amount | None = None
    cpu_allocation_ratio: int = 10
    memory_overcommit: int = 100
    cpu_request: Amount | None = None
    additional_guest_memory_overhead_ratio: str = ""
    overhead_formula: int = 1
    cpu_model: str = "host-model"
    machine_type: str = "q35"
    eviction_strategy: str = ""  # empty: created before it was recorded

    def recorded(self) -> str:
        """Return the text of the annotation: every value, so that it outlives our defaults."""
        return msgspec.json.encode(self).decode()


def recorded(instance: Object) -> Defaults:
    """Return the defaults an instance was created with."""
    text = (instance["metadata"].get("annotations") or {}).get(RECORDED)
    return _decoded(text) if text else _USUAL


@functools.lru_cache(maxsize=64)  # hardly two instances of a cluster differ in them
def _decoded(text: str) -> Defaults:
    return msgspec.json.decode(text, type=Defaults, strict=False)


_USUAL = Defaults()


@dataclass(frozen=True, slots=True)
class Config:
    """The cluster's settings."""

    strategy: str = ""
    gates: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    eviction_strategy: str = "None"
    network_binding: str = "masquerade"
    update_methods: frozenset[str] = frozenset()  # by which running guests may be replaced
    looser_rollout: bool = False  # whether VMs may choose LiveUpdate where `strategy` is Stage
    defaults: Defaults = _USUAL

    def enabled(self, gate: str) -> bool:
        """Return whether a feature gate is enabled."""
        if gate in self.gates:
            return True
        if gate in (HOTPLUG_GATE, CDROM_GATE) and _BOTH_VOLUME_GATES in self.gates:
            return True
        return gate not in self.disabled and gate in _ON_BY_DEFAULT

    def recorded(self) -> str:
        """Return the text of the annotation that records the defaults in a new instance."""
        return replace(self.defaults, eviction_strategy=self.eviction_strategy).recorded()

    def without_maxima(self, defaults: Defaults, eviction_strategy: str) -> Config:
        """Return all that is filled into a spec with such defaults, but for the maxima.

        `eviction_strategy` is the instance's own: without a record, that is what it started with.
        """
        return Config(
            eviction_strategy=defaults.eviction_strategy or eviction_strategy,
            network_binding=self.network_binding,
            defaults=defaults,
        )

    @property
    def live_update(self) -> bool:
        """Whether edits are rolled out to running guests; without the gate they never are."""
        return self.strategy == "LiveUpdate" and self.enabled(LIVE_UPDATE_GATE)

    @property
    def reserves_maxima(self) -> bool:
        """Whether guests start with room to grow, because edits of some may be rolled out."""
        return self.live_update or (self.looser_rollout and self.enabled(LIVE_UPDATE_GATE))


def read(kubevirt: Object | None) -> Config:
    """Return the settings of the KubeVirt object, or KubeVirt's defaults without one."""
    spec = (kubevirt or {}).get("spec") or {}
    settings, updates = spec.get("configuration") or {}, spec.get("workloadUpdateStrategy") or {}
    developer = settings.get("developerConfiguration") or {}
    live = settings.get("liveUpdateConfiguration") or {}
    network = settings.get("network") or {}
    architecture = (settings.get("architectureConfiguration") or {}).get("amd64") or {}
    annotations = ((kubevirt or {}).get("metadata") or {}).get("annotations") or {}
    usual = _USUAL
    return Config(
        strategy=settings.get("vmRolloutStrategy") or "",
        gates=frozenset(developer.get("featureGates") or ()),
        disabled=frozenset(developer.get("disabledFeatureGates") or ()),
        eviction_strategy=settings.get("evictionStrategy") or "None",
        network_binding=network.get("defaultNetworkInterface") or "masquerade",
        update_methods=frozenset(updates.get("workloadUpdateMethods") or ()),
        looser_rollout=annotations.get(ALLOW_LOOSER) == "true",
        defaults=Defaults(
            # Zero cannot be distinguished from a field left out, so it means the default here too.
            max_hotplug_ratio=live.get("maxHotplugRatio") or usual.max_hotplug_ratio,
            max_cpu_sockets=live.get("maxCpuSockets") or 0,
            max_guest=live.get("maxGuest"),
            cpu_allocation_ratio=developer.get("cpuAllocationRatio") or usual.cpu_allocation_ratio,
            memory_overcommit=developer.get("memoryOvercommit") or usual.memory_overcommit,
            cpu_request=_unusual(settings.get("cpuRequest")),
            additional_guest_memory_overhead_ratio=(
                settings.get("additionalGuestMemoryOverheadRatio") or ""
            ),
            cpu_model=settings.get("cpuModel") or usual.cpu_model,
            machine_type=(
                architecture.get("machineType") or settings.get("machineType") or usual.machine_type
            ),
        ),
    )


def _unusual(amount: Amount | None) -> Amount | None:
    """Return a CPU request that differs from the usual one, which the pod's formula gives."""
    asked: Quantity | None = read_amount(amount)
    return None if asked is None or asked == USUAL_CPU_REQUEST else amount
