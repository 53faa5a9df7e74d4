"""What a spec's lists become when a volume or a disc comes, goes or is swapped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.vm.volumes.volume_lists import Lists, NotInLists

Object = dict[str, Any]

ROOT = {"name": "root", "containerDisk": {"image": "an/image"}}
BOOT_CLAIM = {"name": "boot", "persistentVolumeClaim": {"claimName": "boot"}}
DRIVE = {"name": "cd", "cdrom": {"bus": "sata"}}


def on_claim(name: str, claim: str) -> Object:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": True}}


def on_data(name: str, data: str) -> Object:
    return {"name": name, "dataVolume": {"name": data, "hotpluggable": True}}


def a_disk(name: str) -> Object:
    return {"name": name, "disk": {"bus": "scsi"}}


DATA, DISC = on_claim("data", "claim"), on_claim("cd", "disc")
LISTS = Lists((ROOT, BOOT_CLAIM, DATA), (a_disk("boot"), a_disk("data"), DRIVE))
FULL = Lists((ROOT, BOOT_CLAIM, DATA, DISC), LISTS.disks)


def test_a_volume_comes_last_with_its_disk() -> None:
    more = on_claim("more", "other")
    found = LISTS.with_volume(more, a_disk("more"))
    assert found == Lists((*LISTS.volumes, more), (*LISTS.disks, a_disk("more")))


def test_a_volume_named_like_an_empty_drive_goes_into_it() -> None:
    assert LISTS.with_volume(DISC, a_disk("cd")) == FULL


def test_a_removed_volume_takes_its_disk_along() -> None:
    assert LISTS.without_volume("data") == Lists((ROOT, BOOT_CLAIM), (a_disk("boot"), DRIVE))


def test_a_removed_disc_leaves_its_drive() -> None:
    assert FULL.without_volume("cd") == FULL.without_medium("cd") == LISTS


def test_a_disc_takes_the_place_of_the_one_in_the_drive() -> None:
    other = on_data("cd", "other")
    assert FULL.with_medium(other).volumes == (ROOT, BOOT_CLAIM, DATA, other)
    assert LISTS.with_medium(other).volumes == (ROOT, BOOT_CLAIM, DATA, other)
    assert FULL.with_medium(DISC) == FULL


REFUSED = {
    "a name that is taken": (
        lambda: LISTS.with_volume(on_claim("data", "other"), a_disk("data")),
        "Unable to add volume [data] because volume with that name already exists",
    ),
    "a claim that is used": (
        lambda: LISTS.with_volume(on_claim("more", "claim"), a_disk("more")),
        "Unable to add volume source [claim] because it already exists",
    ),
    "a DataVolume whose claim is used": (
        lambda: LISTS.with_volume(on_data("more", "claim"), a_disk("more")),
        "Unable to add volume source [claim] because it already exists",
    ),
    "a disc whose claim is used": (
        lambda: FULL.with_medium(on_claim("cd", "claim")),
        "Unable to add volume source [claim] because it already exists",
    ),
    "a volume that is not there": (
        lambda: LISTS.without_volume("gone"),
        "Unable to remove volume [gone] because it does not exist",
    ),
    "a volume of the start": (
        lambda: LISTS.without_volume("boot"),
        "Unable to remove volume [boot] because it is not hotpluggable",
    ),
    "a volume that is no claim": (
        lambda: LISTS.without_volume("root"),
        "Unable to remove volume [root] because it is not hotpluggable",
    ),
    "a disc for what is no drive": (
        lambda: LISTS.with_medium(on_claim("data", "disc")),
        "the VM has no CD-ROM drive data; it has cd",
    ),
    "a disc of a VM without drives": (
        lambda: Lists((), ()).without_medium("cd"),
        "the VM has no CD-ROM drive cd; it has none",
    ),
    "the disc of an empty drive": (
        lambda: LISTS.without_medium("cd"), "the CD-ROM drive cd is empty",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "why"), REFUSED.values(), ids=REFUSED)
def test_it_refuses(edit: Any, why: str) -> None:
    with pytest.raises(NotInLists) as refused:
        edit()
    assert str(refused.value) == why


def test_a_volume_is_meant_by_its_name_before_its_claim() -> None:
    lists = Lists((on_claim("a", "b"), on_claim("b", "c")), ())
    assert [lists.meant(name) for name in ("a", "b", "c", "d")] == ["a", "b", "b", "d"]


names = st.sampled_from(["a", "b", "c", "cd", "data", "root"])


@given(st.lists(st.tuples(st.booleans(), names, names), max_size=12))
def test_whatever_comes_and_goes_names_and_claims_stay_unique_and_the_drive_stays(
    edits: list[tuple[bool, str, str]],
) -> None:
    lists = LISTS
    for adds, name, claim in edits:
        try:
            if adds:
                lists = lists.with_volume(on_claim(name, claim), a_disk(name))
            else:
                lists = lists.without_volume(lists.meant(name))
        except NotInLists:
            continue
    names = [volume["name"] for volume in lists.volumes]
    disks = [disk["name"] for disk in lists.disks]
    assert len(names) == len(set(names))
    assert len(disks) == len(set(disks))
    assert set(disks) == {*names, "cd"} - {"root"}
    assert lists.volumes[:2] == (ROOT, BOOT_CLAIM)
    assert DRIVE in lists.disks


@given(names, names)
def test_what_was_added_can_be_removed_and_all_is_as_before(name: str, claim: str) -> None:
    try:
        added = LISTS.with_volume(on_claim(name, claim), a_disk(name))
    except NotInLists:
        return
    assert added.without_volume(name) == LISTS
