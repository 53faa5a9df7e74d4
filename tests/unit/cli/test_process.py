"""Which process is the server of a data directory, and what is said when it does not stop."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from livevirt.cli import process
from livevirt.cli.process import ProcessError, served_directory
from livevirt.kube.client.errors import ConfigError
from livevirt.paths import DataDir
from livevirt.settings import Settings

Start = Callable[..., subprocess.Popen[bytes]]
SLEEP = "import time; print(flush=True); time.sleep(600)"
KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP


def settings(root: Path | str) -> str:
    return msgspec.json.encode(Settings(str(root))).decode()


def line(*words: str) -> bytes:
    return b"".join(word.encode() + b"\0" for word in words)


COMMANDS = {
    "a server": (line("python", "-m", "livevirt.main", settings("/d")), Path("/d")),
    "a guest": (line("qemu-system-x86_64", "-name", "/d/livevirt"), None),
    "an editor": (line("vi", "livevirt.main"), None),
    "another module": (line("python", "-m", "livevirt.other", settings("/d")), None),
    "settings of something else": (line("python", "-m", "livevirt.main", "{}"), None),
    "no text": (line("python", "-m", "livevirt.main") + b"\xff\0", None),
    "a kernel thread": (b"", None),
}


@pytest.mark.parametrize(("command", "root"), COMMANDS.values(), ids=COMMANDS)
def test_a_server_is_known_by_its_command_line(command: bytes, root: Path | None) -> None:
    assert served_directory(command) == root


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a script that says when it has come up; all of them end with the test."""
    started = []

    def begin(script: str, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", script, *more]
        begun = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(begun)
        assert begun.stdout is not None
        begun.stdout.readline()
        return begun

    yield begin
    for each in started:
        each.kill()
        each.communicate()


def a_directory(root: Path, pid: int) -> DataDir:
    root.mkdir()
    (root / "livevirt.pid").write_text(f"{pid}\n")
    return DataDir(root)


def test_a_stranger_with_the_id_of_a_dead_server_is_left_alone(
    tmp_path: Path, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger = start(SLEEP, "livevirt-notes")
    data = a_directory(tmp_path / "d", stranger.pid)
    assert process.running_pid(data) is None
    process.stop(data)
    assert capsys.readouterr().out == f"no livevirt server is running for {data.root}\n"
    assert stranger.poll() is None


def test_the_server_of_another_directory_is_not_ours(tmp_path: Path, start: Start) -> None:
    other = start(SLEEP, "livevirt.main", settings(tmp_path / "other"))
    assert process.running_pid(a_directory(tmp_path / "d", other.pid)) is None
    assert process.running_pid(a_directory(tmp_path / "other", other.pid)) == other.pid


def test_a_directory_may_have_two_names(tmp_path: Path, start: Start) -> None:
    server = start(SLEEP, "livevirt.main", settings(tmp_path / "d"))
    a_directory(tmp_path / "d", server.pid)
    (tmp_path / "link").symlink_to(tmp_path / "d")
    assert process.running_pid(DataDir(tmp_path / "link")) == server.pid


def test_a_server_that_does_not_stop_is_named_with_its_log_and_the_next_move(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_STOP_SECONDS", 0.1)
    server = start(DEAF, "livevirt.main", settings(tmp_path / "d"))
    data = a_directory(tmp_path / "d", server.pid)
    with pytest.raises(ProcessError) as error:
        process.stop(data)
    for part in (f"process {server.pid} ", str(data.log), f"kill -KILL {server.pid}", "guests"):
        assert part in str(error.value)


def test_a_kubeconfig_that_is_none_is_named(tmp_path: Path, start: Start) -> None:
    server = start(SLEEP, "livevirt.main", settings(tmp_path / "d"))
    data = a_directory(tmp_path / "d", server.pid)
    data.kubeconfig.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=str(data.kubeconfig)):
        process.show(data)


SLOW = """
import os, pathlib, sys, time
root = pathlib.Path(sys.argv[1])
while not (root / "go").exists():
    time.sleep(0.01)
time.sleep(1)
(root / "answers").touch()
(root / "livevirt.pid").write_text(f"{os.getpid()}\\n")
time.sleep(600)
"""


def test_a_file_left_by_a_killed_server_does_not_speak_for_a_new_one_of_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = a_directory(tmp_path / "d", 2**22 + 1)  # no process has this id
    data.kubeconfig.write_text(KUBECONFIG)
    left = data.pid.stat()
    start, started = subprocess.Popen, []

    def same_id(*args: Any, **more: Any) -> subprocess.Popen[bytes]:
        """Start it, and make the file look as if the killed one had had the id it got."""
        started.append(start(*args, **more))
        data.pid.write_text(f"{started[0].pid}\n")
        os.utime(data.pid, ns=(left.st_atime_ns, left.st_mtime_ns))
        (data.root / "go").touch()
        return started[0]

    command = [sys.executable, "-c", SLOW, str(data.root), "livevirt.main", settings(data.root)]
    monkeypatch.setattr(process, "_command", lambda _: command)
    monkeypatch.setattr(process.subprocess, "Popen", same_id)
    try:
        process.detach(data, Settings(str(data.root)))
        assert (data.root / "answers").exists()
        assert capsys.readouterr().out.startswith("ready: https://127.0.0.1:6443,")
    finally:
        for each in started:
            each.kill()
            each.wait()


def test_a_directory_whose_name_is_no_text_is_refused() -> None:
    with pytest.raises(ProcessError, match="no text in UTF-8"):
        process.run(Settings("/tmp/\udcff"))
