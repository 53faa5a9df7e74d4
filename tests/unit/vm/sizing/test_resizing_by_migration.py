"""Changes of size that take a migration: none is asked for in place, and the words are true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from livevirt.errors import Forbidden
from livevirt.vm.config.settings import Config
from livevirt.vm.migration.migratability import NOT_ALLOWED
from livevirt.vm.sizing import resizing
from livevirt.vm.sizing.hot_change import Obstacle
from livevirt.vm.sizing.reservation import Size, held
from livevirt.vm.sizing.resizing import Ask, Bounds
from livevirt.vm.spec.resources import Namespace
from livevirt.vm.verdict.growth import BY_MIGRATION
from livevirt.vm.verdict.judgement import Reason

OPEN = Config(update_methods=frozenset({"LiveMigrate"}))
CLOSED = replace(OPEN, disabled=frozenset({"InPlaceHotplug"}))
MIB = 2**20


def a_vmi(sockets: int = 1, guest: str = "512Mi", **domain: Any) -> Any:
    cpu = {"sockets": sockets, "maxSockets": 4, **domain.pop("cpu", {})}
    memory = {"guest": guest, "maxGuest": "4Gi", **domain.pop("memory", {})}
    listed: list[Any] = [{"type": "LiveMigratable", "status": "True"}]
    return {
        "metadata": {"name": "web"},
        "spec": {"domain": {"cpu": cpu, "memory": memory}},
        "status": {
            "conditions": listed,
            "currentCPUTopology": {"sockets": 1},
            "memory": {"guestCurrent": "512Mi"},
        },
    }


def a_pod(vmi: Any, sockets: int = 1, memory: int = 512) -> Any:
    need = held(vmi, Size(sockets, memory * MIB))
    resources = {"requests": need.requests, "limits": need.limits}
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "compute", "resources": resources}]},
    }


PINNED = {"cpu": {"dedicatedCpuPlacement": True}}
PAGED = {"memory": {"hugepages": {"pageSize": "2Mi"}}}
IN_PLACE = ""
DISABLED, CPUS, PAGES = (
    BY_MIGRATION[reason]
    for reason in (Reason.IN_PLACE_DISABLED, Reason.DEDICATED_CPUS, Reason.HUGE_PAGES)
)

ROWS = {
    "more sockets": (a_vmi(3), OPEN, IN_PLACE),
    "more memory": (a_vmi(1, "1Gi"), OPEN, IN_PLACE),
    "gate closed": (a_vmi(3), CLOSED, DISABLED),
    "gate closed, more memory": (a_vmi(1, "1Gi"), CLOSED, DISABLED),
    "gate closed, nothing to do": (a_vmi(1), CLOSED, IN_PLACE),
    "CPUs of its own": (a_vmi(3, **PINNED), OPEN, CPUS),
    "memory of a guest with such CPUs": (a_vmi(1, "1Gi", **PINNED), OPEN, IN_PLACE),
    "huge pages": (a_vmi(1, "1Gi", **PAGED), OPEN, PAGES),
    "sockets of a guest with huge pages": (a_vmi(3, **PAGED), OPEN, IN_PLACE),
}


@pytest.mark.parametrize(("vmi", "config", "why"), ROWS.values(), ids=ROWS)
def test_what_a_pod_cannot_become_where_it_is(vmi: Any, config: Config, why: str) -> None:
    need = resizing.needed(vmi, Namespace())
    assert resizing.by_migration(vmi, a_pod(vmi), need, config) == why


def test_given_a_pod_of_the_size_then_nothing_takes_a_migration() -> None:
    for vmi in (a_vmi(3), a_vmi(3, **PINNED), a_vmi(3, **PAGED)):
        need = resizing.needed(vmi, Namespace())
        assert resizing.by_migration(vmi, a_pod(vmi, 3), need, CLOSED) == ""


def test_given_the_gate_closed_when_the_guest_has_shrunk_then_its_pod_follows_by_migration() -> (
    None
):
    vmi = a_vmi(1)
    need = resizing.needed(vmi, Namespace())
    assert resizing.by_migration(vmi, a_pod(vmi, 3), need, CLOSED) == DISABLED


@pytest.mark.wording
def test_a_change_says_why_it_waits() -> None:
    vmi = a_vmi(3)
    refused = replace(CLOSED, update_methods=frozenset())
    found = resizing.waiting(vmi, DISABLED, refused)
    assert found == Obstacle("WaitingForMigration", f"{DISABLED}; {NOT_ALLOWED}")
    assert resizing.waiting(vmi, DISABLED, CLOSED) == Obstacle("WaitingForMigration", DISABLED)
    vmi["status"]["conditions"][0] |= {"status": "False", "reason": "DisksNotLiveMigratable"}
    assert "DisksNotLiveMigratable" in resizing.waiting(vmi, DISABLED, CLOSED).message


def test_a_change_of_a_guest_that_moves_says_where_to() -> None:
    vmi = a_vmi(3)
    vmi["status"]["migrationState"] = {"migrationUid": "m", "targetNode": "node02"}
    assert resizing.moving(vmi) is None
    vmi["status"]["podResize"] = {"reason": "WaitingForMigration", "message": "m"}
    assert resizing.moving(vmi) == Obstacle(
        "WaitingForMigration", "the guest is being migrated to node02"
    )
    vmi["status"]["podResize"]["reason"] = "OverQuota"
    assert resizing.moving(vmi) == Obstacle("OverQuota", "m")


@pytest.mark.parametrize(
    ("hindrance", "next_move"),
    [("", "is to migrate to a node that has room"), (NOT_ALLOWED, NOT_ALLOWED)],
)
def test_a_node_too_small_is_told_with_what_comes_next(hindrance: str, next_move: str) -> None:
    vmi = a_vmi(3)
    error = Forbidden("node didn't have enough allocatable resources: cpu, requested: 1")
    need = resizing.needed(vmi, Namespace())
    found = resizing.refusal(error, a_pod(vmi), Ask(need, Bounds(), hindrance))
    assert found.reason == "Infeasible"
    assert found.message.endswith(next_move)
