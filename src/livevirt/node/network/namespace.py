"""Runs `ip` and `nft`, and does in the network namespace what takes a thread inside it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import struct
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from livevirt.errors import LivevirtError

T = TypeVar("T")

#: Program → Debian's package of it.
PROGRAMS = {"ip": "iproute2", "nft": "nftables", "dnsmasq": "dnsmasq-base"}
_NAMESPACES = Path("/run/netns")
_LOCK = Path("/run/livevirt-network.lock")  # `ip netns add` locks the directory itself
_TUN = Path("/dev/net/tun")
_SYSCTL = Path("/proc/sys/net")
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_TAP, _NO_PI, _VNET_HEADER = 0x0002, 0x1000, 0x4000  # IFF_… of linux/if_tun.h


class NetworkError(LivevirtError):
    """A command about the network failed; the message is what it printed."""


def program(name: str) -> str | None:
    """Return the path of a program, also of one that only root's PATH has."""
    return shutil.which(name, path=_PATH)


def problem() -> str:
    """Return why this machine cannot have a node network; empty if it can."""
    if os.geteuid() != 0:
        return "livevirt does not run as root"
    missing = [name for name in PROGRAMS if program(name) is None]
    if missing:
        packages = " ".join(PROGRAMS[name] for name in missing)
        return f"not installed: {', '.join(missing)} (Debian: apt-get install {packages})"
    if not _TUN.exists():
        return f"there is no {_TUN}"
    failure: list[str] = []
    # The namespace ends with the thread.
    probe = threading.Thread(target=_try_namespace, args=(failure,))
    probe.start()
    probe.join()
    return failure[0] if failure else ""


def _try_namespace(failure: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        failure.append(f"network namespaces are not permitted: {os.strerror(ctypes.get_errno())}")


async def run(*command: str, input: str = "") -> str:
    """Run a command; return what it printed, or raise NetworkError."""
    # In a thread, because uvloop fails when a process ends before it has read its input.
    done = await asyncio.to_thread(
        subprocess.run,
        [program(command[0]) or command[0], *command[1:]],
        input=input,
        capture_output=True,
        text=True,
        env={"PATH": _PATH, "LC_ALL": "C.UTF-8"},
        check=False,
    )
    if done.returncode != 0:
        printed = done.stderr.strip() or f"status {done.returncode}"
        raise NetworkError(f"{' '.join(command)}: {printed}")
    return done.stdout


async def ask(*command: str) -> list[dict[str, Any]]:
    """Return what `ip -j` lists."""
    found = json.loads(await run("ip", "-j", *command) or "[]")
    return [each for each in found if each]


async def batch(lines: Sequence[str], namespace: str = "") -> None:
    """Run lines of `ip`, in a namespace if one is named."""
    if lines:
        where = ("-n", namespace) if namespace else ()
        await run("ip", *where, "-batch", "-", input="\n".join(lines) + "\n")


@contextlib.asynccontextmanager
async def machine_lock() -> AsyncIterator[None]:
    """Keep other livevirts of this machine from choosing addresses meanwhile."""
    handle = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def exists(namespace: str) -> bool:
    """Return whether a namespace of that name is there and not merely its file."""
    path = _NAMESPACES / namespace
    try:
        return path.stat().st_dev != _NAMESPACES.stat().st_dev  # a namespace is mounted on it
    except FileNotFoundError:
        return False


class Inside:
    """A thread in a network namespace. Sockets and devices that it opens belong there."""

    def __init__(self, namespace: str) -> None:
        path = _NAMESPACES / namespace
        self._executor = ThreadPoolExecutor(1, "netns", initializer=_enter, initargs=(path,))

    async def call(self, work: Callable[[], T]) -> T:
        """Return what `work` returns in the namespace."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(wait=False)


def _enter(path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(handle, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter the network namespace", str(path))
    finally:
        os.close(handle)


def open_tap(name: str) -> int:
    """Return a descriptor of a tap device, which is made; it goes when the last one is closed.

    To be called in the namespace.
    """
    handle = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        request = struct.pack("16sH22x", name.encode(), _TAP | _NO_PI | _VNET_HEADER)
        fcntl.ioctl(handle, _TUNSETIFF, request)
    except OSError:
        os.close(handle)
        raise
    return handle


def set_sysctls(wanted: Mapping[str, str]) -> None:
    """Set what differs, by path below /proc/sys/net: of the namespace that the thread is in."""
    for path, value in wanted.items():
        file = _SYSCTL / path
        with contextlib.suppress(FileNotFoundError):  # no IPv6
            if file.read_text().strip() != value:
                file.write_text(value)


def forwards(link: str) -> bool:
    """Return whether the host forwards IPv4 packets that come from a link."""
    try:
        return (_SYSCTL / f"ipv4/conf/{link}/forwarding").read_text().strip() == "1"
    except OSError:
        return True  # there is nothing to switch on


def set_forwarding(links: Iterable[str], *, on: bool) -> None:
    """Have the host forward IPv4 packets that come from these links, or no longer."""
    set_sysctls({f"ipv4/conf/{link}/forwarding": "1" if on else "0" for link in links})


def host_has_ipv6() -> bool:
    """Return whether links of the host may have IPv6 addresses."""
    try:
        return (_SYSCTL / "ipv6/conf/all/disable_ipv6").read_text().strip() == "0"
    except OSError:
        return False
