"""The dashboard and the rules use metrics that exist, and the page names those that do not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from livevirt.background import FAMILIES
from livevirt.kube.server.metrics import Metrics

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "livevirt.json"
NAME = re.compile(r"\b(?:kubevirt|livevirt|apiserver|store|process)_[a-z0-9_]+")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("", "_total"), "gauge": ("",)}


def exposed() -> dict[str, tuple[str, ...]]:
    """Return the labels of everything the server may expose, by name."""
    own = Metrics(cast(Any, SimpleNamespace(revision=0, commits=0, failures=0))).registry.collect()
    found = {
        f.name + suffix: (*f.labels, "le")
        for f in FAMILIES
        for suffix in (SUFFIXES["histogram"] if f.type == "histogram" else ("",))
    }
    found |= {m.name + suffix: ("le", "verb") for m in own for suffix in SUFFIXES[m.type]}
    return found


def expressions() -> dict[str, str]:
    """Return every query of the rules and of the dashboard, by where it stands."""
    rules = yaml.safe_load(RULES.read_text())
    found = {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for variable in dashboard["templating"]["list"]:
        found[f"variable {variable['name']}"] = variable["query"]
    return found


@pytest.mark.parametrize(("where", "query"), expressions().items(), ids=list(expressions()))
def test_given_a_query_then_its_metrics_and_labels_exist(where: str, query: str) -> None:
    names, known = NAME.findall(query), exposed()
    assert names or query == "prometheus", f"{where} queries nothing"
    assert [name for name in names if name not in known] == []
    for name, matchers in re.findall(r"(\w+)\{([^}]*)\}", query):
        labels = re.findall(r"(\w+)=~?\"", matchers)
        assert set(labels) <= set(known[name]), f"{where}: {name} has no such labels"
    for by in re.findall(r"by \(([^)]*)\)", query):
        asked = {label.strip() for label in by.split(",")}
        assert any(asked <= set(known[name]) for name in names), f"{where}: by ({by})"


def test_given_the_families_then_names_differ_and_keep_prometheus_rules() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert re.fullmatch(r"(kubevirt|livevirt)_[a-z0-9_]+", family.name)
        assert family.help.endswith("."), family.name
        assert all(re.fullmatch(r"[a-z_]+", label) for label in family.labels), family.name


def test_given_the_page_then_what_it_calls_missing_is_not_exposed() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    missing = page.partition("are not exposed:")[2]
    patterns = re.findall(r"`((?:kubevirt)_[a-z0-9_*]+)`", missing)
    assert patterns
    shown = [family.name for family in FAMILIES]
    for pattern in patterns:
        wanted = re.compile(pattern.replace("*", ".*"))
        assert [name for name in shown if wanted.fullmatch(name)] == [], pattern


def test_given_the_rules_then_each_says_what_happened_and_how_bad_it_is() -> None:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    alerts = [rule["alert"] for rule in group["rules"]]
    assert len(set(alerts)) == len(alerts)
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_given_promtool_then_it_accepts_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    done = subprocess.run(
        [promtool, "check", "rules", RULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_given_the_dashboard_then_panels_fit_and_have_ids_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)
