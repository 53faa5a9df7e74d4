"""A volume on its way into a guest or out of it: what to send, where it stands, when it is done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from livevirt.cli.vm.documents import status_of
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object
from livevirt.vm.verdict.comparison import TEMPLATE
from livevirt.vm.volumes.volume_lists import Lists
from livevirt.vm.volumes.volume_patch import FORCE_DETACH, names


class Outcome(Enum):
    """Where a change can end."""

    LIVE = "live"
    AT_START = "takes effect at the next start"
    RESTART = "needs a restart"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A volume of an object and the claim it should have, empty to detach it."""

    owner: str  # of the VM, or of the instance without one
    volume: str
    claim: str = ""

    def staged(self, vm: Object) -> str:
        """Return why it waits for a restart of the VM, empty if it does not."""
        named = tuple(
            f"{TEMPLATE}.{each}[{self.volume}]" for each in ("volumes", "domain.devices.disks")
        )
        for change in status_of(vm).get("pendingChanges") or ():
            if change["path"].startswith(named):
                return f"{change['path'].removeprefix(f'{TEMPLATE}.')} ({change['reason']})"
        return ""

    def ends(self, vmi: Object | None) -> Outcome | None:
        """Return how it ended for a guest that can follow, None if it has not yet."""
        status = status_of(vmi)
        if vmi is None or status.get("phase") in FINAL:
            return Outcome.AT_START
        entry = volume_status(vmi, self.volume)
        if self.claim:
            claim = (entry.get("persistentVolumeClaimInfo") or {}).get("claimName")
            done = entry.get("phase") == "Ready" and claim == self.claim
        else:
            done = not entry and Lists.of(vmi["spec"]).volume(self.volume) is None
        return Outcome.LIVE if done else None

    def state(self, vmi: Object | None) -> str:
        """Return in a line where it stands."""
        entry = volume_status(vmi or {}, self.volume)
        if self._is_stale(entry):
            return "accepted"
        words = [str(entry[key]) for key in ("phase", "message") if entry.get(key)]
        return ": ".join(words) or "accepted"

    def _is_stale(self, entry: Object) -> bool:
        """Return whether the instance still reports the attachment of before the change."""
        if not self.claim:
            return entry.get("phase") != "Detaching"
        claim = (entry.get("persistentVolumeClaimInfo") or {}).get("claimName")
        return entry.get("phase") == "Ready" and claim != self.claim

    def message(self, end: Outcome, vmi: Object | None, why: str = "") -> str:
        """Return the sentence on how it ended."""
        volume, owner = self.volume, self.owner
        match end:
            case Outcome.LIVE if self.claim:
                target = volume_status(vmi or {}, volume).get("target")
                return f"VM {owner} has volume {volume}" + (f" as {target}" if target else "")
            case Outcome.LIVE:
                return f"volume {volume} detached from VM {owner}"
            case Outcome.AT_START:
                what = "with" if self.claim else "without"
                return f"VM {owner} does not run; it starts {what} volume {volume}"
            case Outcome.RESTART:
                restart = f"`virtctl restart {owner}`"
                return f"VM {owner} needs a restart for volume {volume}: {why}; {restart}"


def volume_status(vmi: Object, volume: str) -> Object:
    """Return the status of a volume in an instance, {} if there is none."""
    listed: list[Object] = status_of(vmi).get("volumeStatus") or []
    return next((each for each in listed if each["name"] == volume), {})


def is_leaving(vmi: Object | None, volume: str) -> bool:
    """Return whether the guest still has a volume that its spec does not."""
    return volume_status(vmi or {}, volume).get("phase") == "Detaching"


def forced(obj: Object, volume: str) -> Object:
    """Return the merge patch of metadata that lets a volume go even if the guest uses it."""
    known = names(obj)
    return _annotated([*known, *([] if volume in known else [volume])])


def unforced(obj: Object, volume: str) -> Object:
    """Return the merge patch that takes that back."""
    return _annotated([name for name in names(obj) if name != volume])


def _annotated(volumes: list[str]) -> Object:
    return {"annotations": {FORCE_DETACH: ",".join(volumes) or None}}
