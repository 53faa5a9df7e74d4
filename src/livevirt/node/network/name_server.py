"""The dnsmasq process: started so that it outlives us, found again, confined, ended."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import pwd
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from livevirt.files import private
from livevirt.node import process as processes
from livevirt.node.cgroups import Cgroups, PodCgroup
from livevirt.node.intent import Limits
from livevirt.node.network import dnsmasq, namespace
from livevirt.node.network.dnsmasq import Files
from livevirt.node.network.links import Design
from livevirt.node.network.namespace import NetworkError
from livevirt.node.network.port import GuestPort
from livevirt.node.process import Order, Process, SpawnFailed

log = logging.getLogger(__name__)

USER = "nobody"  # phrase: a Unix account
LIMITS = Limits(cpu_request=100, memory_limit=64 * 2**20)
_RESOLVERS = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))


class NameServer:
    """The DHCP and DNS server of a node network. `on_exit` is called when it has ended."""

    def __init__(self, files: Files, on_exit: Callable[[], None] = lambda: None) -> None:
        self._files, self._on_exit = files, on_exit
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None

    def write_leases(self, ports: Iterable[GuestPort]) -> None:
        """Write the leases of these ports and remove all others."""
        wanted = {dnsmasq.lease_file(port): dnsmasq.lease(port) for port in ports}
        self._write(self._files.leases, wanted)

    def write_names(self, names: str) -> None:
        """Write the names to resolve, as lines of a hosts file."""
        self._write(self._files.names, {"names": names})

    def _write(self, folder: Path, wanted: Mapping[str, str]) -> None:
        """Make a directory's files these; dnsmasq sees new ones by itself."""
        private.folders(folder)
        stale = False
        for file in folder.iterdir():
            if file.name not in wanted:
                file.unlink()
                stale = True
        for name, text in wanted.items():
            file = folder / name
            if file.exists():
                if file.read_text() == text:
                    continue
                stale = True
            file.write_text(text)
            _hand_over(file)
        if stale:
            self._reload()

    def _reload(self) -> None:
        """Have dnsmasq read its files again, which it does not do when one is removed."""
        found = self._process or self.find()
        if found is not None:
            processes.kill(found, signal.SIGHUP)

    def find(self) -> Process | None:
        """Return the process, if it runs."""
        if self._process is not None and processes.alive(self._process):
            return self._process
        return processes.find(self._argv, processes.all_pids())

    async def ensure(self, design: Design) -> None:
        """Start dnsmasq unless it runs with this configuration."""
        text = dnsmasq.configuration(design, self._files, servers(), USER)
        file = self._files.configuration
        found = self.find()
        if found is not None and (not file.exists() or file.read_text() != text):
            await self.stop()
            found = None
        if found is None:
            file.write_text(text)
            found = await self._spawn(design)
        if found != self._process:
            self._process = found
            if self._watch is not None:
                self._watch.cancel()
            self._watch = asyncio.create_task(self._wait_for_exit(found))

    async def _spawn(self, design: Design) -> Process:
        files, cgroup = self._files, self._cgroup
        for folder in (files.leases, files.names):
            private.folders(folder)
            _hand_over(folder)
        self._cgroups.create(cgroup)
        cgroup.apply(LIMITS)
        files.log.touch(private.FILE)
        lock = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, private.FILE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            enter = [namespace.program("ip") or "ip", "netns", "exec", design.namespace]
            order = Order([*enter, *self._argv], files.log, files.marker, lock, cgroup.procs)
            found = await processes.spawn(order)
        except (OSError, SpawnFailed) as error:
            raise NetworkError(f"dnsmasq did not start: {error}") from error
        finally:
            os.close(lock)
        if found is None:
            raise NetworkError(f"dnsmasq ended at once; its log is {files.log}")
        log.info("dnsmasq started", extra={"pid": found.pid})
        return found

    async def stop(self) -> None:
        """End dnsmasq, if it runs, and wait until it is gone."""
        if self._watch is not None:
            self._watch.cancel()
        found, self._process, self._watch = self.find(), None, None
        if found is not None:
            processes.kill(found)
            await processes.exited(found)
        with contextlib.suppress(OSError):
            self._cgroup.remove()

    def leave(self) -> None:
        """Stop watching dnsmasq, which runs on."""
        if self._watch is not None:
            self._watch.cancel()

    async def _wait_for_exit(self, process: Process) -> None:
        await processes.exited(process)
        log.warning("dnsmasq ended", extra={"pid": process.pid})
        self._process = None
        self._on_exit()

    @property
    def _argv(self) -> list[str]:
        return [namespace.program("dnsmasq") or "dnsmasq", *dnsmasq.arguments(self._files)]

    @property
    def _cgroups(self) -> Cgroups:
        return Cgroups.discover(f"network-{self._files.root.parent.name}", 1000)

    @property
    def _cgroup(self) -> PodCgroup:
        return self._cgroups.of("dnsmasq")


def _hand_over(path: Path) -> None:
    """Let the user that dnsmasq becomes read a file or directory."""
    with contextlib.suppress(KeyError):
        found = pwd.getpwnam(USER)
        os.chown(path, found.pw_uid, found.pw_gid, follow_symlinks=False)


def servers() -> list[str]:
    """Return the host's name servers, as far as the namespace reaches them."""
    for file in _RESOLVERS:
        with contextlib.suppress(OSError):
            found = dnsmasq.reachable(dnsmasq.nameservers(file.read_text()))
            if found:
                return found
    return []
