"""Labels of nodes by what guests there can have, and those a guest needs of its node."""

from __future__ import annotations

from livevirt.kube.objects.pod_resources import CPU_MANAGER, YES
from livevirt.kube.objects.request import Object

#: KubeVirt's prefixes; the name of the model, feature or type follows.
CPU_MODEL = "cpu-model.node.kubevirt.io/"
CPU_FEATURE = "cpu-feature.node.kubevirt.io/"
MACHINE_TYPE = "machine-type.node.kubevirt.io/"

NO = "false"
_ANY_NODE_HAS = ("", "host-model", "host-passthrough")
_DEMANDS = ("", "require")  # policies of a feature; every other one can do without


def needed(spec: Object) -> dict[str, str]:
    """Return the labels of nodes that have what an instance's spec names."""
    domain = spec.get("domain") or {}
    cpu, machine = domain.get("cpu") or {}, domain.get("machine") or {}
    found = []
    if (cpu.get("model") or "") not in _ANY_NODE_HAS:
        found.append(CPU_MODEL + cpu["model"])
    for feature in cpu.get("features") or ():
        if (feature.get("policy") or "") in _DEMANDS:
            found.append(CPU_FEATURE + feature["name"])
    if machine.get("type"):
        found.append(MACHINE_TYPE + machine["type"])
    if cpu.get("dedicatedCpuPlacement"):
        found.append(CPU_MANAGER)
    return dict.fromkeys(found, YES)
