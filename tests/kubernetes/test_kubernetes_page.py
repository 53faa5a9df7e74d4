"""The commands of docs/kubernetes.md do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from .cluster import ROOT, tool
from .webhook_process import ENVIRONMENT

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="clusters need root for their namespaces"),
]

PAGE = ROOT / "docs" / "kubernetes.md"
NAME = f"page-{os.getpid()}"


def blocks(heading: str) -> str:
    """Return the commands of a section, for a cluster of this test's own."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    script = "\n".join(re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE))
    return re.sub(r"tools/cluster (\w+)", rf"tools/cluster \1 --name {NAME}", script)


def run(script: str) -> subprocess.CompletedProcess[str]:
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", f"{script}\nkill %1 2>/dev/null || true\n"]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**ENVIRONMENT, "PATH": path},
        timeout=300,
    )  # fmt: skip


@pytest.fixture
def no_cluster() -> Iterator[None]:
    """Remove the cluster of the page, whatever happened."""
    yield
    tool("down", "--name", NAME)


@pytest.mark.usefixtures("no_cluster")
def test_given_the_page_then_its_test_cluster_checks_writes() -> None:
    script = blocks("Try it on a test cluster")
    assert "tools/cluster down" in script
    definitions = blocks("CustomResourceDefinitions")
    done = run(script.replace("tools/cluster down", f"{definitions}\ntools/cluster down"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "virtualmachine.kubevirt.io/web created" in done.stdout
    assert "spec.template.spec.domain.devices.tpm" in done.stderr
    assert done.stdout.count("refused") == 1
    assert "customresourcedefinition" in done.stdout
    assert NAME not in tool("list").stdout
