"""A strategic merge patch merges lists by their keys and keeps their order."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.errors import BadRequest
from livevirt.kube.objects.core import CONFIG_MAP, POD, SECRET
from livevirt.kube.server import strategic_merge

Object = dict[str, Any]


def named(*names: str, **fields: Any) -> list[Object]:
    return [{"name": name, **fields} for name in names]


def containers(*elements: Object, **directives: Any) -> Object:
    return {"spec": {"containers": list(elements), **directives}}


# Stored, patch, result. All of them were also put to apimachinery's strategicpatch of
# Kubernetes 1.37, which agrees.
POD_RULES: dict[str, tuple[Object, Object, Object]] = {
    "an element is merged by its name and stays where it is": (
        {"spec": {"containers": named("a", "b", image="i:1")}},
        {"spec": {"containers": [{"name": "b", "image": "i:2"}]}},
        containers({"name": "a", "image": "i:1"}, {"name": "b", "image": "i:2"}),
    ),
    "lists below an element are merged too": (
        containers({"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "B"}]}),
        containers({"name": "a", "env": [{"name": "A", "value": "2"}, {"name": "C"}]}),
        containers({"name": "a", "env": [{"name": "A", "value": "2"}, *named("C", "B")]}),
    ),
    "a new element comes before those that the patch does not name": (
        {"spec": {"containers": named("a", "b")}},
        {"spec": {"containers": named("new")}},
        {"spec": {"containers": named("new", "a", "b")}},
    ),
    "named elements follow the patch, the others keep their neighbours": (
        {"spec": {"containers": named("a", "b", "c")}},
        {"spec": {"containers": named("c", "a")}},
        {"spec": {"containers": named("b", "c", "a")}},
    ),
    "the order directive wins over the patch's list": (
        {"spec": {"containers": named("a", "b", "c", "d")}},
        {
            "spec": {
                "$setElementOrder/containers": named("d", "new", "b"),
                "containers": [{"name": "d", "image": "i"}, {"name": "new"}],
            }
        },
        containers(*named("a"), *named("c"), {"name": "d", "image": "i"}, *named("new", "b")),
    ),
    "the order directive alone sorts": (
        {"spec": {"containers": named("a", "b", "c")}},
        {"spec": {"$setElementOrder/containers": named("c", "a")}},
        {"spec": {"containers": named("b", "c", "a")}},
    ),
    "$patch: delete takes an element out": (
        {"spec": {"containers": named("a", "b")}},
        {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
        {"spec": {"containers": named("b")}},
    ),
    "$patch: replace as an element replaces the list": (
        {"spec": {"containers": named("a", "b", image="i")}},
        {"spec": {"containers": [{"$patch": "replace"}, {"name": "b"}]}},
        {"spec": {"containers": named("b")}},
    ),
    "$patch: replace in an object replaces it": (
        {"metadata": {"labels": {"a": "1", "b": "2"}}},
        {"metadata": {"labels": {"$patch": "replace", "c": "3"}}},
        {"metadata": {"labels": {"c": "3"}}},
    ),
    "$patch: delete in an object empties it": (
        {"metadata": {"labels": {"a": "1"}}},
        {"metadata": {"labels": {"$patch": "delete"}}},
        {"metadata": {"labels": {}}},
    ),
    "$retainKeys drops the other source of a volume": (
        {"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w"}]}},
        {
            "spec": {
                "volumes": [
                    {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}
                ]
            }
        },
        {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w"}]}},
    ),
    "null takes a field out, also from an element": (
        {"spec": {"nodeName": "n", "containers": named("a", image="i")}},
        {"spec": {"nodeName": None, "containers": [{"name": "a", "image": None}]}},
        {"spec": {"containers": named("a")}},
    ),
    "null below something new is nothing": (
        {},
        {"spec": {"nodeName": None, "securityContext": {"runAsUser": None}}},
        {"spec": {"securityContext": {}}},
    ),
    "finalizers are a set": (
        {"metadata": {"finalizers": ["f/a", "f/b"]}},
        {"metadata": {"finalizers": ["f/b", "f/c"]}},
        {"metadata": {"finalizers": ["f/a", "f/b", "f/c"]}},
    ),
    "a set loses what the deletion list names": (
        {"metadata": {"finalizers": ["f/a", "f/b", "f/c"]}},
        {
            "metadata": {
                "$setElementOrder/finalizers": ["f/c", "f/d"],
                "$deleteFromPrimitiveList/finalizers": ["f/b", "f/x"],
                "finalizers": ["f/d"],
            }
        },
        {"metadata": {"finalizers": ["f/a", "f/c", "f/d"]}},
    ),
    "a deletion list without a list does nothing": (
        {"metadata": {"name": "p"}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["f/b"]}},
        {"metadata": {"name": "p"}},
    ),
    "tolerations have no key and are replaced": (
        {"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}},
        {"spec": {"tolerations": [{"key": "c"}]}},
        {"spec": {"tolerations": [{"key": "c"}]}},
    ),
    "commands are replaced": (
        containers({"name": "a", "command": ["x", "y"]}),
        containers({"name": "a", "command": ["z"]}),
        containers({"name": "a", "command": ["z"]}),
    ),
    "a node selector is merged": (
        {"spec": {"nodeSelector": {"a": "1"}}},
        {"spec": {"nodeSelector": {"b": "2"}}},
        {"spec": {"nodeSelector": {"a": "1", "b": "2"}}},
    ),
    "ports are merged by number, mounts by path": (
        containers(
            {
                "name": "a",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "volumeMounts": [{"mountPath": "/a", "name": "v"}],
            }
        ),
        containers(
            {
                "name": "a",
                "ports": [{"containerPort": 80, "name": "http"}],
                "volumeMounts": [{"mountPath": "/a", "name": "w"}],
            }
        ),
        containers(
            {
                "name": "a",
                "ports": [{"containerPort": 80, "protocol": "TCP", "name": "http"}],
                "volumeMounts": [{"mountPath": "/a", "name": "w"}],
            }
        ),
    ),
    "a new list keeps two elements of one key": (
        containers({"name": "a"}),
        containers(
            {
                "name": "a",
                "ports": [{"containerPort": 1}, {"containerPort": 2}, {"containerPort": 1}],
            }
        ),
        containers(
            {
                "name": "a",
                "ports": [{"containerPort": 1}, {"containerPort": 2}, {"containerPort": 1}],
            }
        ),
    ),
    "conditions are merged by type": (
        {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "New"}]}},
        {
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "x"}, {"type": "New"}]
            }
        },
    ),
    "owners are merged by uid": (
        {"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2"}]}},
        {
            "metadata": {
                "ownerReferences": [{"uid": "2", "$patch": "delete"}, {"uid": "1", "kind": "K"}]
            }
        },
        {"metadata": {"ownerReferences": [{"uid": "1", "name": "a", "kind": "K"}]}},
    ),
    "a value of another type is replaced": (
        {"spec": {"nodeName": "n"}},
        {"spec": {"nodeName": {"a": None, "b": 1}}},
        {"spec": {"nodeName": {"b": 1}}},
    ),
}
# Where Kubernetes fails, or leaves directives in the object, and a plain answer exists.
OUR_RULES: dict[str, tuple[Object, Object, Object]] = {
    "fields nobody knows are merged as by a merge patch": (
        {"dat": {"a": {"b": [1]}}},
        {"dat": {"a": {"c": 2, "b": [3]}}},
        {"dat": {"a": {"b": [3], "c": 2}}},
    ),
    "$patch: merge is what happens anyway": (
        containers({"name": "a", "image": "i"}),
        containers({"name": "a", "$patch": "merge", "command": ["x"]}),
        containers({"name": "a", "image": "i", "command": ["x"]}),
    ),
    "no directive stays in something new": (
        {"spec": {}},
        {
            "spec": {
                "volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}],
                "securityContext": {"$patch": "replace", "runAsUser": 1},
                "affinity": {"$patch": "delete"},
                "containers": [{"name": "a", "env": [{"name": "A", "$patch": "delete"}]}],
            }
        },
        {
            "spec": {
                "volumes": [{"name": "v", "emptyDir": {}}],
                "securityContext": {"runAsUser": 1},
                "containers": [{"name": "a", "env": []}],
            }
        },
    ),
    "an order for an empty list is fine": (
        {"spec": {"containers": []}},
        {"spec": {"$setElementOrder/containers": named("a")}},
        {"spec": {"containers": []}},
    ),
    "an order for a list that is replaced says nothing": (
        {"spec": {"tolerations": [{"key": "a"}]}},
        {"spec": {"$setElementOrder/tolerations": [{"key": "b"}]}},
        {"spec": {"tolerations": [{"key": "a"}]}},
    ),
}
REFUSED: dict[str, Any] = {
    "not an object": [],
    "an unknown $patch": {"metadata": {"$patch": "frobnicate"}},
    "an element without its key": containers({"image": "i"}),
    "an element that is no object": {"spec": {"containers": ["a"]}},
    "a key that is no scalar": containers({"name": ["a"]}),
    "a deletion without its key": containers({"$patch": "delete"}),
    "a set with an object in it": {"metadata": {"finalizers": [{}]}},
    "a deletion list with an object in it": {
        "metadata": {"$deleteFromPrimitiveList/finalizers": [{}]}
    },
    "a deletion list that is no list": {"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}},
    "a deletion list of nothing": {"metadata": {"$deleteFromPrimitiveList": []}},
    "an order that is no list": {"spec": {"$setElementOrder/containers": {}}},
    "an order of nothing": {"spec": {"$setElementOrder": []}},
    "an order that lacks an element of the patch": {
        "spec": {"$setElementOrder/containers": named("a"), "containers": named("b")}
    },
    "an order that contradicts the patch": {
        "spec": {"$setElementOrder/containers": named("a", "b"), "containers": named("b", "a")}
    },
    "keys to retain that are no list": {"spec": {"$retainKeys": "x"}},
    "keys to retain that lack one of the patch": {"spec": {"$retainKeys": ["a"], "b": 1}},
}
STORED: Object = {
    "metadata": {"finalizers": ["f/a"]},
    "spec": {"containers": named("a", "b", image="i")},
}


@pytest.mark.parametrize(
    ("stored", "patch", "expected"),
    [*POD_RULES.values(), *OUR_RULES.values()],
    ids=[*POD_RULES, *OUR_RULES],
)
def test_pods(stored: Object, patch: Object, expected: Object) -> None:
    before = copy.deepcopy((stored, patch))
    assert strategic_merge.apply(stored, patch, POD.schema()) == expected
    assert (stored, patch) == before


@pytest.mark.parametrize("patch", REFUSED.values(), ids=REFUSED)
def test_given_a_patch_that_makes_no_sense_then_it_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(BadRequest):
        strategic_merge.apply(STORED, patch, POD.schema())


@pytest.mark.parametrize("kind", [CONFIG_MAP, SECRET], ids=lambda kind: kind.kind)
def test_data_is_merged_key_by_key(kind: Any) -> None:
    patched = strategic_merge.apply(
        {"data": {"k": "1", "l": "2"}}, {"data": {"k": None, "m": "3"}}, kind.schema()
    )
    assert patched == {"data": {"l": "2", "m": "3"}}


def test_given_a_patch_of_one_branch_when_applied_then_the_other_is_shared() -> None:
    patched = strategic_merge.apply(STORED, {"metadata": {"labels": {"a": "1"}}}, POD.schema())
    assert patched["spec"] is STORED["spec"]


def test_given_a_patch_deeper_than_the_stack_when_applied_then_it_is_a_bad_request() -> None:
    patch: Object = {}
    for _ in range(5000):
        patch = {"a": patch}
    with pytest.raises(BadRequest, match="deep"):
        strategic_merge.apply({}, patch, POD.schema())


letters = st.sampled_from("abcd")
env_vars = st.fixed_dictionaries({"name": letters}, optional={"value": letters})


def unique(elements: st.SearchStrategy[Object]) -> st.SearchStrategy[list[Object]]:
    return st.lists(elements, max_size=4, unique_by=lambda element: str(element["name"]))


stored_containers = st.fixed_dictionaries(
    {"name": letters},
    optional={"image": letters, "env": unique(env_vars), "command": st.lists(letters, max_size=2)},
)
deletions = letters.map(lambda name: {"name": name, "$patch": "delete"})
patch_containers = (
    st.fixed_dictionaries(
        {"name": letters},
        optional={"image": letters | st.none(), "env": unique(env_vars | deletions) | st.none()},
    )
    | deletions
)
finalizers = st.lists(letters, max_size=4, unique=True)
pods = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({}, optional={"finalizers": finalizers}),
        "spec": st.fixed_dictionaries({}, optional={"containers": unique(stored_containers)}),
    }
)
pod_patches = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "finalizers": finalizers | st.none(),
                "labels": st.dictionaries(letters, letters | st.none(), max_size=3),
            },
        ),
        "spec": st.fixed_dictionaries({}, optional={"containers": unique(patch_containers)}),
    },
)


@given(pods, pod_patches)
def test_given_any_patch_when_applied_twice_then_it_is_as_once_and_the_input_stays(
    pod: Object, patch: Object
) -> None:
    before = copy.deepcopy((pod, patch))
    once = strategic_merge.apply(pod, patch, POD.schema())
    assert strategic_merge.apply(once, patch, POD.schema()) == once
    assert "$" not in str(once)
    assert (pod, patch) == before


@given(pods)
def test_given_the_empty_patch_when_applied_then_nothing_changes(pod: Object) -> None:
    assert strategic_merge.apply(pod, {}, POD.schema()) == pod


@given(pods, unique(stored_containers))
def test_given_any_patch_of_a_list_then_elements_that_it_does_not_name_keep_their_order(
    pod: Object, patch: list[Object]
) -> None:
    patched = strategic_merge.apply(pod, {"spec": {"containers": patch}}, POD.schema())
    names = [element["name"] for element in patch]
    found = [element["name"] for element in patched["spec"]["containers"]]
    before = [element["name"] for element in pod["spec"].get("containers", [])]
    assert [name for name in found if name in names] == names
    assert [name for name in found if name not in names] == [n for n in before if n not in names]
