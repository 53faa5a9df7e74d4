"""Which disks come and go, which a guest should have, and what is said of each."""

from typing import Any

import pytest

from livevirt.node.attachments import (
    Attachment,
    Goal,
    Problem,
    Wanted,
    attachments,
    condition,
    goal,
    settled,
    sharers,
    sizes,
    wanted,
)
from livevirt.node.volumes import Prepared
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.observe import Drive, MemoryState, Observed

MISSING = Problem("FailedPvcNotFound", "PVC other not found")
MOUNTED = Problem("InUseByGuest", "mounted at /mnt")


def a_vmi(*disks: Any, annotation: str = "", **claims: str) -> Any:
    hot = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": True}}
        for name, claim in claims.items()
    ]
    root = {"name": "root", "containerDisk": {"image": "guest"}}
    listed = [{"name": "root", "disk": {"bus": "virtio"}}, *disks]
    return {
        "metadata": {"annotations": {"livevirt.io/force-detach": annotation}},
        "spec": {"domain": {"devices": {"disks": listed}}, "volumes": [root, *hot]},
        "status": {
            "volumeStatus": [
                {"name": "data", "persistentVolumeClaimInfo": {"claimName": "one"}},
            ]
        },
    }


DATA = {"name": "data", "disk": {"bus": "scsi"}}
CD = {"name": "cd", "cdrom": {"bus": "sata"}}
ONE = Prepared(Image("/one"), claim={"metadata": {"name": "one"}})
TWO = Prepared(Image("/two"), claim={"metadata": {"name": "two"}})


def has(**nodes: str | None) -> Observed:
    drives = tuple(Drive(f"ua-{name}", node=node) for name, node in nodes.items())
    return Observed("running", (), MemoryState(0), drives=drives)


def node(disk: Any, prepared: Prepared) -> str | None:
    (found,) = wanted(goal(a_vmi(disk, **{disk["name"]: "x"})), {disk["name"]: prepared}, {}, has()
                      ).disks  # fmt: skip
    return found.node


ONE_IN_DATA, TWO_IN_DATA, ONE_IN_CD = node(DATA, ONE), node(DATA, TWO), node(CD, ONE)
NAMED_BEFORE = Disk(id="ua-data", image=ONE.image).node


def test_only_hotpluggable_volumes_and_empty_drives_come_and_go() -> None:
    vmi = a_vmi(DATA, CD, {"name": "fixed", "disk": {}}, data="one", annotation="data, ,cd")
    vmi["spec"]["volumes"].append({"name": "fixed", "persistentVolumeClaim": {"claimName": "f"}})
    found = goal(vmi)
    assert [(item.name, item.claim) for item in found.items] == [("data", "one"), ("cd", "")]
    assert found.kept == {"ua-root", "ua-fixed"}
    assert found.forced == {"data", "cd"}
    assert found.attached == {"data": "one"}


def test_what_was_told_of_volumes_makes_no_other_goal() -> None:
    vmi = a_vmi(DATA, data="one")
    before = goal(vmi)
    del vmi["status"]
    assert goal(vmi) == before


READY: dict[str, Prepared] = {"data": ONE}
WANTED: dict[str, tuple[Goal, dict[str, Prepared], Observed, list[str], set[str]]] = {
    "given it is ready, then it is wanted": (
        goal(a_vmi(DATA, data="one")), READY, has(), ["ua-data"], set(),
    ),
    "given it is not ready, then it is not": (
        goal(a_vmi(DATA, data="one")), {}, has(), [], set(),
    ),
    "given a disc is not ready, then its drive is wanted all the same": (
        goal(a_vmi(CD, cd="one")), {}, has(), ["ua-cd"], set(),
    ),
    "given its claim is lost to sight while it is attached, then it is left alone": (
        goal(a_vmi(DATA, data="one")), {}, has(data=ONE_IN_DATA), [], {"ua-data"},
    ),
    "given the claim attached is another one, then it is not": (
        goal(a_vmi(DATA, data="other")), {}, has(data=ONE_IN_DATA), [], set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "ready", "now", "disks", "kept"), WANTED.values(), ids=WANTED)
