from datetime import UTC, datetime, timedelta

from livevirt.api import conditions, quantity
from livevirt.node import registration
from livevirt.node.registration import ACCELERATED, CONFINED, Facts
from livevirt.qemu.accelerator import Accelerator

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROOM = {"cpu": quantity.parse("2"), "memory": quantity.parse("4Gi")}
EMULATED = Facts("n1", ROOM, Accelerator("tcg", "no /dev/kvm"), (7, 2, 22), "no permission")
FAST = Facts("n1", ROOM, Accelerator("kvm", "a guest ran"), (7, 2, 22))


def test_a_node_can_be_selected_as_kubevirt_s_pods_do() -> None:
    labels = registration.node(FAST)["metadata"]["labels"]
    assert labels["kubevirt.io/schedulable"] == "true"
    assert labels["kubernetes.io/hostname"] == "n1"
    assert labels["machine-type.node.kubevirt.io/q35"] == "true"


def test_a_node_offers_kvm_only_where_it_works() -> None:
    for facts, devices in ((EMULATED, "0"), (FAST, "1k")):
        status = registration.status(facts, {}, NOON)
        assert status["allocatable"]["devices.kubevirt.io/kvm"] == devices
        assert status["capacity"]["memory"] == "4Gi"


def test_a_node_says_what_it_runs_guests_on_and_whether_they_are_confined() -> None:
    told = registration.status(EMULATED, {}, NOON)["conditions"]
    accelerated, confined = conditions.find(told, ACCELERATED), conditions.find(told, CONFINED)
    assert accelerated is not None
    assert (accelerated["status"], accelerated["message"]) == ("False", "no /dev/kvm")
    assert confined is not None
    assert (confined["status"], confined["message"]) == ("False", "no permission")
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


def test_nodes_on_one_machine_share_what_it_has() -> None:
    one, two = registration.machine_capacity(1), registration.machine_capacity(2)
    assert two["cpu"].milli() == one["cpu"].milli() // 2
    assert 0 < two["memory"].bytes <= one["memory"].bytes // 2
