"""The commands people type, on a real server with a real guest: what they do is seen inside it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..server_process import BIN, ServerProcess
from .guest_host import GuestHost
from .terminal import Terminal, log_in_and_out

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
]

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 180.0  # an emulated CPU on a busy machine


@pytest.fixture(scope="module")
def host(guest_host: GuestHost) -> Iterator[ServerProcess]:
    """A server with a guest `web` whose agent answers."""
    server = guest_host.server
    made = run(server, "virtctl", "create", "vm", "--name=web", "--memory=256Mi",
               "--volume-containerdisk=src:livevirt/guest:latest",
               "--termination-grace-period=20")  # fmt: skip
    server.kubectl("apply", "-f", "-", input=made)
    agent_answers(server)
    yield server
    guest_host.discard("web")


def attempt(server: ServerProcess, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]], env=server.environment(), cwd=server.home,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip


def run(server: ServerProcess, *command: str) -> str:
    done = attempt(server, *command)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def until(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.2)  # other processes do it


def agent_answers(server: ServerProcess) -> None:
    def answers() -> bool:
        return attempt(server, "livevirt", "exec", "web", "--", "true").returncode == 0

    until("the guest's agent", answers)


def boot_id(server: ServerProcess, other_than: str = "") -> str:
    """Return what the kernel calls its boot, once there is an agent to ask and it is another."""
    asked = ("livevirt", "exec", "web", "--", "cat", "/proc/sys/kernel/random/boot_id")
    deadline = time.monotonic() + SECONDS
    while (found := attempt(server, *asked).stdout) in ("", other_than):
        assert time.monotonic() < deadline, "waited in vain for a boot"
        time.sleep(0.2)
    return found


def test_a_command_runs_in_the_guest(host: ServerProcess) -> None:
    agent_answers(host)
    done = attempt(host, "livevirt", "exec", "web", "--", "sh", "-c", "nproc; echo no >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "1\n", "no\n")
    done = attempt(host, "livevirt", "exec", "web", "--", "no-such-program")
    assert done.returncode == 1
    assert "no-such-program" in done.stderr


@pytest.mark.long
@pytest.mark.wording
def test_given_the_agent_was_stopped_then_a_command_says_so(host: ServerProcess) -> None:
    agent_answers(host)
    stop = "sleep 1; mv $(which qemu-ga) /tmp; kill $(pidof qemu-ga)"  # until it boots again
    run(host, "livevirt", "exec", "web", "--", "sh", "-c", f"({stop}) </dev/null >/dev/null 2>&1 &")

    def refusal() -> str:
        return attempt(host, "livevirt", "exec", "web", "--", "true").stderr

    try:
        until("the agent to be missed", lambda: "was connected and has stopped" in refusal())
        assert "virtctl console web" in refusal()
    finally:
        run(host, "virtctl", "reset", "web")
    agent_answers(host)


def test_the_agent_tells_about_the_guest(host: ServerProcess) -> None:
    agent_answers(host)
    info = json.loads(run(host, "virtctl", "guestosinfo", "web"))
    release = run(host, "livevirt", "exec", "web", "--", "uname", "-r").strip()
    assert info["os"]["kernelRelease"] == release
    assert info["guestAgentVersion"]
    assert "items" in json.loads(run(host, "virtctl", "fslist", "web"))
    assert "items" in json.loads(run(host, "virtctl", "userlist", "web"))


def test_a_paused_guest_stands_still(host: ServerProcess) -> None:
    agent_answers(host)
    assert run(host, "virtctl", "pause", "vm", "web") == "VMI web was scheduled to pause\n"
    until("Paused", lambda: "Paused" in host.kubectl("get", "vm", "web"))
    done = attempt(host, "livevirt", "exec", "web", "--", "true")
    assert (done.returncode, "VMI is paused" in done.stderr) == (1, True), done.stderr
    assert run(host, "virtctl", "unpause", "vm", "web") == "VMI web was scheduled to unpause\n"
    until("Running", lambda: "Running" in host.kubectl("get", "vm", "web"))
    agent_answers(host)


def test_a_person_logs_in_on_the_console(host: ServerProcess) -> None:
    agent_answers(host)
    terminal = Terminal(host, str(BIN / "virtctl"), "console", "web")
    try:
        log_in_and_out(terminal, "web")
    finally:
        status = terminal.close()
    assert status == 0


def test_the_logs_of_the_launcher_are_qemus_and_the_serial_ports(host: ServerProcess) -> None:
    agent_answers(host)
    owner = ("-l", "vm.kubevirt.io/name=web", "-o", "jsonpath={.items[*].metadata.name}")
    (pod,) = host.kubectl("get", "pods", *owner).split()
    path = f"/api/v1/namespaces/default/pods/{pod}/log"
    until("the prompt", lambda: "login: " in serial_log(host, path))
    host.kubectl("logs", pod)


def serial_log(server: ServerProcess, path: str) -> str:
    return server.kubectl("get", "--raw", f"{path}?container=guest-console-log")


@pytest.mark.long
@pytest.mark.parametrize("verb", ["soft-reboot", "reset"])
def test_a_rebooted_guest_is_the_same_instance(host: ServerProcess, verb: str) -> None:
    before, uid = boot_id(host), host.kubectl("get", "vmi", "web", "-o", "jsonpath={.metadata.uid}")
    assert run(host, "virtctl", verb, "web") == f"VMI web was scheduled to {verb}\n"
    boot_id(host, other_than=before)
    assert host.kubectl("get", "vmi", "web", "-o", "jsonpath={.metadata.uid}") == uid


def test_a_vm_is_restarted_stopped_and_started(host: ServerProcess) -> None:
    before = boot_id(host)
    run(host, "virtctl", "restart", "web", "--wait")
    assert boot_id(host) != before
    run(host, "virtctl", "stop", "web", "--wait")
    assert "Stopped" in host.kubectl("get", "vm", "web")
    done = attempt(host, "livevirt", "exec", "web", "--", "true")
    assert (done.returncode, "virtctl start" in done.stderr) == (1, True), done.stderr
    run(host, "virtctl", "start", "web", "--wait")
    run(host, "virtctl", "stop", "web", "--force", "--grace-period=0", "--wait")


# ---------------------------------------------------------------- the demonstration


def transcript(page: str) -> list[str]:
    """Return the commands that a page shows of the demonstration."""
    text = (ROOT / page).read_text()
    _, begun, rest = text.partition("<!-- demo:begin -->")
    shown = rest.partition("<!-- demo:end -->")[0] if begun else text
    return [line for line in shown.splitlines() if line.startswith("$ ")]


def demo_directories() -> set[Path]:
    return set(Path("/tmp").glob("lv-demo-*"))


def processes_of(folder: Path) -> list[str]:
    """Return the processes that have to do with a directory."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = command.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in text:
                found.append(text)
    return found