def test_wanted(
    asked: Goal, ready: dict[str, Prepared], now: Observed, disks: list[str], kept: set[str]
) -> None:
    found = wanted(asked, ready, {}, now)
    assert [disk.id for disk in found.disks] == disks
    assert found.kept == kept | {"ua-root"}


def test_given_a_disk_that_cannot_be_then_that_one_is_told_and_the_others_go_on() -> None:
    odd = {"name": "odd", "disk": {"bus": "scsi"}, "io": "native", "cache": "writeback"}
    asked = goal(a_vmi(odd, DATA, odd="two", data="one"))
    found = wanted(asked, {"odd": TWO, "data": ONE}, {}, has())
    assert [disk.id for disk in found.disks] == ["ua-data"]
    assert found.problems["odd"].reason == "InvalidDisk"
    told = attachments(asked, found, {"odd": TWO, "data": ONE}, {}, has())
    assert (told["odd"].phase, told["odd"].reason) == ("Pending", "InvalidDisk")


def test_given_a_lun_on_a_claim_that_is_a_file_then_it_is_told() -> None:
    asked = goal(a_vmi({"name": "data", "lun": {"bus": "scsi"}}, data="one"))
    found = wanted(asked, {"data": ONE}, {}, has())
    assert "a lun is a SCSI device of the host" in found.problems["data"].message
    device = Prepared(Image("/dev/sdz", block=True), scsi=True)
    assert [disk.driver for disk in wanted(asked, {"data": device}, {}, has()).disks] == [
        "scsi-block"
    ]


def test_claims_say_how_large_the_images_are_of_disks_that_are_written() -> None:
    fixed = {"name": "fixed", "disk": {"bus": "virtio"}}
    vmi = a_vmi(DATA, CD, fixed, {"name": "ro", "disk": {"bus": "scsi", "readonly": True}},
                data="one", cd="one", ro="one")  # fmt: skip
    vmi["spec"]["volumes"].append({"name": "fixed", "persistentVolumeClaim": {"claimName": "f"}})
    size = {"spec": {"resources": {"requests": {"storage": "3Mi"}}}}
    ready = Prepared(Image("/one"), claim={"metadata": {"name": "one"}, **size})
    prepared = dict.fromkeys(("data", "cd", "fixed", "ro"), ready)
    other = Disk(id="ua-fixed", image=ready.image).node
    before = Disk(id="ua-data", image=ready.image).node  # as earlier versions named it
    names = (ONE_IN_DATA, before, other)
    assert sizes(goal(vmi), prepared) == dict.fromkeys(names, 3 << 20)
    assert sizes(goal(vmi), {}) == {}


def test_given_a_claim_that_is_only_read_from_now_on_then_another_disk_is_wanted() -> None:
    vmi = a_vmi(DATA, data="one")
    vmi["spec"]["volumes"][-1]["persistentVolumeClaim"]["readOnly"] = True
    (found,) = wanted(goal(vmi), READY, {}, has(data=ONE_IN_DATA)).disks  # made ready before that
    assert found.readonly
    assert found.node != ONE_IN_DATA


def test_the_other_volumes_that_a_guest_has_of_a_claim() -> None:
    more = {"name": "more", "disk": {"bus": "scsi"}}
    asked = goal(a_vmi(DATA, more, CD, data="one", more="one", cd="two"))
    assert sharers(asked, "more", has(data=ONE_IN_DATA, cd=ONE_IN_CD)) == ["data"]
    assert sharers(asked, "data", has(data=ONE_IN_DATA, cd=ONE_IN_CD)) == []
    assert sharers(asked, "gone", has(data=ONE_IN_DATA)) == []


