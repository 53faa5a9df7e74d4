"""`virtctl ssh` connects the local client to a port of the guest through the API server."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .served import Served, serving
from .vm_world import NAMESPACE, PlayedNode, World

#: Says something through the proxy command, as ssh does, and prints the answer and its arguments.
CLIENT = """#!/usr/bin/env python3
import json, subprocess, sys
option, proxy = sys.argv[1:3]
assert option == "-o"
command = proxy.removeprefix("ProxyCommand=").replace("%%", "%")
done = subprocess.run(command, shell=True, input=b"SSH-2.0-test", capture_output=True, timeout=60)
print(json.dumps([done.returncode, done.stdout.decode(), done.stderr.decode(), sys.argv[3:]]))
"""


@pytest.fixture
async def served(
    world: World, node: PlayedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("ssh", "scp"):
        (programs / name).write_text(CLIENT)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    async with serving(world, tmp_path) as server:
        await world.create_vm("Always")
        await world.until(world.ready)
        yield server


async def test_the_client_talks_to_the_port_of_the_guest(served: Served) -> None:
    kubeconfig = f"--kubeconfig={served.data.kubeconfig}"
    shown = await served.succeed(
        "virtctl", "ssh", kubeconfig, "jane@vm/web", "-c", "ls", "-p", "2222"
    )
    status, answer, said, arguments = json.loads(shown)
    assert (status, answer) == (0, "SSH-2.0-test"), said
    assert arguments == [f"jane@vm.web.{NAMESPACE}", "ls"]
    shown = await served.succeed("virtctl", "scp", "a", f"jane@vmi/web/{NAMESPACE}:b")
    assert json.loads(shown)[3] == ["a", f"jane@vmi.web.{NAMESPACE}:b"]
    assert served.guests.dialled == [("web", "tcp", 2222), ("web", "tcp", 22)]
