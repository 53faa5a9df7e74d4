"""Guests whose VM names an instance type as its size, and what the requirements do with them."""

from __future__ import annotations

import copy
import itertools
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ..server_process import BIN
from .guest_host import IMAGE, GuestHost, Object, until
from .live_guest import CHANGE_SECONDS, LiveGuest

Size = tuple[int, str]  # sockets and memory

_REQUIREMENTS = Path(__file__).parents[3] / "shared" / "requirements"
SWITCHING = _REQUIREMENTS / "000_f04218b0973983b3.txt"
CUSTOM = _REQUIREMENTS / "002_f5ab7d91a2272281.txt"

_KUBECTL = re.compile(r"^\./cluster-up/kubectl\.sh (.+)$", re.MULTILINE)
_IMAGE = re.compile(r"(?<=image: )\S+alpine-container-disk-demo\S*")
#: What another way of changing the size needs, and what the catalog brings by itself.
_LEFT_OUT = ("virtualmachineinstancemigrations", "HotMemoryChange", "apply ")


class SizedGuest(LiveGuest):
    """One VM, and the size that it is to have; what it names is changed by the test."""

    def __init__(self, host: GuestHost, manifest: Object, size: Size) -> None:
        super().__init__(host, manifest)
        self.size = size

    @property
    def asked(self) -> Size:
        return self.size

    # ------------------------------------------------------------ its instance type

    @property
    def reference(self) -> Object:
        """What the status says it is sized by."""
        found: Object = self.host.get("vm", self.name)["status"]["instancetypeRef"]
        return found

    @property
    def revision(self) -> str:
        """The ControllerRevision it goes by."""
        return str(self.reference["controllerRevisionRef"]["name"])

    def patch(self, **matcher: Any) -> None:
        """Change what the VM names, with kubectl, and the owner's file with it."""
        self.manifest = copy.deepcopy(self.manifest)
        self.manifest["spec"]["instancetype"] |= matcher
        patch = json.dumps({"spec": {"instancetype": matcher}})
        self.host.server.kubectl("patch", f"vms/{self.name}", "--type", "merge", "-p", patch)

    def update(self, to: str) -> subprocess.CompletedProcess[str]:
        """Switch it as its owner does who waits for the end; return what came of that."""
        name = to.rpartition("/")[2]
        self.manifest = copy.deepcopy(self.manifest)
        self.manifest["spec"]["instancetype"]["name"] = name
        self.manifest["spec"]["instancetype"].pop("revisionName", None)
        command = ("vm", "update-instance-type", self.name, to, "--wait")
        return self.host.attempt("virtctl", *command)

    def has(self, size: Size) -> None:
        """Expect a size everywhere, and a VM as the owner's file says."""
        self.size = size
        self.has_what_it_asked_for()

    def restart_required(self) -> Object:
        return self.host.condition("vm", self.name, "RestartRequired")

    def newer(self) -> Object:
        return self.host.condition("vm", self.name, "NewerInstancetype")


@contextmanager
def booted(guest: SizedGuest) -> Iterator[SizedGuest]:
    """Let a VM that was applied boot, and exist for as long as the block lasts."""
    try:
        guest.begin()
        yield guest
    finally:
        guest.host.delete(guest.name)


# ------------------------------------------------------------ a recorded watch


class Recording:
    """The states of one condition of an instance, as a watch shows them."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def states(self) -> list[str]:
        """Each state once for as long as it lasted; "" is: there is none."""
        lines = self._file.read_text().splitlines()
        return [state.strip(".") for state, _ in itertools.groupby(lines)]

    def shows(self, *states: str) -> None:
        """Expect just these states by and by."""
        shown = f"{states}, after {self.states}"
        until(shown, lambda: self.states == list(states), CHANGE_SECONDS)


@contextmanager
def recorded(host: GuestHost, name: str, condition: str) -> Iterator[Recording]:
    """Record a condition of an instance by `kubectl get --watch`."""
    path = f'{{.status.conditions[?(@.type=="{condition}")].status}}'
    file = host.server.home / f"{condition}.watch"
    with file.open("wb") as out:
        watching = subprocess.Popen(
            [BIN / "kubectl", "get", "vmi", name, "--watch", "-o", f'jsonpath={path}.{{"\\n"}}'],
            env=host.server.environment(), cwd=host.server.home, stdout=out,
        )  # fmt: skip
    try:
        recording = Recording(file)
        until("the watch", lambda: recording.states)
        yield recording
    finally:
        watching.terminate()
        watching.wait()


# ------------------------------------------------------------ the requirements


def script() -> tuple[list[list[str]], list[list[str]]]:
    """Return the arguments of kubectl in the script on switching: before the switch, and from it.

    Migrations are left out, and the wait for a condition that has gone before kubectl can look.
    """
    lines = [shlex.split(line) for line in _KUBECTL.findall(SWITCHING.read_text())]
    kept = [line for line in lines if not any(w in shlex.join(line) for w in _LEFT_OUT)]
    (switch,) = [i for i, line in enumerate(kept) if line[:2] == ["patch", "vms/alpine"]]
    return kept[:switch], kept[switch:]


def whole_script() -> str:
    """Return the script on switching as it is written, with an image of ours."""
    text = SWITCHING.read_text()
    start = text.index("./cluster-up/kubectl.sh apply -k")
    text, renamed = _IMAGE.subn(IMAGE, text[start : text.index("\n```", start)])
    assert renamed == 1
    return text


def alpine() -> Object:
    """Return the VM of the script, with an image of ours."""
    text = SWITCHING.read_text()
    start = text.rindex("apiVersion:", 0, text.index("kind: VirtualMachine\n"))
    text, renamed = _IMAGE.subn(IMAGE, text[start : text.index("\nEOF", start)])
    assert renamed == 1
    manifest: Object = yaml.safe_load(text)
    return manifest


def custom() -> tuple[Object, Object]:
    """Return the VM of custom size as it is written, and the instance type it names."""
    text = CUSTOM.read_text()
    start = text.index("```yaml\n") + len("```yaml\n")
    documents = text[start : text.index("\n```", start)].replace("[..]\n", "")
    vm, instancetype = yaml.safe_load_all(documents)
    return vm, instancetype


def shell_lines() -> list[str]:
    """Return the two commands by which a size of one's own is made and used."""
    return re.findall(r"^\$ (virtctl .+)$", CUSTOM.read_text(), re.MULTILINE)
