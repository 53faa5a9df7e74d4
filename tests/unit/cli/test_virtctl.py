"""The command line itself: what it imports."""

from __future__ import annotations

import subprocess
import sys

from livevirt.cli.demo import MANIFEST

ALONE = """
import resource, sys
sys.argv = ["virtctl", "version", "--client"]
from livevirt.cli.virtctl import main
try:
    main()
except SystemExit as leave:
    assert not leave.code
print(resource.getrusage(resource.RUSAGE_SELF).ru_utime)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_the_clients_version_is_quick_and_needs_no_http() -> None:
    run = [sys.executable, "-c", ALONE]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
    version, seconds, modules = done.stdout.splitlines()
    assert version.startswith("Client Version: ")
    assert float(seconds) < 0.4
    assert not {"aiohttp", "asyncio", "yaml", "rich", "cryptography"} & set(modules.split())


def test_the_vm_of_the_demo_has_every_kind_of_volume_that_needs_no_claim() -> None:
    for word in ("containerDisk", "cloudInitNoCloud", "emptyDisk", "masquerade"):
        assert word in MANIFEST
