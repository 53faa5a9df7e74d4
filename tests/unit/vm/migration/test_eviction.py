"""What an eviction does to a guest: by its strategy, and by whether it can move."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.errors import TooManyRequests
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.migration.eviction import Move, instance_of, move

CLUSTER = Config()
FIXED, MOVABLE = "False", "True"
NOT_MOVABLE = "VMI web is configured with an eviction strategy but is not live-migratable"
TRIGGERED = 'Eviction triggered evacuation of VMI "team/web"'


def a_pod(node: str = "a", phase: str = "Running") -> Object:
    return {
        "metadata": {
            "name": "p",
            "labels": {"kubevirt.io/created-by": "uid"},
            "ownerReferences": [{"uid": "uid", "name": "web", "controller": True}],
        },
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


def a_vmi(strategy: str = "", movable: str = MOVABLE, **status: Any) -> Object:
    listed = [{"type": "LiveMigratable", "status": movable}] if movable else []
    return {
        "metadata": {"name": "web", "namespace": "team", "uid": "uid"},
        "spec": {"evictionStrategy": strategy} if strategy else {},
        "status": {"phase": "Running", "nodeName": "a", "conditions": listed, **status},
    }


EVICTED, MOVES = "evicted", "moves"
ROWS = {
    "no strategy": (a_vmi(), EVICTED),
    "None": (a_vmi("None"), EVICTED),
    "LiveMigrate": (a_vmi("LiveMigrate"), MOVES),
    "LiveMigrate, cannot": (a_vmi("LiveMigrate", FIXED), NOT_MOVABLE),
    "LiveMigrate, not known": (a_vmi("LiveMigrate", ""), NOT_MOVABLE),
    "LiveMigrateIfPossible": (a_vmi("LiveMigrateIfPossible"), MOVES),
    "LiveMigrateIfPossible, cannot": (a_vmi("LiveMigrateIfPossible", FIXED), EVICTED),
    "External": (a_vmi("External", FIXED), MOVES),
    "ended": (a_vmi("LiveMigrate", phase="Succeeded"), EVICTED),
    "left for another node": (a_vmi("LiveMigrate", nodeName="b"), EVICTED),
    "expected here": (
        a_vmi("LiveMigrate", nodeName="b", migrationState={"targetPod": "p"}),
        'Eviction has to wait: VMI "team/web" is being migrated to this pod',
    ),
    "of None, expected here": (
        a_vmi("None", nodeName="b", migrationState={"targetPod": "p"}),
        EVICTED,
    ),
}


@pytest.mark.parametrize(("vmi", "expected"), ROWS.values(), ids=ROWS)
def test_a_guest_ends_moves_or_stays_as_its_strategy_says(vmi: Object, expected: str) -> None:
    if expected == EVICTED:
        assert move(a_pod(), vmi, CLUSTER) is None
    elif expected == MOVES:
        found = move(a_pod(), vmi, CLUSTER)
        assert isinstance(found, Move)
        assert (found.node, found.marked) == ("a", False)
        assert found.refusal.message == TRIGGERED
        assert found.refusal.status_code == 429
    else:
        with pytest.raises(TooManyRequests) as refusal:
            move(a_pod(), vmi, CLUSTER)
        assert refusal.value.message == expected


def test_given_no_strategy_of_its_own_then_the_clusters_counts() -> None:
    usual = Config(eviction_strategy="LiveMigrate")
    assert move(a_pod(), a_vmi(), usual) is not None
    assert move(a_pod(), a_vmi("None"), usual) is None


def test_a_guest_is_marked_once() -> None:
    found = move(a_pod(), a_vmi("LiveMigrate", evacuationNodeName="a"), CLUSTER)
    assert found is not None
    assert found.marked


def test_a_guest_that_is_being_deleted_is_evicted() -> None:
    vmi = a_vmi("LiveMigrate", FIXED)
    vmi["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert move(a_pod(), vmi, CLUSTER) is None


def test_a_pod_is_of_the_instance_that_owns_it_and_of_none_once_it_ended() -> None:
    assert instance_of(a_pod()) == "web"
    assert instance_of(a_pod(phase="Failed")) == ""
    stranger = a_pod()
    stranger["metadata"]["ownerReferences"] = []
    assert instance_of(stranger) == ""
    another = a_vmi("LiveMigrate")
    another["metadata"]["uid"] = "another"
    assert move(a_pod(), another, CLUSTER) is None
