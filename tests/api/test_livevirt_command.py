"""The command `livevirt`: starting, looking, stopping, and saying clearly why not."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ..guest.previous_release import load
from ..server_process import BIN, COMMAND_SECONDS, short_directory

pytestmark = pytest.mark.slow
ANY_PORT = ("--listen", "127.0.0.1:0")


class Command:
    """`livevirt` and `kubectl` in an empty home, with a data directory beside it."""

    def __init__(self, root: Path) -> None:
        self.path = os.environ["PATH"]
        self.home, self.data, self.temporary = root / "home", root / "data", root / "tmp"
        self.home.mkdir()
        self.temporary.mkdir()

    def __call__(self, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self._run("livevirt", *args, **variables)

    def here(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run it on the data directory."""
        return self._run("livevirt", *args, "--data-dir", str(self.data))

    def kubectl(self, *args: str) -> str:
        done = self._run("kubectl", "--kubeconfig", str(self.data / "kubeconfig"), *args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(self, program: str, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": self.path, "HOME": str(self.home), **variables}
        environment["TMPDIR"] = str(self.temporary)
        return subprocess.run(
            [str(BIN / program), *args], env=environment, cwd=self.home,
            capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip


@pytest.fixture
def livevirt() -> Iterator[Command]:
    """The command with a data directory that nobody serves yet."""
    with short_directory() as root:
        command = Command(root)
        yield command
        command.here("down")


@pytest.fixture(scope="module")
def running() -> Iterator[Command]:
    """The command with a data directory that is served."""
    with short_directory() as root:
        command = Command(root)
        up = command.here("up", "--detach", *ANY_PORT)
        assert up.returncode == 0, up.stderr
        yield command
        command.here("down")


def test_up_detached_serves_until_down_and_keeps_its_objects(livevirt: Command) -> None:
    data = livevirt.data
    assert livevirt.here("status").returncode == 1
    up = livevirt.here("up", "--detach", *ANY_PORT)
    assert up.returncode == 0, up.stderr
    assert up.stdout.startswith("ready: https://127.0.0.1:")
    assert f"kubeconfig {data / 'kubeconfig'}" in up.stdout

    down = livevirt.here("down")
    assert (down.returncode, down.stdout) == (0, f"stopped livevirt on {data}\n")
    status = livevirt.here("status")
    assert (status.returncode, status.stdout) == (1, f"not running on {data}\n")
    again = livevirt.here("down")
    assert (again.returncode, again.stdout) == (0, f"no livevirt server is running for {data}\n")
    outside = [*livevirt.home.iterdir(), *livevirt.temporary.iterdir()]
    assert outside == [], "something was left outside the data directory"

    livevirt.here("up", "--detach", *ANY_PORT)
    livevirt.kubectl("create", "configmap", "kept", "--from-literal=x=1")
    livevirt.here("down")
    livevirt.here("up", "--detach", *ANY_PORT)
    assert livevirt.kubectl("get", "cm", "kept", "-o", "jsonpath={.data.x}") == "1"


def upgrade_page() -> list[list[str]]:
    """Return what the page on upgrades has people type, of our own commands."""
    page = Path(__file__).resolve().parents[2] / "docs" / "upgrade.md"
    lines = re.findall(r"^\$ livevirt (.*)$", page.read_text(), re.MULTILINE)
    return [line.split() for line in lines]


def test_an_upgrade_tells_of_its_backup_and_a_rollback_restores_it(livevirt: Command) -> None:
    livevirt.data.mkdir(mode=0o711)
    load(livevirt.data / "livevirt.db")
    nothing_boots = ("--image-store", str(livevirt.data / "no-images"), "--no-catalog")
    said = []
    for words in upgrade_page():
        more = (*ANY_PORT, *nothing_boots) if words[0] == "up" else ()
        done = livevirt.here(*words, *more)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        said.append(done.stdout)
        if words[0] == "up":
            refused = livevirt.here("rollback")
            assert (refused.returncode, "is in use by process" in refused.stderr) == (1, True)
    _, upgraded, _, listed, restored, again = said
    assert upgraded.startswith("upgraded the data of an older livevirt; backup ")
    assert f"livevirt rollback --data-dir {livevirt.data}" in upgraded
    assert re.fullmatch(r"upgrade-\S+\.db  data of livevirt before 0.2, saved .*\n", listed)
    assert restored.startswith(f"restored {listed.split()[0]}: data of livevirt before 0.2")
    assert again.startswith("upgraded "), "by this release, which is not the older one"
    livevirt.here("down")
    third = livevirt.here("up", "--detach", *ANY_PORT, *nothing_boots)
    assert third.stdout.startswith("ready: "), "said once"


def test_given_no_backup_then_a_rollback_says_so(livevirt: Command) -> None:
    livevirt.here("up", "--detach", *ANY_PORT)
    livevirt.here("down")
    none = livevirt.here("rollback")
    assert (none.returncode, "no upgrade has left a backup" in none.stderr) == (1, True)
    other = livevirt.here("rollback", "--to", "other.db")
    assert (other.returncode, "there is no backup other.db" in other.stderr) == (1, True)


def test_status_tells_where_it_runs(running: Command) -> None:
    status = running.here("status")
    assert status.returncode == 0
    assert status.stdout.startswith("running: https://127.0.0.1:")
    assert str(running.data / "kubeconfig") in status.stdout
    assert running.kubectl("get", "--raw", "/readyz") == "ok"


def test_the_kubeconfig_and_keys_are_for_their_owner_only(running: Command) -> None:
    kubeconfig = running.data / "kubeconfig"
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert yaml.safe_load(kubeconfig.read_text())["current-context"] == "livevirt"
    keys = [f for f in (running.data / "pki").iterdir() if b"PRIVATE KEY" in f.read_bytes()]
    assert keys
    assert [key for key in keys if stat.S_IMODE(key.stat().st_mode) & 0o077] == []


SECOND = {
    "detached": (["--detach"], "livevirt down --data-dir"),
    "in the foreground": ([], "stop it, or choose another data directory"),
}


@pytest.mark.parametrize(("how", "advice"), SECOND.values(), ids=SECOND)
def test_a_second_server_on_the_same_data_directory_is_refused(
    running: Command, how: list[str], advice: str
) -> None:
    second = running.here("up", *how, *ANY_PORT)
    assert second.returncode == 1
    assert str(running.data) in second.stderr
    assert advice in second.stderr
    assert "Traceback" not in second.stderr
    assert running.here("status").returncode == 0


@pytest.mark.parametrize("how", [["--detach"], []], ids=["detached", "in the foreground"])
def test_a_port_that_is_taken_is_refused_with_a_way_out(livevirt: Command, how: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = livevirt.here("up", *how, "--listen", f"127.0.0.1:{port}")
    assert up.returncode == 1
    assert f"port {port} of 127.0.0.1 is in use" in up.stderr
    assert "--listen 127.0.0.1:0" in up.stderr
    assert livevirt.here("status").returncode == 1


@pytest.mark.parametrize("how", [["--detach"], []], ids=["detached", "in the foreground"])
def test_a_data_directory_too_deep_for_sockets_is_refused(
    livevirt: Command, how: list[str]
) -> None:
    deep = livevirt.home / ("d" * 50) / ("e" * 50)
    up = livevirt("up", *how, *ANY_PORT, "--data-dir", str(deep))
    assert up.returncode == 1
    assert "too deep" in up.stderr
    assert "--data-dir" in up.stderr
    assert not deep.parent.exists()


def test_a_data_directory_that_is_a_file_is_refused(livevirt: Command) -> None:
    livevirt.data.write_text("mine")
    up = livevirt.here("up", "--detach", *ANY_PORT)
    assert up.returncode == 1
    assert up.stderr.startswith(("error: ", "Usage: "))
    assert livevirt.data.read_text() == "mine"


@pytest.mark.parametrize("how", [["--detach"], []], ids=["detached", "in the foreground"])
def test_a_machine_without_qemu_is_refused_before_it_says_ready(
    livevirt: Command, how: list[str]
) -> None:
    livevirt.path = str(livevirt.home)
    up = livevirt.here("up", *how, *ANY_PORT)
    assert (up.returncode, up.stdout) == (1, "")
    assert "qemu-system-x86_64 and qemu-img are not installed" in up.stderr
    assert "apt-get install --no-install-recommends qemu-system-x86 qemu-utils" in up.stderr
    assert "Traceback" not in up.stderr
    assert livevirt.here("status").returncode == 1


def test_a_stranger_with_the_id_of_a_server_that_was_killed_is_left_alone(
    livevirt: Command,
) -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)", "livevirt-notes"]
    with subprocess.Popen(sleeps) as stranger:
        try:
            livevirt.data.mkdir()
            (livevirt.data / "livevirt.pid").write_text(f"{stranger.pid}\n")
            assert livevirt.here("status").stdout == f"not running on {livevirt.data}\n"
            up = livevirt.here("up", "--detach", *ANY_PORT)
            assert up.returncode == 0, up.stderr
            assert livevirt.here("down").stdout == f"stopped livevirt on {livevirt.data}\n"
            assert stranger.poll() is None
        finally:
            stranger.kill()


USAGE = {
    "no such command": ["fly"],
    "no such option": ["up", "--nope"],
    "an address without a port": ["up", "--listen", "127.0.0.1"],
    "a port that is none": ["up", "--listen", "127.0.0.1:70000"],
    "a port that is no number": ["up", "--listen", "127.0.0.1:²"],
    "a host that is none": ["up", "--listen", "a..b:0"],
    "a level that is none": ["up", "--log-level", "loud"],
    "an option without its value": ["down", "--data-dir"],
}


@pytest.mark.parametrize("args", USAGE.values(), ids=USAGE)
def test_a_wrong_usage_is_explained_and_exits_with_1(livevirt: Command, args: list[str]) -> None:
    done = livevirt(*args)
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["up", "down", "status", "crds"])
def test_help_has_examples(livevirt: Command, command: str) -> None:
    shown = livevirt(command, "--help").stdout
    assert f"livevirt {command}" in shown.partition("\n")[2]
    assert f"livevirt {command}" in livevirt(command, "-h").stdout


def test_help_of_the_command_itself_shows_the_way_from_start_to_stop(livevirt: Command) -> None:
    shown = livevirt("--help").stdout
    for line in ("livevirt up --detach", "export KUBECONFIG=", "kubectl get", "livevirt down"):
        assert line in shown


def test_crds_prints_definitions_that_can_be_applied(livevirt: Command) -> None:
    printed = list(yaml.safe_load_all(livevirt("crds").stdout))
    assert {crd["kind"] for crd in printed} == {"CustomResourceDefinition"}
    assert "virtualmachines.kubevirt.io" in {crd["metadata"]["name"] for crd in printed}


def imported(command: Command, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Import a small disk into a claim of its own."""
    file = command.home / "disk.raw"
    file.write_bytes(b"\0" * 4096)
    return command("volume", "import", str(file), *flags, **variables)


@pytest.mark.parametrize("copied", [False, True], ids=["its own file", "a copy"])
def test_volume_import_finds_its_server_by_kubeconfig(running: Command, copied: bool) -> None:
    kubeconfig = running.data / "kubeconfig"
    if copied:
        kubeconfig = running.home / "copied-kubeconfig"
        shutil.copy(running.data / "kubeconfig", kubeconfig)
    name = f"by-variable-{copied}".lower()
    done = imported(running, "--pvc", name, KUBECONFIG=str(kubeconfig))
    assert done.returncode == 0, done.stderr
    assert running.kubectl("get", "pvc", name, "-o", "jsonpath={.status.phase}") == "Bound"
    name = f"by-flag-{copied}".lower()
    done = imported(running, "--pvc", name, "--kubeconfig", str(kubeconfig), "-n", "kube-public")
    assert done.returncode == 0, done.stderr
    assert running.kubectl("get", "pvc", name, "-n", "kube-public", "-o", "name")


def test_volume_import_takes_the_namespace_of_the_context(running: Command) -> None:
    kubeconfig = yaml.safe_load((running.data / "kubeconfig").read_text())
    kubeconfig["contexts"][0]["context"]["namespace"] = "kube-public"
    file = running.home / "of-a-namespace"
    file.write_text(yaml.safe_dump(kubeconfig))
    assert imported(running, "--pvc", "mine", KUBECONFIG=str(file)).returncode == 0
    assert running.kubectl("get", "pvc", "mine", "-n", "kube-public", "-o", "name")


def test_volume_import_refuses_a_server_of_another_machine(running: Command) -> None:
    kubeconfig = yaml.safe_load((running.data / "kubeconfig").read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    file = running.home / "elsewhere"
    file.write_text(yaml.safe_dump(kubeconfig))
    done = imported(running, "--pvc", "nowhere", KUBECONFIG=str(file))
    assert done.returncode == 1
    assert "https://127.0.0.1:1" in done.stderr
    assert running.kubectl("get", "pvc", "nowhere", "--ignore-not-found", "-o", "name") == ""
