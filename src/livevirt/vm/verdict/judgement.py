"""What becomes of an edit of a running VM: a verdict for each changed field, and why."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from livevirt.kube.objects.request import Object


class Verdict(StrEnum):
    """What happens to a changed field, from best to worst."""

    LIVE = "Live"
    LIVE_AFTER_RESIZE = "LiveAfterResize"
    LIVE_AFTER_MIGRATION = "LiveAfterMigration"
    RESTART = "Restart"
    REFUSED = "Refused"


_BEST_FIRST = list(Verdict)
LIVE_VERDICTS = (Verdict.LIVE, Verdict.LIVE_AFTER_RESIZE, Verdict.LIVE_AFTER_MIGRATION)


class Reason(StrEnum):
    """Why a field has its verdict."""

    IN_PLACE = "InPlace"  # the guest is changed where it is
    NEXT_PLACEMENT = "NextPlacement"  # the instance has it at once; it rules where it goes next
    POD_ONLY = "PodOnly"  # the pod is resized, and nothing in the guest changes
    NO_GUEST_CHANGE = "NoGuestChange"  # only livevirt reads it, from the instance
    VOLUME_HOTPLUG = "VolumeHotplug"
    DEVICE = "DeviceHotplug"  # a device comes, goes or changes where it is
    MEDIUM_CHANGE = "MediumChange"
    BOOT_ORDER = "BootOrder"  # set now, followed by the firmware at the guest's next boot
    VOLUME_MIGRATION = "VolumeMigration"  # its content is copied to another claim
    POD_RESIZE = "PodResize"  # the pod grows first
    IN_PLACE_DISABLED = "InPlaceHotplugDisabled"
    DEDICATED_CPUS = "DedicatedCpus"
    HUGE_PAGES = "HugePages"
    QOS_CLASS = "QosClass"  # of a pod, which is fixed
    LIMIT_REMOVED = "LimitRemoved"  # a pod keeps the limits it was created with
    NODE_FULL = "NodeFull"
    OVER_QUOTA = "OverQuota"
    OVER_LIMIT_RANGE = "OverLimitRange"
    MIGRATING = "Migrating"
    ABOVE_MAXIMUM = "AboveMaximum"
    BELOW_BOOT = "BelowBootSize"
    NO_STATISTICS = "NoBalloonStatistics"  # the guest does not report its free memory
    UNALIGNED = "Unaligned"
    NOT_ELIGIBLE = "NotEligible"
    NO_AGENT = "NoGuestAgent"
    KERNEL_LIMIT = "GuestKernelLimit"  # its kernel registers no more CPUs until it boots again
    FOLLOWS_RESOURCES = "FollowsResources"
    ARCHITECTURE = "Architecture"
    NOT_LIVE = "NotLiveUpdatable"
    NOT_HOTPLUGGABLE = "NotHotpluggable"
    BUS = "BusNotHotpluggable"
    NO_PORT = "NoFreePort"  # live once a virtio disk goes; a restart gives it one
    CLAIM_IN_USE = "ClaimInUse"  # by a disk that stays until a restart
    DRIVE = "DriveNotHotpluggable"
    DISK_ONLY = "DiskSettingsOnly"
    NOT_COPIED = "VolumeNotMigratable"
    GATE_MISSING = "FeatureGateMissing"
    STAGE = "StageStrategy"
    WINDOW = "MaintenanceWindow"  # live once the window opens
    HELD_BACK = "HeldBack"
    INVALID = "Invalid"
    NOT_AVAILABLE = "NotAvailable"  # this release cannot do it yet


class Ruling(msgspec.Struct, frozen=True):
    """The verdict on one changed field, and why.

    A rule decides the first five fields; `judge` adds which field it is and its values as JSON
    (None: left out). `waits`: nothing happens until something around the guest changes.
    `unconfirmed`: why the guest will not confirm it, as `guest_size` names reasons.
    `applies_at`: when the maintenance window opens that it waits for.
    """

    verdict: Verdict
    reason: Reason
    message: str
    nearest: Any = None  # the nearest value that would be live, as JSON
    waits: bool = False
    unconfirmed: str = ""
    path: str = ""  # as in the VM
    running: Any = None
    wanted: Any = None
    volume: str = ""  # whose edit it is part of: one that no other field holds back
    applies_at: datetime | None = None

    @property
    def live(self) -> bool:
        """Whether it happens without a restart."""
        return self.verdict in LIVE_VERDICTS

    @property
    def deferred(self) -> bool:
        """Whether the instance gets it only after a migration or in a maintenance window."""
        return self.reason in (Reason.MIGRATING, Reason.WINDOW)

    def ruled(self, ruling: Ruling) -> Ruling:
        """Return the same changed field with the verdict of another ruling."""
        return replace(
            ruling, path=self.path, running=self.running, wanted=self.wanted, volume=self.volume
        )


class Judgement(msgspec.Struct, frozen=True):
    """The verdict on a whole edit, and the specs it was made from with their defaults filled in."""

    changes: tuple[Ruling, ...] = ()
    started: Object = {}
    wanted: Object = {}
    running: bool = False  # whether there is a guest at all that an edit could reach
    unknown: str = ""  # why the edit cannot be judged, if so

    @property
    def verdict(self) -> Verdict:
        """The worst of all; without a change, or without a guest, nothing stands in the way."""
        return max((c.verdict for c in self.changes), key=_BEST_FIRST.index, default=Verdict.LIVE)

    @property
    def waits(self) -> bool:
        """Whether something live waits for room, or for a migration to end or to be allowed."""
        return any(change.waits for change in self.changes)

    @property
    def window(self) -> datetime | None:
        """When the maintenance window opens that changes wait for, None if none does."""
        return next((c.applies_at for c in self.changes if c.applies_at is not None), None)

    def of(self, verdict: Verdict) -> list[Ruling]:
        """List the changes that have a verdict."""
        return [change for change in self.changes if change.verdict is verdict]

    def change(self, path: str) -> Ruling | None:
        """Return the change of a field, if it changed."""
        return next((change for change in self.changes if change.path == path), None)
