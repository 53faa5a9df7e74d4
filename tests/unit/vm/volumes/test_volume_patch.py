"""What becomes of an instance's volumes and disks when live edits reach it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.merge_patch import apply, combined
from livevirt.vm.verdict.judgement import Verdict
from livevirt.vm.verdict.live_patch import live_patch, settles
from livevirt.vm.volumes.volume_patch import volume_patch

from ..cases import GONE, STAGE, a_claim, a_spec, edited, judged, running

CD, SCSI_CD = {"name": "cd", "cdrom": {"bus": "sata"}}, {"name": "cd2", "cdrom": {"bus": "scsi"}}
MORE = {"name": "more", "disk": {"bus": "virtio"}}
OPEN = {"name": "more", "disk": {}}
SHOWN = {"disks": ["root", "data", "cd"], "volumes": ["root", "data"]}

#: What is edited, and the names and claims that the instance has then.
PATCHES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "a disk comes last": (
        {"volumes.+": a_claim("more"), "domain.devices.disks.+": MORE},
        ["root", "data", "cd", "more"], ["root", "data", "more"],
    ),
    "first in the manifest, last in the instance": (
        {"volumes": [a_claim("more"), a_claim("data"),
                     {"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}],
         "domain.devices.disks.+": MORE},
        ["root", "data", "cd", "more"], ["root", "data", "more"],
    ),
    "a disk goes": (
        {"volumes.1": GONE, "domain.devices.disks.1": GONE}, ["root", "cd"], ["root"],
    ),
    "a medium comes": (
        {"volumes.+": a_claim("cd", "iso")}, ["root", "data", "cd"], ["root", "data", "cd"],
    ),
    "a drive on scsi comes": (
        {"domain.devices.disks.+": SCSI_CD}, ["root", "data", "cd", "cd2"], ["root", "data"],
    ),
    "a drive on sata waits": (
        {"domain.devices.disks.+": {"name": "cd2", "cdrom": {}}, "volumes.+": a_claim("cd2")},
        SHOWN["disks"], SHOWN["volumes"],
    ),
    "a volume that is not hotpluggable waits": (
        {"volumes.+": a_claim("more", hot=False), "domain.devices.disks.+": MORE},
        SHOWN["disks"], SHOWN["volumes"],
    ),
    "the same claim by another word, whatever waits of its disk": (
        {"volumes.1": {"name": "data", "dataVolume": {"name": "data", "hotpluggable": True}},
         "domain.devices.disks.1.serial": "abc"},
        SHOWN["disks"], SHOWN["volumes"],
    ),
    "another order is no change": (
        {"volumes": list(reversed(a_spec()["volumes"]))}, SHOWN["disks"], SHOWN["volumes"],
    ),
    "beside a field that waits": (
        {"hostname": "other", "volumes.+": a_claim("more")},
        ["root", "data", "cd", "more"], ["root", "data", "more"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edits", "disks", "volumes"), PATCHES.values(), ids=PATCHES)
@pytest.mark.parametrize("config", [None, STAGE], ids=["LiveUpdate", "Stage"])
def test_the_instance_has_what_is_live(
    edits: dict[str, Any], disks: list[str], volumes: list[str], config: Any
) -> None:
    vmi = running(a_spec())
    how = {"config": config} if config else {}
    judgement = judged(a_spec(), edited(a_spec(), edits), vmi=vmi, **how)
    after = apply(volume_patch(judgement, vmi), vmi)["spec"]
    assert [each["name"] for each in after["domain"]["devices"]["disks"]] == disks
    assert [each["name"] for each in after["volumes"]] == volumes
    again = judged(a_spec(), edited(a_spec(), edits), vmi={**vmi, "spec": after}, **how)
    assert volume_patch(again, {**vmi, "spec": after}) == {}


def test_another_claim_takes_the_place_of_the_one_before() -> None:
    vmi = running(a_spec())
    judgement = judged(a_spec(), edited(a_spec(), {"volumes.1": a_claim("data", "b")}), vmi=vmi)
    patch = volume_patch(judgement, vmi)["spec"]
    assert patch["volumes"][1] == a_claim("data", "b")
    assert "domain" not in patch


def test_a_bus_that_is_left_open_is_one_that_works() -> None:
    vmi = running(a_spec())
    wanted = edited(a_spec(), {"volumes.+": a_claim("more"), "domain.devices.disks.+": OPEN})
    after = apply(volume_patch(judged(a_spec(), wanted, vmi=vmi), vmi), vmi)["spec"]
    assert after["domain"]["devices"]["disks"][-1] == {"name": "more", "disk": {"bus": "scsi"}}


def test_given_a_sata_drive_is_removed_then_it_stays_and_is_empty() -> None:
    start = edited(a_spec(), {"volumes.+": a_claim("cd", "iso")})
    vmi = running(start)
    wanted = edited(a_spec(), {"domain.devices.disks.2": GONE})
    judgement = judged(start, wanted, vmi=vmi)
    after = apply(volume_patch(judgement, vmi), vmi)["spec"]
    assert [each["name"] for each in after["volumes"]] == SHOWN["volumes"]
    assert [each["name"] for each in after["domain"]["devices"]["disks"]] == SHOWN["disks"]
    assert judgement.of(Verdict.RESTART)


def test_sizes_and_volumes_go_in_one_patch() -> None:
    vmi = running(a_spec())
    wanted = edited(a_spec(), {"domain.cpu.sockets": 2, "volumes.+": a_claim("more")})
    judgement = judged(a_spec(), wanted, vmi=vmi)
    patch = combined(live_patch(judgement, vmi), volume_patch(judgement, vmi))
    assert patch["spec"]["domain"]["cpu"] == {"sockets": 2}
    assert len(patch["spec"]["domain"]["devices"]["disks"]) == 4
    assert settles(judgement)


names = st.sampled_from(["data", "a", "b", "c"])
hot = st.dictionaries(names, st.sampled_from(["one", "two"]), max_size=4)


def wants(claims: dict[str, str]) -> dict[str, Any]:
    root, cd = a_spec()["domain"]["devices"]["disks"][0], CD
    disks = [root, cd, *({"name": name, "disk": {"bus": "scsi"}} for name in claims)]
    volumes = [a_spec()["volumes"][0], *(a_claim(name, claim) for name, claim in claims.items())]
    return edited(a_spec(), {"domain.devices.disks": disks, "volumes": volumes})


@given(st.lists(hot, min_size=1, max_size=5))
def test_given_any_edits_in_a_row_then_the_instance_has_just_what_the_last_one_says(
    edits: list[dict[str, str]],
) -> None:
    vmi = running(a_spec())
    for claims in edits:
        vmi = apply(volume_patch(judged(a_spec(), wants(claims), vmi=vmi), vmi), vmi)
    found = {
        each["name"]: each["persistentVolumeClaim"]["claimName"]
        for each in vmi["spec"]["volumes"]
        if each["name"] != "root"
    }
    assert found == edits[-1]
    disks = {each["name"] for each in vmi["spec"]["domain"]["devices"]["disks"]}
    assert disks == {"root", "cd", *edits[-1]}
    assert judged(a_spec(), wants(edits[-1]), vmi=vmi).changes == ()
