"""Probes of a real guest, added, edited and removed while it runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .guest_host import GuestHost, a_vm, until

pytestmark = [pytest.mark.guest, pytest.mark.slow]
NAME = "probed"
PROBE_SECONDS = 60.0


def probe(path: str) -> dict[str, Any]:
    return {
        "exec": {"command": ["test", "-f", path]},
        "periodSeconds": 1,
        "timeoutSeconds": 10,
        "failureThreshold": 2,
    }


def edit(host: GuestHost, **probes: Any) -> None:
    patch = json.dumps({"spec": {"template": {"spec": probes}}})
    host.run("kubectl", "patch", "vm", NAME, "--type=merge", "-p", patch)


def test_a_probe_is_live_and_a_guest_that_fails_its_liveness_probe_is_started_again(
    guest_host: GuestHost,
) -> None:
    host = guest_host
    host.apply(a_vm(NAME))
    host.answers(NAME)
    boot, uid = host.boot_id(NAME), host.uid(NAME)

    def is_ready() -> bool:
        return host.holds("vmi", NAME, "Ready")

    until("it is ready", is_ready)
    edit(host, readinessProbe=probe("/tmp/ready"))
    until("the probe fails", lambda: not is_ready(), PROBE_SECONDS)
    assert not host.holds("vm", NAME, "RestartRequired")
    host.shell(NAME, "touch /tmp/ready")
    until("the probe succeeds", is_ready, PROBE_SECONDS)
    edit(host, readinessProbe=probe("/tmp/other"))
    until("the edited probe fails", lambda: not is_ready(), PROBE_SECONDS)
    edit(host, readinessProbe=None)
    until("it is ready without a probe", is_ready, PROBE_SECONDS)
    assert host.boot_id(NAME) == boot

    edit(host, livenessProbe=probe("/tmp/alive"))
    until("it is started again", lambda: host.uid(NAME) not in ("", uid), PROBE_SECONDS)
    edit(host, livenessProbe=None)
    host.discard(NAME)
