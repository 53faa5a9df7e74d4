"""From objects to a case, and what a release that lacks some ways to go live says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.spec.resources import Namespace
from livevirt.vm.verdict.case import Around, Bound
from livevirt.vm.verdict.edit import (
    ACCELERATOR,
    Found,
    case,
    lost,
    node_of,
    relabelled,
    resizes,
    revision_of,
)
from livevirt.vm.verdict.judgement import LIVE_VERDICTS, Reason, Verdict
from livevirt.vm.verdict.live_patch import live_patch, settles
from livevirt.vm.verdict.live_table import live_table
from livevirt.vm.verdict.verdict import judge
from livevirt.vm.volumes.volume_patch import volume_patch

from .cases import LIVE, a_claim, a_spec, edited, judged, rulings, running

ALL_WAYS = frozenset({Reason.IN_PLACE, Reason.VOLUME_HOTPLUG, Reason.MEDIUM_CHANGE})
LACKING = Around(accelerator="kvm", lacking=ALL_WAYS)
WITHOUT_AGENT = Around(accelerator="tcg", lacking=ALL_WAYS)


def a_vm(spec: Object, strategy: str = "Always", uid: str = "vm-uid") -> Object:
    meta = {"name": "web", "namespace": "default", "uid": uid}
    return {"metadata": meta, "spec": {"runStrategy": strategy, "template": {"spec": spec}}}


def a_revision(spec: Object) -> Object:
    return {"metadata": {}, "data": a_vm(spec)}


KUBEVIRT: Object = {
    "spec": {
        "configuration": {
            "vmRolloutStrategy": "LiveUpdate",
            "developerConfiguration": {"featureGates": sorted(LIVE.gates)},
        }
    }
}
NODE: Object = {"metadata": {"labels": {ACCELERATOR: "kvm"}}}


# ---------------------------------------------------------------- the case


def test_a_case_is_what_is_wanted_against_the_record_of_the_start() -> None:
    spec, wanted = a_spec(), a_spec(hostname="other")
    vmi = running(spec)
    found = case(a_vm(wanted), Found(vmi, a_revision(spec), KUBEVIRT, NODE))
    assert found is not None
    assert (found.started, found.wanted, found.vmi) == (spec, wanted, vmi)
    assert (found.config, found.around.accelerator) == (LIVE, "kvm")


NO_GUEST: dict[str, tuple[Object, Object | None]] = {
    "no instance": (a_vm(a_spec()), None),
    "an instance of another owner": (a_vm(a_spec(), uid="another"), running(a_spec())),
    "a VM that is to be halted": (a_vm(a_spec(), "Halted"), running(a_spec())),
}


@pytest.mark.parametrize(("vm", "vmi"), NO_GUEST.values(), ids=NO_GUEST)
def test_without_a_guest_of_its_own_nothing_is_in_the_way(vm: Object, vmi: Object | None) -> None:
    found = case(vm, Found(vmi, a_revision(a_spec(hostname="other")), KUBEVIRT))
    assert found is not None
    assert judge(found).changes == ()


def test_without_the_record_of_the_start_there_is_no_case() -> None:
    found = Found(running(a_spec(), virtualMachineRevisionName="start-1"), None, KUBEVIRT)
    assert case(a_vm(a_spec()), found) is None
    assert lost(found) == (
        "the record of the guest's start (start-1) is missing; a restart makes a new one"
    )


def test_a_guest_that_has_ended_needs_no_record() -> None:
    found = case(a_vm(a_spec()), Found(running(a_spec(), phase="Succeeded"), None, KUBEVIRT))
    assert found is not None
    assert not judge(found).running


A_LABEL, NO_LABELS = {"labels": {"a": "b"}}, {"labels": {}, "creationTimestamp": None}
RELABELLED: dict[str, tuple[Object | None, Object | None, bool]] = {
    "the same": (A_LABEL, A_LABEL, False),
    "none, in other words": (None, NO_LABELS, False),
    "a label more": (NO_LABELS, A_LABEL, True),
    "an annotation less": ({"annotations": {"a": "b"}}, None, True),
}


@pytest.mark.parametrize(("before", "now", "found"), RELABELLED.values(), ids=RELABELLED)
def test_relabelled(before: Object | None, now: Object | None, found: bool) -> None:
    vm, revision = a_vm(a_spec()), a_revision(a_spec())
    vm["spec"]["template"]["metadata"] = now
    revision["data"]["spec"]["template"]["metadata"] = before
    assert relabelled(vm, Found(running(a_spec()), revision)) is found


def test_an_instance_names_its_record_and_its_node() -> None:
    vmi = running(a_spec(), virtualMachineRevisionName="start-1", nodeName="node-1")
    assert (revision_of(vmi), node_of(vmi)) == ("start-1", "node-1")
    assert (revision_of(None), node_of(running(a_spec()))) == ("", "")


# ---------------------------------------------------------------- what a release lacks

HOT = {"volumes.+": a_claim("more"), "domain.devices.disks.+": {"name": "more", "disk": {}}}
RESTARTS: dict[str, dict[str, Any]] = {
    "more sockets": {"domain.cpu.sockets": 2},
    "more sockets than there can be": {"domain.cpu.sockets": 9},
    "more memory": {"domain.memory.guest": "2Gi"},
    "memory that is not aligned": {"domain.memory.guest": "1500M"},
    "a hotplugged disk": HOT,
    "a medium": {"volumes.+": a_claim("cd")},
}


@pytest.mark.parametrize("edits", RESTARTS.values(), ids=RESTARTS)
def test_what_the_node_does_not_know_waits_for_a_restart(edits: dict[str, Any]) -> None:
    found = judged(a_spec(), edited(a_spec(), edits), around=LACKING)
    assert set(rulings(found).values()) == {("Restart", "NotAvailable")}
    assert all(change.ruling.nearest is None for change in found.changes)
    assert live_patch(found, running(a_spec())) == {}


def test_fewer_sockets_promise_nothing_of_an_agent() -> None:
    found = judged(a_spec(domain__cpu__sockets=2), a_spec(), around=WITHOUT_AGENT)
    assert rulings(found) == {"domain.cpu.sockets": ("Restart", "NotAvailable")}


def test_a_refusal_stays_one_and_names_no_value_that_would_be_live() -> None:
    wanted = a_spec(domain__cpu__sockets=3, domain__cpu__maxSockets=2)
    change = judged(a_spec(), wanted, around=LACKING).change(
        "spec.template.spec.domain.cpu.sockets"
    )
    assert change is not None
    assert (change.verdict, change.ruling.nearest) == (Verdict.REFUSED, None)


def test_placement_needs_no_node_and_is_live_all_the_same() -> None:
    found = judged(a_spec(), a_spec(nodeSelector={"a": "b"}), around=LACKING)
    assert rulings(found) == {"nodeSelector": ("Live", "NextPlacement")}
    assert live_patch(found, running(a_spec())) == {"spec": {"nodeSelector": {"a": "b"}}}


@given(
    sockets=st.integers(1, 9),
    memory=st.sampled_from(["1Gi", "2Gi", "512Mi", "1500M"]),
    hot=st.booleans(),
    agent=st.booleans(),
)
def test_nothing_but_placement_is_ever_claimed_live(
    sockets: int, memory: str, hot: bool, agent: bool
) -> None:
    edits = {"domain.cpu.sockets": sockets, "domain.memory.guest": memory} | (HOT if hot else {})
    answers = [{"type": "AgentConnected", "status": "True"}] if agent else []
    found = judged(a_spec(), edited(a_spec(), edits), around=LACKING, conditions=answers)
    assert not [change for change in found.changes if change.verdict in LIVE_VERDICTS]


def test_the_table_claims_only_what_the_release_can_do() -> None:
    rows = live_table(ALL_WAYS).splitlines()
    lacking = [row for row in rows if "not in this release" in row]
    assert len(lacking) == 6  # sockets, memory, its request, hotplugged disks, media, drives
    assert "not in this release" not in live_table(frozenset())


# ---------------------------------------------------------------- whether all is done

SETTLES: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing changes": ({}, True),
    "all is live": ({"nodeSelector": {"a": "b"}}, True),
    "something waits": ({"hostname": "other"}, False),
    "something is held back": ({"hostname": "other", "nodeSelector": {"a": "b"}}, False),
    "a volume is plugged": (HOT, True),
    "a volume is plugged beside a field that waits": (HOT | {"hostname": "other"}, False),
}


@pytest.mark.parametrize(("edits", "settled"), SETTLES.values(), ids=SETTLES)
def test_an_edit_settles_if_the_patch_is_all_of_it(edits: dict[str, Any], settled: bool) -> None:
    assert settles(judged(a_spec(), edited(a_spec(), edits))) is settled


def test_nothing_settles_while_the_guest_moves() -> None:
    moving = {"migrationState": {"startTimestamp": "2030-01-01T00:00:00Z"}}
    wanted = edited(a_spec(), HOT)
    for edit in (a_spec(nodeSelector={"a": "b"}), wanted):
        found = judged(a_spec(), edit, **moving)
        assert found.waits
        assert not settles(found)
    assert volume_patch(found, running(a_spec())) == {}
    ended = {"migrationState": moving["migrationState"] | {"endTimestamp": "2030-01-01T00:01:00Z"}}
    assert volume_patch(judged(a_spec(), wanted, **ended), running(a_spec()))


# ---------------------------------------------------------------- what is around

RESIZES: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing changes": ({}, False),
    "a place": ({"nodeSelector": {"a": "b"}}, False),
    "a restart": ({"domain.cpu.sockets": 2, "hostname": "other"}, False),
    "sockets": ({"domain.cpu.sockets": 2}, True),
    "memory": ({"domain.memory.guest": "2Gi"}, True),
}


@pytest.mark.parametrize(("edits", "resized"), RESIZES.values(), ids=RESIZES)
def test_only_live_sizes_depend_on_the_room_there_is(edits: dict[str, Any], resized: bool) -> None:
    assert resizes(judged(a_spec(), edited(a_spec(), edits))) is resized


def test_a_case_has_what_was_found_around_the_guest() -> None:
    bound = Bound("Node", "node-1", {"cpu": parse("1")})
    found = Found(
        running(a_spec()), a_revision(a_spec()), KUBEVIRT, NODE, Namespace(True), (bound,)
    )
    made = case(a_vm(a_spec()), found)
    assert made is not None
    assert (made.around.namespace, made.around.bounds) == (Namespace(limits_cpu=True), (bound,))
