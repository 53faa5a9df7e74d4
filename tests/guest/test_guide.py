"""The commands of the pages for users work as they are written, one after the other."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from livevirt.paths import default_data_dir

from ..server_process import BIN, short_directory
from . import distributions
from .guest_host import IMAGE, image_missing

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
]

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600
#: The README works on the default data directory, which is not for tests.
ELSEWHERE = {
    "livevirt up --detach": "livevirt up --detach --data-dir $DIR --listen 127.0.0.1:0",
    "/var/lib/livevirt/": "$DIR/",
}
DOWN = "livevirt down --data-dir $DIR"
#: A server that has just started answers before its node has found its guests.
FOUND = "timeout 120 sh -c 'until livevirt exec --data-dir $DIR web -- true; do sleep 1; done'"


def blocks(page: str) -> list[str]:
    """Return the code blocks of a page that are neither manifests nor of another language."""
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [text for language, text in fence.findall((ROOT / page).read_text()) if not language]


def guide(page: str = "docs/guide.md") -> list[str]:
    lines = (line for block in blocks(page) for line in block.splitlines())
    return [line[2:] for line in lines if line.startswith("$ ")]


def typed(page: str) -> list[str]:
    """Return every command of a page whose blocks have nothing else, but for some output."""
    lines = "".join(blocks(page)).replace("\\\n", " ").splitlines()
    lines = [line.removeprefix("$ ") for line in lines]
    return [line for line in lines if line.startswith(("virtctl ", "kubectl ", "livevirt "))]


def readme() -> list[str]:
    """Return the five commands and what comes before them, on the directory of the test."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"## Five commands\n.*?```\n(.*?)```", text, re.DOTALL)
    assert found is not None
    block = found[1]
    for shown, tested in ELSEWHERE.items():
        assert block.count(shown) == 1, shown
        block = block.replace(shown, tested)
    lines = [line for line in block.splitlines() if line]
    assert sum(not line.startswith("export ") for line in lines) == 5
    return lines


def both() -> list[str]:
    """Return all commands: the guide goes on with the guest of the README, after a restart."""
    lines = guide()
    up = next(i for i, line in enumerate(lines) if line.startswith("livevirt up "))
    return [*readme(), DOWN, *lines[: up + 1], FOUND, *lines[up + 1 :]]


def test_the_pages_say_where_the_commands_are() -> None:
    assert readme()[0].split("#")[0].strip() == guide()[0] == "export PATH=$PWD/.venv/bin:$PATH"


