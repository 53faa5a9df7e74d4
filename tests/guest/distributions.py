"""Images of real distributions, which `make distributions` builds and imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from livevirt.node.images import FOLDER, ImageStore
from livevirt.paths import default_data_dir

BUILT = Path(__file__).resolve().parents[2] / ".cache" / "distributions"


def image(distribution: str) -> str:
    """Return the image of a Debian release and kernel, such as `12-cloud`."""
    return f"livevirt/debian:{distribution}"


def missing(distribution: str) -> bool:
    """Return whether an image has still to be imported."""
    return ImageStore(default_data_dir() / FOLDER).find(image(distribution)) is None


def disk(distribution: str) -> Path:
    """Return the file of an image as it was built; skip the test if there is none."""
    found = BUILT / f"debian-{distribution}.qcow2"
    if not found.exists():
        pytest.skip(f"{found.name} is not built: make distributions")
    return found
