"""What can be done to a running guest, seen from inside it and from its QEMU process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator

import pytest

from ..server_process import BIN
from .guest_host import SECONDS, SOON, GuestHost, a_vm, until

pytestmark = [pytest.mark.guest, pytest.mark.slow]

NAME = "life"
GRACE = 120  # seconds after which a guest that does not listen is switched off
LONG_ENOUGH = 1.5  # seconds in which a guest that is not paused would have ticked


@pytest.fixture(scope="module")
def host(guest_host: GuestHost) -> Iterator[GuestHost]:
    """The server, with one guest whose agent answers."""
    guest_host.apply(a_vm(NAME, terminationGracePeriodSeconds=GRACE))
    guest_host.answers(NAME)
    yield guest_host
    guest_host.discard(NAME)


def serial_log(host: GuestHost) -> str:
    (pod,) = host.pods(NAME)
    return host.server.kubectl("logs", pod["metadata"]["name"], "-c", "guest-console-log")


def ticks(host: GuestHost) -> int:
    return serial_log(host).count("tick")


@contextlib.contextmanager
def ticking(host: GuestHost) -> Iterator[None]:
    """Let the guest count on its console."""
    loop = "while echo tick; do usleep 100000; done > /dev/ttyS0"
    host.shell(NAME, f"setsid sh -c '{loop}' < /dev/null > /dev/null 2>&1 & echo $! > /tmp/ticker")
    try:
        yield
    finally:
        host.shell(NAME, "kill -- -$(cat /tmp/ticker) $(cat /tmp/ticker); true")


def test_given_a_pause_then_the_guest_stands_still_until_it_goes_on(host: GuestHost) -> None:
    pid = host.qemu(NAME)
    with ticking(host):
        until("the first ticks", lambda: ticks(host) > 2)
        host.run("virtctl", "pause", "vm", NAME)
        assert until("Paused", lambda: host.word(NAME) == "Paused") < SOON
        assert host.condition("vmi", NAME, "Paused")["reason"] == "PausedByUser"
        until("it is not Ready", lambda: not host.holds("vm", NAME, "Ready"))
        before, began = ticks(host), time.monotonic()
        until("time to pass", lambda: time.monotonic() > began + LONG_ENOUGH)
        assert ticks(host) == before
        host.run("virtctl", "unpause", "vm", NAME)
        assert until("Running", lambda: host.word(NAME) == "Running") < SOON
        until("more ticks", lambda: ticks(host) > before)
    until("it is Ready", lambda: host.holds("vm", NAME, "Ready"))
    assert host.qemu(NAME) == pid


def uptime(host: GuestHost) -> float:
    return float(host.shell(NAME, "cut -d' ' -f1 /proc/uptime"))


@pytest.mark.long
@pytest.mark.parametrize("verb", ["soft-reboot", "reset"])
def test_given_a_reboot_then_only_the_guest_starts_again(host: GuestHost, verb: str) -> None:
    boot, pid, uid = host.boot_id(NAME), host.qemu(NAME), host.uid(NAME)
    host.shell(NAME, "touch /tmp/of-the-old-boot")
    began = time.monotonic()
    host.run("virtctl", verb, NAME)
    until("another boot", lambda: host.booted_anew(NAME, boot))
    assert uptime(host) < time.monotonic() - began
    assert host.shell(NAME, "ls /tmp") == ""
    assert (host.qemu(NAME), host.uid(NAME), host.phase(NAME)) == (pid, uid, "Running")


def silence_agent(host: GuestHost) -> None:
    """Let the guest be one without an agent, until its next boot."""
    host.shell(
        NAME,
        # The agent has started this shell, and a loop the agent; it must answer once more.
        "loop=$(awk '/^PPid/ {print $2}' /proc/$PPID/status);"
        'setsid sh -c "usleep 300000; kill $loop $PPID" < /dev/null > /dev/null 2>&1 &',
    )
    until("no agent", lambda: not host.holds("vmi", NAME, "AgentConnected"))


@pytest.mark.long
def test_given_no_agent_when_a_soft_reboot_is_asked_for_then_the_button_and_a_reset_do_it(
    host: GuestHost,
) -> None:
    boot, pid, uid = host.boot_id(NAME), host.qemu(NAME), host.uid(NAME)
    silence_agent(host)
    began = time.monotonic()
    assert host.run("virtctl", "soft-reboot", NAME) == f"VMI {NAME} was scheduled to soft-reboot\n"
    until("another boot", lambda: host.booted_anew(NAME, boot))
    assert uptime(host) < time.monotonic() - began
    assert (host.qemu(NAME), host.uid(NAME), host.phase(NAME)) == (pid, uid, "Running")
    assert host.word(NAME) == "Running"


class Pipe:
    """`virtctl console` with its input and output on pipes, as a script has it."""

    def __init__(self, host: GuestHost) -> None:
        self.process = subprocess.Popen(
            [str(BIN / "virtctl"), "console", NAME], env=host.server.environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
        )  # fmt: skip
        self.seen = b""

    def type(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)

    def read_until(self, text: bytes) -> None:
        assert self.process.stdout is not None
        deadline = time.monotonic() + SECONDS
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come, but {self.seen[-500:]!r}"
            if select.select([self.process.stdout], [], [], left)[0]:
                heard = os.read(self.process.stdout.fileno(), 4096)
                assert heard, f"the console ended after {self.seen[-500:]!r}"
                self.seen += heard
        self.seen = self.seen.partition(text)[2]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_script_logs_in_on_the_console_and_runs_a_command(host: GuestHost) -> None:
    console = Pipe(host)
    try:
        console.read_until(b"uccessfully connected")
        console.type(b"\n")
        console.read_until(b"login: ")
        console.type(b"root\n")
        console.read_until(b":~# ")
        console.type(b"echo $((6 * 7)) > /tmp/answer; echo done-$((1 + 1))\n")
        console.read_until(b"done-2")
        console.type(b"exit\n")
        console.read_until(b"login: ")
    finally:
        console.close()
    assert host.shell(NAME, "cat /tmp/answer") == "42"
    assert "done-2" in serial_log(host)


def test_the_agent_tells_what_the_guest_is(host: GuestHost) -> None:
    info = json.loads(host.run("virtctl", "guestosinfo", NAME))
    release, address, mac = host.shell(
        NAME,
        "uname -r; until ip -4 -o addr show dev eth0 | grep -q inet; do usleep 50000; done;"
        "ip -4 -o addr show dev eth0 | awk '{print $4}' | cut -d/ -f1;"
        "cat /sys/class/net/eth0/address",
    ).splitlines()
    assert info["os"]["kernelRelease"] == release

    def told() -> bool:
        status = host.get("vmi", NAME)["status"]
        (card,) = status.get("interfaces") or [{}]
        found = (card.get("ipAddress"), card.get("mac"))
        system = status.get("guestOSInfo") or {}
        return found == (address, mac) and system.get("kernelRelease") == release

    until("its addresses and its kernel", told)


def test_logs_show_what_qemu_said_and_nothing_of_the_guest(host: GuestHost) -> None:
    (pod,) = host.pods(NAME)
    until("the prompt", lambda: "login: " in serial_log(host))
    assert "login: " not in host.server.kubectl("logs", pod["metadata"]["name"])


def test_given_a_stop_then_the_guest_hears_the_button_and_shuts_itself_down(
    host: GuestHost,
) -> None:
    """Comes last: the guest is gone afterwards."""
    host.run("virtctl", "stop", NAME)
    until("it stopped", lambda: host.word(NAME) == "Stopped", GRACE / 2)
    assert host.qemus(NAME) == []
    until("its instance to go", lambda: not host.get("vmi", NAME))
