from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects import conditions, times
from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vm import snapshot
from livevirt.vm.lifecycle.vm.status import changes, next_try, printable, status

from .vm_builders import NOON, a_vm, a_vmi


def look(vm: Object, vmi: Object | None = None, **volumes: str) -> snapshot.VmSnapshot:
    if volumes:
        templates = [{"metadata": {"name": name}} for name in volumes]
        vm["spec"]["dataVolumeTemplates"] = templates
    return snapshot.VmSnapshot(snapshot.machine(vm), snapshot.guest(vmi, vm), NOON, volumes)


def shown(vm: Object, vmi: Object | None = None, **volumes: str) -> str:
    return printable(vm, vmi, look(vm, vmi, **volumes))


def because(type_: str, reason: str, status: str = "False") -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": "…"}


def deleted(obj: Object) -> Object:
    obj["metadata"]["deletionTimestamp"] = times.format_time(NOON)
    return obj


def halted(vm: Object) -> Object:
    vm["spec"]["runStrategy"] = "Halted"
    return vm


FAILED_START = {
    "consecutiveFailCount": 1,
    "lastFailedVMIUID": "g0",
    "retryAfterTimestamp": times.format_time(NOON + timedelta(seconds=9)),
}
MIGRATING = {"migrationState": {"startTimestamp": times.format_time(NOON)}}
MIGRATION_FAILED = {
    "migrationState": {
        **MIGRATING["migrationState"], "failed": True, "endTimestamp": times.format_time(NOON),
    }
}  # fmt: skip

WORDS: dict[str, tuple[str, Object, Object | None, dict[str, str]]] = {
    "a deleted VM": ("Terminating", deleted(a_vm()), a_vmi(), {}),
    "a deleted guest": ("Stopping", a_vm(), deleted(a_vmi()), {}),
    "a guest that moves": ("Migrating", a_vm(), a_vmi(**MIGRATING), {}),
    "a guest whose move failed or was called off": (
        "Running", a_vm(), a_vmi(**MIGRATION_FAILED), {},
    ),
    "a paused guest": ("Paused", a_vm(), a_vmi("Running", because("Paused", "", "True")), {}),
    "a running guest": ("Running", a_vm(), a_vmi(), {}),
    "a running guest whose volume failed": ("Running", a_vm(), a_vmi(), {"disk": "Failed"}),
    "no claim": (
        "ErrorPvcNotFound",
        a_vm(),
        a_vmi("Pending", because("Synchronized", "FailedPvcNotFound")),
        {},
    ),
    "a failed volume": ("DataVolumeError", a_vm(), None, {"disk": "Failed"}),
    "no node": (
        "ErrorUnschedulable",
        a_vm(),
        a_vmi("Scheduling", because("PodScheduled", "Unschedulable")),
        {},
    ),
    "a volume that is filled": ("Provisioning", a_vm(), None, {"disk": "ImportInProgress"}),
    "a volume that waits": (
        "WaitingForVolumeBinding", a_vm(), a_vmi("Scheduling"), {"disk": "WaitForFirstConsumer"},
    ),
    "no image": (
        "ErrImagePull", a_vm(), a_vmi("Scheduled", because("Synchronized", "ErrImagePull")), {},
    ),
    "no image for long": (
        "ImagePullBackOff",
        a_vm(),
        a_vmi("Scheduled", because("Synchronized", "ImagePullBackOff")),
        {},
    ),
    "a new guest": ("Starting", a_vm(), a_vmi(""), {}),
    "a guest with a node": ("Starting", a_vm(), a_vmi("Scheduled"), {}),
    "a failed start": ("CrashLoopBackOff", a_vm(startFailure=FAILED_START), None, {}),
    "a failed start of a halted VM": ("Stopped", halted(a_vm(startFailure=FAILED_START)), None, {}),
    "nothing": ("Stopped", a_vm(), None, {}),
    "an ended guest": ("Stopped", a_vm(), a_vmi("Succeeded"), {}),
    "an odd phase": ("Unknown", a_vm(), a_vmi("Unknown"), {}),
}  # fmt: skip


