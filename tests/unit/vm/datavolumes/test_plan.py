"""What happens next to a DataVolume, and what its status says meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object
from livevirt.vm.datavolumes import plan as datavolumes_plan
from livevirt.vm.datavolumes.imports import Job
from livevirt.vm.datavolumes.plan import (
    AdoptClaim,
    CreateClaim,
    DataVolumeSnapshot,
    Origin,
    Rest,
    Start,
    Step,
    Stop,
    plan,
)
from livevirt.vm.datavolumes.status import status

from ...kube.controllers.storage.volume_builders import (
    FOREIGN,
    WAITING,
    a_bound_claim,
    a_claim,
    a_data_volume,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=30)
BLANK = a_data_volume(blank={})
HTTP = a_data_volume(http={"url": "http://example.com/disk"})
COPY = a_data_volume(pvc={"namespace": "team", "name": "source"})
OWNED = {"metadata": {}}


def owned(claim: Object, dv: Object = BLANK) -> Object:
    meta = {**claim["metadata"], "ownerReferences": [datavolumes_plan.owner(dv)]}
    return {**claim, "metadata": meta}


PENDING = owned(a_claim())
BOUND = owned(a_bound_claim())
GOING = owned(a_claim(deleting=True))
FAILED_ONCE = Job(error="no luck", reason="Error", retry_at=LATER, failures=1)
HOPELESS = Job(error="too large", reason="Error", hopeless=True, retry_at=LATER, failures=1)
READY = Origin(a_bound_claim("w", name="source"))
BUSY = Origin(a_bound_claim("w", name="source"), "pod team/vm using it", "CloneSourceInUse")
ABSENT = Origin(None, "not found", "CloneSourceNotFound")


def seen(dv: Object = BLANK, **rest: Any) -> DataVolumeSnapshot:
    return DataVolumeSnapshot(dv, rest.pop("now", NOON), **rest)


def bound(dv: Object = BLANK, **rest: Any) -> DataVolumeSnapshot:
    return seen(dv, claim=BOUND, volume="v", **rest)


ADOPTING: Object = {
    **BLANK,
    "metadata": {**BLANK["metadata"], "annotations": {datavolumes_plan.ADOPTION: "true"}},
}

RULES: dict[str, tuple[DataVolumeSnapshot, type[Step] | Step, str]] = {
    "given a new one, then it makes its claim": (seen(), CreateClaim, "Pending"),
    "given a claim of its name, then it is left alone": (
        seen(claim=a_claim()),
        Rest(None, "Warning", "ErrResourceExists", 'claim "data" exists and is not this'
             " DataVolume's"), "Pending"),
    "given a claim of its name and leave to adopt, then it adopts": (
        seen(ADOPTING, claim=a_claim()), AdoptClaim, "Pending"),
    "given an unbound claim of our class, then it waits": (
        seen(claim=PENDING, storage_class=WAITING), Rest(), "Pending"),
    "given an unbound claim of another's waiting class, then that is the phase": (
        seen(claim=PENDING, storage_class={**FOREIGN, "volumeBindingMode": "WaitForFirstConsumer"}),
        Rest(), "WaitForFirstConsumer"),
    "given a bound claim, then it starts": (bound(), Start(), "ImportScheduled"),
    "given an import waiting for its turn, then it waits": (
        bound(job=Job()), Rest(), "ImportScheduled"),
    "given an import under way, then it waits": (
        bound(job=Job(running=True)), Rest(), "ImportInProgress"),
    "given a disk while the import still ends, then it waits": (
        bound(disk=True, job=Job(running=True)), Rest(), "ImportInProgress"),
    "given a disk, then it has succeeded": (bound(disk=True), Rest(), "Succeeded"),
    "given a failed try, then it waits a little": (
        bound(job=FAILED_ONCE), Rest(timedelta(seconds=30), "Warning", "Error", "no luck"),
        "ImportInProgress"),
    "given the time has come, then it tries again": (
        bound(job=FAILED_ONCE, now=LATER), Start(), "ImportInProgress"),
    "given no hope, then it has failed": (bound(job=HOPELESS, now=LATER), Rest(), "Failed"),
    "given it has failed, then the job is forgotten": (
        bound(a_data_volume("Failed", blank={}), job=HOPELESS), Stop(), "Failed"),
    "given it has failed, then it is never tried again": (
        bound(a_data_volume("Failed", blank={})), Rest(), "Failed"),
    "given it has succeeded and its claim is gone, then it stays so": (
        seen(a_data_volume("Succeeded", blank={})), Rest(), "Succeeded"),
    "given it is deleted, then what fills it ends": (
        bound(a_data_volume(blank={}, deleting=True), job=Job(running=True)), Stop(),
        "ImportInProgress"),
    "given its claim is deleted, then what fills it ends": (
        seen(claim=GOING, job=Job(running=True)), Stop(), "Pending"),
    "given a source we lack, then it has failed": (
        seen(a_data_volume(s3={"url": "s3://x"})), Rest(), "Failed"),
    "given no docker:// name, then it has failed": (
        seen(a_data_volume(registry={"url": "oci-archive:x"})), Rest(), "Failed"),
    "given a free source, then it is copied": (bound(COPY, origin=READY), Start(),
                                               "CloneScheduled"),
    "given a source in use, then it waits": (
        bound(COPY, origin=BUSY),
        Rest(None, "Warning", "CloneSourceInUse", "pod team/vm using it"), "CloneScheduled"),
    "given no size and no source, then it waits": (
        seen(a_data_volume(size="", pvc={"namespace": "team", "name": "source"}), origin=ABSENT),
        Rest(None, "Warning", "CloneSourceNotFound", "not found"), "Pending"),
    "given nobody's source, then others fill it": (
        seen(a_data_volume(), claim=PENDING), Rest(), "PendingPopulation"),
    "given others filled it, then it has succeeded": (bound(a_data_volume()), Rest(), "Succeeded"),
}  # fmt: skip


@pytest.mark.parametrize(("state", "step", "phase"), RULES.values(), ids=RULES)
def test_rules(state: DataVolumeSnapshot, step: type[Step] | Step, phase: str) -> None:
    found = plan(state)
    assert isinstance(found, step) if isinstance(step, type) else found == step
    assert status(state)["phase"] == phase


def test_given_no_size_then_a_copy_is_as_large_as_its_source() -> None:
    dv = a_data_volume(size="", pvc={"namespace": "team", "name": "source"})
    step = plan(seen(dv, origin=Origin(a_bound_claim("w", "7Gi"))))
    assert isinstance(step, CreateClaim)
    assert step.claim["spec"]["resources"]["requests"] == {"storage": "7Gi"}


ACCESS = {
    "given our class, then all nodes may have it": (WAITING, {}, ["ReadWriteMany"]),
    "given another's class, then one may": (FOREIGN, {}, ["ReadWriteOnce"]),
    "given a wish, then that": (WAITING, {"accessModes": ["ReadOnlyMany"]}, ["ReadOnlyMany"]),
}


@pytest.mark.parametrize(("storage_class", "storage", "modes"), ACCESS.values(), ids=ACCESS)
def test_access_modes(storage_class: Object, storage: Object, modes: list[str]) -> None:
    dv = {**BLANK, "spec": {**BLANK["spec"], "storage": {**BLANK["spec"]["storage"], **storage}}}
    claim = datavolumes_plan.claim_for(dv, storage_class)
    assert claim["spec"]["accessModes"] == modes
    assert claim["spec"]["volumeMode"] == "Filesystem"


def test_progress_is_told_in_percent() -> None:
    assert status(seen())["progress"] == "N/A"
    assert status(bound(job=Job(running=True, progress=12.345)))["progress"] == "12.35%"
    assert status(bound(disk=True))["progress"] == "100.0%"


@pytest.mark.wording
def test_a_claim_that_waits_for_its_storage_class_says_so() -> None:
    claim = owned(a_claim())
    claim["spec"]["storageClassName"] = "fast"
    [bound, *_] = status(seen(claim=claim, storage_class=None))["conditions"]
    assert (bound["type"], bound["status"], bound["reason"]) == ("Bound", "False", "Pending")
    assert "no StorageClass fast" in bound["message"]


def test_a_failure_is_told_while_it_lasts_and_kept_once_it_is_final() -> None:
    failing = status(bound(job=replace(FAILED_ONCE, failures=3)))
    running = conditions.find(failing["conditions"], "Running")
    assert running is not None
    assert (running["status"], running["reason"]) == ("False", "Error")
    assert running["message"] == conditions.human_readable("no luck")
    assert failing["restartCount"] == 3
    final = status(bound(job=HOPELESS))
    again = status(bound({**BLANK, "status": final}, now=LATER))
    assert again == final


def test_a_status_that_says_it_all_is_not_written_again() -> None:
    once = status(bound(job=Job(running=True)))
    assert status(bound({**BLANK, "status": once}, job=Job(running=True), now=LATER)) == once


# ---------------------------------------------------------------- laws

outcomes = st.lists(st.sampled_from(["killed", "failed", "filled", "hopeless"]), max_size=8)


@given(outcomes, st.sampled_from([BLANK, HTTP]))
def test_given_any_outcomes_of_tries_then_it_ends_and_stays_so(
    happened: list[str], dv: Object
) -> None:
    """Each try ends in some way, or the controller is killed and knows nothing of it."""
    state, tries = seen(dv), 0
    for outcome in [*happened, "filled"]:
        state = settle(state)
        if state.job is not None and not state.job.error:
            tries += 1
            state = after(outcome, state)
        state = replace(state, now=state.now + timedelta(minutes=1))
    state = settle(state)
    ended = state.dv["status"]["phase"]
    decisive = [each for each in happened if each in ("filled", "hopeless")]
    expected = "Failed" if decisive[:1] == ["hopeless"] else "Succeeded"
    assert ended == expected
    assert plan(state) == Rest()
    assert settle(state) == state
    assert state.disk == (ended == "Succeeded")


def settle(state: DataVolumeSnapshot) -> DataVolumeSnapshot:
    """Follow the plan until it rests, and write the status as the controller does."""
    for _ in range(10):
        match plan(state):
            case CreateClaim():
                state = replace(state, claim=owned(a_bound_claim(), state.dv), volume="v")
            case Start():
                assert not state.disk, "a disk that is there is never written again"
                state = replace(state, job=Job(running=True))
            case Stop():
                state = replace(state, job=None)
            case Rest():
                fresh = status(state)
                if fresh == state.dv.get("status"):
                    return state
                state = replace(state, dv={**state.dv, "status": fresh})
    raise AssertionError("the plan never comes to rest")


def after(outcome: str, state: DataVolumeSnapshot) -> DataVolumeSnapshot:
    match outcome:
        case "filled":
            return replace(state, disk=True, job=None)
        case "failed":
            return replace(state, job=replace(FAILED_ONCE, retry_at=state.now))
        case "hopeless":
            return replace(state, job=HOPELESS)
        case _:
            return replace(state, job=None)
