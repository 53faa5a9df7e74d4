"""Real QEMU processes, started from a Machine and always ended again."""

import asyncio
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from livevirt.qemu.cmdline import argv
from livevirt.qemu.errors import Disconnected
from livevirt.qemu.machine import Cpu, Machine, Memory
from livevirt.qemu.session import Session

MIB = 1024 * 1024

if shutil.which("qemu-system-x86_64") is None:
    collect_ignore_glob = ["test_*"]


@dataclass
class Started:
    """A QEMU process and the session that drives it."""

    machine: Machine
    process: subprocess.Popen[bytes]
    qmp: Session


Start = Callable[..., AbstractAsyncContextManager[Started]]


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """Yield a directory short enough for socket paths, which pytest's own may not be."""
    with tempfile.TemporaryDirectory(prefix="lv-") as path:
        yield Path(path)


@pytest.fixture
def a_machine(run_dir: Path) -> Callable[..., Machine]:
    """Return a builder of small machines that wait, paused, with no OS."""

    def build(**changes: object) -> Machine:
        run = run_dir / uuid.uuid4().hex[:8]
        run.mkdir()
        settings: dict[str, object] = {
            "name": "guest",
            "uuid": str(uuid.uuid4()),
            "accelerator": "tcg",
            "cpu": Cpu(model="max"),
            "memory": Memory(boot=64 * MIB, max=64 * MIB),
            "run_dir": str(run),
            "serial_log": str(run / "serial.log"),
            "paused": True,
        }
        return Machine(**{**settings, **changes})  # type: ignore[arg-type]

    return build


def _spawn(machine: Machine) -> subprocess.Popen[bytes]:
    with Path(machine.run_dir, "stderr").open("wb") as stderr:
        return subprocess.Popen(
            argv(machine), stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
        )


def _complaint(machine: Machine) -> str:
    return Path(machine.run_dir, "stderr").read_text()


@asynccontextmanager
async def _start(machine: Machine, seconds: float = 120) -> AsyncIterator[Started]:
    process = _spawn(machine)
    try:
        async with asyncio.timeout(seconds), await _connect(machine, process) as qmp:
            yield Started(machine, process, qmp)
    finally:
        process.kill()
        process.wait()


async def _connect(machine: Machine, process: subprocess.Popen[bytes]) -> Session:
    while True:
        try:
            return await Session.connect(machine.qmp_socket)
        except Disconnected:
            if process.poll() is not None:
                pytest.fail(_complaint(machine))
            await asyncio.sleep(0.02)


@pytest.fixture(scope="session")
def guest_image() -> Path:
    """Return the test guest's disk, or skip: `make setup` builds it."""
    path = Path(__file__).parents[3] / ".cache/guest/guest.qcow2"
    if not path.exists():
        pytest.skip("the test guest has not been built")
    return path


@pytest.fixture
def start() -> Start:
    """Return the context manager that starts a machine and connects to it."""
    return _start
