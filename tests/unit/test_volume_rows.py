"""Which test keeps which behaviour of KubeVirt's volume hotplug, and which behaviour has none.

The rows are the edits of a running VM and the behaviours that KubeVirt's own functional tests pin.
A row names its tests; this one sees to it that they exist.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

VERDICT = "unit/vm/verdict/test_verdict.py"
HOT = "guest/test_hot_volumes.py"
BLOCK = "guest/test_block_volumes.py"
MIGRATION = "guest/test_migration.py"
ACTIONS = "api/vm/test_volume_actions.py"
ADMISSION = "unit/vm/volumes/test_update_admission.py"

#: Edits of the template of a running VM. A word of a table is quoted as it stands there.
EDITS: dict[str, list[tuple[str, str]]] = {
    "a hotpluggable volume with a disk or a lun": [
        (VERDICT, '"a hotpluggable volume and its disk"'),
        (VERDICT, '"a hotpluggable DataVolume on a lun"'),  # not here: no claim is a SCSI device
        (HOT, "test_a_disk_is_added_written_read_and_removed_by_plain_edits"),
    ],
    "one whose disk is left out": [
        (VERDICT, '"a hotpluggable volume whose disk is left out"'),
        (HOT, "test_given_a_claim_is_missing_then_the_guest_starts_without_and_gets_it_later"),
    ],
    "one on sata, on usb, or on no bus": [
        (VERDICT, '"a hotpluggable volume on sata"'),
        (VERDICT, '"a hotpluggable volume on usb"'),
        (ACTIONS, "test_a_bus_that_takes_no_disk_live_is_told_and_waits_for_a_restart"),
    ],
    "one that is not hotpluggable": [(VERDICT, '"a volume that is not hotpluggable"')],
    "one of each in one edit": [
        (VERDICT, '"one hotpluggable and one that is not"'),
        (HOT, "test_given_another_field_needs_a_restart_then_the_volume_comes_all_the_same"),
    ],
    "a hotpluggable volume and its disk go": [
        (VERDICT, '"a hotpluggable volume and its disk removed"'),
        (HOT, "test_a_disk_is_added_written_read_and_removed_by_plain_edits"),
    ],
    "the volume goes and its disk stays": [
        ("unit/vm/lifecycle/test_vm_admission.py", "Name 'd' not found."),
        (ADMISSION, '"a disk without a volume"'),
    ],
    "one that is not hotpluggable goes": [(VERDICT, '"a boot volume and its disk removed"')],
    "another claim for a hotpluggable disk": [
        (VERDICT, '"another claim for a hotpluggable disk"'),
        (HOT, "test_given_the_name_gets_another_claim_then_the_disk_is_replaced"),
    ],
    "only settings of its disk": [(VERDICT, '"only settings of a hotpluggable disk"')],
    "a boot volume becomes hotpluggable": [
        (VERDICT, '"a boot volume made hotpluggable"'),
        (VERDICT, '"a boot volume made hotpluggable with another claim"'),
    ],
    "a volume is hotpluggable no more": [(VERDICT, '"a volume no more hotpluggable"')],
    "another claim for a boot disk": [(VERDICT, '"another claim of a boot disk"')],
    "another order of the lists": [(VERDICT, '"another order of everything"')],
    "a disc comes": [
        (VERDICT, '"a medium injected"'),
        (HOT, "test_a_disc_is_injected_swapped_and_ejected_by_plain_edits"),
    ],
    "a disc goes": [(VERDICT, '"a medium ejected"')],
    "another disc": [(VERDICT, '"a medium swapped"')],
    "a disc that is not hotpluggable": [(VERDICT, '"a medium that is not hotpluggable"')],
    "the disc of the start, not hotpluggable, goes or changes": [
        (VERDICT, '"a medium of the start that is not hotpluggable"'),
        (VERDICT, '"another medium of the start that is not hotpluggable"'),
    ],
    "an empty drive comes": [(VERDICT, '"an empty drive added"')],
    "a drive comes with its disc": [
        (VERDICT, '"a drive with a medium added"'),
        (HOT, "test_a_drive_itself_comes_and_goes_on_a_bus_that_allows_it"),
        (HOT, "test_a_drive_on_sata_waits_for_a_restart_and_the_rest_of_the_edit_does_not"),
    ],
    "a drive goes, with its disc or empty": [
        (VERDICT, '"a drive removed"'),
        (VERDICT, '"a drive removed with its medium"'),
        (HOT, "test_given_a_sata_drive_is_removed_then_its_disc_goes_at_once"),
    ],
    "the VM does not run": [
        (ACTIONS,
         "test_a_volume_is_added_to_and_removed_from_a_stopped_vm_even_of_a_claim_to_come"),
    ],
    "the guest is paused": [
        (HOT, "test_given_the_guest_is_paused_then_a_scsi_disk_comes_all_the_same"),
    ],
}  # fmt: skip

#: What KubeVirt's functional tests pin.
BEHAVIOURS: dict[str, list[tuple[str, str]]] = {
    "a VM with an empty drive becomes ready; inject, swap, eject, inject again as the first": [
        (HOT, "test_a_disc_is_injected_swapped_and_ejected_by_plain_edits"),
    ],
    "drive and disc are removed": [
        (HOT, "test_given_a_sata_drive_is_removed_then_its_disc_goes_at_once"),
    ],
    "a blank DataVolume on scsi comes and goes": [
        (HOT, "test_a_disk_is_added_written_read_and_removed_by_plain_edits"),
    ],
    "a stopped VM gets and loses volumes, even of claims to come": [
        (ACTIONS,
         "test_a_volume_is_added_to_and_removed_from_a_stopped_vm_even_of_a_claim_to_come"),
    ],
    "a VM boots from a hotpluggable block DataVolume of a class that waits for its consumer": [
        (BLOCK, "test_a_guest_boots_from_a_hot_block_device_and_gets_more_after_a_kill"),
    ],
    "a stopped VM with a block volume added starts with it": [
        (BLOCK, "test_a_guest_boots_from_a_hot_block_device_and_gets_more_after_a_kill"),
    ],
    "block devices survive a restart of the agent, and more can be added": [
        (BLOCK, "test_a_guest_boots_from_a_hot_block_device_and_gets_more_after_a_kill"),
        (BLOCK, "test_given_kills_then_a_block_claim_is_attached_and_no_device_is_left"),
    ],
    "three DataVolumes of a class that waits for its consumer": [
        (HOT, "test_three_new_data_volumes_come_are_used_and_go"),
    ],
    "an instance without a VM; a dry run attaches nothing": [
        (ACTIONS, "test_an_instance_without_a_vm_is_edited_itself"),
        ("guest/test_volume_commands.py",
         "test_an_instance_without_a_vm_has_volumes_added_too"),
    ],
    "scsi and virtio, files and devices, before and after the guest has booted": [
        (HOT, "test_given_a_disk_is_mounted_then_it_waits_until_it_is_not"),
        (HOT, "test_given_the_guest_has_not_booted_yet_then_disks_come_and_go"),
        (BLOCK, "test_a_block_claim_is_a_device_that_comes_grows_and_goes"),
    ],
    "found by serial, formatted, written and read; then gone from guest, VM and instance": [
        (HOT, "test_a_disk_is_added_written_read_and_removed_by_plain_edits"),
        ("guest/test_volume_commands.py", "test_a_disk_is_added_used_and_removed"),
    ],
    "a dry run on a VM": [
        (ACTIONS, "test_a_dry_run_is_checked_by_the_same_rules_and_changes_nothing"),
    ],
    "five volumes one after another, used, removed, without a warning": [
        (HOT, "test_five_volumes_come_one_after_another_are_used_and_go"),
    ],
    "targets: consecutive, and a free letter is taken first": [
        (HOT, "test_the_next_disk_takes_the_letter_that_became_free"),
        ("unit/node/test_volume_status.py", "targets"),
    ],
    "75 volumes at once": [(HOT, "test_seventy_five_volumes_in_one_edit")],
    "a guest moves with a shared block volume, which can go and come again": [
        (MIGRATION, "test_a_shared_block_volume_travels_and_can_go_and_come_again"),
    ],
    "a guest moves with plugged volumes and a disc; edits of volumes wait for that": [
        (MIGRATION, "test_volumes_that_were_plugged_and_a_disc_travel_with_their_content"),
        (MIGRATION, "test_volumes_that_are_edited_during_a_migration_wait_for_its_end"),
    ],
    "events tell that a volume is there, and that it has gone": [
        ("unit/node/test_events.py", "test_volumes_that_come_go_or_get_stuck"),
        (HOT, "test_a_disk_is_added_written_read_and_removed_by_plain_edits"),
    ],
    "an import that is not done is waited for": [
        (HOT, "test_an_import_tells_how_far_it_is_and_the_disk_comes_when_it_is_done"),
    ],
    "there after a stop and start, and can still go": [
        (HOT, "test_hot_disks_are_there_after_a_restart_and_can_still_go"),
    ],
    "a name or a claim that is taken; a volume that is not hotpluggable or unknown": [
        (ACTIONS, '"a name that is taken"'),
        (ACTIONS, '"a claim that is used"'),
        (ACTIONS, '"a volume of the start"'),
        (ACTIONS, '"a volume that is not there"'),
    ],
    "a file and a device together": [
        (BLOCK, "test_a_block_claim_is_a_device_that_comes_grows_and_goes"),
    ],
    "IO threads: shared with scsi, and one of its own on virtio": [
        ("unit/node/test_domain_io_threads.py", "def test_"),
        ("guest/qemu/test_qemu_threads.py", "test_a_disk_with_a_thread_of_its_own_brings_it"),
        (HOT, "test_a_virtio_disk_has_a_thread_of_its_own_if_asked_to"),
    ],
    "a lun: here a reason, for a claim is kept in a file": [
        (BLOCK, "test_a_block_claim_is_a_device_that_comes_grows_and_goes"),
        (BLOCK, "test_a_lun_on_a_file_keeps_a_guest_from_starting_and_says_why"),
    ],
    "a refused disk says why, in words of its own for each bus": [(ADMISSION, "PREFIX")],
}  # fmt: skip

#: Behaviours without a test here, and why.
NOT_HERE = {
    "a sidecar rewrites the path of a disk": "there are no sidecars: QEMU is all that runs",
    "an attachment pod is deleted, once or ten times": "there are no attachment pods",
    "an attachment pod obeys the LimitRange": "there are no attachment pods",
    "volumes of a hostpath provisioner, on a device of their own": "every claim is a directory",
    "a lun is used in the guest": "it takes a SCSI device of the host",
    "a VM with a PCI host device restarts": "host devices are not served",
}


@pytest.mark.parametrize(("row", "kept"), [*EDITS.items(), *BEHAVIOURS.items()])
def test_every_row_is_kept_by_tests_that_exist(row: str, kept: list[tuple[str, str]]) -> None:
    assert kept, row
    for file, words in kept:
        found = f"def {words}(" if words.startswith("test_") else words
        assert found in (TESTS / file).read_text(), f"{row}: {file} has no {words}"


def test_what_has_no_test_has_a_reason() -> None:
    assert all(NOT_HERE.values())
    assert not NOT_HERE.keys() & {*EDITS, *BEHAVIOURS}
