"""The VirtualMachine of the product requirements, as it is written there, becomes Ready."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .guest_host import IMAGE, GuestHost, until

REQUIREMENT = Path(__file__).parents[3] / "shared" / "requirements" / "000_f04218b0973983b3.txt"

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not REQUIREMENT.exists(), reason="the requirements are not here"),
]

_INSTANCETYPE = re.compile(r"^  instancetype:\n(?:   +.*\n)+", re.MULTILINE)
_IMAGE = re.compile(r"(?<=image: )\S+alpine-container-disk-demo\S*")
_DOMAIN = "      domain:\n"
_SIZE = "        memory:\n          guest: 256Mi\n"


def manifest() -> str:
    """Return its text with an image of ours and a size of its own, and no instance type."""
    text = REQUIREMENT.read_text()
    start = text.index("kind: VirtualMachine\n")
    start = text.rindex("apiVersion:", 0, start)
    text = text[start : text.index("\nEOF", start)] + "\n"
    text, cut = _INSTANCETYPE.subn("", text)
    text, renamed = _IMAGE.subn(IMAGE, text)
    assert (cut, renamed, text.count(_DOMAIN)) == (1, 1, 1)
    return text.replace(_DOMAIN, _DOMAIN + _SIZE)


@pytest.fixture(scope="module")
def applied(guest_host: GuestHost) -> Iterator[GuestHost]:
    guest_host.server.kubectl("apply", "-f", "-", input=manifest())
    yield guest_host
    guest_host.discard("alpine")


def test_it_becomes_ready_with_the_size_it_asks_for(applied: GuestHost) -> None:
    applied.server.kubectl("wait", "vms/alpine", "--for=condition=Ready", "--timeout=50s")
    for path in (
        "{.spec.domain.memory.guest}",
        "{.status.memory.guestAtBoot}",
        "{.status.memory.guestRequested}",
        "{.status.memory.guestCurrent}",
    ):
        wanted = f"--for=jsonpath={path}=256Mi"
        applied.server.kubectl("wait", "vmis/alpine", wanted, "--timeout=50s")


def test_its_user_data_runs_and_every_volume_is_a_disk(applied: GuestHost) -> None:
    applied.answers("alpine")
    disks = applied.shell("alpine", "lsblk -dnro TYPE | sort | uniq -c")
    assert disks.split() == ["2", "disk"]
    (pod,) = applied.pods("alpine")
    asked = ("logs", pod["metadata"]["name"], "-c", "guest-console-log")
    said = "printed from cloud-init userdata"
    until("what the script prints", lambda: said in applied.server.kubectl(*asked))


def test_applying_it_again_changes_nothing(applied: GuestHost) -> None:
    assert "unchanged" in applied.server.kubectl("apply", "-f", "-", input=manifest())
    assert applied.server.kubectl("diff", "-f", "-", input=manifest()) == ""
    assert set(yaml.safe_load(manifest())["spec"]) == set(applied.get("vm", "alpine")["spec"])
