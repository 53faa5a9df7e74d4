"""docs/kubernetes.md says what is installed."""

from __future__ import annotations

import re
from pathlib import Path

from livevirt.cluster import webhook_manifests
from livevirt.cluster.webhook_manifests import Endpoint

PAGE = Path(__file__).resolve().parents[3] / "docs" / "kubernetes.md"


def test_the_page_names_the_failure_policies_that_are_installed() -> None:
    rows = dict(re.findall(r"^\| `(\w+\.livevirt\.io)` \|.*?\| `(\w+)` \|", PAGE.read_text(), re.M))
    configurations = (
        webhook_manifests.mutating_configuration(Endpoint()),
        webhook_manifests.validating_configuration(Endpoint()),
    )
    installed = {
        webhook["name"]: webhook["failurePolicy"]
        for configuration in configurations
        for webhook in configuration["webhooks"]
    }
    assert rows == installed
