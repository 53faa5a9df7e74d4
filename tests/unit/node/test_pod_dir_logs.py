import asyncio
from pathlib import Path

import pytest

from livevirt.node import pod_dir


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_dir, "MOST_BYTES", 60)
    monkeypatch.setattr(pod_dir, "KEPT_BYTES", 30)
    monkeypatch.setattr(pod_dir, "LOOK_SECONDS", 0.01)


LOGS = {
    "short": (b"line\n" * 12, b"line\n" * 12),
    "long": (b"a line\n" * 20, b"a line\n" * 4),
    "one endless line": (b"\0" * 1000, b"\0" * 30),
}


@pytest.mark.parametrize(("before", "after"), LOGS.values(), ids=LOGS)
def test_a_log_keeps_its_last_lines(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "serial.log"
    path.write_bytes(before)
    pod_dir.shorten(path)
    assert path.read_bytes() == after


async def test_a_log_is_cut_again_and_again_while_somebody_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "serial.log"
    missing, folder = tmp_path / "none", tmp_path  # one that cannot be cut is no reason to stop
    with path.open("ab", buffering=0) as writer:
        keeping = asyncio.create_task(pod_dir.keep_short(lambda: [missing, folder, path]))
        async with asyncio.timeout(30):
            for _ in range(3):
                writer.write(b"a line\n" * 20)
                while path.stat().st_size > 60:  # noqa: ASYNC110 - a file tells nobody
                    await asyncio.sleep(0.005)
                writer.write(b"more\n")
                assert path.read_bytes().endswith(b"a line\nmore\n")
        keeping.cancel()
