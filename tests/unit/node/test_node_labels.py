"""The labels of a Node that a kubelet has registered."""

from __future__ import annotations

from livevirt.node import node_labels
from livevirt.node.registration import Facts
from livevirt.qemu.accelerator import Accelerator, Offer
from livevirt.vm.spec.placement_validation import CPU_MODEL, MACHINE_TYPE

FACTS = Facts(
    "node-1",
    {},
    Accelerator("tcg", "no /dev/kvm"),
    (7, 2, 0),
    offer=Offer(cpu_models=("Haswell",), machine_types=("pc-q35-7.2",)),
)


def test_a_node_gets_our_labels_and_keeps_those_of_the_kubelet() -> None:
    old = {"kubernetes.io/hostname": "other", "cpumanager": "false", f"{CPU_MODEL}Gone": "true"}
    patch = node_labels.patch(FACTS, {"metadata": {"labels": old}}, "2026-01-01T00:00:00Z")
    labels = patch["metadata"]["labels"]
    assert labels["kubevirt.io/schedulable"] == "true"
    assert labels[f"{CPU_MODEL}Haswell"] == labels[f"{MACHINE_TYPE}pc-q35-7.2"] == "true"
    assert labels[f"{CPU_MODEL}Gone"] is None
    assert not any(name.startswith("kubernetes.io/") or name == "cpumanager" for name in labels)
    assert patch["metadata"]["annotations"][node_labels.HEARTBEAT] == "2026-01-01T00:00:00Z"
    assert set(patch) == {"metadata"}
