"""What a spec means, whatever its words."""

from __future__ import annotations

import pytest

from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.schema import definitions
from livevirt.vm.spec.effective import DEFAULTS, SETS, SPELLINGS, ByName, canonical, plain
from livevirt.vm.verdict.comparison import Name, differences, in_vm, spell


def test_every_field_named_in_the_tables_exists() -> None:
    types = {name.rpartition(".")[2]: definitions()[name] for name in definitions().names()}
    for entry in (*DEFAULTS, *SPELLINGS):
        type_, _, field = entry.partition(".")
        assert field in types[type_].fields, entry
    assert {*SETS} <= {*types}


EQUAL = {
    "amounts": ({"domain": {"memory": {"guest": "1Gi"}}}, {"domain": {"memory": {"guest": 2**30}}}),
    "nulls": ({"hostname": None}, {}),
    "empty texts": ({"hostname": ""}, {}),
    "empty lists and maps": ({"tolerations": [], "nodeSelector": {}}, {}),
    "hollow parts": ({"domain": {"cpu": {}, "resources": {"limits": {}}}}, {"domain": {}}),
    "a switch that is on": ({"domain": {"devices": {"autoattachGraphicsDevice": True}}},
                            {"domain": {"devices": {}}}),
    "a feature that is on": ({"domain": {"features": {"smm": {"enabled": True}}}},
                             {"domain": {"features": {"smm": {}}}}),
    "a probe's usual period": ({"livenessProbe": {"periodSeconds": 10}}, {"livenessProbe": {}}),
    "order of named things": ({"networks": [{"name": "a"}, {"name": "b"}]},
                              {"networks": [{"name": "b"}, {"name": "a"}]}),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), EQUAL.values(), ids=EQUAL)
def test_these_mean_the_same(one: dict[str, object], other: dict[str, object]) -> None:
    assert canonical(one) == canonical(other)


DIFFERENT = {
    "a device without settings": ({"domain": {"devices": {"rng": {}}}}, {"domain": {}}),
    "a feature that is off": ({"domain": {"features": {"smm": {"enabled": False}}}},
                              {"domain": {"features": {"smm": {}}}}),
    "a switch that is off": ({"domain": {"devices": {"autoattachGraphicsDevice": False}}},
                             {"domain": {"devices": {}}}),
    "no time to shut down": ({"terminationGracePeriodSeconds": 0}, {}),
    "a toleration that ends at once": ({"tolerations": [{"key": "a", "tolerationSeconds": 0}]},
                                       {"tolerations": [{"key": "a"}]}),
    "a command in another order": (
        {"livenessProbe": {"exec": {"command": ["a", "b"]}}},
        {"livenessProbe": {"exec": {"command": ["b", "a"]}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_these_do_not(one: dict[str, object], other: dict[str, object]) -> None:
    assert canonical(one) != canonical(other)


def test_a_tree_can_be_read_back() -> None:
    tree = {"networks": ByName(a={"name": "a"}), "memory": parse("1024Mi"), "list": [1]}

    assert plain(tree) == {"networks": [{"name": "a"}], "memory": "1Gi", "list": [1]}


def test_paths_read_as_in_the_manifest() -> None:
    assert spell(("domain", "devices", "disks", Name("root"), "serial")) == (
        "domain.devices.disks[root].serial"
    )
    assert in_vm(("domain", "resources", "limits", "example.com/gpu")) == (
        "spec.template.spec.domain.resources.limits[example.com/gpu]"
    )


def test_differences_are_named_as_deep_as_both_sides_go() -> None:
    one = {"domain": {"devices": {"disks": ByName(a={"name": "a"})}}, "nodeSelector": {"a": "b"}}
    other = {
        "domain": {"clock": {"utc": {}}, "resources": {"limits": {"cpu": 1}}},
        "nodeSelector": {"a": "c"},
    }

    found = differences(one, other, whole={("nodeSelector",)})

    assert [(spell(path), old, new) for path, old, new in found] == [
        ("domain.devices.disks[a]", {"name": "a"}, None),
        ("domain.clock", None, {"utc": {}}),
        ("domain.resources.limits.cpu", None, 1),
        ("nodeSelector", {"a": "b"}, {"a": "c"}),
    ]
