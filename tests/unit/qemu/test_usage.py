"""What a QEMU process uses: from texts of the kernel's and answers of QEMU's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from livevirt.qemu import usage
from livevirt.qemu.usage import DiskUsage, TransferRates, VcpuTime

TICKS = os.sysconf("SC_CLK_TCK")
STAT = b"7 (qemu) 1) x) S 1 7 7 0 -1 4194560 5 6 0 2 %d %d 55 21 20 0 1 0 208794 512 944"
COUNTS = {
    "rd_operations": 3, "wr_operations": 4, "flush_operations": 5, "rd_bytes": 4096,
    "wr_bytes": 8192, "rd_total_time_ns": 1_500_000_000, "wr_total_time_ns": 0,
    "flush_total_time_ns": 250_000_000,
}  # fmt: skip


def test_given_a_process_whose_name_looks_like_fields_then_its_times_are_found() -> None:
    assert usage.cpu_times(STAT % (3 * TICKS, TICKS // 2)) == (3.0, 0.5)


def a_thread(folder: Path, name: str, **files: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    for file, content in files.items():
        (folder / file).write_bytes(content)


def test_given_threads_then_those_of_vcpus_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_PROC", tmp_path)
    tasks = tmp_path / "7" / "task"
    a_thread(tasks / "7", "qemu-system-x86", schedstat=b"9 9 9")
    a_thread(tasks / "9", "CPU 1/TCG", schedstat=b"2000000000 500000000 12\n")
    a_thread(tasks / "8", "CPU 0/KVM", stat=STAT % (TICKS, TICKS))  # a kernel without schedstat
    (tmp_path / "7" / "stat").write_bytes(STAT % (4 * TICKS, TICKS))
    (tmp_path / "7" / "statm").write_bytes(b"1000 25 3 4 0 6 0\n")
    found = usage.process_usage(7)
    assert found is not None
    assert (found.user, found.system, found.cpu) == (4.0, 1.0, 5.0)
    assert found.resident == 25 * os.sysconf("SC_PAGE_SIZE")
    assert list(found.vcpus.items()) == [(0, VcpuTime(2.0)), (1, VcpuTime(2.0, 0.5))]


def test_given_a_process_that_is_gone_then_there_is_nothing_to_tell() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert usage.process_usage(child.pid) is None


def test_given_ourselves_then_we_use_something() -> None:
    found = usage.process_usage(os.getpid())
    assert found is not None
    assert found.cpu > 0
    assert found.resident > 1 << 20
    assert found.vcpus == {}


def test_given_blockstats_then_drives_are_told_by_id() -> None:
    answer = [
        {"device": "", "qdev": "/machine/peripheral/disk-root/virtio-backend", "stats": COUNTS},
        {"device": "", "qdev": "disk-cd", "stats": COUNTS},
        {"device": "pflash0", "stats": COUNTS},
    ]
    found = usage.disk_usage(answer)
    assert list(found) == ["disk-root", "disk-cd"]
    assert found["disk-root"] == DiskUsage(3, 4, 5, 4096, 8192, 1.5, 0.0, 0.25)


RAM = {
    "total": 100, "remaining": 40, "transferred": 60, "mbps": 8.0, "dirty-pages-rate": 2,
    "page-size": 4096,
}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"status": "active", "ram": RAM}, TransferRates(100, 40, 60, 1e6, 8192)),
        ({"status": "completed", "ram": RAM}, None),
        ({"status": "setup"}, None),
        ({}, None),
    ],
)
def test_given_query_migrate(answer: dict[str, object], found: TransferRates | None) -> None:
    assert usage.transfer_rates(answer) == found


def test_given_anything_as_meminfo_then_only_what_makes_sense_is_read() -> None:
    text = "MemTotal:  100 kB\nHugePages_Total:  3\nMemFree: -5 kB\n\x00nonsense\nCached:\t7 kB"
    assert usage.meminfo(text) == {"MemTotal": 102400, "Cached": 7168}
