"""A Debian guest built from packages; what it has is asked over its serial console."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from livevirt.kube.objects.quantity import parse
from livevirt.vm.sizing import hot_change

from .distributions import image as image
from .distributions import missing as missing
from .guest_host import GuestHost, Object, a_vm, until
from .live_guest import sized

BOOT_SECONDS = 900.0  # with cloud-init, on an emulated CPU of a busy machine
COMMAND_SECONDS = 120.0
CHANGE_SECONDS = 90.0
MIB = 1 << 20
AUTO_ONLINE = "/sys/devices/system/memory/auto_online_blocks"
_SERIAL = re.compile(rb"id=serial0,path=([^,\0]+)")
_ESCAPES = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]")  # of a shell that believes in a terminal
_KERNEL = re.compile(r"^\[ *\d+\.\d+\] ")  # what the kernel logs to the console meanwhile


def a_debian(name: str, distribution: str = "12-cloud", user_data: str = "") -> Object:
    """Return a VM of one socket and 1Gi that can grow."""
    vm = a_vm(name)
    spec = vm["spec"]["template"]["spec"]
    spec["volumes"][0]["containerDisk"]["image"] = image(distribution)
    spec["domain"]["cpu"] = {"sockets": 1, "maxSockets": 4}
    spec["domain"]["memory"] = {"guest": "1Gi", "maxGuest": "2Gi"}
    if user_data:
        spec["volumes"].append({"name": "seed", "cloudInitNoCloud": {"userData": user_data}})
        spec["domain"]["devices"]["disks"].append({"name": "seed", "disk": {"bus": "virtio"}})
    return vm


class Console:
    """The root shell on a guest's serial port."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._numbers = itertools.count(1)
        self._text = ""

    def close(self) -> None:
        self._socket.close()

    def wait_for_shell(self, assist: Callable[[], object], seconds: float = BOOT_SECONDS) -> None:
        """Return once the shell answers; `assist` is called after each attempt that failed."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(TimeoutError):
                self._run("dmesg -n 1; stty -echo; PS1=; PS2=", 5)
                return
            assert time.monotonic() < deadline, f"no shell: {self._text[-2000:]}"
            assist()

    def run(self, script: str, seconds: float = COMMAND_SECONDS) -> str:
        """Run a script, which must succeed; return what it printed."""
        status, text = self._run(script, seconds)
        assert status == 0, f"{script}: {status}: {text}"
        return text

    def _run(self, script: str, seconds: float) -> tuple[int, str]:
        number = next(self._numbers)
        # The shell puts the markers together: what a terminal echoes is none of them.
        begin, end = f"<{number}<", f">{number}>"
        line = (
            f"printf '%s%s\\n' '<{number}' '<'; {script}\nprintf '%s%s%s\\n' '>{number}' '>' $?\n"
        )
        self._socket.sendall(line.encode())
        deadline = time.monotonic() + seconds
        pattern = re.compile(rf"{re.escape(begin)}\r?\n(.*?){re.escape(end)}(\d+)", re.DOTALL)
        while (found := pattern.search(self._text)) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{script}: {self._text[-2000:]}")
            self._socket.settimeout(left)
            data = self._socket.recv(65536)
            assert data, f"the console was closed: {self._text[-2000:]}"
            self._text += data.decode(errors="replace")
        self._text = self._text[found.end() :]
        lines = _ESCAPES.sub("", found.group(1)).replace("\r", "").splitlines()
        kept = "\n".join(each for each in lines if not _KERNEL.match(each))
        return int(found.group(2)), kept.strip()


@dataclass(frozen=True, slots=True)
class Inside:
    """What the guest's kernel uses."""

    cpus: int
    memory: int  # bytes online, of those it booted with and those plugged since


