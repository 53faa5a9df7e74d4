"""When a volume is where a command sent it, and how it is forced there."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from livevirt.cli.vm import attachment
from livevirt.cli.vm.attachment import Attachment, Outcome
from livevirt.cli.vm.hotplug import addvolume
from livevirt.vm.volumes.volume_patch import FORCE_DETACH

Object = dict[str, Any]

COMES, GOES = Attachment("web", "data", "claim"), Attachment("web", "data")


def a_vmi(phase: str = "", claim: str = "claim", *, listed: bool = True, **status: Any) -> Object:
    entry = {
        "name": "data",
        "phase": phase,
        "message": "why",
        "target": "sda",
        "persistentVolumeClaimInfo": {"claimName": claim},
    }
    message = {"volumeStatus": [{"name": "root"}, *([entry] if phase else [])]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if listed else []
    return {"spec": {"volumes": volumes}, "status": {"phase": "Running", **message, **status}}


ENDS = {
    "attached": (COMES, a_vmi("Ready"), Outcome.LIVE),
    "of the claim from before": (COMES, a_vmi("Ready", "old"), None),
    "not attached yet": (COMES, a_vmi("Pending"), None),
    "not told yet": (COMES, a_vmi(), None),
    "a guest that ended": (COMES, {**a_vmi(), "status": {"phase": "Failed"}}, Outcome.AT_START),
    "no guest": (GOES, None, Outcome.AT_START),
    "still asked for": (GOES, a_vmi("Ready"), None),
    "asked for and not told of yet": (GOES, a_vmi(), None),
    "still there": (GOES, a_vmi("Detaching", listed=False), None),
    "gone": (GOES, a_vmi(listed=False), Outcome.LIVE),
}


@pytest.mark.parametrize(("change", "vmi", "end"), ENDS.values(), ids=ENDS)
def test_ends(change: Attachment, vmi: Object | None, end: Outcome | None) -> None:
    assert change.ends(vmi) is end


def test_the_state_is_what_the_instance_tells() -> None:
    assert COMES.state(a_vmi("Pending")) == "Pending: why"
    assert COMES.state(a_vmi()) == COMES.state(None) == "accepted"


def test_given_the_instance_still_reports_the_attachment_then_a_detachment_does_not_show_it() -> (
    None
):
    assert GOES.state(a_vmi("Ready")) == GOES.state(a_vmi("Ready", listed=False)) == "accepted"
    assert GOES.state(a_vmi("Pending")) == "accepted"
    assert GOES.state(a_vmi("Detaching", listed=False)) == "Detaching: why"
    assert COMES.state(a_vmi("Ready", "old")) == "accepted", "it is to be replaced"
    assert COMES.state(a_vmi("Ready")) == "Ready: why"


STAGED = {
    "its disk": ("domain.devices.disks[data].serial", "domain.devices.disks[data].serial (Bus)"),
    "its volume": ("volumes[data]", "volumes[data] (Bus)"),
    "one of a longer name": ("volumes[data2]", ""),
    "another field": ("domain.cpu.model", ""),
}


@pytest.mark.parametrize(("path", "why"), STAGED.values(), ids=STAGED)
def test_what_waits_for_a_restart_is_told(path: str, why: str) -> None:
    waiting = {"path": f"spec.template.spec.{path}", "reason": "Bus"}
    assert COMES.staged({"status": {"pendingChanges": [waiting]}}) == why
    assert COMES.staged({}) == ""


SENTENCES = {
    "attached": (COMES, Outcome.LIVE, "VM web has volume data as sda"),
    "detached": (GOES, Outcome.LIVE, "volume data detached from VM web"),
    "to come": (COMES, Outcome.AT_START, "VM web does not run; it starts with volume data"),
    "to go": (GOES, Outcome.AT_START, "VM web does not run; it starts without volume data"),
    "to wait": (
        GOES, Outcome.RESTART,
        "VM web needs a restart for volume data: because; `virtctl restart web`",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "end", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_how_it_ended_is_a_sentence(change: Attachment, end: Outcome, sentence: str) -> None:
    assert change.message(end, a_vmi("Ready"), "because") == sentence


MARKS = {
    "none": (None, "data", None),
    "another one": ("more", "more,data", "more"),
    "this one": (" data , more", "data,more", "more"),
    "this one alone": ("data", "data", None),
}


@pytest.mark.parametrize(("text", "forced", "unforced"), MARKS.values(), ids=MARKS)
def test_a_volume_is_marked_among_others_and_the_mark_taken_back(
    text: str | None, forced: str, unforced: str | None
) -> None:
    vm = {"metadata": {"annotations": {FORCE_DETACH: text}} if text else {}}
    assert attachment.forced(vm, "data") == {"annotations": {FORCE_DETACH: forced}}
    assert attachment.unforced(vm, "data") == {"annotations": {FORCE_DETACH: unforced}}


FLAGS = {
    "a disk on sata": (
        ["--bus", "sata"],
        "Invalid bus type 'sata' for disk. Only 'scsi' and 'virtio' are supported.",
    ),
    "a LUN on virtio": (
        ["--disk-type", "lun", "--bus", "virtio"],
        "Invalid bus type 'virtio' for LUN disk. Only 'scsi' bus is supported.",
    ),
    "a floppy": (
        ["--disk-type", "floppy"],
        "Invalid disk type 'floppy'. Only LUN and Disk are supported.",
    ),
    "plenty of cache": (["--cache", "plenty"], "error adding volume, invalid cache value plenty"),
}


@pytest.mark.parametrize(("flags", "why"), FLAGS.values(), ids=FLAGS)
def test_flags_that_fit_no_disk_are_refused_before_anything_is_asked(
    flags: list[str], why: str
) -> None:
    ran = CliRunner().invoke(addvolume, ["web", "--volume-name", "data", *flags])
    assert ran.exit_code == 1
    assert why in ran.output
