"""Selectors: what they mean, how they are written, and what is refused in which words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.selector import (
    EVERYTHING,
    NOTHING,
    FieldRequirement,
    FieldSelector,
    LabelRequirement,
    LabelSelector,
    SelectorError,
    label_selector,
    parse_field_selector,
    parse_label_selector,
)

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "selectors.json").read_text()
)["cases"]
READ: dict[str, Callable[[Any], LabelSelector | FieldSelector]] = {
    "label": parse_label_selector,
    "field": parse_field_selector,
    "object": label_selector,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']} {case['selector']}")
def test_selectors_are_read_written_and_refused_as_kubernetes_does(case: dict[str, Any]) -> None:
    answer: dict[str, Any]
    try:
        selector = READ[case["kind"]](case["selector"])
        answer = {"text": str(selector), "matches": selector.matches(case["labels"])}
    except SelectorError as error:
        answer = {"error": str(error)}
    assert answer == {key: case[key] for key in case.keys() - {"kind", "selector", "labels"}}


LABELS = {"app": "web", "tier": "", "size": "5"}
MEANING = {
    "": True,
    "app": True,
    "!app": False,
    "!other": True,
    "app=web": True,
    "app==web": True,
    "app!=web": False,
    "other!=web": True,
    "app in (db,web)": True,
    "app notin (db,web)": False,
    "other notin (db)": True,
    "tier=": True,
    "tier in ()": True,
    "other=": False,
    "size>4": True,
    "size>5": False,
    "size<5": False,
    "other>1": False,
    "app>1": False,
    " app = web , size > 4 ": True,
    "in in (in)": False,
}


@pytest.mark.parametrize(("text", "selected"), MEANING.items())
def test_label_selector(text: str, selected: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) == selected


def test_an_object_without_labels_is_selected_by_what_asks_for_none() -> None:
    assert parse_label_selector("!app").matches(None)
    assert not parse_label_selector("app").matches(None)


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert label_selector(None) is NOTHING
    assert not NOTHING.matches({"a": "b"})
    assert label_selector({}) == label_selector({"matchLabels": {}}) == EVERYTHING
    assert EVERYTHING.matches(None)


def test_labels_and_expressions_must_all_hold() -> None:
    selector = label_selector(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "size", "operator": "In", "values": ["5", "4"]},
                {"key": "gone", "operator": "DoesNotExist"},
            ],
        }
    )
    assert selector.matches(LABELS)
    assert not selector.matches(LABELS | {"gone": "no"})
    assert str(selector) == "app=web,!gone,size in (4,5)"


def test_field_selector() -> None:
    selector = parse_field_selector("spec.nodeName!=b,metadata.name==a")
    assert selector.requirements == (
        FieldRequirement("metadata.name", "=", "a"),
        FieldRequirement("spec.nodeName", "!=", "b"),
    )
    assert selector.matches({"metadata.name": "a"})
    assert not selector.matches({"metadata.name": "a", "spec.nodeName": "b"})
    assert selector.exact("metadata.name") == "a"
    assert selector.exact("spec.nodeName") is None


def test_escaped_characters_are_part_of_the_value() -> None:
    (requirement,) = parse_field_selector(r"a=x\,y\=z\\").requirements
    assert requirement.value == "x,y=z\\"


keys = st.sampled_from(["a", "b", "example.com/c", "in", "notin"])
values = st.from_regex(r"([a-z0-9]([-a-z0-9_.]{0,5}[a-z0-9])?)?", fullmatch=True)
requirements = (
    st.builds(LabelRequirement, keys, st.sampled_from(["exists", "!"]))
    | st.builds(LabelRequirement, keys, st.sampled_from(["=", "==", "!="]), st.tuples(values))
    | st.builds(
        LabelRequirement,
        keys,
        st.sampled_from(["in", "notin"]),
        st.sets(values, min_size=1, max_size=4).map(lambda each: tuple(sorted(each))),
    )
    | st.builds(
        LabelRequirement,
        keys,
        st.sampled_from(["gt", "lt"]),
        st.integers(0, 99).map(lambda number: (str(number),)),
    )
)
selectors = st.lists(requirements, max_size=5).map(
    lambda each: LabelSelector(tuple(sorted(each, key=lambda one: one.key)))
)


@given(selectors)
def test_given_any_label_selector_when_written_and_read_then_it_is_the_same(
    selector: LabelSelector,
) -> None:
    assert parse_label_selector(str(selector)) == selector


@given(selectors, st.dictionaries(keys, values))
def test_a_selector_holds_when_each_of_its_requirements_does(
    selector: LabelSelector, labels: dict[str, str]
) -> None:
    assert selector.matches(labels) == all(
        parse_label_selector(str(each)).matches(labels) for each in selector.requirements
    )


OPPOSITES = {"exists": "!", "=": "!=", "==": "!=", "in": "notin"}


@given(requirements, st.dictionaries(keys, values))
def test_an_operator_and_its_opposite_split_all_objects(
    requirement: LabelRequirement, labels: dict[str, str]
) -> None:
    if opposite := OPPOSITES.get(requirement.operator):
        other = LabelRequirement(requirement.key, opposite, requirement.values)
        assert requirement.matches(labels) != other.matches(labels)


field_requirements = st.builds(
    FieldRequirement, st.sampled_from(["a", "spec.b"]), st.sampled_from(["=", "!="]), st.text()
)


@given(st.lists(field_requirements, max_size=4, unique_by=str))
def test_given_any_field_selector_when_written_and_read_then_it_is_the_same(
    wanted: list[FieldRequirement],
) -> None:
    selector = FieldSelector(tuple(wanted))
    read = parse_field_selector(str(selector))
    assert set(read.requirements) == set(selector.requirements)


@given(st.text("ab=!(),<> in\t\0\\"))
def test_given_any_text_then_it_is_a_selector_or_refused(text: str) -> None:
    for read in (parse_label_selector, parse_field_selector):
        try:
            selector = read(text)
        except SelectorError:
            continue
        assert str(read(str(selector))) == str(selector)
