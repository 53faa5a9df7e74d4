"""A QMP session whose QEMU goes away."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.qemu import session as session_module
from livevirt.qemu.errors import Disconnected
from livevirt.qemu.session import Session

VERSION = {"qemu": {"major": 7, "minor": 2, "micro": 0}}
GREETING: dict[str, object] = {"QMP": {"version": VERSION, "capabilities": []}}


class Monitor:
    """Answers the negotiation of one client, then nothing."""

    def __init__(self, path: Path) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._client: socket.socket | None = None
        self._thread = threading.Thread(target=self._negotiate)
        self._thread.start()

    def _negotiate(self) -> None:
        self._client, _ = self._server.accept()
        self._say(GREETING)
        asked = json.loads(self._client.recv(4096))  # the client ends no line
        self._say({"return": {}} | ({"id": asked["id"]} if "id" in asked else {}))

    def _say(self, message: dict[str, object]) -> None:
        assert self._client is not None
        self._client.sendall(json.dumps(message).encode() + b"\r\n")

    def die(self) -> None:
        """Close the connection before the client's event loop can notice."""
        self._thread.join()
        assert self._client is not None
        self._client.close()
        self._server.close()


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    monitor = Monitor(tmp_path / "qmp.sock")
    yield monitor
    monitor.die()


async def test_given_qemu_is_gone_then_many_commands_at_once_fail_and_nothing_is_logged(
    tmp_path: Path, monitor: Monitor, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(20):
        session = await Session.connect(str(tmp_path / "qmp.sock"))
        monitor.die()
        with caplog.at_level(logging.WARNING):
            failures = await asyncio.gather(
                *(session.execute("query-status") for _ in range(20)), return_exceptions=True
            )
        await session.close()
    assert {type(failure) for failure in failures} == {Disconnected}
    assert caplog.records == []


async def test_given_a_qemu_that_hangs_then_a_command_fails_in_time(
    tmp_path: Path, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "COMMAND_SECONDS", 0.1)
    async with asyncio.timeout(20):
        session = await Session.connect(str(tmp_path / "qmp.sock"))
        with pytest.raises(Disconnected):
            await session.execute("query-status")
        with pytest.raises(TimeoutError):  # a caller's own deadline stays one
            async with asyncio.timeout(0.01):
                await session.execute("query-status")
        await session.close()