@pytest.mark.parametrize("time_", ["first", pytest.param("second", marks=pytest.mark.long)])
def test_the_demo_shows_the_guest_and_leaves_nothing(time_: str) -> None:
    before = demo_directories()
    done = subprocess.run(
        [str(BIN / "livevirt"), "demo"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=2 * SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[lines.index(next(x for x in lines if x.endswith("-- nproc"))) + 1] == "1"
    assert "MemTotal:" in done.stdout
    assert "vdb    1G disk" in done.stdout
    assert "virtualmachineinstance.kubevirt.io/demo" in done.stdout
    assert demo_directories() == before
    folder = next(word for word in done.stdout.split() if word.startswith("/tmp/lv-demo-"))
    assert processes_of(Path(folder)) == []
    told = done.stdout.replace(folder, "/tmp/lv-demo-XXXXXXXX").splitlines()
    commands = [line for line in told if line.startswith("$ ")]
    assert transcript("docs/demo.md") == commands
    excerpt, following = transcript("README.md"), iter(commands)
    assert excerpt
    assert [line for line in excerpt if line not in following] == []
    (path,) = re.findall(r"^  export PATH=(\S+):\$PATH$", done.stdout, re.MULTILINE)
    assert Path(path).samefile(BIN)


@pytest.mark.long
def test_an_interrupted_demo_cleans_up() -> None:
    seen, interrupted = "", False
    # Tests that run in the background of a shell ignore it, and so would what they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [str(BIN / "livevirt"), "demo"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        signal.signal(signal.SIGINT, before)
        assert process.stdout is not None
        for line in process.stdout:
            seen += line
            if "starting demo:" in line and not interrupted:  # whatever it is seen doing first
                process.send_signal(signal.SIGINT)
                interrupted = True
    assert process.returncode == 1, seen
    folder = next(word for word in seen.split() if word.startswith("/tmp/lv-demo-"))
    assert not Path(folder).exists()
    assert processes_of(Path(folder)) == []
