"""Where a verdict deliberately differs from KubeVirt's; listed in the docs, kept by the tests."""

from __future__ import annotations

from typing import NamedTuple


class Departure(NamedTuple):
    """One edit that KubeVirt treats in another way."""

    key: str
    edit: str
    kubevirt: str
    livevirt: str


DIFFERENCES: tuple[Departure, ...] = (
    Departure(
        "default-strategy",
        "any edit while `vmRolloutStrategy` is not set",
        "live: unset means LiveUpdate",
        "staged: unset means Stage, as documented; `livevirt up` sets LiveUpdate",
    ),
    Departure(
        "gate",
        "LiveUpdate without the gate `VMLiveUpdateFeatures`",
        "live: the gate is always enabled",
        "staged, and the reason names the gate",
    ),
    Departure(
        "fewer-sockets",
        "fewer sockets",
        "restart",
        "live, down to one socket; with an emulated CPU only if the guest agent answers",
    ),
    Departure(
        "non-migratable",
        "memory of a guest that cannot migrate",
        "restart",
        "live, in place",
    ),
    Departure(
        "small-guest",
        "memory of a guest under 1Gi",
        "restart",
        "live, in place",
    ),
    Departure(
        "below-boot",
        "less memory than the guest was started with",
        "restart",
        "live, by the balloon, as far as the guest has memory free",
    ),
    Departure(
        "devices",
        "boot order, balloon, tablets on USB, a watchdog's action, the random number generator",
        "restart",
        "live",
    ),
    Departure(
        "cpu-block",
        "adding or dropping the `cpu` block, or one without a topology",
        "restart",
        "compared by its meaning: one socket, core and thread are no change",
    ),
    Departure(
        "memory-block",
        "dropping `memory.guest` where requests set the size",
        "restart",
        "compared by the size it stands for",
    ),
    Departure(
        "written-default",
        "writing a default out, or leaving it out",
        "restart",
        "no change",
    ),
    Departure(
        "failed-memory",
        "memory after a hotplug that failed",
        "restart for as long as the guest runs",
        "live: a condition reports the cause, and it is retried",
    ),
    Departure(
        "in-flight",
        "sockets or memory while such a change is under way",
        "an error until the first one ends",
        "live: the latest spec wins",
    ),
    Departure(
        "held-back",
        "memory, affinity or tolerations beside sockets that need a restart",
        "applied: only the comparison of templates holds other fields back",
        "held back with the rest of the edit, unless the gate `PartialLiveUpdate` is enabled",
    ),
    Departure(
        "interfaces",
        "adding an interface, or changing its state",
        "live",
        "restart",
    ),
    Departure(
        "disk-settings",
        "only settings of the disk of a hotpluggable volume",
        "nothing happens and nothing is reported",
        "restart, with a warning",
    ),
    Departure(
        "hotpluggable-flip",
        "`hotpluggable` turned on for a volume of the start",
        "nothing happens and nothing is reported",
        "restart, with a warning",
    ),
    Departure(
        "new-drive",
        "a CD-ROM drive that is added or removed, with or without a hotpluggable volume",
        "restart; a new one with a volume is an error that stops everything else",
        "live on scsi and usb; restart on sata, with a warning, but the medium of a removed drive"
        " is ejected at once",
    ),
    Departure(
        "hotplug-bus",
        "a hotpluggable disk on sata or usb, or one that names no bus",
        "an error of the controller that stops everything else",
        "restart, with a warning; a bus that is left out is scsi, at a start too",
    ),
    Departure(
        "lun",
        "a hotpluggable volume as a `lun`",
        "live",
        "restart, with a warning; a `lun` takes a SCSI device of the host, which no claim is here",
    ),
    Departure(
        "during-migration",
        "a volume or CD-ROM image attached, detached or changed while the guest migrates",
        "it is in the instance at once; until the migration ends nothing happens or is reported",
        "live, and reported as waiting: the instance has it when the migration has ended",
    ),
    Departure(
        "volume-gates",
        "a hotpluggable volume while its feature gate is disabled",
        "nothing happens and nothing is reported",
        "restart, and the reason names the gate",
    ),
    Departure(
        "volume-migration",
        "another claim for a volume with `updateVolumesStrategy: Migration`",
        "data is copied by a live migration to another node, if that is allowed; under Stage"
        " nothing happens, nothing is reported; while it is copied it can only be set back; a guest"
        " that ends meanwhile needs manual recovery",
        "data is copied in place, without a migration; under Stage it is replaced if hotpluggable,"
        " else it waits for a restart; a third claim is copied to instead; a guest that ends"
        " meanwhile starts from the old claim and is copied again",
    ),
    Departure(
        "volume-migration-others",
        "a volume or CD-ROM image attached or detached with `updateVolumesStrategy: Migration`",
        "nothing happens and nothing is reported",
        "live, as with `Replacement` ([decision 6](decisions/0006-volume-migration-strategy.md))",
    ),
    Departure(
        "halted",
        "a VM whose guest has ended",
        "RestartRequired stays until the next start",
        "nothing is pending: the next start applies all",
    ),
)


def differences_table() -> str:
    """Return the table in Markdown."""
    lines = ["| an edit | KubeVirt | livevirt |", "|---|---|---|"]
    lines += (f"| {each.edit} | {each.kubevirt} | {each.livevirt} |" for each in DIFFERENCES)
    return "\n".join(lines) + "\n"
