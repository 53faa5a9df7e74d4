"""What keeps a VM from running, as its status reports it, and whether waiting can help."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from livevirt.cli.vm.documents import status_of
from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object

GRACE_SECONDS = 5.0  # for claims that are just being created, and for reports of an earlier start

#: Conditions that explain why a guest does not run yet, with the status that does so.
_EXPLAINING = (
    ("Failure", "True"),
    ("Synchronized", "False"),
    ("PodScheduled", "False"),
    ("Provisioning", "True"),
    ("Paused", "True"),
)
#: Reasons of `Synchronized` that end only when the user acts.
_UNSYNCHRONIZED = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "FailedPvcNotFound",
    "DataVolumeFailed",
)
#: The `printableStatus` of such a VM.
_PRINTED = ("CrashLoopBackOff", "DataVolumeError", "ErrorPvcNotFound", "Paused")


class Obstacle(NamedTuple):
    """Why a guest does not run, and whether the user must act."""

    why: str
    lasting: bool = False


def find(obj: Object | None) -> Obstacle | None:
    """Return what keeps a VM or an instance from running, None if nothing is reported."""
    if obj is None or "deletionTimestamp" in (obj.get("metadata") or {}):
        return None  # an instance makes way for the next
    status = status_of(obj)
    printed = str(status.get("printableStatus") or "")
    lasting = printed in _PRINTED or _is_halted(obj)
    for type_, value in _EXPLAINING:
        found = conditions.find(status.get("conditions"), type_)
        if found is not None and found.get("status") == value:
            return Obstacle(str(found.get("message") or ""), lasting or _lasts(found))
    if _is_halted(obj):
        return Obstacle("its run strategy is Halted", lasting=True)
    return Obstacle(_unexplained(status), lasting) if lasting else None


def _lasts(condition: Condition) -> bool:
    if condition["type"] == "Synchronized":
        return condition.get("reason") in _UNSYNCHRONIZED
    return condition["type"] in ("Failure", "Paused")


def _is_halted(obj: Object) -> bool:
    """Return whether a VM is not to run, perhaps because it was stopped again."""
    spec, status = obj.get("spec") or {}, status_of(obj)
    halted = spec.get("runStrategy") == "Halted" or spec.get("running") is False
    return halted and not status.get("stateChangeRequests")


def _unexplained(status: Object) -> str:
    failed = (status.get("startFailure") or {}).get("consecutiveFailCount")
    return f"the guest failed to start {failed} times" if failed else ""


class Patience:
    """Waits as long as waiting can help."""

    def __init__(self, seconds: float = GRACE_SECONDS) -> None:
        self._seconds = seconds
        self._blocked, self._free = asyncio.Event(), asyncio.Event()
        self.obstacle: Obstacle | None = None  # the last one

    def observe(self, obj: Object | None) -> None:
        """Take note of an object as it is now."""
        self.obstacle = find(obj)
        lasting = self.obstacle is not None and self.obstacle.lasting
        now, then = (self._blocked, self._free) if lasting else (self._free, self._blocked)
        now.set()
        then.clear()

    async def exhausted(self) -> None:
        """Return once an obstacle that the user must remove has been there for a while."""
        while True:
            await self._blocked.wait()
            try:
                async with asyncio.timeout(self._seconds):
                    await self._free.wait()
            except TimeoutError:
                return
