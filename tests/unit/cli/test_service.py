"""The systemd unit, and what `livevirt service` does with it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from livevirt.cli import service as module
from livevirt.cli.livevirt import cli
from livevirt.cli.service import UNIT, Service, quoted, unit

SERVICES = {
    "plain": Service((sys.executable, "-m", "livevirt"), Path("/var/lib/livevirt")),
    "with flags": Service((sys.executable,), Path("/d"), ("--nodes", "2")),
    "odd words": Service((sys.executable,), Path("/a b/50%/$HOME/q\"u'o\\te;ä")),
    "of a user": Service((sys.executable,), Path("/home/a/vms"), user=True),
}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_systemd_accepts_the_unit(service: Service, tmp_path: Path) -> None:
    file = tmp_path / UNIT
    file.write_text(unit(service))
    whose = ["--user"] if service.user else []
    done = subprocess.run(
        ["systemd-analyze", *whose, "verify", "--man=no", file],
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, UNIT in done.stderr) == (0, False), done.stderr


WORDS = {
    "/usr/bin/python3": "/usr/bin/python3",
    "cpu=4,memory=8Gi": "cpu=4,memory=8Gi",
    "a b": '"a b"',
    "50%": "50%%",
    "$HOME": "$$HOME",
    'say "hi" \\': '"say \\"hi\\" \\\\"',
    "": '""',
    ";": '";"',
}


@pytest.mark.parametrize(("word", "written"), WORDS.items())
def test_a_word_is_written_so_that_systemd_reads_it_back(word: str, written: str) -> None:
    assert quoted(word) == written


def test_a_stop_ends_the_server_and_no_guest() -> None:
    text = unit(SERVICES["plain"])
    assert "\nKillMode=process\n" in text
    assert "\nDelegate=yes\n" in text
    assert "ExecStop=" not in text


@pytest.mark.parametrize(("state", "said"), [("stopping", "down --guests stop"), ("running", "")])
def test_guests_are_shut_down_with_the_machine_only(state: str, said: str, tmp_path: Path) -> None:
    script(tmp_path / "systemctl", f"echo {state}")
    script(tmp_path / "livevirt", 'echo "$1 $4 $5" "$3"')
    text = unit(Service((str(tmp_path / "livevirt"),), Path("/a b/$HOME")))
    found = re.search(r"^ExecStopPost=(.*)$", text, re.MULTILINE)
    assert found is not None
    command = [word.replace("$$", "$").replace("%%", "%") for word in shlex.split(found[1])]
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (f"{said} /a b/$HOME" if said else "")


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


class Machine:
    """A machine whose systemctl only writes down what it is told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.units = root / "units"
        self.answer("exit 0")

    def answer(self, body: str) -> None:
        script(self.root / "systemctl", f'echo "$@" >> {self.root}/told\n{body}')

    def __call__(self, *args: str) -> Result:
        return CliRunner().invoke(cli, ["service", *args])

    def told(self) -> list[str]:
        """Return what systemctl was told since it was asked last."""
        file = self.root / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(module, "BOOTED", tmp_path)
    monkeypatch.setattr(module, "SYSTEM_UNITS", tmp_path / "units")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return Machine(tmp_path)


def test_it_is_installed_changed_looked_at_and_removed(machine: Machine) -> None:
    first = machine("install", "--data-dir", "/d")
    assert first.exit_code == 0, first.output
    assert machine.told() == ["daemon-reload", f"enable {UNIT}", f"restart {UNIT}"]
    file = machine.units / UNIT
    assert str(file) in first.output
    assert " up --data-dir /d\n" in file.read_text()
    assert machine("install", "--data-dir", "/d", "--", "--nodes", "2").exit_code == 0
    assert " up --data-dir /d --nodes 2\n" in file.read_text()
    machine.told()
    shown = machine("status")
    assert (shown.exit_code, "running, enabled at boot" in shown.output) == (0, True)
    machine.answer("exit 3")
    stopped = machine("status")
    assert (stopped.exit_code, "not running, disabled" in stopped.output) == (1, True)
    machine.answer("exit 0")
    machine.told()
    gone = machine("uninstall")
    assert "guests keep running" in gone.output
    assert machine.told() == [f"disable --now {UNIT}", "daemon-reload"]
    assert not file.exists()


def test_a_user_has_a_service_of_their_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = machine("install", "--data-dir", "/d")
    assert "loginctl enable-linger" in done.output
    assert machine.told()[0] == "--user daemon-reload"
    file = machine.root / "config" / "systemd" / "user" / UNIT
    assert "WantedBy=default.target" in file.read_text()
    assert "needs root" in str(machine("install", "--system").exception)


def test_a_dry_run_prints_the_unit_and_changes_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BOOTED", machine.root / "no systemd")
    done = machine("install", "--dry-run", "--data-dir", "/d")
    assert done.output == unit(Service((sys.executable, "-m", "livevirt"), Path("/d")))
    assert machine.told() == []
    assert not machine.units.exists()


REFUSED = {
    "a flag that up lacks": (("--", "--sockets", "2"), click.UsageError, "sockets"),
    "a value that up refuses": (("--", "--nodes", "0"), click.UsageError, "0 is not in"),
    "in the background": (("--", "--detach"), click.UsageError, "--detach has no use"),
}


@pytest.mark.parametrize(("flags", "kind", "why"), REFUSED.values(), ids=REFUSED)
def test_what_up_would_refuse_is_refused_before(
    machine: Machine, flags: tuple[str, ...], kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind) as refused:
        cli.main(["service", "install", *flags], standalone_mode=False)
    assert why in str(refused.value)
    assert not machine.units.exists()


def test_problems_are_named_with_what_to_do(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is not installed" in str(machine("status").exception)
    assert "is not installed" in str(machine("uninstall").exception)
    machine.answer("echo no bus >&2; exit 1")
    assert "failed: no bus; see: journalctl -u livevirt" in str(machine("install").exception)
    monkeypatch.setattr(module.process, "running_pid", lambda data: 4711)
    said = str(machine("install", "--data-dir", "/d").exception)
    assert "process 4711), not as a service" in said
    assert "livevirt down --data-dir /d" in said
    monkeypatch.setattr(module, "BOOTED", machine.root / "no systemd")
    assert "systemd does not run" in str(machine("install").exception)