class DebianGuest:
    """One running VM, edited through its manifest and looked at from inside."""

    def __init__(self, host: GuestHost, manifest: Object) -> None:
        self.host, self.manifest = host, manifest
        self.name: str = manifest["metadata"]["name"]
        self.console: Console
        self.used = False  # by a test
        self._total_at_boot = 0

    def start(self) -> None:
        """Boot it; return once its shell and its agent answer."""
        self.host.apply(self.manifest)
        until("QEMU", lambda: self.host.qemus(self.name))
        self.connect()
        self._total_at_boot = self._total()
        self.agent_is(True)

    def connect(self) -> None:
        """Open the console and wait for the shell."""
        line = Path(f"/proc/{self.host.qemu(self.name)}/cmdline").read_bytes()
        found = _SERIAL.search(line)
        assert found is not None
        path = found.group(1).decode()
        until("the serial port", lambda: Path(path).exists(), 10)
        self.console = Console(path)
        self.console.wait_for_shell(self._start_shell)

    def _start_shell(self) -> None:
        """Start the shell on the serial port if it should be there and is not.

        systemd gives up a serial port that does not appear in 90 s, as on an overloaded machine.
        """
        if self.host.holds("vmi", self.name, "AgentConnected"):
            unit = "serial-getty@ttyS0"
            self.host.attempt("livevirt", "exec", self.name, "--", "systemctl", "start", unit)

    # ------------------------------------------------------------ inside

    def inside(self) -> Inside:
        """Ask the kernel what it uses."""
        boot = parse(self.status["memory"]["guestAtBoot"]).bytes
        return Inside(int(self.console.run("nproc")), self._total() - self._total_at_boot + boot)

    def _total(self) -> int:
        return int(self.console.run("grep MemTotal: /proc/meminfo").split()[1]) * 1024

    def agent_is(self, connected: bool) -> None:
        """Wait until the instance reports that its agent is connected, or is not."""
        holds = lambda: self.host.holds("vmi", self.name, "AgentConnected") is connected  # noqa: E731
        until(f"agent connected: {connected}", holds, BOOT_SECONDS)

    def stop_agent(self) -> None:
        """Stop the agent; return once the instance says so."""
        self.console.run("systemctl stop qemu-guest-agent")
        self.agent_is(False)

    def start_agent(self, *blocked: str) -> None:
        """Start the agent again, without some of its commands; return once it is connected."""
        self.stop_agent()
        drop_in = "/run/systemd/system/qemu-guest-agent.service.d"
        self.console.run(f"rm -rf {drop_in}")
        if blocked:
            line = f"/usr/sbin/qemu-ga --block-rpcs={','.join(blocked)}"
            text = f"[Service]\\nExecStart=\\nExecStart={line}\\n"
            self.console.run(f"mkdir -p {drop_in}; printf '{text}' > {drop_in}/blocked.conf")
        self.console.run("systemctl daemon-reload; systemctl start qemu-guest-agent")
        self.agent_is(True)

    def set_auto_online(self, setting: str) -> None:
        """Change what the kernel does with new memory, as if it had booted that way."""
        self.console.run(f"echo {setting} > {AUTO_ONLINE}")
        self.start_agent()  # what was known of the guest is asked again

    def boot_id(self) -> str:
        """Return what the kernel calls its boot."""
        return self.console.run("cat /proc/sys/kernel/random/boot_id")

    def boot_again(self) -> str:
        """Return the same of a guest that is rebooting, once there is a shell."""
        self.console.wait_for_shell(self._start_shell)
        return self.boot_id()

    # ------------------------------------------------------------ the API's view

    @property
    def status(self) -> Object:
        found: Object = self.host.get("vmi", self.name)["status"]
        return found

    @property
    def reported(self) -> Inside:
        """What the status says the guest has."""
        status = self.status
        sockets = status["currentCPUTopology"]["sockets"]
        return Inside(sockets, parse(status["memory"]["guestCurrent"]).bytes)

    def given(self) -> Inside:
        """Return what the instance asks for."""
        domain = self.host.get("vmi", self.name)["spec"]["domain"]
        return Inside(domain["cpu"]["sockets"], parse(domain["memory"]["guest"]).bytes)

    def ask(self, sockets: int, memory: str) -> None:
        """Ask for a size with kubectl, and return while it is under way."""
        self.manifest = sized(self.manifest, sockets, memory)
        self.host.apply(self.manifest)

    def wait(self) -> str:
        """Wait as its owner does; return what `virtctl` prints."""
        return self.host.run("virtctl", "vm", "wait", self.name, "--timeout", "3m")

    def waits(self, type_: str, reason: str) -> None:
        """Wait until a change stands there."""
        until(f"{type_}: {reason}", lambda: self.reason(type_) == reason, CHANGE_SECONDS)

    def settles(self, sockets: int, memory: str) -> None:
        """Wait until the status and the guest have a size, and nothing is under way."""
        size = Inside(sockets, parse(memory).bytes)
        has = lambda: not self.changes() and self.reported == size  # noqa: E731
        until(f"{size} of {self.name}", has, CHANGE_SECONDS)
        assert self.inside() == size

    def becomes(self, sockets: int, memory: str) -> None:
        """Ask for a size; expect it in the status and inside the guest."""
        self.ask(sockets, memory)
        self.wait()
        size = Inside(sockets, parse(memory).bytes)
        assert (self.reported, self.inside()) == (size, size)

    def reason(self, type_: str) -> str:
        """Return the reason of a condition, "" if there is none."""
        return str(self.host.condition("vmi", self.name, type_).get("reason", ""))

    def changes(self) -> list[str]:
        """Return the types of changes under way, also of those not reported yet."""
        return hot_change.under_way(self.host.get("vmi", self.name))


@contextmanager
def booted(host: GuestHost, manifest: Object) -> Iterator[DebianGuest]:
    """Run a guest for as long as the block lasts."""
    guest = DebianGuest(host, manifest)
    try:
        guest.start()
        yield guest
    finally:
        if hasattr(guest, "console"):
            guest.console.close()
        host.discard(guest.name)
