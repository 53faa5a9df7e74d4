"""Tables: what `kubectl get` shows of each kind."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.server.table import partial_metadata, partial_metadata_list, table
from livevirt.vm import kinds
from livevirt.vm.kinds import REGISTRY

Object = dict[str, Any]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
META = {"name": "a", "namespace": "web", "creationTimestamp": "2026-03-01T11:58:20Z"}
DELETED = {**META, "deletionTimestamp": "2026-03-01T11:59:00Z"}


def an_object(kind: Kind, **fields: Any) -> Object:
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": META, **fields}


def shown(kind: Kind, obj: Object, *, wide: bool = False) -> dict[str, Any]:
    """Return a row as {column: cell}, without the columns of -o wide unless asked for."""
    made = table(kind, [obj], now=NOON)
    (row,) = made["rows"]
    columns = made["columnDefinitions"]
    assert len(columns) == len(row["cells"])
    return {
        column["name"]: cell
        for column, cell in zip(columns, row["cells"], strict=True)
        if wide or not column["priority"]
    }


BINDING = Kind("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", ("v1",), "rbac.x")

ROWS: dict[str, tuple[Kind, Object, Object]] = {
    "a namespace": (
        core.NAMESPACE,
        {"status": {"phase": "Active"}},
        {"Name": "a", "Status": "Active", "Age": "100s"},
    ),
    "a config map counts text and binary data": (
        core.CONFIG_MAP,
        {"data": {"k": "1", "l": "2"}, "binaryData": {"b": "AA=="}},
        {"Name": "a", "Data": 3, "Age": "100s"},
    ),
    "a secret": (
        core.SECRET,
        {"type": "Opaque", "data": {"k": "djE="}},
        {"Name": "a", "Type": "Opaque", "Data": 1, "Age": "100s"},
    ),
    "a service account": (core.SERVICE_ACCOUNT, {}, {"Name": "a", "Age": "100s"}),
    "a lease": (
        core.LEASE,
        {"spec": {"holderIdentity": "me"}},
        {"Name": "a", "Holder": "me", "Age": "100s"},
    ),
    "a limit range says when, not how long ago": (
        core.LIMIT_RANGE,
        {},
        {"Name": "a", "Created At": "2026-03-01T11:58:20Z"},
    ),
    "an unbound claim": (
        core.CLAIM,
        {
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
            "status": {"phase": "Pending"},
        },
        {
            "Name": "a", "Status": "Pending", "Volume": "", "Capacity": "", "Access Modes": "",
            "StorageClass": "fast", "VolumeAttributesClass": "<unset>", "Age": "100s",
        },
    ),
    "a claim that is being deleted": (
        core.CLAIM,
        {
            "metadata": DELETED,
            "spec": {"volumeName": "pv-1"},
            "status": {
                "phase": "Bound",
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
            },
        },
        {
            "Name": "a", "Status": "Terminating", "Volume": "pv-1", "Capacity": "1Gi",
            "Access Modes": "RWO,RWX", "StorageClass": "", "VolumeAttributesClass": "<unset>",
            "Age": "100s",
        },
    ),
    "a volume": (
        core.VOLUME,
        {
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": "web", "name": "data"},
            },
            "status": {"phase": "Bound"},
        },
        {
            "Name": "a", "Capacity": "1Gi", "Access Modes": "RWOP", "Reclaim Policy": "Retain",
            "Status": "Bound", "Claim": "web/data", "StorageClass": "",
            "VolumeAttributesClass": "<unset>", "Reason": "", "Age": "100s",
        },
    ),
    "the default storage class": (
        core.STORAGE_CLASS,
        {
            "metadata": {
                **META,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "livevirt.io/local",
            "allowVolumeExpansion": True,
        },
        {
            "Name": "a (default)", "Provisioner": "livevirt.io/local", "ReclaimPolicy": "Delete",
            "VolumeBindingMode": "Immediate", "AllowVolumeExpansion": True, "Age": "100s",
        },
    ),
    "a quota parts limits from the rest": (
        core.QUOTA,
        {
            "status": {
                "hard": {"requests.cpu": "4", "limits.memory": "8Gi", "pods": "10"},
                "used": {"requests.cpu": "1", "pods": "2"},
            }
        },
        {
            "Name": "a", "Request": "pods: 2/10, requests.cpu: 1/4",
            "Limit": "limits.memory: 0/8Gi", "Age": "100s",
        },
    ),
    "a revision of a VM": (
        core.REVISION,
        {
            "metadata": {
                **META,
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "no"},
                    {
                        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web",
                        "controller": True,
                    },
                ],
            },
            "revision": 3,
        },
        {"Name": "a", "Controller": "virtualmachine.kubevirt.io/web", "Revision": 3, "Age": "100s"},
    ),
    "a cordoned node with two roles": (
        core.NODE,
        {
            "metadata": {
                **META,
                "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"},
            },
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.37.0"},
            },
        },
        {
            "Name": "a", "Status": "Ready,SchedulingDisabled", "Roles": "edge,worker",
            "Age": "100s", "Version": "v1.37.0",
        },
    ),
    "a node nobody heard of": (
        core.NODE,
        {},
        {"Name": "a", "Status": "Unknown", "Roles": "<none>", "Age": "100s", "Version": ""},
    ),
    "an event that came often": (
        core.EVENT,
        {
            "involvedObject": {"kind": "VirtualMachine", "name": "web"},
            "type": "Normal", "reason": "SuccessfulCreate", "message": " made it\n",
            "firstTimestamp": "2026-03-01T11:00:00Z", "lastTimestamp": "2026-03-01T11:59:30Z",
            "count": 7,
        },
        {
            "Last Seen": "30s", "Type": "Normal", "Reason": "SuccessfulCreate",
            "Object": "virtualmachine/web", "Message": "made it",
        },
    ),
    "the same event under its newer names": (
        core.EVENT_VIEW,
        {
            "regarding": {"kind": "VirtualMachine", "name": "web"},
            "type": "Normal", "reason": "SuccessfulCreate", "note": "made it",
            "eventTime": "2026-03-01T11:00:00.000000Z",
            "series": {"count": 7, "lastObservedTime": "2026-03-01T11:59:30.000000Z"},
        },
        {
            "Last Seen": "30s", "Type": "Normal", "Reason": "SuccessfulCreate",
            "Object": "virtualmachine/web", "Message": "made it",
        },
    ),
    "a VM": (
        kinds.VM,
        {
            "status": {
                "printableStatus": "Running",
                "conditions": [
                    {"type": "AgentConnected", "status": "False"},
                    {"type": "Ready", "status": "True"},
                ],
            }
        },
        {"Name": "a", "Age": "100s", "Status": "Running", "Ready": "True"},
    ),
    "a VM without a status": (
        kinds.VM,
        {},
        {"Name": "a", "Age": "100s", "Status": None, "Ready": None},
    ),
    "a data volume": (
        kinds.DATA_VOLUME,
        {"status": {"phase": "Succeeded", "progress": "100.0%", "restartCount": 2}},
        {"Name": "a", "Phase": "Succeeded", "Progress": "100.0%", "Restarts": 2, "Age": "100s"},
    ),
    "a custom kind without columns": (kinds.INSTANCETYPE, {}, {"Name": "a", "Age": "100s"}),
    "a role binding": (
        BINDING,
        {"roleRef": {"kind": "Role", "name": "reader"}},
        {"Name": "a", "Role": "Role/reader", "Age": "100s"},
    ),
    "a definition": (core.CRD, {}, {"Name": "a", "Created At": "2026-03-01T11:58:20Z"}),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "row"), ROWS.values(), ids=ROWS)
def test_a_row_shows(kind: Kind, fields: Object, row: Object) -> None:
    assert shown(kind, an_object(kind, **fields)) == row


def a_container(name: str = "c", *, restarts: int = 0, ready: bool = False, **state: Any) -> Object:
    ended = state.pop("ended", None)
    last = {"lastState": {"terminated": {"finishedAt": ended}}} if ended else {}
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state, **last}


RUNNING: Object = {"running": {}}
TWO = {"containers": [{"name": "c"}, {"name": "d"}]}
WITH_INIT = {**TWO, "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]}

PODS: dict[str, tuple[Object, Object, tuple[str, str, str]]] = {
    "given no status, then its phase": (TWO, {"phase": "Pending"}, ("0/2", "Pending", "0")),
    "given a reason, then the reason": (
        TWO, {"phase": "Failed", "reason": "Evicted"}, ("0/2", "Evicted", "0"),
    ),
    "given one that crashes, then its reason and all restarts": (
        TWO,
        {
            "phase": "Running",
            "containerStatuses": [
                a_container(restarts=2, ready=True, running={}, ended="2026-03-01T11:50:00Z"),
                a_container("d", restarts=1, waiting={"reason": "CrashLoopBackOff"}),
            ],
        },
        ("1/2", "CrashLoopBackOff", "3 (10m ago)"),
    ),
    "given all that run, then Running": (
        TWO,
        {
            "phase": "Running",
            "containerStatuses": [
                a_container(ready=True, running={}), a_container("d", ready=True, running={}),
            ],
        },
        ("2/2", "Running", "0"),
    ),
    "given two with something to say, then the first is heard": (
        TWO,
        {
            "phase": "Pending",
            "containerStatuses": [
                a_container(waiting={"reason": "ErrImagePull"}),
                a_container("d", waiting={"reason": "ContainerCreating"}),
            ],
        },
        ("0/2", "ErrImagePull", "0"),
    ),
    "given one that ended by a signal, then the signal": (
        TWO,
        {"phase": "Failed", "containerStatuses": [a_container(terminated={"signal": 9})]},
        ("0/2", "Signal:9", "0"),
    ),
    "given one completed and one running, not ready, then NotReady": (
        TWO,
        {
            "phase": "Running",
            "containerStatuses": [
                a_container(terminated={"exitCode": 0, "reason": "Completed"}),
                a_container("d", ready=True, running={}),
            ],
        },
        ("1/2", "NotReady", "0"),
    ),
    "given an init container that runs, then how far it got": (
        WITH_INIT,
        {"phase": "Pending", "initContainerStatuses": [a_container("i", running={})]},
        ("0/3", "Init:0/2", "0"),
    ),
    "given an init container that failed, then its exit code and restarts": (
        WITH_INIT,
        {
            "phase": "Pending",
            "initContainerStatuses": [a_container("i", restarts=4, terminated={"exitCode": 3})],
        },
        ("0/3", "Init:ExitCode:3", "4"),
    ),
    "given a sidecar, then it counts as a container": (
        WITH_INIT,
        {
            "phase": "Running",
            "initContainerStatuses": [
                a_container("i", restarts=5, terminated={"exitCode": 0}),
                {**a_container("s", restarts=1, ready=True, running={}), "started": True},
            ],
            "containerStatuses": [a_container(ready=True, running={})],
        },
        ("2/3", "Running", "1"),
    ),
    "given a scheduling gate, then that": (
        TWO,
        {
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
            ],
        },
        ("0/2", "SchedulingGated", "0"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "status", "cells"), PODS.values(), ids=PODS)
def test_a_pod(spec: Object, status: Object, cells: tuple[str, str, str]) -> None:
    row = shown(core.POD, an_object(core.POD, spec=spec, status=status))
    assert (row["Ready"], row["Status"], row["Restarts"]) == cells


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"phase": "Running"}, "Terminating"),
        ({"phase": "Failed"}, "Failed"),
        ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
    ],
)
def test_given_a_pod_that_is_being_deleted_then_its_status_says_so(
    status: Object, word: str
) -> None:
    pod = {**an_object(core.POD, spec=TWO, status=status), "metadata": DELETED}
    assert shown(core.POD, pod)["Status"] == word


def test_the_wide_columns_of_a_pod() -> None:
    pod = an_object(
        core.POD,
        spec={**TWO, "nodeName": "node-1", "readinessGates": [{"conditionType": "x"}]},
        status={
            "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.2"}],
            "conditions": [{"type": "x", "status": "True"}],
        },
    )
    row = shown(core.POD, pod, wide=True)
    assert list(row) == [
        "Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node",
        "Readiness Gates",
    ]  # fmt: skip
    assert list(row.values())[5:] == ["10.0.0.2", "node-1", "<none>", "1/1"]


def test_the_wide_columns_of_a_role_binding() -> None:
    subjects = [
        {"kind": "User", "name": "ann"},
        {"kind": "ServiceAccount", "name": "robot", "namespace": "web"},
        {"kind": "User", "name": "bob"},
    ]
    row = shown(BINDING, an_object(BINDING, subjects=subjects), wide=True)
    assert (row["Users"], row["Groups"], row["ServiceAccounts"]) == ("ann, bob", "", "web/robot")


def test_given_a_pod_that_ended_then_its_row_is_marked_completed() -> None:
    pod = an_object(core.POD, spec=TWO, status={"phase": "Succeeded"})
    (row,) = table(core.POD, [pod], now=NOON)["rows"]
    assert [(c["type"], c["reason"]) for c in row["conditions"]] == [("Completed", "Succeeded")]


def test_include_chooses_what_a_row_carries() -> None:
    obj = an_object(core.CONFIG_MAP, data={"k": "1"})
    carried = {
        include: table(core.CONFIG_MAP, [obj], now=NOON, include=include)["rows"][0]["object"]
        for include in ("None", "Metadata", "Object")
    }
    assert carried == {"None": None, "Metadata": partial_metadata(obj), "Object": obj}


def test_a_table_names_its_columns_once() -> None:
    first = table(core.SECRET, [], now=NOON, list_meta={"resourceVersion": "7"})
    assert first["metadata"] == {"resourceVersion": "7"}
    assert [c["name"] for c in first["columnDefinitions"]] == ["Name", "Type", "Data", "Age"]
    assert first["columnDefinitions"][0]["format"] == "name"
    later = table(core.SECRET, [], now=NOON, headers=False)
    assert later["columnDefinitions"] is None


@pytest.mark.parametrize("kind", REGISTRY.kinds, ids=lambda kind: kind.resource)
def test_every_kind_can_be_shown_even_when_bare(kind: Kind) -> None:
    assert shown(kind, an_object(kind), wide=True)


def test_metadata_only() -> None:
    obj = an_object(core.CONFIG_MAP, data={"k": "1"})
    bare = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": META}
    assert partial_metadata(obj) == bare
    assert partial_metadata_list([obj], {"resourceVersion": "7"}) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7"},
        "items": [bare],
    }
