"""Fact sheet 5: the least a VM must have for its preference."""

from __future__ import annotations

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.expansion import Sizing, expand, unmet

CPU, MEMORY = "spec.template.spec.domain.cpu", "spec.template.spec.domain.memory"
PREFIX = "failure checking preference requirements: "


def needs(topology: str = "", across: str = "", **requirements: object) -> Object:
    cpu: Object = {"preferredCPUTopology": topology} if topology else {}
    if across:
        cpu["spreadOptions"] = {"across": across}
    return {"cpu": cpu, "requirements": requirements}


FOUR: Object = {"guest": 4}
SIZED: Object = {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}
OPEN: Object = {"cpu": {}, "memory": {}}
SMALL: Object = {"cpu": {"sockets": 2, "cores": 2}, "memory": {"guest": "1Gi"}}

RULES: dict[str, tuple[Object, Object | None, Object, tuple[str, str] | None]] = {
    "no requirements": ({}, SIZED, {}, None),
    "vCPUs of the type": (
        {}, SIZED, needs(cpu=FOUR),
        ("spec.instancetype", "insufficient CPU resources of 2 vCPU provided by instance type,"
         " preference requires 4 vCPU"),
    ),
    "enough vCPUs of the type": ({}, SIZED, needs(cpu={"guest": 2}), None),
    "7.4 vCPUs of the VM on an open type": (
        {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}, OPEN, needs(cpu=FOUR),
        (f"{CPU}.guest", "insufficient CPU resources of 2 vCPU provided by VirtualMachine,"
         " preference requires 4 vCPU"),
    ),
    "7.4 vCPUs of the VM, spread by the preference": (
        {"cpu": {"guest": 4}}, None, needs("cores", cpu=FOUR), None,
    ),
    "no CPUs at all count as one": (
        {}, None, needs(cpu=FOUR),
        (f"{CPU}.sockets", "insufficient CPU resources of 1 vCPU provided by VirtualMachine,"
         " preference requires 4 vCPU provided as sockets"),
    ),
    "sockets": (
        SMALL, None, needs("sockets", cpu=FOUR),
        (f"{CPU}.sockets", "insufficient CPU resources of 2 vCPU provided by VirtualMachine,"
         " preference requires 4 vCPU provided as sockets"),
    ),
    "cores": (
        SMALL, None, needs("preferCores", cpu=FOUR),
        (f"{CPU}.cores", "insufficient CPU resources of 2 vCPU provided by VirtualMachine,"
         " preference requires 4 vCPU provided as cores"),
    ),
    "threads": (
        SMALL, None, needs("threads", cpu=FOUR),
        (f"{CPU}.threads", "insufficient CPU resources of 1 vCPU provided by VirtualMachine,"
         " preference requires 4 vCPU provided as threads"),
    ),
    "any": (
        SMALL, None, needs("any", cpu={"guest": 8}),
        (f"{CPU}.cores, {CPU}.sockets, {CPU}.threads",
         "insufficient CPU resources of 4 vCPU provided by VirtualMachine, preference requires 8"
         " vCPU provided as cores, sockets and threads"),
    ),
    "any, enough": (SMALL, None, needs("any", cpu=FOUR), None),
    "spread over sockets and cores": (SMALL, None, needs("spread", cpu=FOUR), None),
    "spread over cores and threads": (
        SMALL, None, needs("spread", "CoresThreads", cpu=FOUR),
        (f"{CPU}.cores, {CPU}.threads",
         "insufficient CPU resources of 2 vCPU provided by VirtualMachine, preference requires 4"
         " vCPU provided as CoresThreads"),
    ),
    "too few spread over sockets and cores": (
        SMALL, None, needs("spread", cpu={"guest": 8}),
        (f"{CPU}.cores, {CPU}.sockets",
         "insufficient CPU resources of 4 vCPU provided by VirtualMachine, preference requires 8"
         " vCPU provided as SocketsCores"),
    ),
    "spread over all": (SMALL, None, needs("spread", "SocketsCoresThreads", cpu=FOUR), None),
    "too few spread over all": (
        SMALL, None, needs("spread", "SocketsCoresThreads", cpu={"guest": 8}),
        (f"{CPU}.cores, {CPU}.sockets, {CPU}.threads",
         "insufficient CPU resources of 4 vCPU provided by VirtualMachine, preference requires 8"
         " vCPU provided as SocketsCoresThreads"),
    ),
    "memory of the type": (
        {}, SIZED, needs(memory={"guest": "2Gi"}),
        ("spec.instancetype", "insufficient Memory resources of 1Gi provided by instance type,"
         " preference requires 2Gi"),
    ),
    "memory of the VM on an open type": (
        {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}, OPEN, needs(memory={"guest": "2Gi"}),
        (MEMORY, "insufficient Memory resources of 1Gi provided by VirtualMachine, preference"
         " requires 2Gi"),
    ),
    "memory of the VM": (
        SMALL, None, needs(memory={"guest": "2Gi"}),
        (MEMORY, "insufficient Memory resources of 1Gi provided by VirtualMachine, preference"
         " requires 2Gi"),
    ),
    "no memory": (
        {}, None, needs(memory={"guest": "2Gi"}),
        (MEMORY, "insufficient Memory resources of 0 provided by VirtualMachine, preference"
         " requires 2Gi"),
    ),
    "memory that is requested": (
        {"resources": {"requests": {"memory": "2Gi"}}}, None, needs(memory={"guest": "2Gi"}), None,
    ),
    "the same amount in other words": (
        {"memory": {"guest": "2048Mi"}}, None, needs(memory={"guest": "2Gi"}), None,
    ),
    "architecture": (
        {}, None, needs(architecture="arm64"),
        ("spec.template.spec.architecture",
         "preference requires architecture arm64 but amd64 is being requested"),
    ),
    "the architecture that it prefers itself": (
        {}, None, {**needs(architecture="arm64"), "preferredArchitecture": "arm64"}, None,
    ),
    "the first one only": (
        {}, SIZED, needs(cpu=FOUR, memory={"guest": "2Gi"}, architecture="arm64"),
        ("spec.instancetype", "insufficient CPU resources of 2 vCPU provided by instance type,"
         " preference requires 4 vCPU"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("own", "owned", "preference", "told"), RULES.values(), ids=RULES)
def test_unmet(
    own: Object, owned: Object | None, preference: Object, told: tuple[str, str] | None
) -> None:
    template = {"spec": {"domain": {"devices": {}, **own}}}
    sizing = Sizing(owned, preference)
    expanded = expand(template, sizing)
    assert expanded.errors == ()
    found = [(e.field, e.message, e.reason) for e in unmet(template, expanded, sizing)]
    expected = [] if told is None else [(told[0], PREFIX + told[1], "FieldValueNotFound")]
    assert found == expected
