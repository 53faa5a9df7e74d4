"""How far copies of volumes are, and what an instance says of them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from livevirt.kube.objects.request import Object
from livevirt.node.attachments import Goal, Problem, attachments, goal, wanted
from livevirt.node.copying import (
    COPY_FAILED,
    DONE,
    Failures,
    Progress,
    copies,
    listed,
    with_condition,
)
from livevirt.node.domain import drive
from livevirt.node.volumes import Prepared
from livevirt.qemu.disk import Image
from livevirt.qemu.mirror import Copy
from livevirt.qemu.observe import Drive, MemoryState, Observed
from livevirt.vm.volumes import volume_migration
from livevirt.vm.volumes.volume_migration import COPIED, COPYING, SWITCHING, Move

NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
DISK = {"name": "data", "disk": {"bus": "scsi"}}


def of(claim: str) -> Prepared:
    return Prepared(Image(f"/{claim}"), claim={"metadata": {"name": claim}, "spec": {}})


def node(claim: str) -> str:
    found = drive(DISK, of(claim), hot=True).node
    assert found is not None
    return found


def an_instance(phase: str = COPYING, *, hot: bool = True) -> Object:
    source = {"claimName": "new"} | ({"hotpluggable": True} if hot else {})
    entry = {
        "volumeName": "data",
        "sourcePVCInfo": {"claimName": "old"},
        "destinationPVCInfo": {"claimName": "new"},
        "phase": phase,
    }
    return {
        "metadata": {},
        "spec": {
            "domain": {"devices": {"disks": [DISK]}},
            "volumes": [{"name": "data", "persistentVolumeClaim": source}],
        },
        "status": {"migratedVolumes": [entry]},
    }


def on(claim: str, *jobs: Copy, idle: tuple[str, ...] = ()) -> Observed:
    drives = (Drive("ua-data", node(claim), size=1),)
    return Observed("running", (), MemoryState(0), drives, idle_nodes=idle, copies=jobs)


def job(status: str, done: int = 0) -> Copy:
    return Copy(node("new"), status, done, 10)


#: The phase before, what QEMU says, and the phase it is in.
PHASES = {
    "nothing has begun": (COPYING, on("old"), COPYING),
    "it is under way": (COPYING, on("old", job("running", 4)), COPYING),
    "both are the same": (COPYING, on("old", job("ready", 10)), COPIED),
    "it waits for leave": (COPIED, on("old", job("ready", 10)), COPIED),
    "it has leave": (SWITCHING, on("old", job("ready", 10)), SWITCHING),
    "it failed at the last moment": (SWITCHING, on("old", job("concluded")), COPYING),
    "it has switched": (SWITCHING, on("new", job("concluded")), SWITCHING),
    "the old image is open": (SWITCHING, on("new", idle=(node("old"),)), SWITCHING),
    "it is done": (SWITCHING, on("new"), DONE),
}


def of_a_fixed_disk(now: Observed) -> Observed:
    names = {node(claim): drive(DISK, of(claim), hot=False).node for claim in ("old", "new")}
    return replace(
        now,
        drives=tuple(replace(each, node=names[each.node or ""]) for each in now.drives),
        copies=tuple(replace(each, target=str(names[each.target])) for each in now.copies),
        idle_nodes=tuple(str(names[each]) for each in now.idle_nodes),
    )


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize(("before", "now", "after"), PHASES.values(), ids=PHASES)
def test_phase(before: str, now: Observed, after: str, hot: bool) -> None:
    now = now if hot else of_a_fixed_disk(now)
    vmi = an_instance(before, hot=hot)
    asked = goal(vmi)
    found = wanted(asked, {"data": of("new")}, {}, now)
    told = copies(asked, found, {}, now)
    assert told["data"].phase == after
    entries = listed(vmi, told)
    assert [entry["phase"] for entry in entries] == ([] if after == DONE else [after])


@pytest.mark.parametrize(("before", "now", "after"), PHASES.values(), ids=PHASES)
def test_the_guest_has_the_volume_all_the_while(before: str, now: Observed, after: str) -> None:
    asked = goal(an_instance(before))
    prepared = {"data": of("new")}
    told = attachments(asked, wanted(asked, prepared, {}, now), prepared, {}, now)
    assert (told["data"].phase, told["data"].reason) == ("Ready", "VolumeReady")
    claim = told["data"].claim
    assert (claim is not None) == (now.drives[0].node == node("new"))


def test_copies_of_disks_whose_names_begin_alike_do_not_wait_for_each_other() -> None:
    names = ("a-long-name-of-1", "a-long-name-of-2")
    disks = [{"name": name, "disk": {"bus": "scsi"}} for name in names]
    of_new = {name: of(f"new-{name}") for name in names}
    moves = [
        {
            "volumeName": name,
            "sourcePVCInfo": {"claimName": f"old-{name}"},
            "destinationPVCInfo": {"claimName": f"new-{name}"},
            "phase": SWITCHING,
        }
        for name in names
    ]
    volumes = [{"name": n, "persistentVolumeClaim": {"claimName": f"new-{n}"}} for n in names]
    vmi: Object = {
        "metadata": {},
        "spec": {"domain": {"devices": {"disks": disks}}, "volumes": volumes},
        "status": {"migratedVolumes": moves},
    }
    first, second = (drive(disk, of_new[disk["name"]], hot=False) for disk in disks)
    before = drive(disks[1], of(f"old-{names[1]}"), hot=False)
    assert first.node and second.node and first.node[:-12] == second.node[:-12]  # noqa: PT018
    now = replace(
        on("new"),
        drives=(Drive(first.id, first.node, size=1), Drive(second.id, before.node, size=1)),
        idle_nodes=(second.node,),
        copies=(Copy(second.node, "running", 1, 10),),
    )
    asked = goal(vmi)
    told = copies(asked, wanted(asked, of_new, {}, now), {}, now)
    assert [told[name].phase for name in names] == [DONE, COPYING]


def copying_of(*volumes: str) -> Object:
    """Return an instance that is to copy these volumes."""
    entries = [
        {"volumeName": name, "destinationPVCInfo": {"claimName": claim}}
        for name, claim in {"data": "new", "more": "b"}.items()
        if name in volumes
    ]
    return {"status": {"migratedVolumes": entries} if entries else {}}


def test_given_the_new_claim_is_not_ready_then_the_guest_keeps_what_it_has() -> None:
    missing = Problem("FailedPvcNotFound", "PVC new not found")
    asked, now = goal(an_instance(hot=False)), on("old")
    found = wanted(asked, {}, {"data": missing}, now)
    assert (found.disks, found.kept) == ((), {"ua-data"})
    told = copies(asked, found, {}, now)
    (condition,) = with_condition(an_instance(), [], told, NOON)
    assert (condition["status"], condition["reason"]) == ("False", "FailedPvcNotFound")


def test_given_one_of_two_cannot_be_copied_then_the_other_changes_all_the_same() -> None:
    missing = Problem("FailedPvcNotFound", "PVC new not found")
    stuck = Progress(Move("data", "old", "new"), COPYING, "to be copied", missing)
    other = Progress(Move("more", "a", "b"), COPYING, "40% copied")
    vmi = copying_of("data", "more")
    (found,) = with_condition(vmi, [], {"data": stuck, "more": other}, NOON)
    assert (found["status"], found["reason"]) == ("True", "FailedPvcNotFound")
    told = {"data": stuck, "more": replace(other, problem=missing)}
    found = with_condition(vmi, [found], told, NOON)[0]
    assert found["status"] == "False"


def test_a_new_claim_that_is_still_to_be_bound_or_filled_is_no_reason_to_call_it_off() -> None:
    for reason in ("PVCNotReady", "DataVolumeNotReady"):
        waits = Progress(
            Move("data", "old", "new"), COPYING, "to be copied", Problem(reason, "in a moment")
        )
        (found,) = with_condition(copying_of("data"), [], {"data": waits}, NOON)
        assert (found["status"], found["reason"]) == ("True", reason)


@pytest.mark.wording
def test_the_condition_names_the_volume_and_what_became_of_it() -> None:
    vmi = an_instance()
    asked, now = goal(vmi), on("old", job("running", 4))
    told = copies(asked, wanted(asked, {"data": of("new")}, {}, now), {}, now)
    (found,) = with_condition(vmi, [], told, NOON)
    assert found["message"] == "40% copied: volume data from PVC old to PVC new"
    stuck = replace(told["data"], problem=Problem("FailedPvcNotFound", "PVC new not found"))
    (found,) = with_condition(vmi, [], {"data": stuck}, NOON)
    assert found["message"] == "PVC new not found: volume data from PVC old to PVC new"


def test_the_condition_goes_with_the_last_copy() -> None:
    copied = Progress(Move("data", "old", "new"), DONE, "copied")
    under_way = [volume_migration.condition([copied.move])]
    assert with_condition(copying_of("data"), under_way, {"data": copied}, NOON) == []


def test_given_the_vm_takes_the_copies_out_then_the_condition_says_so_and_stays() -> None:
    under_way = [volume_migration.condition([Move("data", "old", "new")])]
    found = with_condition(copying_of(), under_way, {}, NOON)
    assert [(c["status"], c["reason"]) for c in found] == [("False", "VolumesChangeCancellation")]
    assert with_condition(copying_of(), found, {}, NOON) is found
    assert with_condition(copying_of(), [], {}, NOON) == []


def test_what_was_seen_of_another_copy_is_not_told_of_this_one() -> None:
    vmi, seen = an_instance(), an_instance(COPIED)
    now = on("old", job("ready"))
    asked: Goal = goal(seen)
    told = copies(asked, wanted(asked, {"data": of("new")}, {}, now), {}, now)
    assert listed(vmi, told) == vmi["status"]["migratedVolumes"]


def test_a_move_to_another_claim_than_the_volume_has_is_none() -> None:
    vmi = an_instance()
    vmi["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "third"
    (item,) = goal(vmi).items
    assert item.move is None


def test_a_copy_that_fails_is_tried_again_less_and_less_often() -> None:
    failures, target = Failures(), node("new")
    failed = on("old", replace(job("concluded"), error="no space"))
    asked = wanted(goal(an_instance()), {"data": of("new")}, {}, failed)
    now, waits = 0.0, []
    for _ in range(8):
        assert failures.see(asked, failed, now) == ["no space"]
        until = now
        while failures.waits(target, until):
            until += 1
        waits.append(until - now)
        now = until
    assert waits == [2, 4, 8, 16, 32, 64, 120, 120]
    assert failures.problems(asked)["data"].reason == COPY_FAILED
    failures.see(
        wanted(goal({"metadata": {}, "spec": {"domain": {}}}), {}, {}, failed), failed, now
    )
    assert failures.problems(asked) == {}
    assert not failures.waits(target, now - 1)


def test_a_move_says_what_it_is() -> None:
    assert Move("data", "old", "new").description == "volume data from PVC old to PVC new"
