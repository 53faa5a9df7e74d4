"""Edits of running VMs, built so that tests read aloud."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import NOTHING, Share, instance_of, taken
from livevirt.kube.objects.request import Object
from livevirt.vm.config import settings as configs
from livevirt.vm.config.settings import Config, Defaults
from livevirt.vm.spec import defaults, disks
from livevirt.vm.verdict.gather import gather_room_now
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.verdict import judge
from livevirt.vm.verdict.verdict_inputs import VerdictInputs

GATES = frozenset({"VMLiveUpdateFeatures", "HotplugVolumes", "InjectEjectCDROM"})
LIVE = Config(strategy="LiveUpdate", gates=GATES)
STAGE = Config(strategy="Stage", gates=GATES)
#: What is around a guest: fields of its VerdictInputs.
Around = dict[str, Any]
KVM: Around = {"accelerator": "kvm"}
TCG: Around = {"accelerator": "tcg"}
TEMPLATE = "spec.template.spec."
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)

GONE = object()  # the value of a field that an edit removes


def a_spec(**edits: Any) -> Object:
    """Return a template of one socket and 1Gi with a boot disk, a hot one and an empty drive."""
    spec: Object = {
        "domain": {
            "cpu": {"sockets": 1, "cores": 2},
            "memory": {"guest": "1Gi"},
            "devices": {
                "disks": [
                    {"name": "root", "disk": {"bus": "virtio"}},
                    {"name": "data", "disk": {"bus": "scsi"}},
                    {"name": "cd", "cdrom": {"bus": "sata"}},
                ],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [
            {"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}},
            a_claim("data"),
        ],
    }
    return edited(spec, {path.replace("__", "."): value for path, value in edits.items()})


def a_claim(name: str, claim: str = "", *, hot: bool = True) -> Object:
    source: Object = {"claimName": claim or name}
    return {"name": name, "persistentVolumeClaim": source | ({"hotpluggable": True} if hot else {})}


def edited(spec: Object, edits: dict[str, Any]) -> Object:
    """Return a copy with values set by dotted path; numbers index lists, `+` appends."""
    found = copy.deepcopy(spec)
    for path, value in edits.items():
        *above, last = path.split(".")
        parent: Any = found
        for part in above:
            parent = parent[int(part)] if part.isdigit() else parent.setdefault(part, {})
        if last == "+":
            parent.append(value)
        elif value is GONE:
            del parent[int(last) if last.isdigit() else last]
        else:
            parent[int(last) if last.isdigit() else last] = value
    return found


def running(spec: Object, config: Config = LIVE, **status: Any) -> Object:
    """Return the instance that a template was started as."""
    made = copy.deepcopy(spec)
    disks.add_missing(made)
    defaults.fill(made, "vm-uid", config)
    owner = {"kind": "VirtualMachine", "uid": "vm-uid", "controller": True}
    return {
        "metadata": {
            "name": "web",
            "uid": "vmi-uid",
            "annotations": {configs.RECORDED: config.recorded()},
            "ownerReferences": [owner],
        },
        "spec": made,
        "status": {"phase": "Running", **status},
    }


def judged(
    started: Object,
    wanted: Object,
    *,
    config: Config = LIVE,
    around: Around = KVM,
    vmi: Object | None = None,
    **status: Any,
) -> Judgement:
    """Return the judgement on an edit of a guest that was started under LiveUpdate."""
    found = vmi or running(started, **status)
    return judge(VerdictInputs(started, wanted, found, config, **around))


def rulings(judgement: Judgement) -> dict[str, tuple[str, str]]:
    """Return verdict and reason by the short path of each change."""
    return {
        change.path.removeprefix(TEMPLATE): (str(change.verdict), str(change.reason))
        for change in judgement.changes
    }


def condition(type_: str, status: str = "True") -> Object:
    return {"type": type_, "status": status}


def with_defaults(**values: Any) -> Config:
    """Return live settings with other cluster defaults."""
    return Config(strategy="LiveUpdate", gates=GATES, defaults=Defaults(**values))


@dataclass(frozen=True)
class Surroundings:
    """The objects around a guest, read as `gather` does; `pods` are those of its node."""

    quotas: Sequence[Object] = ()
    limit_ranges: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    nodes: Sequence[tuple[Object, Share]] = ()  # and what their pods use
    named: Sequence[tuple[Kind, Object]] = ()  # other objects

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        found = (obj for each, obj in self.named if each == kind)
        return next((obj for obj in found if obj["metadata"].get("name", name) == name), None)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        by_kind = {
            core.QUOTA.resource: self.quotas,
            core.LIMIT_RANGE.resource: self.limit_ranges,
            core.NODE.resource: [node for node, _ in self.nodes],
        }
        return list(by_kind[kind.resource])

    def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        shares = {each["metadata"]["name"]: share for each, share in self.nodes}
        own = next((pod for pod in self.pods if instance_of(pod) == instance), None)
        others = taken(self.pods, own) if self.pods else NOTHING
        return own, shares.get(node, others)


def room(vmi: Object, around: Surroundings, node: Object | None = None) -> VerdictInputs:
    """Return what is left for the pod of a guest, as inputs of a verdict."""
    inputs = VerdictInputs(vmi["spec"], vmi["spec"], vmi, LIVE, objects={"node": node})
    return gather_room_now(inputs, vmi, around)
