"""How a guest ended: decided once, kept on the disk, and then told to everybody the same."""

from __future__ import annotations

from typing import Literal

import msgspec

from livevirt.qemu.lifecycle import Standing

Phase = Literal["Succeeded", "Failed"]
OOM_EXIT, KILLED_EXIT = 137, 137  # 128 + SIGKILL, as container runtimes report it


class Ending(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The end of a guest. `reason` is one CamelCase word, `message` a sentence."""

    version: int = 1
    phase: Phase
    reason: str
    message: str
    exit_code: int = 0
    at: str  # when it was seen, as Kubernetes writes times


def of_standing(standing: Standing, at: str) -> Ending:
    """Say how a guest ended that QEMU itself reports as ended."""
    if standing.condition == "panicked":
        return Ending(
            phase="Failed",
            reason="GuestPanicked",
            message="The guest's operating system crashed (guest panic).",
            exit_code=1,
            at=at,
        )
    if standing.condition == "broken":
        return Ending(
            phase="Failed",
            reason="GuestBroken",
            message=f"QEMU cannot run the guest any further ({standing.reason}).",
            exit_code=1,
            at=at,
        )
    if standing.reason == "host-signal":
        return Ending(
            phase="Failed",
            reason="Terminated",
            message="QEMU was told to end by a signal from outside.",
            exit_code=143,
            at=at,
        )
    return Ending(phase="Succeeded", reason="Shutdown", message="The guest shut down.", at=at)


def destroyed(at: str) -> Ending:
    """Say that a guest did not shut down in its grace period and was switched off."""
    message = "The guest did not shut down in time and was switched off."
    return Ending(phase="Succeeded", reason="Destroyed", message=message, at=at)


def migrated(at: str) -> Ending:
    """Say that a guest has gone to another node."""
    return Ending(phase="Succeeded", reason="Migrated", message="The guest went elsewhere.", at=at)


def unneeded(at: str) -> Ending:
    """Say that a place that waited for a guest is given up."""
    message = "The migration ended before the guest arrived."
    return Ending(phase="Failed", reason="MigrationAborted", message=message, exit_code=1, at=at)


def vanished(at: str, *, oom_killed: bool, rebooted: bool, complaint: str) -> Ending:
    """Say why a QEMU is gone that nobody asked to go; `complaint` is the end of its stderr."""
    if oom_killed:
        return Ending(
            phase="Failed",
            reason="OOMKilled",
            message="QEMU needed more memory than the pod's limit and was killed by the kernel.",
            exit_code=OOM_EXIT,
            at=at,
        )
    if rebooted:
        message = "The machine restarted while the guest was running."
        return Ending(phase="Failed", reason="NodeRestarted", message=message, exit_code=1, at=at)
    message = "QEMU ended unexpectedly." + (f" It said: {complaint}" if complaint else "")
    return Ending(phase="Failed", reason="Crashed", message=message, exit_code=1, at=at)


def encode(ending: Ending) -> bytes:
    return msgspec.json.encode(ending)


def decode(data: bytes) -> Ending:
    return msgspec.json.decode(data, type=Ending)
