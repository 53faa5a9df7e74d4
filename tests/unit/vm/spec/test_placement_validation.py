from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.kinds import VM

from ..vm_review import LIVE, a_spec, a_vm, review

DOMAIN = "spec.template.spec.domain"
OWN = {"cores": 2, "dedicatedCpuPlacement": True}
PAGES = {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}
NUMA = {"guestMappingPassthrough": {}}


def a_domain(**parts: Any) -> Object:
    spec = a_spec()
    spec["domain"] |= parts
    return spec


WRONG: dict[str, tuple[Object, str, str]] = {
    "an emulator apart from CPUs that are shared": (
        a_domain(cpu={"isolateEmulatorThread": True}), "cpu.isolateEmulatorThread",
        "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement",
    ),
    "a part of a CPU": (
        a_domain(cpu=OWN, resources={"requests": {"cpu": "1500m"}}), "resources.requests.cpu",
        f"{DOMAIN}.resources.requests.cpu '1500m' must be an integer when DedicatedCPUPlacement is"
        " true",
    ),
    "other CPUs than vCPUs": (
        a_domain(cpu=OWN, resources={"limits": {"cpu": "3"}}), "resources.limits.cpu",
        f"{DOMAIN}.resources.limits.cpu '3' must be equal to the number of vCPUs '2' when"
        " DedicatedCPUPlacement is true",
    ),
    "memory that may be borrowed": (
        a_domain(cpu=OWN, resources={"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}),
        "resources.limits.memory",
        f"{DOMAIN}.resources.limits.memory '2Gi' must be equal to"
        f" {DOMAIN}.resources.requests.memory '1Gi' when DedicatedCPUPlacement is true",
    ),
    "NUMA with shared CPUs": (
        a_domain(cpu={"numa": NUMA}, memory=PAGES), "cpu.numa.guestMappingPassthrough",
        f"{DOMAIN}.cpu.dedicatedCpuPlacement must be set to true when NUMA topology strategy is set"
        f" in {DOMAIN}.cpu.numa.guestMappingPassthrough",
    ),
    "NUMA without huge pages": (
        a_domain(cpu={**OWN, "numa": NUMA}), "cpu.numa.guestMappingPassthrough",
        f"{DOMAIN}.memory.hugepages must be requested when NUMA topology strategy is set in"
        f" {DOMAIN}.cpu.numa.guestMappingPassthrough",
    ),
    "a request that is no number of pages": (
        a_domain(memory=PAGES, resources={"requests": {"memory": "1025Mi"}}),
        "resources.requests.memory",
        f"{DOMAIN}.resources.requests.memory '1025Mi' must be a multiple of the page size '2Mi'",
    ),
    "a policy nobody knows": (
        a_domain(ioThreadsPolicy="many"), "ioThreadsPolicy", "Invalid IOThreadsPolicy (many)",
    ),
    "a pool of none": (
        a_domain(ioThreadsPolicy="supplementalPool"), "ioThreads.supplementalPoolThreadCount",
        f"{DOMAIN}.ioThreads.supplementalPoolThreadCount must be between 1 and 256 with policy"
        " supplementalPool",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(spec: Object, field: str, message: str) -> None:
    _, errors, _ = review(VM, a_vm(spec))
    assert [(each.field, each.message) for each in errors] == [(f"{DOMAIN}.{field}", message)]


RIGHT: dict[str, Object] = {
    "CPUs of its own": a_domain(cpu=OWN),
    "as many as requested": a_domain(
        cpu={"dedicatedCpuPlacement": True}, resources={"requests": {"cpu": "2"}}
    ),
    "all of it": a_domain(
        cpu={**OWN, "isolateEmulatorThread": True, "numa": NUMA},
        memory=PAGES,
        ioThreadsPolicy="supplementalPool",
        ioThreads={"supplementalPoolThreadCount": 2},
    ),
}


@pytest.mark.parametrize("spec", RIGHT.values(), ids=RIGHT)
def test_what_is_right_is_acted_on_without_a_warning(spec: Object) -> None:
    _, errors, warnings = review(VM, a_vm(spec))
    assert (errors, warnings) == ([], [])


def test_a_cluster_s_cpu_request_is_not_for_guests_with_cpus_of_their_own() -> None:
    _, errors, _ = review(VM, a_vm(a_domain(cpu=OWN)), settings={**LIVE, "cpuRequest": "250m"})
    assert errors == []
