from __future__ import annotations

from typing import Any

import pytest

from livevirt.vm.spec.placement_validation import needed


def feature(name: str, policy: str | None = None) -> dict[str, Any]:
    return {"name": name, **({"policy": policy} if policy is not None else {})}


RULES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "given nothing is named, then any node": ({}, set()),
    "given the host's own CPU, then any node": ({"cpu": {"model": "host-model"}}, set()),
    "given the host's CPU as it is, then any node": ({"cpu": {"model": "host-passthrough"}}, set()),
    "given a model, then nodes that have it": (
        {"cpu": {"model": "Westmere"}}, {"cpu-model.node.kubevirt.io/Westmere"},
    ),
    "given features, then nodes that have those the guest cannot do without": (
        {"cpu": {"features": [
            feature("aes"), feature("avx2", "require"), feature("vmx", "optional"),
            feature("hle", "disable"), feature("rtm", "forbid"), feature("apic", "force"),
        ]}},
        {"cpu-feature.node.kubevirt.io/aes", "cpu-feature.node.kubevirt.io/avx2"},
    ),
    "given CPUs of its own, then nodes that give some away": (
        {"cpu": {"dedicatedCpuPlacement": True}}, {"kubevirt.io/cpumanager"},
    ),
    "given a machine type, then nodes whose QEMU has it": (
        {"machine": {"type": "pc-q35-6.2"}}, {"machine-type.node.kubevirt.io/pc-q35-6.2"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("domain", "labels"), RULES.values(), ids=RULES)
def test_needed(domain: dict[str, Any], labels: set[str]) -> None:
    assert needed({"domain": domain}) == dict.fromkeys(labels, "true")
