"""The manifests in deploy/ are current; both forms of them are what `livevirt install` applies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from livevirt.cluster import manifests
from livevirt.cluster.manifests import InstallOptions

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "livevirt"
KUBECTL = ROOT / ".venv" / "bin" / "kubectl"
KEEP = "helm.sh/resource-policy"
Key = tuple[str, str, str, str]


def by_key(objects: list[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    found = {
        (
            each["apiVersion"],
            each["kind"],
            each["metadata"].get("namespace", ""),
            each["metadata"]["name"],
        ): each
        for each in objects
    }
    assert len(found) == len(objects)  # nothing is applied twice
    return found


def test_deploy_is_current() -> None:
    check = [sys.executable, ROOT / "tools" / "deploy.py", "--check"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("part", ["control-plane", "settings"])
def test_given_the_kustomization_then_it_has_what_install_applies(part: str) -> None:
    command = [KUBECTL, "kustomize", DEPLOY / "kustomize" / part]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    built = list(yaml.load_all(done.stdout, yaml.CSafeLoader))
    make = manifests.control_plane if part == "control-plane" else manifests.settings
    assert by_key(built) == by_key(make(InstallOptions()))


def rendered(name: str, values: dict[str, str]) -> list[dict[str, Any]]:
    """Render a template that only has values and one condition around everything."""
    text = (CHART / "templates" / name).read_text()
    for expression, value in values.items():
        text = text.replace("{{ " + expression + " }}", value)
    text = text.replace("{{- if .Values.settings.create }}", "").replace("{{- end }}", "")
    assert "{{" not in text
    return list(yaml.load_all(text, yaml.CSafeLoader))


def test_given_the_chart_then_it_has_what_install_applies_with_its_values() -> None:
    values = {".Values.image | quote": '"example.org/livevirt:9"', ".Values.replicas": "5"}
    found = rendered("control-plane.yaml", values)
    found += yaml.load_all((CHART / "crds" / "crds.yaml").read_text(), yaml.CSafeLoader)
    options = InstallOptions("example.org/livevirt:9", 5)
    assert by_key(found) == by_key(manifests.control_plane(options))
    settings = rendered("settings.yaml", {})
    for each in settings:
        assert each["metadata"]["annotations"].pop(KEEP) == "keep"
        if not each["metadata"]["annotations"]:
            del each["metadata"]["annotations"]
    assert by_key(settings) == by_key(manifests.settings(InstallOptions()))


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize("settings", [False, True])
def test_given_helm_then_it_renders_what_install_applies(settings: bool) -> None:
    values = ("image=example.org/livevirt:9", "replicas=5", f"settings.create={settings}".lower())
    command = ["helm", "template", "livevirt", CHART, "--include-crds"]
    command += [word for value in values for word in ("--set", value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]
    options = InstallOptions("example.org/livevirt:9", 5)
    expected = by_key(manifests.control_plane(options))
    assert {key: each for key, each in by_key(found).items() if key in expected} == expected
    created = {by for by in by_key(found) if by not in expected}
    assert created == (set(by_key(manifests.settings(options))) if settings else set())


def test_given_the_default_values_then_they_are_those_of_the_command() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    options = InstallOptions()
    assert (values["image"], values["replicas"]) == (options.image, options.replicas)
