"""Copies of instance types and preferences, made to measure."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from livevirt.catalog import guests, series
from livevirt.cli.virtctl import cli
from livevirt.cli.vm.customize import Changes, variant
from livevirt.cli.vm.documents import INSTANCETYPES, PREFERENCES, Named, named
from livevirt.kube.objects import quantity
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import User
from livevirt.kube.objects.review import Review
from livevirt.vm import kinds
from livevirt.vm.instancetypes.admission import InstancetypeRules

Object = dict[str, Any]

PREFIX = "instancetype.kubevirt.io/"
SHIPPED = {obj["metadata"]["name"]: obj for obj in series.instancetypes()}
PREFERRED = {obj["metadata"]["name"]: obj for obj in guests.preferences()}
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
OWN, SHARED = kinds.INSTANCETYPE, kinds.CLUSTER_INSTANCETYPE


def stored(obj: Object, **labels: str) -> Object:
    """The object as a server answers with it."""
    meta = obj["metadata"]
    marks = {**meta["labels"], **labels}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"}
    told = {
        "uid": "1", "resourceVersion": "7", "generation": 1, "managedFields": [{}],
        "creationTimestamp": "2030-01-01T00:00:00Z", "ownerReferences": [{}],
    }  # fmt: skip
    annotations = {**meta["annotations"], **applied}
    return {**obj, "metadata": {**meta, **told, "labels": marks, "annotations": annotations}}


def test_the_example_of_the_requirement() -> None:
    made = variant(stored(SHIPPED["u1.medium"]), OWN, Changes("u1.mysize", vcpus=4, memory="4Gi"))
    assert made == {
        "apiVersion": "instancetype.kubevirt.io/v1beta2",
        "kind": "VirtualMachineInstancetype",
        "metadata": {"name": "u1.mysize", "annotations": {"note": "kept"}},
        "spec": {"cpu": {"guest": 4}, "memory": {"guest": "4Gi"}},
    }


def test_labels_of_others_stay_and_ours_only_if_asked_for() -> None:
    source = stored(SHIPPED["u1.medium"], team="blue")
    assert variant(source, OWN, Changes("x"))["metadata"]["labels"] == {"team": "blue"}
    kept = variant(source, OWN, Changes("x", keep_labels=True, vcpus=3))["metadata"]
    assert kept["labels"][f"{PREFIX}class"] == "general.purpose"
    assert kept["labels"][f"{PREFIX}cpu"] == "3", "a label that tells a size tells the new one"
    assert f"{PREFIX}displayName" in kept["annotations"]


def test_a_copy_is_of_no_bundle_so_no_upgrade_replaces_it() -> None:
    kept = variant(stored(SHIPPED["u1.nano"]), SHARED, Changes("u1.nano", keep_labels=True))
    assert f"{PREFIX}common-instancetypes-version" not in kept["metadata"]["labels"]


def test_a_namespace_is_only_written_where_there_is_one() -> None:
    changes = Changes("x", namespace="mine")
    assert variant(stored(SHIPPED["u1.nano"]), OWN, changes)["metadata"]["namespace"] == "mine"
    assert "namespace" not in variant(stored(SHIPPED["u1.nano"]), SHARED, changes)["metadata"]


SPECS = {
    "more vCPUs raise the sockets it may have": (
        "cx1.medium", Changes("x", vcpus=4),
        {"cpu": {**SHIPPED["cx1.medium"]["spec"]["cpu"], "guest": 4, "maxSockets": 4}},
    ),
    "a ceiling that was the size goes down with it": (
        "cx1.8xlarge", Changes("x", vcpus=2),
        {"cpu": {**SHIPPED["cx1.medium"]["spec"]["cpu"], "guest": 2, "maxSockets": 2}},
    ),
    "fewer sockets than vCPUs stay as they are, whatever else changes": (
        "few sockets", Changes("x", memory="4Gi"),
        {"cpu": {"guest": 8, "maxSockets": 2}, "memory": {"guest": "4Gi"}},
    ),
    "and with more vCPUs": (
        "few sockets", Changes("x", vcpus=16),
        {"cpu": {"guest": 16, "maxSockets": 2}, "memory": {"guest": "2Gi"}},
    ),
    "they can be asked for: vCPUs may be cores of few": (
        "u1.large", Changes("x", max_sockets=1), {"cpu": {"guest": 2, "maxSockets": 1}},
    ),
    "no limit stays none": (
        "no limit", Changes("x", vcpus=4), {"cpu": {"guest": 4, "maxSockets": 0}},
    ),
    "room to grow": (
        "u1.small", Changes("x", max_sockets=8, max_guest="16Gi"),
        {"cpu": {"guest": 1, "maxSockets": 8}, "memory": {"guest": "2Gi", "maxGuest": "16Gi"}},
    ),
    "CPUs of its own": ("u1.small", Changes("x", dedicated=True), {"cpu": {
        "guest": 1, "dedicatedCPUPlacement": True,
    }}),
    "without CPUs of its own nothing that needs them is left": (
        "rt1.small", Changes("x", dedicated=False), {"cpu": {"guest": 1}},
    ),
    "huge pages": ("u1.small", Changes("x", hugepages="1Gi"), {"memory": {
        "guest": "2Gi", "hugepages": {"pageSize": "1Gi"},
    }}),
    "huge pages are taken whole": ("o1.small", Changes("x", hugepages="2Mi"), {"memory": {
        "guest": "2Gi", "hugepages": {"pageSize": "2Mi"},
    }}),
    "without huge pages there is no NUMA either": (
        "cx1.medium", Changes("x", hugepages="none"),
        {"memory": {"guest": "2Gi"}, "cpu": {
            "guest": 1, "maxSockets": 1, "dedicatedCPUPlacement": True,
            "isolateEmulatorThread": True,
        }},
    ),
    "I/O threads": ("u1.small", Changes("x", io_threads=4), {
        "ioThreadsPolicy": "supplementalPool", "ioThreads": {"supplementalPoolThreadCount": 4},
    }),
    "another policy": ("d1.small", Changes("x", io_threads_policy="shared"), {
        "ioThreadsPolicy": "shared",
    }),
    "no policy": ("d1.small", Changes("x", io_threads_policy="none"), {"ioThreadsPolicy": None}),
    "a size for one that has none": (
        "m1.custom", Changes("x", vcpus=2, memory="1Gi"),
        {"cpu": {"guest": 2}, "memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}},
    ),
}  # fmt: skip


def a_type(cpu: Object) -> Object:
    meta: Object = {"name": "mine", "labels": {}, "annotations": {}}
    spec = {"cpu": cpu, "memory": {"guest": "2Gi"}}
    return {"apiVersion": OWN.api_version, "kind": OWN.kind, "metadata": meta, "spec": spec}


SOURCES = {
    **SHIPPED,
    "few sockets": a_type({"guest": 8, "maxSockets": 2}),
    "no limit": a_type({"guest": 2, "maxSockets": 0}),
}


@pytest.mark.parametrize(("source", "changes", "parts"), SPECS.values(), ids=SPECS)
def test_specs(source: str, changes: Changes, parts: Object) -> None:
    before = SOURCES[source]["spec"]
    made = variant(stored(SOURCES[source]), OWN, changes)
    expected = {**before, **parts}
    assert made["spec"] == {name: value for name, value in expected.items() if value is not None}
    assert refused(made) == []


def refused(obj: Object) -> list[FieldError]:
    """What admission would say to the copy."""
    review = Review("create", OWN, "v1beta2", copy.deepcopy(obj), None, User("jane"), None, NOON)  # type: ignore[arg-type]
    rules = InstancetypeRules()
    rules.default(review.new)
    return rules.validate(review)


def test_preferences_have_a_topology() -> None:
    source, kind = stored(PREFERRED["windows.10"]), kinds.PREFERENCE
    made = variant(source, kind, Changes("mine", topology="spread"))
    assert made["kind"] == "VirtualMachinePreference"
    assert made["spec"]["cpu"] == {"preferredCPUTopology": "spread"}
    rest = {name: value for name, value in made["spec"].items() if name != "cpu"}
    assert rest == {n: v for n, v in PREFERRED["windows.10"]["spec"].items() if n != "cpu"}


REFUSED = {
    "a topology of an instance type": ("u1.small", OWN, Changes("x", topology="spread"), "is for"),
    "a size of a preference": (
        "alpine", kinds.PREFERENCE, Changes("x", vcpus=2), "a preference has no sizes",
    ),
    "less memory at most than at least": (
        "u1.large", OWN, Changes("x", max_guest="1Gi"), "--max-guest 1Gi is less",
    ),
    "a number of threads for a policy without a pool": (
        "d1.small", OWN, Changes("x", io_threads=2), "--iothreads needs",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "kind", "changes", "text"), REFUSED.values(), ids=REFUSED)
def test_contradictions_are_told(source: str, kind: Any, changes: Changes, text: str) -> None:
    with pytest.raises(click.UsageError, match=text):
        variant(stored((SHIPPED | PREFERRED)[source]), kind, changes)


@given(
    st.sampled_from(sorted(SHIPPED)),
    st.integers(0, 64),
    st.sampled_from(["", "512Mi", "3Gi", "512Gi"]),
    st.sampled_from([None, True, False]),
    st.sampled_from(["", "2Mi", "1Gi", "none"]),
)
def test_a_copy_never_contradicts_itself_and_the_source_stays_as_it_is(
    name: str, vcpus: int, memory: str, dedicated: bool | None, pages: str
) -> None:
    source, before = stored(SHIPPED[name]), stored(catalog_object(name))
    changes = Changes("x", vcpus=vcpus, memory=memory, dedicated=dedicated, hugepages=pages)
    copied = variant(source, OWN, changes)
    made = copied["spec"]
    assert source == before
    assert refused(copied) == []
    cpu, ram = made["cpu"], made["memory"]
    assert cpu.get("maxSockets", 512) >= cpu.get("guest", 1)
    if "numa" in cpu or "realtime" in cpu:
        assert cpu["dedicatedCPUPlacement"]
        assert "hugepages" in ram
    assert cpu.get("dedicatedCPUPlacement") or "isolateEmulatorThread" not in cpu
    if memory:
        assert quantity.parse(ram["guest"]) == quantity.parse(memory)


def catalog_object(name: str) -> Object:
    return next(obj for obj in series.instancetypes() if obj["metadata"]["name"] == name)


def run(monkeypatch: pytest.MonkeyPatch, source: str, *args: str) -> Result:
    """Run the command against a server that has the catalog."""
    from livevirt.cli.vm import customize

    monkeypatch.setattr(customize, "talk", lambda _: stored((SHIPPED | PREFERRED)[source]))
    return CliRunner().invoke(cli, args)


def test_every_flag_reaches_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(
        monkeypatch, "u1.small", "customize", "u1.small", "--name=mine", "--vcpus=2",
        "--memory=3Gi", "--max-sockets=8", "--max-guest=12Gi", "--dedicated-cpus",
        "--hugepages=2Mi", "--iothreadspolicy=supplementalPool", "--iothreads=2", "-n", "space",
    )  # fmt: skip
    assert yaml.safe_load(done.stdout) == {
        "apiVersion": "instancetype.kubevirt.io/v1beta2",
        "kind": "VirtualMachineInstancetype",
        "metadata": {"name": "mine", "namespace": "space", "annotations": {"note": "kept"}},
        "spec": {
            "cpu": {"guest": 2, "maxSockets": 8, "dedicatedCPUPlacement": True},
            "memory": {"guest": "3Gi", "maxGuest": "12Gi", "hugepages": {"pageSize": "2Mi"}},
            "ioThreadsPolicy": "supplementalPool",
            "ioThreads": {"supplementalPoolThreadCount": 2},
        },
    }


def test_the_switch_cluster_is_the_target_after_the_verb_and_the_kubeconfigs_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args = ("customize", "vmcp/alpine", "--name=mine", "--cpu-topology=cores", "--cluster")
    for before in ((), ("--cluster", "other")):
        done = run(monkeypatch, "alpine", *before, *args)
        assert done.exit_code == 0, done.output
        assert yaml.safe_load(done.stdout)["kind"] == "VirtualMachineClusterPreference"


WRONG = {
    "a name nobody may have": (["--name=Mine!"], "--name 'Mine!'"),
    "no size": (["--name=x", "--memory=lots"], "'lots' is no size"),
    "no vCPUs": (["--name=x", "--vcpus=0"], "--vcpus"),
    "no memory": (["--name=x", "--memory=0"], "'0' is no size"),
    "less than none": (["--name=x", "--max-guest=-1Gi"], "'-1Gi' is no size"),
    "no name": ([], "--name"),
}


@pytest.mark.parametrize(("args", "text"), WRONG.values(), ids=WRONG)
def test_wrong_flags_are_told_by_name(
    monkeypatch: pytest.MonkeyPatch, args: list[str], text: str
) -> None:
    done = run(monkeypatch, "u1.small", "customize", "u1.small", *args)
    assert done.exit_code != 0
    assert text in done.stderr


NAMES = {
    "a name": ("u1.small", "", Named(SHARED, "u1.small")),
    "a kind and a name": ("VirtualMachineInstancetype/a", "", Named(OWN, "a")),
    "a plural": ("virtualmachineinstancetypes/a", "", Named(OWN, "a")),
    "a short name": ("vmf/a", "", Named(OWN, "a")),
    "a kind in a flag": ("a", "vmcp", Named(kinds.CLUSTER_PREFERENCE, "a")),
    "a kind in both": ("vmp/a", "virtualmachinepreference", Named(kinds.PREFERENCE, "a")),
}


@pytest.mark.parametrize(("text", "kind", "meant"), NAMES.values(), ids=NAMES)
def test_names(text: str, kind: str, meant: Named) -> None:
    assert named(text, (*INSTANCETYPES, *PREFERENCES), kind) == meant


NO_NAMES = {
    "an unknown kind": ("pod/a", "", 'invalid kind "pod", supported values are: '),
    "no name": ("vmf/", "", "is not"),
    "no kind": ("/a", "", "is not"),
    "too much": ("a/vmf/b", "", 'invalid kind "a/vmf"'),
    "two kinds": ("vmf/a", "vmp", "is not of --kind vmp"),
}


@pytest.mark.parametrize(("text", "kind", "why"), NO_NAMES.values(), ids=NO_NAMES)
def test_what_is_no_name(text: str, kind: str, why: str) -> None:
    with pytest.raises(click.UsageError, match=why):
        named(text, (*INSTANCETYPES, *PREFERENCES), kind)
