"""The generated catalog is KubeVirt's, to the last field, and has what we add to it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from livevirt import catalog
from livevirt.catalog import guests, series
from livevirt.catalog.series import SERIES
from livevirt.kube.objects import names, structural
from livevirt.vm import kinds
from livevirt.vm.kinds import REGISTRY

Object = dict[str, Any]

FACTS = Path(__file__).parents[4] / "shared" / "facts" / "common-instancetypes.json"
PREFIX = "instancetype.kubevirt.io/"
#: What the tables make. When it changes, so must `catalog.VERSION`: or nobody gets the new objects.
FINGERPRINT = ("livevirt-3", "55cbdcffc615")

EVERYTHING = [*series.instancetypes(), *guests.preferences()]
TYPES = {obj["metadata"]["name"]: obj for obj in series.instancetypes()}
PREFERENCES = {obj["metadata"]["name"]: obj for obj in guests.preferences()}
CUSTOM = {name: obj for name, obj in TYPES.items() if ".custom" in name}


@pytest.fixture(scope="module")
def facts() -> Object:
    """What KubeVirt ships."""
    if not FACTS.exists():
        pytest.skip(f"the table of KubeVirt's own objects is not here: {FACTS}")
    found: Object = json.loads(FACTS.read_text())
    return found


def test_every_instance_type_of_kubevirt_is_there_with_its_spec(facts: Object) -> None:
    expected = {row["name"]: type_spec(row, facts["series"]) for row in facts["instancetypes"]}
    made = {name: obj["spec"] for name, obj in TYPES.items() if name not in CUSTOM}
    assert made == expected


def type_spec(row: Object, series: Object) -> Object:
    cpu: Object = {"guest": row["vcpu"]}
    memory: Object = {"guest": row["memory"]}
    spec: Object = {"cpu": cpu, "memory": memory}
    cpu |= {
        key: row[key]
        for key in ("maxSockets", "dedicatedCPUPlacement", "isolateEmulatorThread")
        if key in row
    }
    if "numa" in row:
        cpu["numa"] = {row["numa"]: {}}
    if "realtime" in row:
        cpu["realtime"] = {}
    if "hugepagesPageSize" in row:
        memory["hugepages"] = {"pageSize": row["hugepagesPageSize"]}
    if "overcommitPercent" in row:
        memory["overcommitPercent"] = row["overcommitPercent"]
    if "ioThreadsPolicy" in row:
        spec["ioThreadsPolicy"] = row["ioThreadsPolicy"]
    if "vmiAnnotations" in series[row["series"]]:
        spec["annotations"] = series[row["series"]]["vmiAnnotations"]
    return spec


def test_every_preference_of_kubevirt_is_there_with_its_spec(facts: Object) -> None:
    expected = {
        row["name"]: preference_spec(row, facts["fragments"]) for row in facts["preferences"]
    }
    assert {name: obj["spec"] for name, obj in PREFERENCES.items()} == expected


def preference_spec(row: Object, fragments: Object) -> Object:
    spec = {
        key: fragments[value["$fragment"]]
        if isinstance(value, dict) and "$fragment" in value
        else value
        for key, value in row["spec"].items()
    }
    if "preferredArchitecture" in row:
        spec["preferredArchitecture"] = row["preferredArchitecture"]
    needs = {
        key: value if key == "architecture" else {"guest": value}
        for key, value in (row.get("requirements") or {}).items()
    }
    return spec | ({"requirements": needs} if needs else {})


def test_types_are_labelled_by_class_and_size(facts: Object) -> None:
    flags = ("dedicatedCPUPlacement", "isolateEmulatorThread", "numa", "realtime")
    for row in facts["instancetypes"]:
        series = facts["series"][row["series"]]
        expected = {
            "class": row["class"],
            "cpu": str(row["vcpu"]),
            "memory": row["memory"],
            "size": row["size"],
            "version": series["version"],
            "vendor": "kubevirt.io",
            "icon-pf": series["iconPf"],
            "common-instancetypes-version": catalog.VERSION,
            **{flag: "true" for flag in flags if flag in row},
            **({"hugepages": row["hugepagesPageSize"]} if "hugepagesPageSize" in row else {}),
        }
        meta = TYPES[row["name"]]["metadata"]
        assert short(meta["labels"]) == expected, row["name"]
        assert meta["annotations"][f"{PREFIX}displayName"] == series["displayName"]


def short(labels: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix(PREFIX): value for key, value in labels.items()}


def test_preferences_are_labelled_by_system_and_what_it_needs(facts: Object) -> None:
    for row in facts["preferences"]:
        needs = row.get("requirements") or {}
        expected = {
            "os-type": row["osType"],
            "vendor": "kubevirt.io",
            "common-instancetypes-version": catalog.VERSION,
            **{f"required-{key}": str(value) for key, value in needs.items()},
        }
        if "preferredArchitecture" in row:
            architecture = row["preferredArchitecture"]
            expected |= {"arch": architecture, "preferred-architecture": architecture}
        meta = PREFERENCES[row["name"]]["metadata"]
        assert short(meta["labels"]) == expected, row["name"]
        shown = meta["annotations"]
        assert shown["openshift.io/display-name"] == row["displayName"]
        assert (shown["iconClass"], shown["tags"]) == (row["iconClass"], row["tags"])


def test_every_class_but_the_universal_one_has_a_custom_size() -> None:
    usual = {f"{series.name}.custom" for series in SERIES if series.name != "u1"}
    assert set(CUSTOM) == usual | {"cx1.custom1gi", "m1.custom1gi"}
    for name, obj in CUSTOM.items():
        assert "guest" not in obj["spec"]["cpu"], name
        assert "guest" not in obj["spec"]["memory"], name
        assert "maxSockets" not in obj["spec"]["cpu"], name


def test_the_custom_size_of_compute_exclusive_is_the_one_that_was_asked_for() -> None:
    made = CUSTOM["cx1.custom"]
    assert made["apiVersion"] == "instancetype.kubevirt.io/v1beta2"
    assert made["kind"] == "VirtualMachineClusterInstancetype"
    assert made["spec"] == {
        "cpu": {
            "dedicatedCPUPlacement": True,
            "isolateEmulatorThread": True,
            "numa": {"guestMappingPassthrough": {}},
        },
        "ioThreadsPolicy": "auto",
        "memory": {"hugepages": {"pageSize": "2Mi"}},
    }
    assert short(made["metadata"]["labels"]) == {
        "class": "compute.exclusive",
        "cpu": "custom",
        "dedicatedCPUPlacement": "true",
        "hugepages": "true",
        "icon-pf": "pficon-registry",
        "isolateEmulatorThread": "true",
        "memory": "custom",
        "numa": "true",
        "vendor": "kubevirt.io",
        "version": "1",
        "size": "custom",
        "common-instancetypes-version": catalog.VERSION,
    }
    assert {key.removeprefix(PREFIX) for key in made["metadata"]["annotations"]} == {
        "description",
        "displayName",
    }


@pytest.mark.parametrize("series", ["cx1", "m1"])
def test_the_custom_size_with_larger_pages_differs_in_nothing_else(series: str) -> None:
    usual, large = CUSTOM[f"{series}.custom"], CUSTOM[f"{series}.custom1gi"]
    assert usual["spec"]["memory"] == {"hugepages": {"pageSize": "2Mi"}}
    assert large["spec"] == {**usual["spec"], "memory": {"hugepages": {"pageSize": "1Gi"}}}
    labels = {**usual["metadata"]["labels"], f"{PREFIX}size": "custom1gi"}
    assert large["metadata"] == {
        "name": f"{series}.custom1gi",
        "labels": labels,
        "annotations": usual["metadata"]["annotations"],
    }


def test_names_are_unique_and_every_object_is_one_the_api_takes() -> None:
    assert len(TYPES) + len(PREFERENCES) == len(EVERYTHING)
    for obj in EVERYTHING:
        name, kind = obj["metadata"]["name"], REGISTRY.of_object(obj)
        assert kind in (kinds.CLUSTER_INSTANCETYPE, kinds.CLUSTER_PREFERENCE)
        assert kind is not None
        assert structural.validate(kind.schema("v1beta2"), obj) == [], name
        for label in obj["metadata"]["labels"].items():
            assert [names.validate_label_value(label[1])] in ([""], [[]]), (name, label)


def test_no_two_objects_share_a_part_that_one_of_them_could_change() -> None:
    first, second = guests.preferences(), guests.preferences()
    first[0]["spec"]["devices"]["preferredRng"]["changed"] = True
    assert second == guests.preferences()


def test_whoever_changes_the_tables_raises_the_version() -> None:
    text = json.dumps(EVERYTHING, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert (catalog.VERSION, digest) == FINGERPRINT


OWNERS = {
    "ours, of this version": ({catalog.LABEL: catalog.VERSION}, True),
    "ours, of another version": ({catalog.LABEL: "livevirt-0"}, True),
    "KubeVirt's bundle": ({catalog.LABEL: "v1.7.0"}, False),
    "somebody's": ({"colour": "red"}, False),
    "without labels": (None, False),
}


@pytest.mark.parametrize(("labels", "ours"), OWNERS.values(), ids=OWNERS)
def test_the_version_label_tells_whose_an_object_is(labels: Object | None, ours: bool) -> None:
    assert catalog.is_ours({"metadata": {"name": "x", "labels": labels}}) is ours
