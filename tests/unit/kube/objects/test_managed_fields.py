"""Ownership of fields: laws of server-side apply, and examples as kube-apiserver has them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects import core, field_sets, managed_fields, merge_types, typed
from livevirt.kube.objects.field_sets import LEAF
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.managed_fields import Conflicts, Entry, Versions, Writer
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

NOON = "2026-01-01T12:00:00Z"


def versions(kind: Kind) -> Versions:
    """Return the versions of a kind that needs no conversion."""
    return Versions(
        lambda api_version: merge_types.of_kind(kind, kind.version),
        lambda obj, api_version: obj,
        merge_types.empty_object(kind, kind.version),
    )


def by(manager: str, kind: Kind = core.POD, time: str = NOON) -> Writer:
    """Return a write of a manager."""
    return Writer(manager, kind.api_version, "", time, LEAF)


class Applied:
    """An object that managers apply to and update."""

    def __init__(self, kind: Kind = core.POD) -> None:
        self.kind, self.live, self.entries = kind, {"metadata": {}}, list[Entry]()

    def apply(self, manager: str, config: Object, *, force: bool = False) -> Object:
        """Apply a configuration; return the object."""
        new, self.entries = managed_fields.applied(
            versions(self.kind), self.live, config, self.entries, by(manager, self.kind), force
        )
        self.live = new if self.kind.custom else typed.decode(self.kind.schema(), new, [])
        return self.live

    def update(self, manager: str, new: Object, time: str = NOON) -> None:
        """Replace the object."""
        writer = by(manager, self.kind, time)
        self.entries = managed_fields.updated(
            versions(self.kind), self.live, new, self.entries, writer
        )
        self.live = new

    def owners(self) -> dict[str, Object]:
        """Return the fields of each manager."""
        return {entry["manager"]: entry["fieldsV1"] for entry in self.entries}


def a_pod(**spec: Any) -> Object:
    return {"metadata": {"name": "p"}, "spec": spec}


# ---------------------------------------------------------------- laws


def without_empty(value: Any) -> Any:
    """Return a value as a typed object keeps it: nothing empty, lists in no order."""
    if isinstance(value, dict):
        kept = {name: without_empty(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if inner not in (None, "", {}, [])}
    if isinstance(value, list):
        return sorted((without_empty(inner) for inner in value), key=str)
    return value


texts = st.sampled_from(["x", "y", "z"])


def configurations(letters: str) -> st.SearchStrategy[Object]:
    """Return configurations of a pod whose keys are only some letters."""
    keys = st.sampled_from(letters)
    containers = st.dictionaries(keys, st.fixed_dictionaries({}, optional={"image": texts}))
    spec = {
        "containers": containers.map(lambda found: [{"name": n, **c} for n, c in found.items()]),
        "nodeSelector": st.dictionaries(keys, texts),
        "hostname": texts,
    }
    if letters != "abc":
        spec = {"containers": spec["containers"]}
    metadata = {
        "labels": st.dictionaries(keys, texts, max_size=2),
        "finalizers": st.lists(keys.map(lambda key: f"x/{key}"), unique=True, max_size=2),
    }
    return st.fixed_dictionaries(
        {},
        optional={
            "metadata": st.fixed_dictionaries({}, optional=metadata),
            "spec": st.fixed_dictionaries({}, optional=spec),
        },
    ).map(without_empty)  # an empty value is owned although a stored object has none


@given(configurations("abc"), configurations("abc"))
def test_given_any_object_when_a_configuration_is_applied_twice_then_nothing_changes(
    first: Object, second: Object
) -> None:
    pod = Applied()
    pod.apply("other", first)
    once = copy.deepcopy(pod.apply("alice", second, force=True))
    entries = copy.deepcopy(pod.entries)
    assert without_empty(pod.apply("alice", second)) == without_empty(once)
    assert managed_fields.same_but_times(pod.entries, entries)


@given(configurations("ab"), configurations("cd"))
def test_given_disjoint_configurations_when_applied_in_any_order_then_the_result_is_the_same(
    ours: Object, theirs: Object
) -> None:
    one, other = Applied(), Applied()
    one.apply("alice", ours)
    one.apply("bob", theirs)
    other.apply("bob", theirs)
    other.apply("alice", ours)
    assert without_empty(one.live) == without_empty(other.live)
    assert one.owners() == other.owners()


@given(configurations("abc"), configurations("abc"))
def test_given_one_applier_when_it_applies_another_configuration_then_nothing_else_is_left(
    first: Object, second: Object
) -> None:
    pod, fresh = Applied(), Applied()
    pod.apply("alice", first)
    pod.apply("alice", second)
    fresh.apply("alice", second)
    assert without_empty(pod.live) == without_empty(fresh.live)
    assert pod.owners() == fresh.owners()


@given(configurations("abc"), configurations("abc"))
def test_given_two_appliers_when_one_drops_everything_then_the_others_fields_are_left(
    ours: Object, theirs: Object
) -> None:
    pod, alone = Applied(), Applied()
    pod.apply("alice", ours)
    pod.apply("bob", theirs, force=True)
    pod.apply("alice", {}, force=True)
    alone.apply("bob", theirs)
    assert without_empty(pod.live) == without_empty(alone.live)
    assert pod.owners() == alone.owners()


@given(configurations("abc"), configurations("abc"))
def test_given_any_update_then_every_field_has_at_most_one_updater(
    old: Object, new: Object
) -> None:
    pod = Applied()
    pod.update("alice", {"metadata": {}, **copy.deepcopy(old)})
    pod.update("bob", {"metadata": {}, **copy.deepcopy(new)})
    owners = list(pod.owners().values())
    if len(owners) == 2:
        assert field_sets.intersection(*owners) == LEAF


# ---------------------------------------------------------------- examples


def test_a_list_with_keys_is_merged_and_its_items_have_owners() -> None:
    pod = Applied()
    pod.apply("alice", a_pod(containers=[{"name": "a", "image": "1"}, {"name": "b"}]))
    pod.apply("bob", a_pod(containers=[{"name": "c"}, {"name": "b", "image": "2"}]))
    assert [each["name"] for each in pod.live["spec"]["containers"]] == ["a", "c", "b"]
    item = {".": {}, "f:name": {}}
    assert pod.owners() == {
        "alice": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"a"}': {**item, "f:image": {}},
                    'k:{"name":"b"}': item,
                }
            }
        },
        "bob": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"c"}': item,
                    'k:{"name":"b"}': {**item, "f:image": {}},
                }
            }
        },
    }


def test_a_key_that_is_left_out_has_its_default() -> None:
    pod = Applied()
    port = {"containerPort": 80}
    pod.apply("alice", a_pod(containers=[{"name": "a", "ports": [port]}]))
    ports = pod.owners()["alice"]["f:spec"]["f:containers"]['k:{"name":"a"}']["f:ports"]
    assert list(ports) == ['k:{"containerPort":80,"protocol":"TCP"}']


def test_atomic_values_are_owned_and_replaced_as_a_whole() -> None:
    pod = Applied()
    pod.apply("alice", a_pod(nodeSelector={"a": "1"}, tolerations=[{"key": "x"}]))
    assert pod.owners()["alice"] == {"f:spec": {"f:nodeSelector": {}, "f:tolerations": {}}}
    with pytest.raises(Conflicts) as refused:
        pod.apply("bob", a_pod(nodeSelector={"b": "1"}))
    assert [field_sets.path_text(each.path) for each in refused.value.found] == [
        ".spec.nodeSelector"
    ]
    spec = pod.apply("bob", a_pod(nodeSelector={"b": "1"}), force=True)["spec"]
    assert spec["nodeSelector"] == {"b": "1"}
    assert spec["tolerations"] == [{"key": "x"}]
    assert pod.owners() == {
        "alice": {"f:spec": {"f:tolerations": {}}},
        "bob": {"f:spec": {"f:nodeSelector": {}}},
    }


def test_a_field_that_two_apply_goes_with_the_last_of_them() -> None:
    pod = Applied()
    pod.apply("alice", a_pod(hostname="h"))
    pod.apply("bob", a_pod(hostname="h"))
    assert pod.apply("alice", a_pod())["spec"]["hostname"] == "h"
    assert "hostname" not in (pod.apply("bob", a_pod()).get("spec") or {})


def test_an_update_takes_what_it_changes_and_is_owned_by_nobody_else() -> None:
    pod = Applied()
    pod.apply("alice", a_pod(hostname="h", subdomain="s"))
    pod.update("bob", a_pod(hostname="i", subdomain="s"))
    assert pod.owners() == {
        "alice": {"f:spec": {"f:subdomain": {}}},
        "bob": {"f:spec": {"f:hostname": {}}},
    }
    with pytest.raises(Conflicts):
        pod.apply("alice", a_pod(hostname="h", subdomain="s"))
    spec = pod.apply("alice", a_pod(subdomain="t"))["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("i", "t")


def test_what_was_there_before_the_first_apply_has_an_owner() -> None:
    pod = Applied()
    pod.live = a_pod(hostname="h")
    with pytest.raises(Conflicts) as refused:
        pod.apply("alice", a_pod(hostname="i"))
    assert refused.value.found[0].entry["manager"] == "before-first-apply"
    spec = pod.apply("alice", a_pod(subdomain="s"))["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("h", "s")


def test_an_agreeing_applier_has_no_time_and_an_idle_one_keeps_its_own() -> None:
    pod = Applied()
    pod.apply("alice", a_pod(hostname="h"))
    pod.apply("bob", a_pod(hostname="h"))
    times = {entry["manager"]: entry.get("time") for entry in pod.entries}
    assert times == {"alice": NOON, "bob": None}


def test_the_order_of_a_list_with_keys_is_no_change() -> None:
    pod = Applied()
    pod.apply("alice", a_pod(containers=[{"name": "a"}, {"name": "b"}]))
    before = pod.entries
    pod.update("bob", a_pod(containers=[{"name": "b"}, {"name": "a"}]))
    assert pod.entries == before


def test_old_updates_are_put_together() -> None:
    pod = Applied()
    for number in range(14):
        labels = {str(each): "x" for each in range(number + 1)}
        time = f"2026-01-01T12:00:{number:02}Z"
        pod.update(f"m{number}", {"metadata": {"labels": labels}}, time)
    managers = [entry["manager"] for entry in pod.entries]
    assert managers == ["ancient-changes", *(f"m{number}" for number in range(5, 14))]
    assert len(pod.owners()["ancient-changes"]["f:metadata"]["f:labels"]) == 6


def test_lists_of_a_vm_are_atomic_and_open_metadata_is_merged_by_key() -> None:
    vm = Applied(kinds.VM)
    config = {
        "metadata": {"name": "v"},
        "spec": {
            "template": {
                "metadata": {"labels": {"a": "b"}, "x": [1]},
                "spec": {"volumes": [{"name": "d"}], "domain": {"devices": {}}},
            }
        },
    }
    vm.apply("alice", config)
    assert vm.owners()["alice"]["f:spec"]["f:template"] == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:x": {}},
        "f:spec": {"f:volumes": {}, "f:domain": {"f:devices": {}}},
    }


@pytest.mark.parametrize("entries", [[], [{}]])
def test_a_reset_is_an_empty_list_or_entry(entries: list[Any]) -> None:
    assert managed_fields.is_reset(entries)
    assert not managed_fields.is_reset(None)
    assert not managed_fields.is_reset([{}, {}])


def test_entries_that_cannot_be_read_are_not_used() -> None:
    good = by("a").entry("Update", {"f:a": {}})
    assert managed_fields.usable([good]) == [good]
    for bad in (
        {**good, "operation": "Other"},
        {**good, "fieldsType": ""},
        {**good, "apiVersion": ""},
        {**good, "fieldsV1": {"a": {}}},
    ):
        assert managed_fields.usable([good, bad]) == []


def test_metadata_stays_when_its_last_owned_field_goes() -> None:
    pod = Applied()
    pod.apply("alice", {"metadata": {"name": "p", "finalizers": ["x/a"]}})
    assert pod.apply("alice", {"metadata": {"name": "p"}})["metadata"] == {"name": "p"}
