"""Sizes that cannot change in place: which migrate, and what the others wait for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.migration.migratability import NOT_ALLOWED
from livevirt.vm.sizing import resizing
from livevirt.vm.sizing.reservation import held, reported_size
from livevirt.vm.spec.resources import Namespace
from livevirt.vm.verdict.live_patch import live_patch
from livevirt.vm.verdict.summary import exit_status, plan_document
from livevirt.vm.verdict.verdict_inputs import Bound

from ..cases import KVM, LIVE, TCG, Around, a_spec, edited, judged, rulings, running

Edits = dict[str, Any]

SOCKETS = "domain.cpu.sockets"
CLOSED = replace(LIVE, disabled=frozenset({"InPlaceHotplug"}))
FREE: Around = {**KVM, "migration_obstacle": ""}
GATE = ("LiveAfterMigration", "InPlaceHotplugDisabled")
MOVES, STAYS = ("LiveAfterMigration", "NodeFull"), ("LiveAfterResize", "NodeFull")
# From one socket of two cores to two: the pod goes from 200m to 400m.


def a_bound(kind: str, name: str, **left: str) -> Bound:
    return Bound(kind, name, {k.replace("_", "."): parse(v) for k, v in left.items()})


def around(
    *bounds: Bound, elsewhere: list[str] | None = None, quota: dict[str, str] | None = None
) -> Around:
    """Return where a guest that may migrate is; `elsewhere` tells the CPU other nodes have left."""
    nodes = None
    if elsewhere is not None:
        nodes = tuple(a_bound("Node", f"n{i}", cpu=cpu) for i, cpu in enumerate(elsewhere))
    second = () if quota is None else (a_bound("ResourceQuota", "team", **quota),)
    return {**FREE, "bounds": bounds, "other_nodes": nodes, "second_pod": second}


FULL = a_bound("Node", "here", cpu="0")
SHORT = a_bound("ResourceQuota", "team", requests_cpu="0")
RANGE = a_bound("LimitRange", "sane", cpu="0")

ROWS: dict[str, tuple[Config, Around, tuple[str, str], str]] = {
    # the gate is closed: migration is the only way
    "gate closed": (CLOSED, FREE, GATE, ""),
    "gate closed, not allowed": (CLOSED, KVM, GATE, NOT_ALLOWED),
    "gate closed, room elsewhere": (CLOSED, around(elsewhere=["0", "400m"]), GATE, ""),
    "gate closed, other nodes full": (
        CLOSED, around(elsewhere=["399m", "0"]), GATE,
        "no other node has room: Node n0 is missing 1m of cpu; Node n1 is missing 400m of cpu",
    ),
    "gate closed, no other node": (
        CLOSED, around(elsewhere=[]), GATE, "there is no other node that takes it",
    ),
    "gate closed, quota for a second pod": (
        CLOSED, around(quota={"requests_cpu": "400m", "pods": "1"}), GATE, "",
    ),
    "gate closed, quota for the difference only": (
        CLOSED, around(quota={"requests_cpu": "200m"}), GATE,
        "a migration takes a second pod, and ResourceQuota team is missing 200m of requests.cpu",
    ),
    "gate closed, no second pod at all": (
        CLOSED, around(quota={"pods": "0"}), GATE,
        "a migration takes a second pod, and ResourceQuota team is missing 1 of pods",
    ),
    "gate closed, limit range": (
        CLOSED, around(RANGE), GATE, "LimitRange sane is missing 200m of cpu",
    ),
    # in place where there is room, whatever a migration would meet
    "quota for the difference only": (
        LIVE, around(quota={"requests_cpu": "200m"}), ("LiveAfterResize", "PodResize"), "",
    ),
    # no room in place
    "full node, room elsewhere": (LIVE, around(FULL, elsewhere=["400m"]), MOVES, ""),
    "full node, nothing known of others": (LIVE, around(FULL), MOVES, ""),
    "full node, no room elsewhere": (
        LIVE, around(FULL, elsewhere=["399m"]), STAYS,
        "no other node has room: Node n0 is missing 1m of cpu",
    ),
    "full node, alone": (
        LIVE, around(FULL, elsewhere=[]), STAYS, "there is no other node that takes it",
    ),
    "full node, quota for both": (
        LIVE, around(FULL, elsewhere=["1"], quota={"requests_cpu": "600m"}), MOVES, "",
    ),
    "full node, quota for the difference only": (
        LIVE, around(FULL, elsewhere=["1"], quota={"requests_cpu": "200m"}), STAYS,
        "a migration takes a second pod, and ResourceQuota team is missing 400m of requests.cpu",
    ),
    "full node, not allowed": (LIVE, {**KVM, "bounds": (FULL,)}, STAYS, NOT_ALLOWED),
    "full node and quota": (
        LIVE, around(SHORT, FULL, elsewhere=["8"]), ("LiveAfterResize", "OverQuota"),
        "Node here is missing 200m of cpu",
    ),
    "quota, room elsewhere": (
        LIVE, around(SHORT, elsewhere=["8"]), ("LiveAfterResize", "OverQuota"),
        "ResourceQuota team is missing 200m of requests.cpu",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("config", "where", "ruling", "waits_for"), ROWS.values(), ids=ROWS)
def test_a_size_migrates_only_where_it_must_and_can(
    config: Config, where: Around, ruling: tuple[str, str], waits_for: str
) -> None:
    found = judged(a_spec(), a_spec(domain__cpu__sockets=2), config=config, around=where)

    assert rulings(found) == {SOCKETS: ruling}
    assert found.waits == bool(waits_for)
    assert waits_for in found.changes[0].message
    assert exit_status(plan_document(found, "web", {})) == (4 if waits_for else 0)


@pytest.mark.parametrize(
    ("edit", "path", "reason"),
    [
        ({"domain__cpu__dedicatedCpuPlacement": True}, SOCKETS, "DedicatedCpus"),
        ({"domain__memory__hugepages": {"pageSize": "2Mi"}}, "domain.memory.guest", "HugePages"),
    ],
)
def test_what_a_kubelet_does_not_resize_migrates_if_that_is_allowed(
    edit: dict[str, object], path: str, reason: str
) -> None:
    for where, waits in ((FREE, False), (KVM, True)):
        wanted = a_spec(**edit, domain__cpu__sockets=2, domain__memory__guest="2Gi")
        found = judged(a_spec(**edit), wanted, around=where)
        change = found.change(f"spec.template.spec.{path}")
        assert change is not None
        assert (change.verdict, change.reason) == ("LiveAfterMigration", reason)
        assert change.waits is waits


GUEST = "domain.memory.guest"
ALONE = {"domain.cpu.dedicatedCpuPlacement": True}
PAGES = {"domain.memory.hugepages": {"pageSize": "2Mi"}}
MORE_CPUS, MORE_MEMORY = {SOCKETS: 2}, {GUEST: "2Gi"}
IN_PLACE = ("LiveAfterResize", "PodResize")
# What the guest has, what it was given that it has not got, the edit, and the edit's rulings.
TOGETHER: dict[str, tuple[Edits, Edits, Edits, dict[str, tuple[str, str]]]] = {
    "sockets after memory in pages": (
        PAGES, MORE_MEMORY, MORE_CPUS, {SOCKETS: ("LiveAfterMigration", "HugePages")},
    ),
    "memory after dedicated sockets": (
        ALONE, MORE_CPUS, MORE_MEMORY, {GUEST: ("LiveAfterMigration", "DedicatedCpus")},
    ),
    "sockets with memory in pages": (
        PAGES, {}, MORE_CPUS | MORE_MEMORY,
        dict.fromkeys((SOCKETS, GUEST), ("LiveAfterMigration", "HugePages")),
    ),
    "each for its own reason": (
        PAGES | ALONE, {}, MORE_CPUS | MORE_MEMORY,
        {SOCKETS: ("LiveAfterMigration", "DedicatedCpus"),
         GUEST: ("LiveAfterMigration", "HugePages")},
    ),
    "sockets alone, with pages": (PAGES, {}, MORE_CPUS, {SOCKETS: IN_PLACE}),
    "memory alone, with dedicated CPUs": (ALONE, {}, MORE_MEMORY, {GUEST: IN_PLACE}),
    "while pages are given back": (
        PAGES | MORE_MEMORY, {GUEST: "1Gi"}, MORE_CPUS, {SOCKETS: IN_PLACE},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("has", "given", "edit", "expected"), TOGETHER.values(), ids=TOGETHER)
def test_what_must_migrate_holds_up_the_rest(
    has: Edits, given: Edits, edit: Edits, expected: dict[str, tuple[str, str]]
) -> None:
    started = edited(a_spec(), has)
    vmi, size = running(edited(started, given)), started["domain"]
    vmi["status"] |= {
        "currentCPUTopology": size["cpu"],
        "memory": {"guestCurrent": size["memory"]["guest"]},
    }

    found = judged(started, edited(started, given | edit), vmi=vmi)

    assert rulings(found) == expected
    assert found.waits is (IN_PLACE not in expected.values())
    pod = {"spec": {"containers": [{"name": "compute", "resources": _asked_at(vmi)}]}}
    patched = apply(live_patch(found, vmi), vmi)
    need = resizing.needed(patched, Namespace())
    assert bool(resizing.by_migration(patched, pod, need, LIVE)) is found.waits


def _asked_at(vmi: Object) -> Object:
    """Return what the pod of a guest asks for that has got nothing of what it waits for."""
    return {"requests": held(vmi, reported_size(vmi)).requests}


def test_what_is_written_during_a_migration_waits_from_the_handover_to_its_end() -> None:
    for state, waits in (({"migrationUid": "m"}, True), ({"endTimestamp": "t"}, False)):
        found = judged(a_spec(), a_spec(domain__cpu__sockets=2), around=FREE, migrationState=state)
        assert found.waits is waits


@pytest.mark.parametrize(
    ("reason", "live"),
    [("WaitingForMigration", True), ("Deferred", True), ("OverQuota", True), ("Plugging", False)],
)
def test_a_growth_that_never_reached_an_emulated_guest_is_set_back_without_an_agent(
    reason: str, live: bool
) -> None:
    vmi = running(a_spec(domain__cpu__sockets=2))
    vmi["status"] |= {
        "currentCPUTopology": {"sockets": 1},
        "conditions": [{"type": "HotVCPUChange", "status": "True", "reason": reason}],
    }

    found = judged(a_spec(), a_spec(), vmi=vmi, around=TCG)

    assert [change.live for change in found.changes] == [live]
