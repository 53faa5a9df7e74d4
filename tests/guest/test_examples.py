"""KubeVirt's example manifests whose guests are said to boot do, with the test guest as image."""

from __future__ import annotations

import json

import pytest

from ..api.example_manifests import IMAGE as EXAMPLES_IMAGE
from ..api.examples import EXAMPLES
from .guest_host import IMAGE, GuestHost, Object

pytestmark = [pytest.mark.guest, pytest.mark.slow]

WITHOUT_DISK = "vmi-sata"
BOOTING = [name for name, each in EXAMPLES.items() if each.outcome == "boots"]


def for_the_test_guest(manifest: Object) -> Object:
    """Return a manifest with our image, and the memory that it needs."""
    text = json.dumps(manifest).replace(EXAMPLES_IMAGE, IMAGE).replace('"128Mi"', '"256Mi"')
    made: Object = json.loads(text)
    return made


def boots(host: GuestHost, name: str) -> None:
    example = EXAMPLES[name]
    kind = "vm" if example.manifest["kind"] == "VirtualMachine" else "vmi"
    manifests = (*(EXAMPLES[each].manifest for each in example.needs), example.manifest)
    host.apply(*map(for_the_test_guest, manifests))
    try:
        host.answers(name)
        assert host.shell(name, "uname") == "Linux"
    finally:
        host.discard(name, kind=kind)


@pytest.mark.long
def test_a_guest_boots_from_a_volume_that_no_disk_names(guest_host: GuestHost) -> None:
    boots(guest_host, WITHOUT_DISK)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in BOOTING if name != WITHOUT_DISK])
def test_an_example_boots(guest_host: GuestHost, name: str) -> None:
    boots(guest_host, name)
