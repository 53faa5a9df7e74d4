"""The snapshot that a verdict is made from; `gather` reads it, `verdict.judge` judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.quantity import Quantity
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.config.settings import Config
from livevirt.vm.migration.migratability import NOT_ALLOWED, moving
from livevirt.vm.spec.resources import Namespace
from livevirt.vm.verdict.judgement import Reason

ACCELERATOR = "livevirt.io/accelerator"  # the label of a node: kvm or tcg
#: Ways to go live that no node of this release supports; such a change waits for a restart.
NOT_YET: frozenset[Reason] = frozenset()


@dataclass(frozen=True, slots=True)
class Bound:
    """What a Node, a ResourceQuota or a LimitRange has left for a pod.

    `left` is keyed as quotas are: `requests.cpu`, `limits.memory`, and `cpu` for `requests.cpu`.
    It is counted from what the instance asks for, and negative if its pod has not caught up. For a
    LimitRange it is the maximum of a container less what this one has, and `spare` is what this
    one has above the minimum.
    """

    kind: str
    name: str
    left: Mapping[str, Quantity]
    spare: Mapping[str, Quantity] = field(default_factory=dict)


class VerdictInputs(msgspec.Struct, frozen=True):
    """Everything a verdict depends on, read at one moment.

    `started` and `wanted` are the expanded template specs of the last start and of the VM as it is
    to be. What is not known is no obstacle. `config` is the cluster's current configuration, for
    strategy (the VM's own, if it has one), feature gates and the defaults of a field that the spec
    drops; sizes follow the defaults that the instance recorded.
    """

    started: Object
    wanted: Object
    vmi: Object | None
    config: Config
    accelerator: str = ""  # of the node that runs the guest
    volumes_strategy: str = ""  # the VM's `updateVolumesStrategy`
    namespace: Namespace = Namespace()  # what it demands of the pod
    bounds: tuple[Bound, ...] = ()  # that limit how far the pod can grow in place
    migration_obstacle: str = NOT_ALLOWED  # why livevirt may not migrate the guest; empty if it may
    #: What every other eligible node leaves for the guest's container; None if they are not known.
    other_nodes: tuple[Bound, ...] | None = None
    second_pod: tuple[Bound, ...] = ()  # quotas, as they limit the pod of a migration's target
    unsupported: frozenset[Reason] = NOT_YET  # ways to go live that the node does not support
    unknown: str = ""  # why the edit cannot be judged, if so
    rollout_reason: str = ""  # why the strategy is not the cluster's
    opens: datetime | None = None  # the next maintenance window, if edits wait for one
    #: Labels and annotations of the template at the start and as they are to be.
    started_metadata: Object = {}
    wanted_metadata: Object = {}
    objects: Mapping[str, Any] = {}  # the objects it was made from, by the names `plan` reports

    @property
    def runs(self) -> bool:
        """Whether there is a guest that an edit could reach."""
        return self.vmi is not None and is_running(self.vmi)

    @property
    def agent(self) -> bool:
        """Whether the guest agent is connected."""
        listed = status_of(self.vmi).get("conditions") or []
        return conditions.is_true(listed, "AgentConnected")

    @property
    def migrating(self) -> bool:
        """Whether a migration is in progress; its target has the size of when that began."""
        return moving(self.vmi)


def is_running(vmi: Object) -> bool:
    """Return whether an instance has neither ended nor is being deleted."""
    if "deletionTimestamp" in vmi["metadata"]:
        return False
    return status_of(vmi).get("phase") not in FINAL


def revision_of(vmi: Object | None) -> str:
    """Return the name of the revision that records an instance's start, empty if it has none."""
    return str(status_of(vmi).get("virtualMachineRevisionName") or "")
