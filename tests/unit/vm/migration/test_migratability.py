"""Whether a guest may be moved by livevirt itself."""

from __future__ import annotations

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.config import settings as config
from livevirt.vm.migration import migratability


def a_vmi(*conditions: Object, **status: object) -> Object:
    return {"status": {"conditions": list(conditions), **status}}


def live_migratable(status: str, **words: str) -> Object:
    return {"type": "LiveMigratable", "status": status, **words}


MOVABLE = a_vmi(live_migratable("True"))
FIXED = a_vmi(live_migratable("False", reason="DisksNotLiveMigratable", message="PVC a is RWO"))
LISTED = config.read(
    {"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]}}}
)
EVICTS = config.read({"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": ["Evict"]}}})

HINDRANCES = {
    "allowed and able": (MOVABLE, LISTED, ""),
    "not allowed": (MOVABLE, config.read(None), migratability.NOT_ALLOWED),
    "only evictions allowed": (MOVABLE, EVICTS, migratability.NOT_ALLOWED),
    "not able": (
        FIXED,
        LISTED,
        "the guest is not live-migratable: DisksNotLiveMigratable: PVC a is RWO",
    ),
    "not known to be able": (
        a_vmi(),
        LISTED,
        "the guest is not known to be live-migratable",
    ),
    "neither": (FIXED, EVICTS, migratability.NOT_ALLOWED),
}


@pytest.mark.parametrize(("vmi", "settings", "why"), HINDRANCES.values(), ids=HINDRANCES)
def test_what_keeps_a_guest_from_moving_is_told(
    vmi: Object, settings: config.Config, why: str
) -> None:
    assert migratability.hindrance(vmi, settings) == why


@pytest.mark.parametrize(
    ("state", "moves"),
    [
        (None, False),
        ({"migrationUid": "m"}, True),
        ({"migrationUid": "m", "startTimestamp": "t"}, True),
        ({"migrationUid": "m", "startTimestamp": "t", "endTimestamp": "t"}, False),
        ({"migrationUid": "m", "failed": True, "endTimestamp": "t"}, False),
    ],
    ids=["never", "handed over", "under way", "done", "failed"],
)
def test_a_guest_moves_from_the_handover_to_the_end(state: Object | None, moves: bool) -> None:
    assert migratability.moving(a_vmi(migrationState=state)) is moves
    assert not migratability.moving(None)
