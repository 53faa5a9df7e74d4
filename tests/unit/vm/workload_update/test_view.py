"""Which guests need another pod, and which only wait for something where they are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.migration.queue import Limits
from livevirt.vm.workload_update import view
from livevirt.vm.workload_update.view import Need


def a_vmi(*conditions: Object, **status: Any) -> Object:
    meta = {"name": "web", "namespace": "team", "uid": "u"}
    return {"metadata": meta, "status": {"phase": "Running", "conditions": [*conditions], **status}}


def cpu(reason: str, status: str = "True") -> Object:
    return {"type": "HotVCPUChange", "status": status, "reason": reason}


def memory(reason: str) -> Object:
    return {"type": "HotMemoryChange", "status": "True", "reason": reason}


REQUIRED = {"type": "MigrationRequired", "status": "True"}
COPYING = {"type": "VolumesChange", "status": "True", "reason": "Copying"}
OLD = {"launcherContainerImageVersion": "livevirt/launcher:0.0.1"}
NEW = {"launcherContainerImageVersion": launcher.IMAGE}

NEEDS = {
    "nothing": (a_vmi(**NEW), None),
    "a size by migration": (a_vmi(cpu("WaitingForMigration")), Need.SIZE),
    "a larger node": (a_vmi(memory("Infeasible")), Need.TOO_SMALL),
    "a node with room": (a_vmi(cpu("Deferred"), memory("Deferred")), Need.FULL),
    "one of the two by migration": (
        a_vmi(cpu("Deferred"), memory("WaitingForMigration")), Need.SIZE,
    ),
    "in place": (a_vmi(cpu("WaitingForResize"), memory("Plugging")), None),
    "quota": (a_vmi(cpu("OverQuota")), None),
    "quota, and a full node": (a_vmi(cpu("OverQuota"), memory("Deferred")), None),
    "limit range": (a_vmi(cpu("OverLimitRange")), None),
    "a guest that does not take it": (a_vmi(cpu("GuestNotAccepting")), None),
    "over": (a_vmi(cpu("WaitingForMigration", "False")), None),
    "a move": (a_vmi(REQUIRED), Need.MOVE),
    "volumes, which are copied in place": (a_vmi(COPYING), None),
    "an old pod": (a_vmi(**OLD), Need.OUTDATED),
    "an old pod, and a size": (a_vmi(cpu("WaitingForMigration"), **OLD), Need.SIZE),
    "not running yet": (a_vmi(cpu("WaitingForMigration"), phase="Scheduled"), None),
}  # fmt: skip


@pytest.mark.parametrize(("vmi", "need"), NEEDS.values(), ids=NEEDS)
def test_need(vmi: Object, need: Need | None) -> None:
    assert view.need(vmi) is need


def test_a_guest_on_its_way_out_needs_nothing() -> None:
    vmi = a_vmi(cpu("WaitingForMigration"))
    vmi["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert view.need(vmi) is None


@pytest.mark.parametrize(
    ("vmi", "changing"),
    [
        (a_vmi(cpu("Plugging")), True),
        (a_vmi(REQUIRED), True),
        (a_vmi(**OLD), True),
        (a_vmi(cpu("Plugging", "False"), **NEW), False),
        (a_vmi(COPYING), False),
    ],
    ids=["wherever it changes", "a move", "an old pod", "over", "volumes"],
)
def test_a_guest_is_changing_until_it_is_what_it_should_be(vmi: Object, changing: bool) -> None:
    assert view.changing(vmi) is changing


def test_settings_have_kubevirts_defaults_and_can_be_set() -> None:
    assert view.settings({}, Limits()) == view.Settings()
    given = {
        "workloadUpdateMethods": ["Evict", "LiveMigrate"],
        "batchEvictionSize": 3,
        "batchEvictionInterval": "1m30s",
    }
    found = view.settings({"spec": {"workloadUpdateStrategy": given}}, Limits(1, 1))
    assert found == view.Settings(
        frozenset({"Evict", "LiveMigrate"}), 3, timedelta(seconds=90), Limits(1, 1)
    )
