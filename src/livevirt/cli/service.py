"""`livevirt service`: run the server as a systemd service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from livevirt.cli import process
from livevirt.errors import LivevirtError
from livevirt.files import durable
from livevirt.paths import DataDir, default_data_dir

UNIT = "livevirt.service"
SYSTEM_UNITS = Path("/etc/systemd/system")
BOOTED = Path("/run/systemd/system")  # there if systemd runs this machine: sd_booted(3)


class ServiceError(LivevirtError):
    """The service could not be installed, changed or asked."""


# ---------------------------------------------------------------- pure


@dataclass(frozen=True, slots=True)
class Service:
    """What the unit file depends on."""

    command: tuple[str, ...]  # that `livevirt` is run by
    data_dir: Path
    flags: tuple[str, ...] = ()  # of `livevirt up`
    user: bool = False  # a unit of the user's own systemd instead of the system's


def quoted(word: str) -> str:
    """Return a word as systemd reads it in a command line: systemd.service(5)."""
    word = word.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./$-]+", word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def unit(service: Service) -> str:
    """Return the unit file.

    Guests are children of the server that outlive it, so a stop ends the main process only.
    They are shut down when the whole machine, or the user's session, goes down.
    """
    up = " ".join(map(quoted, (*service.command, "up", *_where(service), *service.flags)))
    down = " ".join(map(quoted, (*service.command, "down", *_where(service), "--guests", "stop")))
    systemctl = "systemctl --user" if service.user else "systemctl"
    stopping = f'test "$$({systemctl} is-system-running)" != stopping'
    target = "default.target" if service.user else "multi-user.target"
    return f"""\
# Written by `livevirt service install`, which replaces it when run again.
[Unit]
Description=livevirt: KubeVirt's API and the virtual machines of {_plain(service.data_dir)}
{"" if service.user else "After=network.target local-fs.target" + chr(10)}\
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=exec
ExecStart={up}
# Guests keep running when the service stops or restarts, and are found again.
KillMode=process
Delegate=yes
OOMPolicy=continue
TasksMax=infinity
# They are shut down only when the machine goes down.
ExecStopPost=/bin/sh -c '{stopping} || exec "$$@"' livevirt {down}
TimeoutStopSec=5min
Restart=on-failure
RestartSec=2

[Install]
WantedBy={target}
"""


def _where(service: Service) -> tuple[str, str]:
    return "--data-dir", str(service.data_dir)


def _plain(path: Path) -> str:
    """Return a path for a text that people read; `%` has a meaning in every setting."""
    return str(path).replace("%", "%%").encode("ascii", "replace").decode()


# ---------------------------------------------------------------- commands

_user = click.option(
    "--user/--system",
    "user",
    default=None,
    help="Use your own systemd or the system's (default: the system's as root, else your own).",
)


@click.group()
def service() -> None:
    """Run livevirt as a systemd service.

    Guests keep running while the service restarts, for example after an upgrade.

    \b
    livevirt service install          # start now and at every boot
    systemctl restart livevirt        # guests keep running
    livevirt service uninstall        # guests keep running
    """


@service.command()
@_user
@process.data_dir_option
@click.option("--dry-run", is_flag=True, help="Print the unit file and change nothing.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def install(
    user: bool | None, data_dir: Path | None, dry_run: bool, flags: tuple[str, ...]
) -> None:
    """Install and start the service; run again, it takes the new settings.

    Flags of `livevirt up` follow after two dashes.

    \b
    livevirt service install
    livevirt service install -- --nodes 2 --listen 127.0.0.1:7443
    livevirt service install --user --data-dir ~/vms
    livevirt service install --dry-run
    """
    own = _own(user)
    data = DataDir((data_dir or default_data_dir()).absolute())
    data.check()
    _check_flags(flags)
    text = unit(Service((sys.executable, "-m", "livevirt"), data.root, flags, own))
    if dry_run:
        click.echo(text, nl=False)
        return
    _need_systemd()
    file = unit_file(own)
    pid = process.running_pid(data)
    if pid is not None and not _is(own, "active"):
        raise ServiceError(
            f"livevirt already runs on {data.root} (process {pid}), not as a service. Stop it"
            f" first, its guests keep running: livevirt down --data-dir {data.root}"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    durable.write(file, text.encode(), 0o644)
    _systemctl(own, "daemon-reload")
    _systemctl(own, "enable", UNIT)
    _systemctl(own, "restart", UNIT)
    click.echo(f"installed {file}; kubeconfig {data.kubeconfig}; log: {_journal(own)}")
    if own:
        click.echo("it stops when you log out, unless you run: loginctl enable-linger")


@service.command()
@_user
def uninstall(user: bool | None) -> None:
    """Stop and remove the service; data and running guests stay.

    \b
    livevirt service uninstall
    livevirt service uninstall --user
    """
    own = _own(user)
    file = _installed(own)
    _need_systemd()
    _systemctl(own, "disable", "--now", UNIT)
    file.unlink()
    _systemctl(own, "daemon-reload")
    click.echo(f"removed {file}; guests keep running: stop them with livevirt down --guests stop")


@service.command()
@_user
def status(user: bool | None) -> None:
    """Print whether the service runs and starts at boot; exit 1 if it does not run.

    \b
    livevirt service status
    livevirt service status --user
    """
    own = _own(user)
    file = _installed(own)
    _need_systemd()
    active = _is(own, "active")
    state = "running" if active else "not running"
    boot = "enabled" if _is(own, "enabled") else "disabled"
    click.echo(f"{UNIT}: {state}, {boot} at boot, {file}; log: {_journal(own)}")
    if not active:
        raise click.exceptions.Exit(1)


# ---------------------------------------------------------------- systemd


def unit_file(user: bool) -> Path:
    """Return where the unit file belongs."""
    if not user:
        return SYSTEM_UNITS / UNIT
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(config) / "systemd" / "user" / UNIT


def _own(user: bool | None) -> bool:
    own = os.geteuid() != 0 if user is None else user
    if not own and os.geteuid() != 0:
        raise ServiceError("a service of the system needs root; without it, use --user")
    return own


def _installed(own: bool) -> Path:
    file = unit_file(own)
    if not file.exists():
        raise ServiceError(
            f"the service is not installed: there is no {file}; install it with"
            " `livevirt service install`"
        )
    return file


def _check_flags(flags: tuple[str, ...]) -> None:
    """Refuse what `livevirt up` would refuse, before a unit is written that cannot start."""
    from livevirt.cli.livevirt import up

    given = up.make_context("livevirt up", list(flags)).params
    if given["detach"] or given["data_dir"]:
        raise click.UsageError(
            "--detach has no use in a service, and --data-dir belongs before the two dashes"
        )


def _need_systemd() -> None:
    if not BOOTED.is_dir():
        raise ServiceError(
            "systemd does not run on this machine; use livevirt up --detach, or print the unit"
            " for another one with livevirt service install --dry-run"
        )


def _command(own: bool, *words: str) -> list[str]:
    return ["systemctl", *(["--user"] if own else []), *words]


def _systemctl(own: bool, *words: str) -> None:
    command = _command(own, *words)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceError(
            f"{' '.join(command)} failed: {done.stderr.strip() or done.returncode};"
            f" see: {_journal(own)}"
        )


def _is(own: bool, state: str) -> bool:
    command = _command(own, f"is-{state}", "--quiet", UNIT)
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _journal(own: bool) -> str:
    return f"journalctl {'--user ' if own else ''}-u livevirt"
