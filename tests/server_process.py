"""A real `livevirt up`, in a process and a data directory of its own."""

from __future__ import annotations

import base64
import functools
import os
import select
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

BIN = Path(sys.executable).parent
START_SECONDS = 60.0  # far more than it takes; other work may keep the machine busy
COMMAND_SECONDS = 60.0


@contextmanager
def short_directory() -> Iterator[Path]:
    """Make a directory whose path leaves room for sockets, which pytest's own may not."""
    path = Path(tempfile.mkdtemp(prefix="lv-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@dataclass
class ServerProcess:
    """One data directory, and the process that serves it while there is one."""

    home: Path
    url: str = ""
    flags: tuple[str, ...] = ()  # of `livevirt up`, beside those every test needs
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def kubeconfig(self) -> Path:
        return self.data / "kubeconfig"

    @property
    def ca(self) -> Path:
        return self.data / "pki" / "ca.crt"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *program: str) -> None:
        """Start it, as `livevirt` or another program, and return once it says it is ready."""
        command = [*(program or [str(BIN / "livevirt")]), "up", "--data-dir", str(self.data)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--listen", "127.0.0.1:0", *self.flags],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = _line(self._process.stdout)
        if not line.startswith("ready: "):
            self.kill()
            raise AssertionError(f"the server said {line!r}; its log:\n{self.log.read_text()}")
        self.url = line.removeprefix("ready: ").partition(",")[0]

    def alive(self) -> bool:
        """Tell whether the process started last is still there."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it the hard way, at whatever it is doing."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to stop; return its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(COMMAND_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
            self._process = None

    # ------------------------------------------------------------ its administrator

    def environment(self) -> dict[str, str]:
        """Return variables that make kubectl use this server and nothing of the user's."""
        return {
            "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
            "HOME": str(self.home),
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.home / "cache"),
            "LC_ALL": "C.UTF-8",
        }

    def run_kubectl(
        self, *args: str, input: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the real kubectl and return what came of it."""
        return subprocess.run(
            [str(BIN / "kubectl"), *args], input=input, env=self.environment() | (env or {}),
            cwd=self.home, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip

    def kubectl(self, *args: str, input: str = "", env: dict[str, str] | None = None) -> str:
        """Run the real kubectl, which must succeed; return what it printed."""
        done = self.run_kubectl(*args, input=input, env=env)
        shown = f"kubectl {' '.join(args)}\n{done.stdout}{done.stderr}"
        if not self.alive():
            shown += f"the server has ended:\n{self.log.read_text()[-3000:]}"
        assert done.returncode == 0, shown
        return done.stdout

    @functools.cached_property
    def token(self) -> str:
        """A bearer token; everybody who authenticates is an administrator."""
        self.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
        return self.kubectl("create", "token", "default").strip()

    def trust(self) -> ssl.SSLContext:
        """Return a TLS context that trusts this server and shows no certificate."""
        return ssl.create_default_context(cafile=str(self.ca))

    def admin(self) -> ssl.SSLContext:
        """Return a TLS context that shows the administrator's certificate."""
        context = self.trust()
        user: dict[str, Any] = yaml.safe_load(self.kubeconfig.read_text())["users"][0]["user"]
        parts = (user["client-certificate-data"], user["client-key-data"])
        with tempfile.NamedTemporaryFile() as pair:  # of its own: threads of a test share us
            pair.write(b"\n".join(base64.b64decode(part) for part in parts))
            pair.flush()
            context.load_cert_chain(pair.name)
        return context


@contextmanager
def running_server() -> Iterator[ServerProcess]:
    """Run a server for as long as the block lasts."""
    with short_directory() as home:
        server = ServerProcess(home)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _line(stream: IO[bytes]) -> str:
    """Return the first line of a process' output, or "" if it ends or says nothing."""
    if not select.select([stream], [], [], START_SECONDS)[0]:
        return ""
    return stream.readline().decode()
