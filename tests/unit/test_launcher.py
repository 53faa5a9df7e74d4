"""`launcher/launcher.c`, the static program of launcher pods, in each of its modes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "launcher" / "launcher.c"
WITHIN = 20.0
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    built = tmp_path_factory.mktemp("launcher") / "launcher"
    flags = ["-static", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", built, SOURCE], check=True, timeout=60)
    return built


@pytest.fixture
def start(program: Path) -> Iterator[Start]:
    """Start the program; what still runs at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: object) -> subprocess.Popen[bytes]:
        words = [str(program), *map(str, arguments)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def handles_signals(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has a handler for SIGTERM."""
    status = Path(f"/proc/{process.pid}/status")

    def caught() -> int:
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1

    until(caught)


def put_argv(directory: Path, *arguments: str) -> None:
    """Rename an argv file into place, as the node agent does."""
    unfinished = directory / "argv.part"
    unfinished.write_bytes(b"".join(each.encode() + b"\0" for each in arguments))
    unfinished.rename(directory / "argv")


def test_run_becomes_the_program_of_argv(start: Start, tmp_path: Path) -> None:
    process = start("run", tmp_path)
    handles_signals(process)
    put_argv(tmp_path, "/bin/sh", "-c", 'echo "$$ $#"; printf "<%s>" "$@"', "sh", "", "a b")
    output, complaint = process.communicate(timeout=WITHIN)
    assert output.decode() == f"{process.pid} 2\n<><a b>"
    assert (process.returncode, complaint) == (0, b"")


def test_given_argv_is_there_already_then_run_does_not_wait(start: Start, tmp_path: Path) -> None:
    put_argv(tmp_path, "/bin/sh", "-c", "exit 7")
    assert start("run", tmp_path).wait(WITHIN) == 7


def test_the_program_gets_signals_as_if_started_directly(start: Start, tmp_path: Path) -> None:
    process = start("run", tmp_path)
    put_argv(tmp_path, "/bin/sh", "-c", "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status")
    output, _ = process.communicate(timeout=WITHIN)
    term = 1 << (signal.SIGTERM - 1)
    assert not any(int(line.split()[1], 16) & term for line in output.decode().splitlines())


def test_the_program_inherits_no_descriptor(start: Start, tmp_path: Path) -> None:
    process = start("run", tmp_path)
    put_argv(tmp_path, "/bin/sh", "-c", "ls /proc/$$/fd")
    output, _ = process.communicate(timeout=WITHIN)
    assert set(output.decode().split()) <= {"0", "1", "2", "3"}  # ls itself may hold 3


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("mode", ["run", "log", "hold"])
def test_given_a_signal_then_it_exits_with_0(
    start: Start, tmp_path: Path, mode: str, name: str
) -> None:
    subject = {"run": [tmp_path], "log": [tmp_path / "serial.log"], "hold": []}[mode]
    process = start(mode, *subject)
    handles_signals(process)
    process.send_signal(signal.Signals[name])
    assert process.wait(WITHIN) == 0


@pytest.mark.parametrize("content", [b"", b"/no/such/program\0"], ids=["empty", "no program"])
def test_given_argv_cannot_be_run_then_it_reports_that(
    start: Start, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "argv").write_bytes(content)
    process = start("run", tmp_path)
    _, complaint = process.communicate(timeout=WITHIN)
    assert process.returncode == 127
    assert complaint


def test_given_a_stop_came_first_then_run_starts_nothing(start: Start, tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    put_argv(tmp_path, "/bin/sh", "-c", "exit 7")
    assert start("run", tmp_path).wait(WITHIN) == 0


def test_stop_waits_for_the_node_agent(start: Start, tmp_path: Path) -> None:
    put_argv(tmp_path, "qemu")
    process = start("stop", tmp_path)
    until((tmp_path / "stop").exists)
    assert process.poll() is None
    (tmp_path / "stopped").touch()
    assert process.wait(WITHIN) == 0


def test_given_no_guest_was_started_then_stop_does_not_wait(start: Start, tmp_path: Path) -> None:
    assert start("stop", tmp_path).wait(WITHIN) == 0
    assert (tmp_path / "stop").exists()


def test_log_copies_a_file_as_it_grows(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "serial.log"
    process = start("log", log)
    handles_signals(process)
    assert process.stdout is not None
    log.write_bytes(b"first\n")
    assert process.stdout.readline() == b"first\n"
    with log.open("ab") as more:
        more.write(b"second\n")
    assert process.stdout.readline() == b"second\n"
    log.write_bytes(b"new\n")  # truncated
    assert process.stdout.readline() == b"new\n"


def test_given_a_signal_then_log_copies_the_rest_first(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "serial.log"
    content = os.urandom(1 << 20)
    log.write_bytes(content)
    process = start("log", log)
    handles_signals(process)
    process.terminate()
    assert process.communicate(timeout=WITHIN)[0] == content


def test_hold_makes_a_link_to_its_file_system(start: Start, tmp_path: Path) -> None:
    link = tmp_path / "disk"
    for _ in range(2):  # also in place of a link that is there
        process = start("hold", link)
        until(
            lambda own=f"/proc/{process.pid}/root": link.is_symlink() and own == os.readlink(link)
        )
        assert (link / "proc").is_dir()
        process.terminate()
        assert process.wait(WITHIN) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["disk"]


def test_install_copies_a_program_that_works(start: Start, program: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert start("install", copy).wait(WITHIN) == 0
    assert copy.read_bytes() == program.read_bytes()
    assert subprocess.run([copy, "stop", tmp_path], check=False, timeout=WITHIN).returncode == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy", "stop"]


@pytest.mark.parametrize("mode", ["run", "stop", "log", "hold", "install"])
def test_given_no_such_directory_then_it_fails(start: Start, tmp_path: Path, mode: str) -> None:
    process = start(mode, tmp_path / "missing" / "file")
    _, complaint = process.communicate(timeout=WITHIN)
    assert (process.returncode, bool(complaint)) == (1, True)


def test_given_an_unknown_mode_then_it_shows_the_usage(start: Start) -> None:
    process = start("run")
    _, complaint = process.communicate(timeout=WITHIN)
    assert process.returncode == 2
    assert complaint.startswith(b"usage: ")


def test_it_is_small(program: Path, tmp_path: Path, start: Start) -> None:
    """A held process costs next to nothing of the pod's memory."""
    process = start("hold")
    handles_signals(process)
    status = Path(f"/proc/{process.pid}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines())
    assert int(lines["RssAnon"].split()[0]) < 256  # KiB
