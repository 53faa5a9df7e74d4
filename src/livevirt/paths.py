"""Where things lie below a data directory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from livevirt.errors import LivevirtError

_SOCKET_LIMIT = 107  # bytes of a unix socket's path on Linux, less the final NUL
_LONGEST_SOCKET = "run/01234567/serial0.sock"


class DataDirError(LivevirtError):
    """The data directory cannot be used."""


def default_data_dir() -> Path:
    """Return the data directory used when none is named.

    For root it is below /var/lib, where an unprivileged QEMU can reach its disks.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/livevirt")
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    return Path(home) / "livevirt"


@dataclass(frozen=True, slots=True)
class DataDir:
    """One installation's files."""

    root: Path

    @property
    def database(self) -> Path:
        """The SQLite database."""
        return self.root / "livevirt.db"

    @property
    def backups(self) -> Path:
        """Copies of the database: one from before each upgrade and each rollback."""
        return self.root / "backups"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def pid(self) -> Path:
        """The process id of the running server."""
        return self.root / "livevirt.pid"

    @property
    def log(self) -> Path:
        """What a detached server printed."""
        return self.root / "livevirt.log"

    @property
    def accelerator(self) -> Path:
        """What the probe of the accelerator found."""
        return self.root / "accelerator.json"

    @property
    def reserve(self) -> Path:
        """Space that is released when the disk is full."""
        return self.root / "reserve"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def volumes(self) -> Path:
        """Directories of persistent volumes."""
        return self.root / "volumes"

    @property
    def scratch(self) -> Path:
        """Disks that end with their guests."""
        return self.root / "guests"

    @property
    def nodes(self) -> Path:
        """What each node keeps of its pods."""
        return self.root / "nodes"

    @property
    def run(self) -> Path:
        """Sockets of running guests."""
        return self.root / "run"

    @property
    def network(self) -> Path:
        """Addresses, leases and the name server of the node network."""
        return self.root / "network"

    @property
    def contents(self) -> tuple[Path, ...]:
        """Everything of ours in the directory, which may hold other files too."""
        database = (
            self.root / f"{self.database.name}{end}" for end in ("", "-wal", "-shm", ".lock")
        )
        files = (self.kubeconfig, self.pid, self.log, self.accelerator, self.reserve)
        folders = (
            self.pki, self.backups, self.volumes, self.scratch, self.nodes, self.run, self.network,
        )  # fmt: skip
        return (*database, *files, *folders)

    def check(self) -> None:
        """Refuse a directory whose sockets would have paths too long for the kernel."""
        longest = len(os.fsencode(self.root / _LONGEST_SOCKET))
        if longest > _SOCKET_LIMIT:
            raise DataDirError(
                f"the data directory {self.root} is too deep: a guest's socket below it would need"
                f" a path of {longest} bytes and the kernel allows {_SOCKET_LIMIT}."
                " Choose a shorter one with --data-dir."
            )