@pytest.mark.parametrize(("word", "vm", "vmi", "volumes"), WORDS.values(), ids=WORDS)
def test_printable_status(
    word: str, vm: Object, vmi: Object | None, volumes: dict[str, str]
) -> None:
    assert shown(vm, vmi, **volumes) == word


# ---------------------------------------------------------------- conditions


def test_without_a_guest_the_vm_is_not_ready_for_that_reason() -> None:
    vm = a_vm()
    found = status(vm, None, look(vm))
    [ready] = found["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "VMINotExists")
    assert "created" not in found
    assert found["observedGeneration"] == found["desiredGeneration"] == 3


def test_the_guests_conditions_show_on_the_vm_and_go_with_it() -> None:
    live, ready = because("LiveMigratable", "", "True"), because("Ready", "", "True")
    vm, vmi = a_vm(conditions=[because("Old", "x"), because("RestartRequired", "y", "True")]), None
    vmi = a_vmi("Running", live, ready)
    found = status(vm, vmi, look(vm, vmi))
    types = {each["type"]: each["status"] for each in found["conditions"]}
    assert types == {"RestartRequired": "True", "Ready": "True", "LiveMigratable": "True"}
    assert (found["created"], found["ready"]) == (True, True)
    assert found["observedGeneration"] == 2, "that of the start"


@pytest.mark.parametrize("written", ["²", "9" * 5000, "-1", "soon"])
def test_a_generation_that_is_none_is_left_aside(written: str) -> None:
    vm, vmi = a_vm(), a_vmi()
    vmi["metadata"]["annotations"]["kubevirt.io/vm-generation"] = written
    assert status(vm, vmi, look(vm, vmi))["observedGeneration"] == 3


def test_a_failure_is_shown_until_a_pass_without_one() -> None:
    vm = a_vm()
    failing = status(vm, None, look(vm), conditions.Failure("FailedCreate", "no room"))
    problem = conditions.find(failing["conditions"], "Failure")
    assert problem is not None
    assert (problem["status"], problem["reason"]) == ("True", "FailedCreate")
    vm["status"] = failing
    assert conditions.find(status(vm, None, look(vm))["conditions"], "Failure") is None


def test_a_status_that_is_right_is_not_written_again() -> None:
    vm, vmi = a_vm(), a_vmi("Running", because("Ready", "", "True"))
    vm["status"] = status(vm, vmi, look(vm, vmi))
    assert changes(vm, vmi, look(vm, vmi)) == {}


def test_what_must_go_is_named() -> None:
    vm = a_vm(created=True, ready=True)
    named = changes(vm, None, look(vm))
    assert named["created"] is None
    assert named["ready"] is None


def hot(reason: str, message: str) -> Object:
    return {**because("HotMemoryChange", reason, "True"), "message": message}


NEWS = {
    "a quota that grew": (hot("OverQuota", "1Gi short"), hot("OverQuota", "512Mi short"), True),
    "another cause": (
        {**because("Synchronized", "FailedCreate"), "message": "exceeded quota"},
        {**because("Synchronized", "FailedCreate"), "message": "above the limit"},
        True,
    ),
    "another time": (
        because("Paused", "x"), {**because("Paused", "x"), "lastTransitionTime": "later"}, False,
    ),
    "memory that comes bit by bit": (
        hot("Plugging", "the guest has taken 1Gi"), hot("Plugging", "the guest has taken 2Gi"),
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "written"), NEWS.values(), ids=NEWS)
def test_the_words_of_the_instance_are_followed_unless_they_count(
    first: Object, second: Object, written: bool
) -> None:
    vm, vmi = a_vm(), a_vmi("Running", first)
    vm["status"] = status(vm, vmi, look(vm, vmi))
    vmi["status"]["conditions"] = [second]
    told = changes(vm, vmi, look(vm, vmi)).get("conditions")
    assert (told is not None) == written
    if written:
        assert (conditions.find(told, first["type"]) or {})["message"] == second["message"]


# ---------------------------------------------------------------- the machine type

OLD, NEW = {"type": "pc-q35-6.2"}, {"type": "pc-q35-7.2"}
MACHINES: dict[str, tuple[Object | None, Object, Object | None]] = {
    "given no start yet, then none": (None, a_vm(), None),
    "given a guest that has not said, then none": (None, a_vm(), a_vmi("Scheduled")),
    "given a guest, then its own": (NEW, a_vm(), a_vmi(machine=NEW)),
    "given a guest on another than before, then its own": (
        NEW, a_vm(machine=OLD), a_vmi(machine=NEW),
    ),
    "given the guest has gone, then it stays": (OLD, a_vm(machine=OLD), None),
    "given the next guest has not said, then it stays": (
        OLD, a_vm(machine=OLD), a_vmi("Scheduled"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("machine", "vm", "vmi"), MACHINES.values(), ids=MACHINES)
def test_the_machine_type_is_kept(machine: Object | None, vm: Object, vmi: Object | None) -> None:
    assert status(vm, vmi, look(vm, vmi)).get("machine") == machine


# ---------------------------------------------------------------- failed starts


def with_strategy(vm: Object, strategy: str) -> Object:
    vm["spec"]["runStrategy"] = strategy
    return vm


def counted(vm: Object, vmi: Object | None) -> Any:
    return (status(vm, vmi, look(vm, vmi)).get("startFailure") or {}).get("consecutiveFailCount")


def test_a_guest_that_ended_before_it_ran_is_counted_once() -> None:
    vm, vmi = a_vm(startFailure=FAILED_START), a_vmi("Failed")
    found = status(vm, vmi, look(vm, vmi))["startFailure"]
    assert (found["consecutiveFailCount"], found["lastFailedVMIUID"]) == (2, "g1")
    vm["status"]["startFailure"] = found
    assert status(vm, vmi, look(vm, vmi))["startFailure"] == found


def test_the_count_ends_when_a_guest_runs_or_the_vm_is_halted() -> None:
    assert counted(a_vm(startFailure=FAILED_START), a_vmi("Running")) is None
    assert counted(halted(a_vm(startFailure=FAILED_START)), None) is None
    assert counted(a_vm(startFailure=FAILED_START), None) == 1


@given(st.integers(1, 1000), st.text(min_size=1))
def test_the_wait_grows_to_five_minutes_and_is_spread_by_half(count: int, uid: str) -> None:
    wait = (next_try(count, uid, NOON) - NOON).total_seconds()
    assert min(10 * count**2, 300) <= wait <= min(15 * count**2, 300)


# ---------------------------------------------------------------- requests


def requests(strategy: str, written: list[Object], vmi: Object | None) -> Any:
    vm = with_strategy(a_vm(stateChangeRequests=written), strategy)
    return status(vm, vmi, look(vm, vmi)).get("stateChangeRequests")


STOP, START = {"action": "Stop", "uid": "g1"}, {"action": "Start"}
PAUSED = {**START, "data": {"paused": "true"}}


def test_requests_stay_until_they_are_done() -> None:
    assert requests("Always", [STOP, START], a_vmi()) == [STOP, START]
    assert requests("Always", [STOP, START], None) == [START]
    assert requests("Always", [{**STOP, "uid": "g0"}, START], a_vmi()) is None
    assert requests("Manual", [START], a_vmi("Succeeded")) == [START]


def test_a_halted_vm_forgets_the_start_of_a_restart() -> None:
    assert requests("Halted", [STOP, START], a_vmi()) == [STOP], "it is not over yet"
    assert requests("Halted", [STOP, START], None) is None
    assert requests("Halted", [START], None) is None
    assert requests("Halted", [PAUSED], None) == [PAUSED], "that is how such a start is asked for"


def test_a_failed_guest_of_rerun_asks_for_a_start() -> None:
    assert requests("RerunOnFailure", [], a_vmi("Failed")) == [START]
    assert requests("RerunOnFailure", [], a_vmi("Succeeded")) is None
    assert requests("Always", [], a_vmi("Failed")) is None


def test_rerun_counts_as_known_once_it_has_started() -> None:
    vm = with_strategy(a_vm(runStrategy="Halted"), "RerunOnFailure")
    assert status(vm, None, look(vm))["runStrategy"] == "Halted"
    vmi = a_vmi()
    assert status(vm, vmi, look(vm, vmi))["runStrategy"] == "RerunOnFailure"