def run(lines: list[str], where: Path = ROOT, seconds: float = SECONDS) -> list[str]:
    """Run commands in one shell and a directory $DIR of their own; return what each printed."""
    if image_missing():
        pytest.skip(f"image {IMAGE} is not imported: make setup does it")
    with short_directory() as folder:
        folder.chmod(0o711)
        environment = {  # where our commands are is the pages' to say
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "XDG_DATA_HOME": str(default_data_dir().parent),  # has the images; not read as root
            "DIR": str(folder / "d"),
            "LC_ALL": "C.UTF-8",
        }
        (folder / "d").mkdir(mode=0o711)
        marked = (f"printf '\\n+ %s\\n' {i}; {line}" for i, line in enumerate(lines))
        script = "\n".join(["set -euo pipefail", *marked])
        try:
            done = subprocess.run(
                ["bash", "-c", script], env=environment, cwd=where, timeout=seconds,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            subprocess.run(
                [BIN / "livevirt", "down", "--guests", "stop", "--data-dir", folder / "d"],
                check=False, capture_output=True, timeout=120,
            )  # fmt: skip
    reached = re.findall(r"^\+ (\d+)$", done.stdout, re.MULTILINE)
    at = lines[int(reached[-1])] if reached else "the start"
    assert done.returncode == 0, f"stopped at: {at}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    parts = re.split(r"^\+ \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    return [part.strip() for part in parts]


def test_every_command_of_the_readme_and_the_guide_does_what_it_says() -> None:
    lines = both()
    assert len(lines) > 25
    said = run(lines)
    assert said[lines.index(DOWN) - 1].splitlines()[-1] == "2", "the README's guest has two CPUs"


# ---------------------------------------------------------------- a real distribution

DEBIAN_SECONDS = 1500.0  # two minutes where nothing else runs


@pytest.mark.long
def test_every_command_on_debian_does_what_it_says() -> None:
    distributions.disk("12-cloud")
    lines = guide("docs/guide-debian.md")
    try:
        said = run(lines, seconds=DEBIAN_SECONDS)
    finally:  # it is imported into the store of whoever runs the tests
        remove = [BIN / "livevirt", "image", "remove", "debian:12"]
        subprocess.run(remove, check=False, capture_output=True, timeout=60)
    answers = list(zip(lines, said, strict=True))

    def inside(command: str) -> list[str]:
        return [text for line, text in answers if line == f"livevirt exec debian -- {command}"]

    assert "Debian GNU/Linux 12" in inside("grep PRETTY_NAME /etc/os-release")[0]
    assert inside("hostname") == ["bookworm"]
    assert inside("nproc") == ["1", "2"]
    before, after = (int(text.split()[1]) for text in inside("grep MemTotal /proc/meminfo"))
    assert after - before == 512 * 1024, "in KiB"


# ---------------------------------------------------------------- moving, and editing

CONFIGURE = "kubectl patch kubevirt kubevirt -n kubevirt --type=merge -p '{\"spec\":%s}'"
#: Two nodes, and on the first of them a guest that leaves when its node is drained.
TWO_NODES = [
    "export PATH=$PWD/.venv/bin:$PATH",
    "livevirt up --detach --nodes 2 --data-dir $DIR --listen 127.0.0.1:0",
    "export KUBECONFIG=$DIR/kubeconfig",
    "kubectl wait --for=create node/node01 --timeout=60s",
    "kubectl wait --for=create node/node02 --timeout=60s",
    CONFIGURE % '{"configuration":{"evictionStrategy":"LiveMigrate"}}',
    "kubectl cordon node02",
    "cd $DIR",
    "virtctl create vm --name web --memory 256Mi --volume-containerdisk"
    " src:livevirt/guest:latest > web.yaml",
    "kubectl apply -f web.yaml",
    "kubectl wait vm/web --for=condition=AgentConnected --timeout=180s",
    "kubectl uncordon node02",
]
WHERE = "kubectl get vmi web -o jsonpath='{.status.nodeName}'"
BACK = "virtctl migrate web --wait"
#: So that who looks from another terminal comes before it is over.
SLOWER = CONFIGURE % '{"configuration":{"migrations":{"bandwidthPerMigration":"8Mi"}}}'
AS_FAST_AS_IT_GOES = SLOWER.replace("8Mi", "0")


def moves() -> list[str]:
    """Return the commands of the page on migration, and what its reader does in between."""
    lines = []
    for line in typed("docs/migration.md"):
        if line.startswith("kubectl drain"):  # the guest is to be there again
            lines += [BACK, WHERE, SLOWER, f"{line} & drain=$!"]
        elif "in another terminal" in line:
            lines += [line, "wait $drain", WHERE, AS_FAST_AS_IT_GOES]
        else:
            lines.append(line)
    return lines


def edits() -> list[str]:
    """Return the commands of the page on live edits; some tell a restart by exit status 2."""
    restart = (
        "sed -i 's/^    spec:$/&\\n      hostname: other/' web.yaml && grep -q hostname web.yaml"
    )
    lines = [
        f"{line.partition('#')[0]} || test $? = 2" if line.startswith("virtctl plan -f") else line
        for line in typed("docs/live-update.md")
    ]
    return [restart, *lines]


@pytest.mark.long
def test_every_command_on_migration_and_live_edits_does_what_it_says() -> None:
    lines = [*TWO_NODES, *moves(), *edits()]
    said = run(lines)
    assert [said[i] for i, line in enumerate(lines) if line == WHERE] == ["node01", "node02"]
    assert "hostname" in said[lines.index("virtctl plan -f web.yaml || test $? = 2")]
