"""The page of settings lists what the code reads of the KubeVirt object, no more and no less."""

from __future__ import annotations

import importlib.util
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from livevirt.catalog import controller as catalog
from livevirt.vm.config import settings
from livevirt.vm.instancetypes.rules.matchers import reference_policy
from livevirt.vm.migration import policy
from livevirt.vm.spec import resources
from livevirt.vm.workload_update import view

ROOT = Path(__file__).resolve().parents[3]
SAMPLES: dict[str, Any] = {  # where any text does not do
    "configuration.developerConfiguration.featureGates": ["A"],
    "configuration.developerConfiguration.disabledFeatureGates": ["B"],
    "configuration.developerConfiguration.cpuAllocationRatio": 7,
    "configuration.developerConfiguration.memoryOvercommit": 70,
    "configuration.liveUpdateConfiguration.maxHotplugRatio": 7,
    "configuration.liveUpdateConfiguration.maxCpuSockets": 7,
    "configuration.liveUpdateConfiguration.maxGuest": "1Gi",
    "configuration.cpuRequest": "200m",
    "configuration.architectureConfiguration.amd64.machineType": "",  # or the other is not read
    "configuration.autoCPULimitNamespaceLabelSelector": {"matchLabels": {"a": "b"}},
    "configuration.commonInstancetypesDeployment.enabled": False,
    "workloadUpdateStrategy.workloadUpdateMethods": ["Evict"],
    "workloadUpdateStrategy.batchEvictionSize": 7,
    "workloadUpdateStrategy.batchEvictionInterval": "5m",
}


class Noting(dict[str, Any]):
    """An object that remembers what was asked of it, and of all in it."""

    def __init__(self, content: dict[str, Any], at: str, asked: set[str]) -> None:
        super().__init__(content)
        self._at, self._asked = at, asked

    def get(self, name: str, default: Any = None) -> Any:
        path, value = f"{self._at}{name}", super().get(name, default)
        if isinstance(value, dict) and path not in SAMPLES:
            return Noting(value, f"{path}.", self._asked)
        self._asked.add(path)
        return value


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def spec_with(paths: list[str]) -> dict[str, Any]:
    """Return a spec in which all of them are set."""
    spec: dict[str, Any] = {}
    for path in paths:
        *steps, name = path.split(".")
        inner = reduce(lambda at, step: at.setdefault(step, {}), steps, spec)
        inner[name] = SAMPLES.get(path, "any")
    return spec


def test_what_the_page_lists_is_what_is_read(page: ModuleType) -> None:
    migrations = "configuration.migrations."
    listed = [each.path for each in page.honoured() if not each.path.startswith(migrations)]
    asked: set[str] = set()
    kubevirt: Any = {"spec": Noting(spec_with(listed), "", asked)}
    settings.read(kubevirt)
    reference_policy(kubevirt)
    catalog.enabled(kubevirt)
    resources.namespace_of([], None, kubevirt)
    view.settings(kubevirt, policy.limits(None))
    assert asked == set(listed)


def test_the_limits_of_migrations_are_those_that_count(page: ModuleType) -> None:
    prefix = "configuration.migrations."
    listed = {each.path.removeprefix(prefix) for each in page.honoured() if prefix in each.path}
    idle = {"disableTLS", "unsafeMigrationOverride", "utilityVolumesTimeout"}
    assert listed == {*policy.DEFAULTS, "maxDowntimeMs"} - idle


def test_every_gate_has_a_row(page: ModuleType) -> None:
    source = ROOT / "src" / "livevirt"
    named = [
        line.split('"')[1]
        for file in sorted(source.rglob("*.py"))
        for line in file.read_text().splitlines()
        if "_GATE" in line.partition(" = ")[0] and line.partition(" = ")[2].startswith('"')
    ]
    assert sorted(named) == sorted(page.gates())
