"""Gathering the inputs of a verdict, and what a release that lacks some ways to go live does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config.settings import Config
from livevirt.vm.migration.migratability import node_of
from livevirt.vm.verdict import gather
from livevirt.vm.verdict.comparison import MEMORY, SOCKETS
from livevirt.vm.verdict.fields import live_table
from livevirt.vm.verdict.gather import gather_now
from livevirt.vm.verdict.judgement import LIVE_VERDICTS, Reason, Verdict
from livevirt.vm.verdict.live_patch import live_patch, settles
from livevirt.vm.verdict.verdict import judge, relabelled
from livevirt.vm.verdict.verdict_inputs import ACCELERATOR, VerdictInputs, revision_of
from livevirt.vm.volumes.volume_patch import volume_patch

from ..cases import (
    KVM,
    LIVE,
    NOON,
    STAGE,
    Surroundings,
    a_claim,
    a_spec,
    edited,
    judged,
    rulings,
    running,
)

ALL_WAYS = frozenset({Reason.IN_PLACE, Reason.VOLUME_HOTPLUG, Reason.MEDIUM_CHANGE})
LACKING = {"accelerator": "kvm", "unsupported": ALL_WAYS}
WITHOUT_AGENT = {"accelerator": "tcg", "unsupported": ALL_WAYS}


def a_vm(spec: Object, strategy: str = "Always", uid: str = "vm-uid") -> Object:
    meta = {"name": "web", "namespace": "default", "uid": uid}
    return {"metadata": meta, "spec": {"runStrategy": strategy, "template": {"spec": spec}}}


def a_revision(spec: Object) -> Object:
    return {"metadata": {}, "data": a_vm(spec)}


KUBEVIRT: Object = {
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {
        "configuration": {
            "vmRolloutStrategy": "LiveUpdate",
            "developerConfiguration": {"featureGates": sorted(LIVE.gates)},
        }
    },
}
NODE: Object = {
    "metadata": {"name": "node-1", "labels": {ACCELERATOR: "kvm"}},
    "status": {"allocatable": {"cpu": "2", "memory": "8Gi"}},
}


class Store(Surroundings):
    """Surroundings that count what is read."""

    def __init__(self, vmi: Object | None, revision: Object | None = None, **around: Any) -> None:
        found = (
            (kinds.VMI, vmi), (core.REVISION, revision), (kinds.KUBEVIRT, KUBEVIRT),
            (core.NODE, NODE),
        )  # fmt: skip
        super().__init__(named=[(kind, obj) for kind, obj in found if obj is not None], **around)
        object.__setattr__(self, "read", [])

    read: list[str]

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        self.read.append(kind.resource)
        return super().get(kind, name, namespace)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        self.read.append(kind.resource)
        return super().list(kind, namespace)


def a_guest(spec: Object, **status: Any) -> Object:
    status = {"virtualMachineRevisionName": "start-1", "nodeName": "node-1", **status}
    vmi = running(spec, **status)
    vmi["metadata"]["namespace"] = "default"
    return vmi


# ---------------------------------------------------------------- the inputs


def test_the_inputs_are_what_is_wanted_and_the_record_of_the_start() -> None:
    spec, wanted = a_spec(), a_spec(hostname="other")
    vmi = a_guest(spec)
    found = gather_now(a_vm(wanted), Store(vmi, a_revision(spec)), NOON)
    assert (found.started, found.wanted, found.vmi) == (spec, wanted, vmi)
    assert (found.config, found.accelerator) == (LIVE, "kvm")


NO_GUEST: dict[str, tuple[Object, Object | None]] = {
    "no instance": (a_vm(a_spec()), None),
    "an instance of another owner": (a_vm(a_spec(), uid="another"), a_guest(a_spec())),
    "a VM that is to be halted": (a_vm(a_spec(), "Halted"), a_guest(a_spec())),
}


@pytest.mark.parametrize(("vm", "vmi"), NO_GUEST.values(), ids=NO_GUEST)
def test_without_a_guest_of_its_own_nothing_is_in_the_way(vm: Object, vmi: Object | None) -> None:
    found = gather_now(vm, Store(vmi, a_revision(a_spec(hostname="other"))), NOON)
    assert judge(found).changes == ()


def test_without_the_record_of_the_start_nothing_can_be_judged() -> None:
    found = judge(gather_now(a_vm(a_spec()), Store(a_guest(a_spec())), NOON))
    assert (found.running, found.changes) == (False, ())
    assert "start-1" in found.unknown


def test_a_guest_that_has_ended_needs_no_record() -> None:
    found = judge(gather_now(a_vm(a_spec()), Store(a_guest(a_spec(), phase="Succeeded")), NOON))
    assert (found.running, found.unknown) == (False, "")


A_LABEL, NO_LABELS = {"labels": {"a": "b"}}, {"labels": {}, "creationTimestamp": None}
RELABELLED: dict[str, tuple[Object | None, Object | None, bool]] = {
    "the same": (A_LABEL, A_LABEL, False),
    "none, in other words": (None, NO_LABELS, False),
    "a label more": (NO_LABELS, A_LABEL, True),
    "an annotation less": ({"annotations": {"a": "b"}}, None, True),
}


@pytest.mark.parametrize(("before", "now", "found"), RELABELLED.values(), ids=RELABELLED)
def test_labels_and_annotations_of_the_template(
    before: Object | None, now: Object | None, found: bool
) -> None:
    vm, revision, vmi = a_vm(a_spec()), a_revision(a_spec()), a_guest(a_spec())
    vm["spec"]["template"]["metadata"] = now
    revision["data"]["spec"]["template"]["metadata"] = before
    for part in ("labels", "annotations"):
        vmi["metadata"].setdefault(part, {}).update((before or {}).get(part) or {})
    inputs = gather_now(vm, Store(vmi, revision), NOON)
    live = replace(inputs, config=LIVE)
    staged = replace(inputs, config=STAGE)
    assert bool(judge(live).changes) is found
    assert not relabelled(live)
    assert relabelled(staged) is found
    assert not judge(staged).changes


def test_an_instance_names_its_record_and_its_node() -> None:
    vmi = running(a_spec(), virtualMachineRevisionName="start-1", nodeName="node-1")
    assert (revision_of(vmi), node_of(vmi)) == ("start-1", "node-1")
    assert (revision_of(None), node_of(running(a_spec()))) == ("", "")


# ---------------------------------------------------------------- what is read

FEW = ["virtualmachineinstances", "controllerrevisions", "kubevirts", "nodes", "namespaces"]
READS: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing changes": ({}, False),
    "a place": ({"nodeSelector": {"a": "b"}}, False),
    "a host name": ({"hostname": "other"}, False),
    "the same size, written otherwise": ({"domain.memory.guest": "1024Mi"}, False),
    "sockets": ({"domain.cpu.sockets": 2}, True),
    "memory": ({"domain.memory.guest": "2Gi"}, True),
}


@pytest.mark.parametrize(("edits", "resized"), READS.values(), ids=READS)
def test_the_room_there_is_is_read_only_for_another_size(
    edits: dict[str, Any], resized: bool
) -> None:
    store = Store(a_guest(a_spec()), a_revision(a_spec()))
    gather_now(a_vm(edited(a_spec(), edits)), store, NOON)
    assert [kind.partition(".")[0] for kind in store.read[: len(FEW)]] == FEW
    assert (len(store.read) > len(FEW)) is resized


def test_a_vm_without_a_guest_costs_two_reads() -> None:
    store = Store(None)
    gather_now(a_vm(a_spec()), store, NOON)
    assert len(store.read) == 2


def test_what_is_left_by_a_quota_and_the_node_is_part_of_the_inputs() -> None:
    spec = a_spec()
    vmi = a_guest(spec)
    pod = {
        "metadata": {"name": "p", "labels": {"kubevirt.io/created-by": "vmi-uid"}},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "compute", "resources": {"requests": {"cpu": "200m"}}}],
        },
        "status": {"phase": "Running"},
    }
    hard = {"requests.cpu": "300m"}
    quota = {"metadata": {"name": "team"}, "spec": {}, "status": {"hard": hard, "used": hard}}
    store = Store(vmi, a_revision(spec), quotas=[quota], pods=[pod])
    found = gather_now(a_vm(a_spec(domain__cpu__sockets=2)), store, NOON)
    left = {
        (each.kind, name): amount for each in found.bounds for name, amount in each.left.items()
    }
    assert left["ResourceQuota", "requests.cpu"] == parse("0")
    assert left["Node", "cpu"] == parse("1800m")
    [change] = judge(found).changes
    assert (change.reason, change.waits) == (Reason.OVER_QUOTA, True)


_sizes = st.fixed_dictionaries(
    {},
    optional={
        "domain.cpu": st.sampled_from(
            [{}, {"sockets": 1, "cores": 2}, {"cores": 2}, {"sockets": 3}, {"threads": 2}]
        ),
        "domain.memory": st.sampled_from(
            [{}, {"guest": "1Gi"}, {"guest": "1024Mi"}, {"guest": "2Gi"}, {"guest": "1000M"}]
        ),
        "domain.resources": st.sampled_from(
            [{}, {"requests": {"memory": "2Gi", "cpu": "2"}}, {"limits": {"memory": "1Gi"}}]
        ),
    },
)


@given(_sizes, _sizes, _sizes, st.sampled_from([LIVE, STAGE]))
def test_given_any_edit_whose_verdict_depends_on_the_room_then_that_is_read(
    started: dict[str, Any], has: dict[str, Any], wanted: dict[str, Any], config: Config
) -> None:
    at_start = edited(a_spec(), started)
    vmi = running(edited(at_start, has), config)
    spec = edited(at_start, wanted)
    found = judge(VerdictInputs(at_start, spec, vmi, config, **KVM))
    if any(change.live and change.path in (SOCKETS, MEMORY) for change in found.changes):
        assert gather.resizes(vmi, spec, config)


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
    assert all(change.nearest is None for change in found.changes)
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
    assert (change.verdict, change.nearest) == (Verdict.REFUSED, None)


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
    assert len(lacking) == 5  # sockets, memory, hotplugged disks, media, drives
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
