"""Data of the previous release, found by the controllers of this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from livevirt.kube.objects import conditions

from ...guest.previous_release import load
from .vm_world import World, running

NAME = "hot"


@pytest.fixture(autouse=True)
def previous_data(tmp_path: Path) -> None:
    load(tmp_path / "store.db")


def claims(world: World) -> list[str]:
    return [
        each["persistentVolumeClaim"]["claimName"]
        for each in world.vmi(NAME)["spec"]["volumes"]
        if "persistentVolumeClaim" in each
    ]


def restart_required(world: World) -> bool:
    return conditions.is_true(world.vm(NAME)["status"].get("conditions"), "RestartRequired")


async def test_given_a_volume_was_staged_when_upgraded_then_it_is_hotplugged(
    quiet: World,
) -> None:
    """VEP 31, Update/Rollback Compatibility: staged `hotpluggable: true` volumes are plugged."""
    assert restart_required(quiet)
    assert claims(quiet) == []
    uid = quiet.vmi(NAME)["metadata"]["uid"]
    async with running(quiet):
        await quiet.until(lambda: claims(quiet) == ["alpha"])
        await quiet.until(lambda: not restart_required(quiet))
    assert quiet.vmi(NAME)["metadata"]["uid"] == uid, "it was not restarted"
