"""Which instance types a VM can have, from the plan of switching to each."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.cli.vm.documents import Named
from livevirt.cli.vm.fits import Fit, Reach, document, fit, ordered
from livevirt.vm import kinds

Object = dict[str, Any]

VM = {"spec": {"instancetype": {"name": "u1.nano"}}}
SOCKETS = "spec.template.spec.domain.cpu.sockets"
MEMORY = "spec.template.spec.domain.memory.guest"
MODEL = "spec.template.spec.domain.cpu.model"


def change(path: str, verdict: str, **more: Any) -> Object:
    told = {"from": 1, "to": 2, "reason": "X", "message": "it is so"}
    return {"path": path, "verdict": verdict, **told, **more}


def a_plan(verdict: str, *changes: Object, running: bool = True, waits: bool = False) -> Object:
    return {"verdict": verdict, "running": running, "waits": waits, "changes": [*changes]}


def stopped(*nodes: str, message: str = "") -> Object:
    return {
        **a_plan("Live", running=False),
        "placement": {"nodes": [*nodes], "message": message},
    }


def a_type(name: str, vcpus: int | None = 1, memory: str | None = "1Gi") -> Object:
    spec: Object = {"cpu": {"guest": vcpus} if vcpus else {}, "memory": {}}
    if memory:
        spec["memory"]["guest"] = memory
    return {"metadata": {"name": name}, "spec": spec}


def shared(name: str) -> Named:
    return Named(kinds.CLUSTER_INSTANCETYPE, name)


GROWS = change(SOCKETS, "LiveAfterResize")
REACHES = {
    "live, and what changes": (
        a_plan("LiveAfterResize", GROWS, change(MEMORY, "Live", **{"from": "1Gi", "to": "2Gi"})),
        Reach.LIVE, "cpu.sockets 1 -> 2; memory.guest 1Gi -> 2Gi",
    ),
    "nothing changes": (a_plan("Live"), Reach.LIVE, ""),
    "live, and what it waits for": (
        a_plan("LiveAfterResize", GROWS, change(MEMORY, "LiveAfterResize", waits=True), waits=True),
        Reach.WAITS, "memory.guest: it is so",
    ),
    "a restart, and for which field": (
        a_plan("Restart", change(MODEL, "Restart"), change(SOCKETS, "Restart", reason="HeldBack")),
        Reach.RESTART, "cpu.model: it is so",
    ),
    "not at all": (
        a_plan("Refused", GROWS, change(MEMORY, "Refused", message="too little")),
        Reach.NO, "memory.guest: too little",
    ),
    "no guest runs": (a_plan("Live", running=False), Reach.START, ""),
    "no guest runs, and a node has room": (stopped("node-1"), Reach.START, ""),
    "no guest runs, and no node has room": (
        stopped(message="no node has room: Node a is missing 1Gi of memory"),
        Reach.NO_NODE, "no node has room: Node a is missing 1Gi of memory",
    ),
    "no guest runs, and it is refused": (
        a_plan("Refused", change(MEMORY, "Refused"), running=False),
        Reach.NO, "memory.guest: it is so",
    ),
    "more reasons than fit": (
        a_plan("Restart", *[change(f"{MODEL}{n}", "Restart") for n in range(5)]),
        Reach.RESTART, "cpu.model0: it is so; cpu.model1: it is so; cpu.model2: it is so; 2 more",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("plan", "reach", "why"), REACHES.values(), ids=REACHES)
def test_reaches(plan: Object, reach: Reach, why: str) -> None:
    found = fit(VM, a_type("u1.micro"), shared("u1.micro"), plan)
    assert (found.reach, found.why, found.current) == (reach, why, False)


def test_the_one_it_has_is_marked() -> None:
    assert fit(VM, a_type("u1.nano"), shared("u1.nano"), a_plan("Live")).current
    own = Named(kinds.INSTANCETYPE, "u1.nano")
    assert not fit(VM, a_type("u1.nano"), own, a_plan("Live")).current


def test_the_easiest_come_first_and_then_the_smallest() -> None:
    rows = [("no", None, None), ("big", 2, "1Gi"), ("small", 1, "512Mi"), ("mid", 1, "1Gi")]
    fits = [
        Fit(shared(name), a_type(name, vcpus, memory)["spec"], reach, "")
        for (name, vcpus, memory), reach in zip(
            rows, (Reach.NO, Reach.LIVE, Reach.RESTART, Reach.LIVE), strict=True
        )
    ]
    assert [each.to.name for each in ordered(fits)] == ["mid", "big", "small", "no"]


def test_programs_are_told_the_same() -> None:
    own = Named(kinds.INSTANCETYPE, "x")
    told = document([Fit(own, a_type("x", None, None)["spec"], Reach.RESTART, "why", True)])
    assert told == [
        {
            "kind": "VirtualMachineInstancetype", "name": "x", "vcpus": None, "memory": None,
            "reach": "restart", "why": "why", "current": True, "conflicts": [],
        }
    ]  # fmt: skip
