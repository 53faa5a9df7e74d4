"""Which server `livevirt status` looks at."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from livevirt.cli import cluster_status, livevirt
from livevirt.kube.client.access import Access


def a_kubeconfig(path: Path, server: str) -> str:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The servers of the clusters that are shown; nothing is contacted."""
    found: list[str] = []

    def show(access: Access, output: str) -> None:
        found.append(access.server)

    monkeypatch.setattr(cluster_status, "show", show)
    monkeypatch.setattr(livevirt, "default_data_dir", lambda: tmp_path / "data")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return found


def status(*arguments: str, kubeconfig: str | None = None) -> int:
    done = CliRunner().invoke(livevirt.cli, ["status", *arguments], env={"KUBECONFIG": kubeconfig})
    return done.exit_code


def test_given_a_kubeconfig_then_its_cluster_is_shown(shown: list[str], tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path / "config", "https://cluster")
    assert status("--kubeconfig", path) == 0
    assert status(kubeconfig=path) == 0
    assert status("--context", "x", kubeconfig=path) == 0
    assert shown == ["https://cluster"] * 3


def test_given_our_own_server_then_its_process_is_shown(shown: list[str], tmp_path: Path) -> None:
    own = a_kubeconfig(tmp_path / "data" / "kubeconfig", "https://own")
    assert status(kubeconfig=own) == 1  # it does not run
    assert status() == 1
    assert shown == []


def test_given_a_data_directory_then_the_environment_does_not_count(
    shown: list[str], tmp_path: Path
) -> None:
    other = a_kubeconfig(tmp_path / "config", "https://cluster")
    assert status("--data-dir", str(tmp_path / "data"), kubeconfig=other) == 1
    assert shown == []