Told = dict[str, tuple[str, str]]
TOLD: dict[str, tuple[Any, dict[str, Prepared], Observed, dict[str, Problem], Told]] = {
    "given the guest has it, then it is ready": (
        a_vmi(DATA, data="one"), READY, has(data=ONE_IN_DATA), {},
        {"data": ("Ready", "VolumeReady")},
    ),
    "given it does not yet, then it is pending": (
        a_vmi(DATA, data="one"), READY, has(), {}, {"data": ("Pending", "Attaching")},
    ),
    "given its claim is missing, then it is pending for that": (
        a_vmi(DATA, data="other"), {}, has(), {"data": MISSING},
        {"data": ("Pending", "FailedPvcNotFound")},
    ),
    "given the guest has another claim's, then that one is detaching": (
        a_vmi(DATA, data="two"), {"data": TWO}, has(data=ONE_IN_DATA), {"data": MOUNTED},
        {"data": ("Detaching", "InUseByGuest")},
    ),
    "given the guest has it with other settings, then that one is detaching": (
        a_vmi(DATA | {"serial": "other"}, data="one"), READY, has(data=ONE_IN_DATA),
        {"data": MOUNTED}, {"data": ("Detaching", "InUseByGuest")},
    ),
    "given an earlier version attached it, then it is ready whatever its settings": (
        a_vmi(DATA | {"serial": "other"}, data="one"), READY, has(data=NAMED_BEFORE), {},
        {"data": ("Ready", "VolumeReady")},
    ),
    "given it cannot grow, then that is told of what the guest has": (
        a_vmi(DATA, data="one"), READY, has(data=ONE_IN_DATA),
        {"data": Problem("CannotGrow", "no")}, {"data": ("Ready", "CannotGrow")},
    ),
    "given it is not asked for, then it is detaching": (
        a_vmi(), {}, has(data=ONE_IN_DATA), {"data": MOUNTED},
        {"data": ("Detaching", "InUseByGuest")},
    ),
    "given it is not asked for and not there, then nothing is said": (a_vmi(), {}, has(), {}, {}),
    "given an empty drive, then nothing is said": (a_vmi(CD), {}, has(cd=None), {}, {}),
    "given an empty drive that is not there, then it waits for what is wrong": (
        a_vmi(CD), {}, has(), {"cd": Problem("CannotAttach", "sata")},
        {"cd": ("Pending", "CannotAttach")},
    ),
    "given a disc to eject, then it is detaching": (
        a_vmi(CD), {}, has(cd=ONE_IN_CD), {}, {"cd": ("Detaching", "Detaching")},
    ),
    "given drives that are none of ours, then nothing is said of them": (
        a_vmi(), {}, Observed("running", (), MemoryState(0), drives=(Drive("floppy"),)), {}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("vmi", "ready", "now", "troubles", "told"), TOLD.values(), ids=TOLD)
def test_attachments(
    vmi: Any, ready: dict[str, Prepared], now: Observed, troubles: dict[str, Problem], told: Told
) -> None:
    asked = goal(vmi)
    found = attachments(asked, wanted(asked, ready, {}, now), ready, troubles, now)
    assert {name: (each.phase, each.reason) for name, each in found.items()} == told
    assert settled(found) == all(each == ("Ready", "VolumeReady") for each in told.values())


def test_the_condition_is_of_the_first_volume_that_waits() -> None:
    told = {
        "b": Attachment("Pending", "FailedPvcNotFound", "PVC x not found"),
        "a": Attachment("Ready", "VolumeReady", ""),
    }
    found = condition(told)
    assert found is not None
    assert (found["type"], found["status"]) == ("HotVolumeChange", "True")
    assert found["reason"] == "FailedPvcNotFound"
    assert condition({"a": told["a"]}) is None


@pytest.mark.wording
def test_the_condition_says_what_is_wrong_with_which_volume() -> None:
    found = condition({"b": Attachment("Pending", "FailedPvcNotFound", "PVC x not found")})
    assert found is not None
    assert found["message"] == "volume b: PVC x not found"


def test_nothing_found_wanted_means_nothing_is_said() -> None:
    nothing = Wanted((), frozenset({"ua-root"}), {})
    assert attachments(goal(a_vmi()), nothing, {}, {}, has(root="r")) == {}
