"""The previous release, run from its commit, up to a volume that it has staged.

.venv/bin/python -m tests.guest.previous_release   # writes tests/data/previous-release.sql.gz

The guest runs; a hotpluggable volume was added to its VM while the feature gate was closed, so it
waits for a restart. The gate was opened while no server ran: whoever starts next finds it open.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ..server_process import ServerProcess, short_directory
from .guest_host import GuestHost, until
from .hot_volumes import SECONDS, HotGuest, a_claim, on_claim

COMMIT = "17f46cada503e219f7241576e65e9480e1372dad"  # 0.1.0
ROOT = Path(__file__).resolve().parents[2]
DUMP = ROOT / "tests" / "data" / "previous-release.sql.gz"
KUBEVIRT = ("kubevirt", "kubevirt", "-n", "kubevirt")
#: Run with the modules of that release: replaces the KubeVirt object while no server runs.
OPEN_GATES = """
import asyncio, json, sys
from pathlib import Path
from livevirt.store import Put, Store

async def main():
    store = Store.open(Path(sys.argv[1]))
    (stored,) = store.list("kubevirts.kubevirt.io").items
    kubevirt = json.loads(stored.value)
    developer = kubevirt["spec"]["configuration"]["developerConfiguration"]
    developer["featureGates"] = sys.argv[2:]

    def encode(revision):
        kubevirt["metadata"]["resourceVersion"] = str(revision)
        return json.dumps(kubevirt, separators=(",", ":")).encode()

    await store.write(Put(stored.key, stored.revision, encode))
    await store.close()

asyncio.run(main())
"""


def available() -> bool:
    """Return whether the repository here has the commit; a shallow clone may not."""
    if not shutil.which("git"):
        return False
    found = subprocess.run(
        ["git", "-C", ROOT, "cat-file", "-e", f"{COMMIT}:src"], check=False, capture_output=True
    )
    return found.returncode == 0


def unpack(folder: Path) -> Path:
    """Return the sources of the release, unpacked below a folder."""
    packed = subprocess.run(
        ["git", "-C", ROOT, "archive", COMMIT, "src"], check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "x", "-C", folder], input=packed, check=True)
    return folder / "src"


def program(source: Path) -> list[str]:
    """Return the words that run `livevirt` of that release."""
    return ["env", f"PYTHONPATH={source}", sys.executable, "-m", "livevirt"]


@contextmanager
def staged() -> Iterator[tuple[HotGuest, Path]]:
    """Give a guest with a staged volume, its server stopped, and the sources of the release."""
    with short_directory() as home:
        home.chmod(0o711)
        source = unpack(home)
        host = GuestHost(ServerProcess(home))
        try:
            host.server.start(*program(source))
            yield _stage(host, source), source
        finally:
            host.end()


def _stage(host: GuestHost, source: Path) -> HotGuest:
    found = json.loads(host.server.kubectl("get", *KUBEVIRT, "-o", "json"))
    gates = found["spec"]["configuration"]["developerConfiguration"]["featureGates"]
    closed = [gate for gate in gates if gate != "HotplugVolumes"]
    developer = {"developerConfiguration": {"featureGates": closed}}
    patch = json.dumps({"spec": {"configuration": developer}})
    host.server.kubectl("patch", *KUBEVIRT, "--type=merge", "-p", patch)

    guest = HotGuest(host)
    host.apply(a_claim("alpha"))
    guest.apply()
    until("the guest to run", lambda: host.holds("vm", guest.name, "AgentConnected"))
    guest.add(on_claim("alpha"))
    guest.apply()
    until("it waits", lambda: set(guest.pending().values()) == {"FeatureGateMissing"}, SECONDS)
    host.server.stop()
    database = host.server.data / "livevirt.db"
    edit = ["env", f"PYTHONPATH={source}", sys.executable, "-c", OPEN_GATES, database, *gates]
    subprocess.run(edit, check=True, timeout=60)
    return guest


def dump(database: Path) -> None:
    """Write the database as SQL text, the same bytes for the same content."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        pragmas = [
            f"PRAGMA {name} = {opened.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        text = "\n".join([*pragmas, *opened.iterdump(), ""])
    DUMP.parent.mkdir(exist_ok=True)
    DUMP.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(path: Path) -> None:
    """Make the database of the previous release at `path`."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(gzip.decompress(DUMP.read_bytes()).decode())
    path.chmod(0o600)


if __name__ == "__main__":
    with staged() as (guest, _):
        dump(guest.host.server.data / "livevirt.db")
    print(f"wrote {DUMP}, {DUMP.stat().st_size} bytes")
