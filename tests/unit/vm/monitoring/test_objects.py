"""Samples of objects: what a scrape says of VMs, instances, migrations and nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from livevirt.kube.control.metrics import Family, Sample
from livevirt.vm.monitoring import objects

NOON = 1_767_268_800.0  # 2026-01-01T12:00:00Z
STAMP = "2026-01-01T12:00:00Z"
Object = dict[str, Any]


def values(found: Iterable[Sample], family: Family) -> dict[tuple[str, ...], float]:
    return {sample.labels: sample.value for sample in found if sample.family is family}


def labelled(sample: Sample) -> dict[str, str]:
    return dict(zip(sample.family.labels, sample.labels, strict=True))


def condition(type_: str, reason: str = "", status: str = "True") -> Object:
    return {"type": type_, "status": status, "reason": reason, "lastTransitionTime": STAMP}


def a_vm(status: str = "Running", *conditions: Object, **spec: Any) -> Object:
    domain = {
        "cpu": {"sockets": 2, "cores": 1},
        "memory": {"guest": "1Gi"},
        "resources": {"limits": {"cpu": "1500m"}},
        "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
    }
    template = {"spec": {"domain": domain, "networks": [{"name": "default", "pod": {}}]}}
    return {
        "metadata": {"name": "web", "namespace": "team", "creationTimestamp": STAMP},
        "spec": {"template": template, **spec},
        "status": {"printableStatus": status, "conditions": list(conditions)},
    }


def a_vmi(*conditions: Object, **status: Any) -> Object:
    return {
        "metadata": {
            "name": "web", "namespace": "team", "uid": "u1",
            "annotations": {"kubevirt.io/cluster-instancetype-name": "u1.small"},
        },
        "spec": {"domain": {}, "evictionStrategy": "LiveMigrate"},
        "status": {
            "phase": "Running", "nodeName": "node01", "conditions": list(conditions), **status,
        },
    }  # fmt: skip


GROUPS = {
    "Running": "running", "Starting": "starting", "Migrating": "migrating", "Paused": "non_running",
    "Stopped": "non_running", "CrashLoopBackOff": "error", "ErrorUnschedulable": "error",
    "never heard of": "error",
}  # fmt: skip


@pytest.mark.parametrize(("status", "group"), GROUPS.items())
def test_given_a_printable_status_then_only_its_group_has_a_timestamp(
    status: str, group: str
) -> None:
    found = list(objects.of_machines([a_vm(status, condition("Ready"))], {}))
    told = {name: values(found, family) for name, family in objects.TRANSITIONS.items()}
    assert told == {
        name: {("web", "team"): NOON if name == group else 0} for name in objects.TRANSITIONS
    }


def test_given_a_vm_then_its_sizes_and_interfaces_are_told() -> None:
    found = list(objects.of_machines([a_vm()], {}))
    named = ("web", "team")
    assert values(found, objects.VM_REQUESTS) == {
        (*named, "cpu", "sockets", "domain"): 2,
        (*named, "cpu", "cores", "domain"): 1,
        (*named, "memory", "bytes", "guest"): 1 << 30,
    }
    assert values(found, objects.VM_LIMITS) == {(*named, "cpu", "cores"): 1.5}
    vnic = (*named, "default", "core", "pod networking", "masquerade")
    assert values(found, objects.VM_VNIC) == {vnic: 1}
    assert values(found, objects.NUMBER_OF_VMS) == {("team",): 1}
    assert values(found, objects.RESTART) == {}


def test_given_a_vm_sized_by_name_then_its_size_is_read_from_the_instance() -> None:
    vm, vmi = a_vm(instancetype={"name": "u1.small"}), a_vmi()
    domain = vm["spec"]["template"]["spec"]["domain"]
    del domain["cpu"], domain["memory"]
    vmi["spec"]["domain"] = {"cpu": {"sockets": 3}, "memory": {"guest": "2Gi"}}
    found = list(objects.of_machines([vm], {("team", "web"): vmi}))
    assert set(values(found, objects.VM_REQUESTS).values()) == {3, 2 << 30}
    (info,) = (sample for sample in found if sample.family is objects.VM_INFO)
    assert labelled(info)["instance_type"] == "u1.small"


def test_given_an_edit_that_needs_a_restart_then_since_when() -> None:
    found = list(objects.of_machines([a_vm("Running", condition("RestartRequired"))], {}))
    assert values(found, objects.RESTART) == {("web", "team"): NOON}


def test_given_a_running_instance_then_info_describes_it_and_its_guest() -> None:
    info = {"kernelRelease": "6.1", "machine": "x86_64", "name": "Debian", "versionId": "12"}
    vmi = a_vmi(guestOSInfo=info, machine={"type": "pc-q35-7.2"})
    (sample,) = (
        each for each in objects.of_instances([vmi], {"u1": "pod-1"}, {})
        if each.family is objects.VMI_INFO
    )  # fmt: skip
    assert labelled(sample) == {
        "node": "node01", "namespace": "team", "name": "web", "phase": "running", "os": "",
        "workload": "", "flavor": "", "instance_type": "u1.small", "preference": "",
        "guest_os_kernel_release": "6.1", "guest_os_machine": "pc-q35-7.2",
        "guest_os_arch": "x86_64", "guest_os_name": "Debian", "guest_os_version_id": "12",
        "evictable": "false", "outdated": "false", "vmi_pod": "pod-1",
    }  # fmt: skip


def test_given_instances_alike_then_they_are_counted_together() -> None:
    found = list(objects.of_instances([a_vmi(), a_vmi()], {}, {}))
    (count,) = values(found, objects.PHASES).items()
    assert (count[0][:2], count[1]) == (("node01", "running"), 2)


EVICTABLE = {
    "migratable": ([condition("LiveMigratable")], 0),
    "not migratable": ([condition("LiveMigratable", status="False")], 1),
    "not known yet": ([], 1),
}


@pytest.mark.parametrize(("conditions", "value"), EVICTABLE.values(), ids=EVICTABLE)
def test_given_an_instance_that_must_migrate(conditions: list[Object], value: float) -> None:
    found = objects.of_instances([a_vmi(*conditions)], {}, {})
    assert list(values(found, objects.NON_EVICTABLE).values()) == [value]


def test_given_changes_under_way_then_each_has_its_reason() -> None:
    listed = (
        condition("HotMemoryChange", "GuestNotAccepting"),
        condition("HotVCPUChange", "Plugging", "False"),
        condition("Paused", "PausedIOError"),
    )
    found = list(objects.of_instances([a_vmi(*listed)], {}, {}))
    change = ("team", "web", "memory", "GuestNotAccepting")
    assert values(found, objects.LIVE_CHANGE) == {change: NOON}
    assert values(found, objects.PAUSED) == {("team", "web", "PausedIOError"): NOON}


def test_given_a_migration_that_ended_then_when_and_how() -> None:
    state = {"migrationUid": "m", "startTimestamp": STAMP, "endTimestamp": STAMP, "failed": True}
    found = list(objects.of_instances([a_vmi(migrationState=state)], {}, {"m": "away"}))
    where = ("node01", "team", "web", "away")
    assert values(found, objects.MIGRATION_START) == {where: NOON}
    assert values(found, objects.MIGRATION_END) == {(*where, "failed"): NOON}


def test_given_migrations_in_every_phase_then_each_is_counted_once() -> None:
    phases = (None, "Pending", "Scheduling", "Scheduled", "TargetReady", "Running", "Failed",
              "Succeeded")  # fmt: skip
    made = [
        {"metadata": {"name": f"m{n}", "namespace": "team"}, "spec": {"vmiName": "web"},
         "status": {"phase": phase} if phase else {}}
        for n, phase in enumerate(phases)
    ]  # fmt: skip
    found = list(objects.of_migrations(made))
    counts = {name: values(found, family)[()] for name, family in objects.IN_PHASE.items()}
    assert counts == {"unset": 1, "pending": 1, "scheduling": 1, "running": 3}
    assert values(found, objects.FAILED) == {("web", "m6", "team"): 1}
    assert values(found, objects.SUCCEEDED) == {("web", "m7", "team"): 1}


def test_given_a_claim_then_the_size_it_has_counts_more_than_what_it_asks_for() -> None:
    vm = a_vm()
    vm["spec"]["template"]["spec"]["volumes"] = [
        {"name": "root", "dataVolume": {"name": "disk"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "not there"}},
    ]
    claim = {
        "spec": {"resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Block"},
        "status": {"capacity": {"storage": "2Gi"}},
    }
    found = objects.of_disks([vm], {("team", "disk"): claim})
    assert values(found, objects.VM_DISK) == {("web", "team", "disk", "Block", "root"): 2 << 30}


def test_given_nodes_then_whether_they_are_ready_and_when_they_were_heard() -> None:
    nodes = [
        {"metadata": {"name": "a"}, "status": {"conditions": [condition("Ready")]}},
        {"metadata": {"name": "b"}, "status": {}},
    ]
    lease = {"metadata": {"name": "a"}, "spec": {"renewTime": "2026-01-01T12:00:00.500000Z"}}
    found = list(objects.of_nodes(nodes, [lease]))
    assert values(found, objects.NODE_READY) == {("a",): 1, ("b",): 0}
    assert values(found, objects.HEARTBEAT) == {("a",): NOON + 0.5}
