"""Which process is the server of a data directory, and what is said when it does not stop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from livevirt.cli import process
from livevirt.cli.process import ProcessError, served_directory
from livevirt.client.errors import ConfigError
from livevirt.paths import DataDir
from livevirt.settings import Settings

Start = Callable[..., subprocess.Popen[bytes]]
SLEEP = "import time; print(flush=True); time.sleep(600)"
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
    assert capsys.readouterr().out == f"livevirt does not run on {data.root}\n"
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


def test_a_directory_whose_name_is_no_text_is_refused() -> None:
    with pytest.raises(ProcessError, match="no text in UTF-8"):
        process.run(Settings("/tmp/\udcff"))
