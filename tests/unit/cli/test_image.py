"""`livevirt image`, from a file to a name and back to nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from livevirt.cli.image import image
from livevirt.errors import LivevirtError

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is missing")


def said(*arguments: str | Path) -> str:
    command = [str(each) for each in arguments]
    return CliRunner().invoke(image, command, catch_exceptions=False).stdout


def test_an_image_is_imported_listed_and_removed(tmp_path: Path) -> None:
    disk, store = tmp_path / "disk.qcow2", tmp_path / "store"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "10M"], check=True)
    told = said("import", disk, "--name", "team/vm:1", "--image-store", store)
    assert told == "imported team/vm:1: 10 MiB, qcow2\n"
    heading, line = said("list", "--image-store", store).splitlines()
    assert heading.split() == ["NAME", "SIZE", "FORMAT", "DIGEST"]
    assert line.split()[:4] == ["team/vm:1", "10", "MiB", "qcow2"]
    assert said("remove", "team/vm:1", "--image-store", store) == "removed team/vm:1\n"
    assert said("list", "--image-store", store).splitlines()[1:] == []
    with pytest.raises(LivevirtError, match="there is no image"):
        said("remove", "team/vm:1", "--image-store", store)
