"""Names are judged, and refused, exactly as a kube-apiserver does it."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects import names

CASES = json.loads((Path(__file__).parent / "data" / "names.json").read_text())["cases"]


@pytest.mark.parametrize("rule", sorted({case["rule"] for case in CASES}))
def test_every_rule_complains_as_kubernetes_does(rule: str) -> None:
    validate = getattr(names, f"validate_{rule}")
    cases = [case for case in CASES if case["rule"] == rule]
    assert {case["text"]: validate(case["text"]) for case in cases} == {
        case["text"]: case["complaints"] for case in cases
    }


labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?", fullmatch=True)


@given(labels)
def test_a_dns_label_is_good_for_everything_but_a_leading_digit(label: str) -> None:
    assert not names.validate_dns1123_label(label)
    assert not names.validate_dns1123_subdomain(label)
    assert not names.validate_label_key(label)
    assert not names.validate_label_value(label)
    assert not names.validate_config_key(label)
    assert not names.validate_path_segment(label)
    assert bool(names.validate_dns1035_label(label)) == label[0].isdigit()


@given(st.lists(labels, min_size=2, max_size=5))
def test_dotted_labels_are_a_subdomain_and_no_label(parts: list[str]) -> None:
    name = ".".join(parts)
    assert not names.validate_dns1123_subdomain(name)
    assert "must not contain dots" in names.validate_dns1123_label(name)


@given(st.text())
def test_given_any_text_when_judged_then_a_rule_answers(text: str) -> None:
    rules: list[Any] = [getattr(names, name) for name in dir(names) if name.startswith("validate_")]
    assert all(isinstance(rule(text), list) for rule in rules)


@given(st.text("ab-.", max_size=80))
def test_a_generated_name_keeps_58_characters_and_adds_five(prefix: str) -> None:
    name = names.generate(prefix)
    assert name.startswith(prefix[:58])
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{5}", name[len(prefix[:58]) :])


@pytest.mark.parametrize("length", [58, 59, 300])
def test_a_long_prefix_is_cut_so_that_the_name_has_63_characters(length: int) -> None:
    assert len(names.generate("a" * length)) == 63


def test_generated_names_differ() -> None:
    assert len({names.generate("a-") for _ in range(50)}) > 45


def test_a_unique_id_is_a_random_uuid_in_its_one_spelling() -> None:
    found = {names.unique_id() for _ in range(200)}
    assert len(found) == 200
    for text in found:
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)


PREFIXES = {"web-": True, "web": True, "Web-": False, "-": False, "web.": False, "..": False}


@pytest.mark.parametrize(("prefix", "good"), PREFIXES.items())
def test_a_prefix_is_as_good_as_the_names_made_from_it(prefix: str, good: bool) -> None:
    assert (not names.validate_dns1123_subdomain(names.as_name(prefix))) == good


def test_a_path_segment_may_begin_with_dots() -> None:
    assert names.validate_path_segment("..") == ["may not be '..'"]
    assert not names.validate_path_segment(names.as_name(".."))
