"""From the previous release to this one and back, while a guest runs."""

from __future__ import annotations

import shutil

import pytest

from . import previous_release
from .guest_host import IMAGE, image_missing, until
from .hot_volumes import SECONDS, HotGuest

pytestmark = [
    pytest.mark.guest,
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(
        not previous_release.available(), reason="this clone lacks the previous release's commit"
    ),
]


def is_the_same(guest: HotGuest, uid: str, qemu: int) -> None:
    """Expect the guest to be the one it was, found and attached to its volume."""
    guest.host.found(guest.name)
    guest.settles()
    guest.sees("alpha")
    assert guest.host.uid(guest.name) == uid
    assert guest.host.qemu(guest.name) == qemu
    until("nothing waits", lambda: not guest.pending(), SECONDS)
    until("no restart is needed", lambda: not restart_required(guest), SECONDS)


def restart_required(guest: HotGuest) -> bool:
    return guest.host.holds("vm", guest.name, "RestartRequired")


def test_an_upgrade_plugs_staged_volumes_and_a_rollback_restores_the_data() -> None:
    if image_missing():
        pytest.skip(f"image {IMAGE} is not imported: make setup does it")
    with previous_release.staged() as (guest, source):
        host, server = guest.host, guest.host.server
        qemu = host.qemu(guest.name)
        server.start()
        uid = host.uid(guest.name)
        is_the_same(guest, uid, qemu)
        assert server.log.read_text().count("database backed up before an upgrade") == 1
        server.kubectl("create", "configmap", "later")

        refused = host.attempt("livevirt", "rollback", "--data-dir", str(server.data))
        assert refused.returncode == 1
        assert "is in use by process" in refused.stderr

        server.stop()
        with pytest.raises(AssertionError, match="knows up to 1"):
            server.start(*previous_release.program(source))
        said = host.run("livevirt", "rollback", "--data-dir", str(server.data))
        assert "restored upgrade-" in said
        server.start(*previous_release.program(source))
        assert "later" not in server.kubectl("get", "configmaps", "-o", "name")
        is_the_same(guest, uid, qemu)
