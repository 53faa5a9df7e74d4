"""The command line itself: what it lists, imports and explains."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from livevirt.cli import exec, virtctl
from livevirt.cli.demo import MANIFEST, demo
from livevirt.cli.vm import create, hotplug, resize

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


def commands() -> dict[str, click.Command]:
    context = click.Context(virtctl.cli)
    found = {
        name: virtctl.cli.get_command(context, name) for name in virtctl.cli.list_commands(context)
    }
    found |= {f"create {name}": command for name, command in create.create.commands.items()}
    found |= {f"vm {name}": command for name, command in resize.vm.commands.items()}
    found |= {f"cdrom {name}": command for name, command in hotplug.cdrom.commands.items()}
    found |= {"exec": exec.exec_, "demo": demo}
    return {name: command for name, command in found.items() if command is not None}


@pytest.mark.parametrize(("name", "command"), commands().items(), ids=commands())
def test_every_command_explains_itself_with_examples(name: str, command: click.Command) -> None:
    shown = CliRunner().invoke(command, ["--help"])
    assert shown.exit_code == 0
    program = "livevirt" if name in ("exec", "demo") else "virtctl"
    assert f"\n  {program} {name}" in shown.output


def test_the_vm_of_the_demo_has_every_kind_of_volume_that_needs_no_claim() -> None:
    for word in ("containerDisk", "cloudInitNoCloud", "emptyDisk", "masquerade"):
        assert word in MANIFEST
