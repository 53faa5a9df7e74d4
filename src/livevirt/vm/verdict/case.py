"""Everything a judgement depends on, read at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from livevirt.kube.objects import conditions
from livevirt.kube.objects.phases import FINAL
from livevirt.kube.objects.quantity import Quantity
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.migration.migratability import NOT_ALLOWED, moving
from livevirt.vm.spec.resources import Namespace
from livevirt.vm.verdict.judgement import Reason

#: Ways to go live that no node of this release knows; what would take one waits for a restart.
NOT_YET: frozenset[Reason] = frozenset()


@dataclass(frozen=True, slots=True)
class Bound:
    """Something that has only so much left: a Node, a ResourceQuota or a LimitRange.

    `left` is keyed as quotas are: `requests.cpu`, `limits.memory`, and `cpu` for `requests.cpu`.
    It is counted from what the instance asks for, and less than nothing if its pod has not caught
    up. For a LimitRange it is the maximum of a container less what this one has, and `spare` what
    this one has more than the minimum.
    """

    kind: str
    name: str
    left: Mapping[str, Quantity]
    spare: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Around:
    """The surroundings of a guest as last seen; what is not known does not stand in the way."""

    accelerator: str = ""  # kvm or tcg, of the node that runs it
    namespace: Namespace = field(default_factory=Namespace)
    bounds: tuple[Bound, ...] = ()
    migration: str = NOT_ALLOWED  # why the guest may not migrate by itself; empty if it may
    #: What the other nodes that would take its pod leave for the container of a guest that comes,
    #: and what quotas leave for that of a second pod.
    elsewhere: tuple[Bound, ...] | None = None
    second: tuple[Bound, ...] = ()
    lacking: frozenset[Reason] = frozenset()  # ways to go live that the node does not know


class Case(msgspec.Struct, frozen=True):
    """An edit: the template specs (expanded) of the last start and of now, and what runs.

    `config` is the cluster's of now, for strategy, gates and defaults of a spec that drops a field;
    sizes follow the defaults that the instance recorded.
    """

    started: Object
    wanted: Object
    vmi: Object | None
    config: Config
    around: Around = Around()
    volumes_strategy: str = ""  # the VM's `updateVolumesStrategy`

    @property
    def runs(self) -> bool:
        """Whether there is a guest that an edit could reach; one on its way out is none."""
        if self.vmi is None or "deletionTimestamp" in self.vmi["metadata"]:
            return False
        return (self.vmi.get("status") or {}).get("phase") not in FINAL

    @property
    def agent(self) -> bool:
        """Whether the guest agent answers."""
        listed = ((self.vmi or {}).get("status") or {}).get("conditions") or []
        return conditions.is_true(listed, "AgentConnected")

    @property
    def migrating(self) -> bool:
        """Whether the guest is being moved; its target has the size of when that began."""
        return moving(self.vmi)
