"""How a guest ended: decided once, recorded on disk, and reported from there everywhere."""

from __future__ import annotations

from typing import Literal

import msgspec

from livevirt.qemu.lifecycle import Standing

Phase = Literal["Succeeded", "Failed"]
OOM_EXIT, KILLED_EXIT = 137, 137  # 128 + SIGKILL, as container runtimes report it


class ExitRecord(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How one guest ended. `reason` is in CamelCase, `message` a sentence."""

    version: int = 1
    phase: Phase
    reason: str
    message: str
    exit_code: int = 0
    at: str  # when it was observed, as Kubernetes writes times


def of_standing(standing: Standing, at: str) -> ExitRecord:
    """Return the record of a guest that QEMU itself reports as ended."""
    if standing.condition == "panicked":
        return ExitRecord(
            phase="Failed",
            reason="GuestPanicked",
            message="The guest's operating system crashed (guest panic).",
            exit_code=1,
            at=at,
        )
    if standing.condition == "broken":
        return ExitRecord(
            phase="Failed",
            reason="GuestBroken",
            message=f"QEMU cannot run the guest any further ({standing.reason}).",
            exit_code=1,
            at=at,
        )
    if standing.reason == "host-signal":
        return ExitRecord(
            phase="Failed",
            reason="Terminated",
            message="QEMU was ended by a signal from outside.",
            exit_code=143,
            at=at,
        )
    return ExitRecord(phase="Succeeded", reason="Shutdown", message="The guest shut down.", at=at)


def destroyed(at: str) -> ExitRecord:
    """Return the record of a guest that was killed after its grace period."""
    message = "The guest did not shut down in time and was switched off."
    return ExitRecord(phase="Succeeded", reason="Destroyed", message=message, at=at)


def migrated(at: str) -> ExitRecord:
    """Return the record of a QEMU whose guest has migrated to another node."""
    return ExitRecord(
        phase="Succeeded", reason="Migrated", message="The guest went elsewhere.", at=at
    )


def unneeded(at: str) -> ExitRecord:
    """Return the record of a migration target that is given up before a guest arrived."""
    message = "The migration ended before the guest arrived."
    return ExitRecord(
        phase="Failed", reason="MigrationAborted", message=message, exit_code=1, at=at
    )


def vanished(at: str, *, oom_killed: bool, rebooted: bool, complaint: str) -> ExitRecord:
    """Return the record of a QEMU that exited unasked; `complaint` is the end of its stderr."""
    if oom_killed:
        return ExitRecord(
            phase="Failed",
            reason="OOMKilled",
            message="QEMU needed more memory than the pod's limit and was killed by the kernel.",
            exit_code=OOM_EXIT,
            at=at,
        )
    if rebooted:
        message = "The machine restarted while the guest was running."
        return ExitRecord(
            phase="Failed", reason="NodeRestarted", message=message, exit_code=1, at=at
        )
    message = "QEMU ended unexpectedly." + (f" It said: {complaint}" if complaint else "")
    return ExitRecord(phase="Failed", reason="Crashed", message=message, exit_code=1, at=at)


def encode(record: ExitRecord) -> bytes:
    return msgspec.json.encode(record)


def decode(data: bytes) -> ExitRecord:
    return msgspec.json.decode(data, type=ExitRecord)
