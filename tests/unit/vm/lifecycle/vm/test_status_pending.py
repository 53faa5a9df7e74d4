"""What a VM's status says about edits that wait."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vm import snapshot
from livevirt.vm.lifecycle.vm.status import changes, noted, status
from livevirt.vm.verdict.judgement import Judgement, Reason, Ruling, Verdict

from .vm_builders import NOON, a_vm, a_vmi

ALL_LIVE = Judgement()


def waits(*names: str) -> Judgement:
    ruling = Ruling(Verdict.RESTART, Reason.NOT_LIVE, "…")
    paths = [f"spec.template.spec.{name}" for name in names]
    return Judgement(tuple(replace(ruling, path=p, running=1, wanted=2) for p in paths))


def look(vm: Object, vmi: Object, later: timedelta = timedelta()) -> snapshot.VmSnapshot:
    return snapshot.VmSnapshot(snapshot.machine(vm), snapshot.guest(vmi, vm), NOON + later, {})


def told(vm: Object, judgement: Judgement | None, later: timedelta = timedelta()) -> Object:
    vmi = a_vmi()
    return status(vm, vmi, look(vm, vmi, later), judgement=judgement)


def required(found: Object) -> Object:
    return conditions.find(found["conditions"], "RestartRequired") or {}


def test_what_waits_is_listed_and_summed_up() -> None:
    found = told(a_vm(), waits("hostname"))
    assert [each["path"] for each in found["pendingChanges"]] == ["spec.template.spec.hostname"]
    assert "pendingChangesOmitted" not in found
    assert required(found)["status"] == "True"


@pytest.mark.wording
def test_what_waits_is_named_in_the_message() -> None:
    assert "hostname" in required(told(a_vm(), waits("hostname")))["message"]


def test_beyond_fifty_the_rest_is_counted() -> None:
    found = told(a_vm(), waits(*(f"f{n}" for n in range(57))))
    assert (len(found["pendingChanges"]), found["pendingChangesOmitted"]) == (50, 7)


def test_other_words_are_written_and_the_time_is_kept() -> None:
    vm = a_vm()
    vm["status"] = told(vm, waits("hostname"))
    since, words = required(vm["status"])["lastTransitionTime"], required(vm["status"])["message"]
    found = told(vm, waits("hostname", "subdomain"), timedelta(hours=1))
    assert required(found)["message"] != words
    assert required(found)["lastTransitionTime"] == since


def test_the_same_verdict_is_written_once() -> None:
    vm, vmi = a_vm(), a_vmi()
    vm["status"] = told(vm, waits("hostname"))
    again = changes(vm, vmi, look(vm, vmi, timedelta(hours=1)), judgement=waits("hostname"))
    assert again == {}


def test_when_nothing_waits_any_more_all_of_it_goes() -> None:
    vm, vmi = a_vm(), a_vmi()
    vm["status"] = told(vm, waits("hostname"))
    gone = changes(vm, vmi, look(vm, vmi), judgement=ALL_LIVE)
    assert gone["pendingChanges"] is None
    assert not required(gone)


def test_without_a_judgement_what_was_said_stays() -> None:
    vm = a_vm()
    vm["status"] = told(vm, waits(*(f"f{n}" for n in range(57))))
    found = told(vm, None)
    for name in ("pendingChanges", "pendingChangesOmitted"):
        assert found[name] == vm["status"][name]
    assert required(found) == required(vm["status"])


def test_given_that_nothing_can_be_known_then_a_restart_is_required_and_the_list_stays() -> None:
    vm = a_vm()
    assert required(told(vm, Judgement(unknown="lost")))["status"] == "True"
    vm["status"] = told(vm, waits("hostname"))
    found = told(vm, Judgement(unknown="lost"))
    assert required(found)["status"] == "True"
    assert found["pendingChanges"] == vm["status"]["pendingChanges"]


def test_an_instance_tells_the_generation_it_has_all_of() -> None:
    assert noted(a_vmi()) == "2"
    assert noted(None) == ""
