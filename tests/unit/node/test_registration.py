import dataclasses
import os
from datetime import UTC, datetime, timedelta

import pytest

from livevirt.kube.objects import conditions, quantity
from livevirt.node import host, registration
from livevirt.node.registration import ACCELERATED, CONFINED, Facts
from livevirt.qemu.accelerator import Accelerator, Offer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROOM = {"cpu": quantity.parse("2"), "memory": quantity.parse("4Gi")}
EMULATED = Facts("n1", ROOM, Accelerator("tcg", "no /dev/kvm"), (7, 2, 22), "no permission")
FAST = Facts("n1", ROOM, Accelerator("kvm", "a guest ran"), (7, 2, 22))
OFFER = Offer(("Westmere",), ("sse4.2",), ("pc-q35-7.2", "q35"))
OFFERING = dataclasses.replace(EMULATED, offer=OFFER)


def test_a_node_can_be_selected_as_kubevirt_s_pods_do() -> None:
    labels = registration.node(FAST)["metadata"]["labels"]
    assert labels["kubevirt.io/schedulable"] == "true"
    assert labels["kubernetes.io/hostname"] == "n1"
    assert labels["machine-type.node.kubevirt.io/q35"] == "true"


def test_a_node_that_is_to_take_nothing_new_is_not_selected_and_says_why() -> None:
    retired = dataclasses.replace(FAST, retired=True)
    assert registration.node(retired)["metadata"]["labels"]["kubevirt.io/schedulable"] == "false"
    ready = conditions.find(registration.status(retired, {}, NOON)["conditions"], "Ready")
    assert ready is not None
    assert (ready["status"], ready["message"]) == (
        "True",
        conditions.human_readable(registration.RETIRED),
    )


def test_a_node_is_labelled_with_what_a_guest_may_name() -> None:
    found = registration.node(OFFERING)["metadata"]["labels"]
    assert {
        "cpu-model.node.kubevirt.io/Westmere": "true",
        "cpu-feature.node.kubevirt.io/sse4.2": "true",
        "machine-type.node.kubevirt.io/pc-q35-7.2": "true",
        "machine-type.node.kubevirt.io/q35": "true",
    }.items() <= found.items()


def test_given_another_qemu_then_what_it_no_longer_has_is_no_longer_said() -> None:
    old = {
        "cpu-model.node.kubevirt.io/phenom": "true",
        "cpu-feature.node.kubevirt.io/sse4.2": "true",
        "machine-type.node.kubevirt.io/pc-q35-2.4": "true",
        "rack": "7",
    }
    found = registration.labels(OFFERING, old)
    gone = {name for name, value in found.items() if value is None}
    assert gone == {
        "cpu-model.node.kubevirt.io/phenom", "machine-type.node.kubevirt.io/pc-q35-2.4",
    }  # fmt: skip
    assert "rack" not in found, "it is somebody else's"


def test_a_node_offers_kvm_only_where_it_works() -> None:
    for facts, devices in ((EMULATED, "0"), (FAST, "1k")):
        status = registration.status(facts, {}, NOON)
        assert status["allocatable"]["devices.kubevirt.io/kvm"] == devices
        assert status["capacity"]["memory"] == "4Gi"


def test_a_node_says_what_it_runs_guests_on_and_whether_they_are_confined() -> None:
    told = registration.status(EMULATED, {}, NOON)["conditions"]
    accelerated, confined = conditions.find(told, ACCELERATED), conditions.find(told, CONFINED)
    assert accelerated is not None
    assert (accelerated["status"], accelerated["reason"]) == ("False", "Emulated")
    assert accelerated["message"] == conditions.human_readable("no /dev/kvm")
    assert confined is not None
    assert (confined["status"], confined["reason"]) == ("False", "NoCgroups")
    assert confined["message"] == conditions.human_readable("no permission")
    told = registration.status(FAST, {}, NOON)["conditions"]
    assert conditions.is_true(told, ACCELERATED)
    assert conditions.is_true(told, CONFINED)


def test_a_condition_keeps_the_time_it_last_changed() -> None:
    first = registration.status(FAST, {}, NOON)
    later = registration.status(FAST, first, NOON + timedelta(hours=1))
    ready = conditions.find(later["conditions"], "Ready")
    assert ready is not None
    assert ready["lastTransitionTime"] == "2026-01-01T12:00:00Z"
    assert ready["lastHeartbeatTime"] == "2026-01-01T13:00:00Z"


def test_a_node_says_whether_pods_can_have_cpus_of_their_own() -> None:
    room = {**ROOM, "livevirt.io/exclusive-cpus": quantity.parse("1")}
    able = dataclasses.replace(FAST, capacity=room)
    unable = dataclasses.replace(able, shared_cpus="cpuset: no such controller")
    for facts, label, left in ((able, "true", "1"), (unable, "false", "0")):
        assert registration.node(facts)["metadata"]["labels"]["kubevirt.io/cpumanager"] == label
        allocatable = registration.status(facts, {}, NOON)["allocatable"]
        assert allocatable["livevirt.io/exclusive-cpus"] == left
    annotations = registration.node(unable)["metadata"]["annotations"]
    assert annotations["livevirt.io/cpumanager-reason"] == "cpuset: no such controller"


def test_a_node_offers_huge_pages_and_counts_them_as_no_other_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "resources", dict)
    plain = registration.machine_capacity()
    pages = {"hugepages-2Mi": (2 * 2**20, 5)}
    monkeypatch.setattr(host, "resources", lambda: pages)
    paged, half = registration.machine_capacity(), registration.machine_capacity(2)
    assert (str(paged["hugepages-2Mi"]), str(half["hugepages-2Mi"])) == ("10Mi", "4Mi")
    assert plain["memory"].bytes - paged["memory"].bytes == 10 * 2**20
    assert paged["livevirt.io/exclusive-cpus"].value() == len(os.sched_getaffinity(0)) - 1


def test_nodes_on_one_machine_share_what_it_has() -> None:
    one, two = registration.machine_capacity(1), registration.machine_capacity(2)
    assert two["cpu"].milli() == one["cpu"].milli() // 2
    assert 0 < two["memory"].bytes <= one["memory"].bytes // 2


def test_given_a_disk_that_is_nearly_full_then_the_node_says_so_and_takes_no_new_pods() -> None:
    theirs = {"key": "example.com/mine", "effect": "NoExecute"}
    full = dataclasses.replace(FAST, disk_pressure="1 MiB is free")
    under = registration.taints(full, [theirs])
    assert under == [theirs, {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]
    assert registration.taints(full, under) == under
    assert registration.taints(FAST, under) == [theirs]
    found = conditions.find(registration.status(full, {}, NOON)["conditions"], "DiskPressure")
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "KubeletHasDiskPressure")
    found = conditions.find(registration.status(FAST, {}, NOON)["conditions"], "DiskPressure")
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "KubeletHasNoDiskPressure")
