from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from livevirt.kube.objects import conditions
from livevirt.node import exit_record, vmi_status
from livevirt.node.attachments import Attachment, Problem
from livevirt.node.copying import Progress
from livevirt.node.guest import AgentView, View
from livevirt.node.vmi_status import GuestSnapshot, patch
from livevirt.qemu.agent import Address, Interface, OsInfo, Vcpu
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.guest_memory import GuestMemory, MemoryBlock
from livevirt.qemu.lifecycle import standing
from livevirt.qemu.machine import Cpu, Machine, Memory, Nic, Thread
from livevirt.qemu.observe import CpuSlot, Drive, MemoryState, Observed
from livevirt.vm.volumes.volume_migration import Move

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = "2026-01-01T12:00:00Z"
MIB = 1024 * 1024
MAC = "02:00:00:00:00:01"


def a_disk(name: str, bus: Any = "virtio") -> Disk:
    return Disk(id=f"ua-{name}", image=Image(f"/{name}"), bus=bus)


MACHINE = Machine(
    name="web",
    uuid="00000000-0000-0000-0000-000000000001",
    accelerator="tcg",
    cpu=Cpu(model="max", max_sockets=4),
    memory=Memory(boot=256 * MIB, max=1024 * MIB),
    run_dir="/run/1",
    serial_log="/log",
    disks=(a_disk("root"), a_disk("seed", "sata")),
    nics=(Nic(id="net-default", mac=MAC),),
)
OBSERVED = Observed(
    run_state="running",
    cpus=(CpuSlot(Thread(0, 0, 0), "max-x86_64-cpu", True),),
    memory=MemoryState(boot=256 * MIB, plugged=128 * MIB, requested=256 * MIB),
    drives=(Drive(id="ua-seed", size=2048),),
)
AGENT = AgentView(
    "7.2.0",
    OsInfo(id="debian", pretty_name="Debian 12"),
    interfaces=(
        Interface("lo", "00:00:00:00:00:00", (Address("127.0.0.1", "ipv4", 8),)),
        Interface(
            "eth0",
            MAC,
            (Address("fe80::1", "ipv6", 64), Address("10.0.2.15", "ipv4", 24)),
        ),
    ),
)
RUNNING = View(standing("running"), OBSERVED, "pc-q35-7.2")


def a_vmi(**status: Any) -> Any:
    volumes = [
        {"name": "root", "containerDisk": {"image": "guest"}},
        {"name": "seed", "cloudInitNoCloud": {"userData": "x"}},
    ]
    return {
        "metadata": {"name": "web"},
        "spec": {"volumes": volumes},
        "status": {"phase": "Scheduled", **status},
    }


def changed(vmi: Any = None, view: View = RUNNING, **more: Any) -> Any:
    return patch(GuestSnapshot(vmi=vmi or a_vmi(), now=NOON, machine=MACHINE, view=view, **more))


def followed(vmi: Any, change: Any) -> Any:
    """Return the VMI after a merge patch of its status."""

    def merged(old: Any, new: Any) -> Any:
        if not isinstance(new, dict):
            return new
        kept = dict(old or {})
        for key, value in new.items():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = merged(kept.get(key), value)
        return kept

    return {**vmi, "status": merged(vmi["status"], change)}


def test_a_running_guest_is_told_in_one_patch() -> None:
    found = changed()
    assert found["phase"] == "Running"
    assert found["phaseTransitionTimestamps"] == [
        {"phase": "Running", "phaseTransitionTimestamp": AT}
    ]
    assert found["memory"] == {
        "guestAtBoot": "256Mi",
        "guestCurrent": "384Mi",
        "guestPlugged": "384Mi",
        "guestRequested": "512Mi",
        "confirmed": False,
    }
    assert found["machine"] == {"type": "pc-q35-7.2"}
    assert found["volumeStatus"] == [
        {"name": "root", "target": "vda"},
        {"name": "seed", "target": "sda", "size": 2048},
    ]


def test_given_the_controller_has_not_handed_it_over_then_nothing_is_said() -> None:
    assert changed(a_vmi(phase="Scheduling")) == {}


def test_given_nothing_changed_then_nothing_is_written() -> None:
    vmi = followed(a_vmi(), changed(view=replace(RUNNING, agent=AGENT)))
    assert changed(vmi, replace(RUNNING, agent=AGENT)) == {}


def test_given_the_agent_answers_then_system_and_addresses_are_told() -> None:
    found = changed(view=replace(RUNNING, agent=AGENT))
    assert conditions.is_true(found["conditions"], "AgentConnected")
    assert found["guestOSInfo"] == {"id": "debian", "prettyName": "Debian 12"}
    (card,) = found["interfaces"]
    assert (card["name"], card["interfaceName"]) == ("default", "eth0")
    assert card["ipAddresses"] == ["10.0.2.15", "fe80::1"]
    assert card["ipAddress"] == "10.0.2.15"


def test_given_an_agent_that_says_too_much_then_the_status_stays_small() -> None:
    many = tuple(Address(f"2001:db8::{n:x}", "ipv6", 64) for n in range(100_000))
    ours, odd = Address("10.0.2.15", "ipv4", 24), Address("1" * 100_000, "ipv4", 24)
    talkative = AgentView(
        "7.2.0",
        OsInfo(id="debian", pretty_name="Debian " * 100_000),
        interfaces=(Interface("eth" * 100_000, MAC, (odd, *many, ours)),),
    )
    found = changed(view=replace(RUNNING, agent=talkative))
    assert len(str(found)) < 10_000
    assert found["guestOSInfo"]["prettyName"].startswith("Debian Debian")
    (card,) = found["interfaces"]
    assert card["ipAddress"] == "10.0.2.15"


def test_given_the_agent_goes_then_what_it_told_goes_too() -> None:
    vmi = followed(a_vmi(), changed(view=replace(RUNNING, agent=AGENT)))
    after = followed(vmi, changed(vmi))
    assert not conditions.is_true(after["status"]["conditions"], "AgentConnected")
    assert after["status"]["guestOSInfo"] == {}
    assert changed(after) == {}


PAUSES = {
    "by a person": ("paused", "PausedByUser"),
    "by an error": ("io-error", "PausedIOError"),
    "not": ("running", ""),
}


@pytest.mark.parametrize(("state", "reason"), PAUSES.values(), ids=PAUSES)
def test_a_pause_has_its_reason(state: str, reason: str) -> None:
    found = changed(view=replace(RUNNING, standing=standing(state)))
    assert (conditions.find(found["conditions"], "Paused") or {}).get("reason", "") == reason


FAILURES = {
    "a full one": ("nospace", "no space is left for disk data: free some"),
    "a broken one": ("failed", "disk data cannot be read or written: fix or remove it"),
}


@pytest.mark.wording
@pytest.mark.parametrize(("status", "words"), FAILURES.values(), ids=FAILURES)
def test_a_pause_by_an_error_names_the_disk_and_what_helps(status: str, words: str) -> None:
    assert RUNNING.observed is not None
    drives = (Drive("ua-root"), Drive("ua-data", io_status=status))
    observed = replace(RUNNING.observed, run_state="io-error", drives=drives)
    view = replace(RUNNING, standing=standing("io-error"), observed=observed)
    paused = conditions.find(changed(view=view)["conditions"], "Paused")
    assert paused is not None
    assert paused["message"].startswith("VMI was paused, low-level IO error detected; ")
    assert words in paused["message"]
    assert "root" not in paused["message"]


def test_conditions_of_others_are_left_alone() -> None:
    theirs = {"type": "Ready", "status": "True", "reason": "x", "lastTransitionTime": AT}
    found = changed(a_vmi(conditions=[theirs]))
    assert theirs in found["conditions"]


def test_an_end_is_told_once_and_for_all() -> None:
    end = exit_record.vanished(AT, oom_killed=False, rebooted=False, complaint="")
    vmi = followed(a_vmi(), changed())
    found = changed(vmi, ending=end)
    assert (found["phase"], found["reason"]) == ("Failed", "Crashed")
    assert [each["phase"] for each in found["phaseTransitionTimestamps"]] == ["Running", "Failed"]
    assert changed(followed(vmi, found), ending=exit_record.destroyed(AT)) == {}


def test_given_a_claim_that_is_not_shared_then_the_guest_cannot_migrate() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    found = changed(claims={"root": claim})
    condition = conditions.find(found["conditions"], "LiveMigratable")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "DisksNotLiveMigratable")
    assert found["volumeStatus"][0]["persistentVolumeClaimInfo"]["claimName"] == "data"


def test_a_volume_that_waits_shows_as_a_condition_and_is_told_anew_when_the_words_change() -> None:
    def waiting(message: str) -> dict[str, Attachment]:
        return {"data": Attachment("Detaching", "InUseByGuest", message)}

    first = followed(a_vmi(), changed(attachments=waiting("mounted at /a")))
    shown = conditions.find(first["status"]["conditions"], "HotVolumeChange")
    assert shown is not None
    assert shown["reason"] == "InUseByGuest"
    second = followed(first, changed(first, attachments=waiting("mounted at /b")))
    later = conditions.find(second["status"]["conditions"], "HotVolumeChange")
    assert later is not None
    assert later["message"] != shown["message"]
    third = followed(second, changed(second, attachments={}))
    assert conditions.find(third["status"]["conditions"], "HotVolumeChange") is None
    assert all(each["name"] != "data" for each in third["status"]["volumeStatus"])


RULE = "live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"


def with_volumes(*claims: str, **status: Any) -> Any:
    """Return an instance with hotpluggable volumes, each named like its claim."""
    found = a_vmi(**status)
    for name in claims:
        source = {"claimName": name, "hotpluggable": True}
        found["spec"]["volumes"].append({"name": name, "persistentVolumeClaim": source})
    return found


def attached(name: str, mode: str) -> Attachment:
    claim = {"metadata": {"name": name}, "spec": {"accessModes": [mode]}}
    return Attachment("Ready", "VolumeReady", "", claim)


def why_it_stays(vmi: Any) -> str:
    found = conditions.find(vmi["status"]["conditions"], "LiveMigratable") or {}
    assert found.get("status") == ("False" if "message" in found else "True")
    return str(found.get("message", ""))


@pytest.mark.wording
def test_what_keeps_a_guest_on_its_node_is_always_what_is_so_now() -> None:
    alpha, beta = (attached(name, "ReadWriteOnce") for name in ("alpha", "beta"))
    both, one = with_volumes("alpha", "beta"), with_volumes("beta")
    vmi = followed(both, changed(both, attachments={"alpha": alpha, "beta": beta}))
    assert why_it_stays(vmi) == f"cannot migrate VMI: PVC alpha is not shared, {RULE}"
    vmi["spec"] = one["spec"]
    vmi = followed(vmi, changed(vmi, attachments={"beta": beta}))
    assert why_it_stays(vmi) == f"cannot migrate VMI: PVC beta is not shared, {RULE}"
    vmi["spec"] = a_vmi()["spec"]
    assert why_it_stays(followed(vmi, changed(vmi, attachments={}))) == ""


def test_a_claim_that_nobody_knows_keeps_the_guest_where_it_is() -> None:
    vmi = with_volumes("data")
    waits = {"data": Attachment("Pending", "FailedPvcNotFound", "PVC data does not exist")}
    for seen in ({}, waits):
        assert why_it_stays(followed(vmi, changed(vmi, attachments=seen)))
    vmi = followed(vmi, changed(vmi, attachments={"data": attached("data", "ReadWriteMany")}))
    assert why_it_stays(vmi) == ""
    # An agent that has just begun knows it by what was told.
    assert "conditions" not in changed(vmi, attachments=None)


def test_a_volume_with_a_copy_ahead_keeps_the_guest_where_it_is() -> None:
    entry = {
        "volumeName": "data",
        "sourcePVCInfo": {"claimName": "old"},
        "destinationPVCInfo": {"claimName": "data"},
    }
    known = {"claimName": "old", "accessModes": ["ReadWriteMany"]}
    status = {"name": "data", "hotplugVolume": {}, "persistentVolumeClaimInfo": known}
    vmi = with_volumes("data", migratedVolumes=[entry], volumeStatus=[status])
    move = Move("data", "old", "data")
    under_way = {"data": Progress(move, "Copying", "10% copied")}
    stuck = {"data": Progress(move, "Copying", "", Problem("FailedPvcNotFound", "no PVC data"))}
    vmi = followed(vmi, changed(vmi, copies=under_way))
    copied = why_it_stays(vmi)
    vmi = followed(vmi, changed(vmi, copies=stuck))
    assert why_it_stays(vmi) not in ("", copied)


@pytest.mark.wording
def test_what_keeps_a_guest_on_its_node_is_named() -> None:
    vmi = with_volumes("data")
    unknown = f"cannot migrate VMI: Unable to determine if PVC data is shared, {RULE}"
    assert why_it_stays(followed(vmi, changed(vmi, attachments={}))) == unknown
    entry = {"volumeName": "data", "destinationPVCInfo": {"claimName": "data"}}
    vmi = with_volumes("data", migratedVolumes=[entry])
    moving = {"data": Progress(Move("data", "", "data"), "Copying", "10% copied")}
    vmi = followed(vmi, changed(vmi, copies=moving))
    assert why_it_stays(vmi).endswith("data is being copied to another PVC")


ROOT = {"name": "root", "containerDisk": {"image": "guest"}}
SEED = {"name": "seed", "cloudInitNoCloud": {"userData": "x"}}
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
METHODS: dict[str, tuple[list[Any], list[Any], str]] = {
    "only claims": ([CLAIM], [{"name": "data", "disk": {}}], "LiveMigration"),
    "nothing": ([], [], "LiveMigration"),
    "an image": ([ROOT], [{"name": "root", "disk": {}}], "BlockMigration"),
    "cloud-init on a disk": ([CLAIM, SEED], [{"name": "seed", "disk": {}}], "BlockMigration"),
    "on a disc": ([CLAIM, SEED], [{"name": "seed", "cdrom": {}}], "LiveMigration"),
    "on a disc to write on": (
        [SEED], [{"name": "seed", "cdrom": {"readonly": False}}], "BlockMigration",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("volumes", "disks", "method"), METHODS.values(), ids=METHODS)
def test_how_the_disks_of_a_guest_move(volumes: list[Any], disks: list[Any], method: str) -> None:
    vmi = a_vmi()
    vmi["spec"] = {"domain": {"devices": {"disks": disks}}, "volumes": volumes}
    assert changed(vmi)["migrationMethod"] == method


def test_a_plugged_claim_that_is_not_shared_keeps_the_guest_where_it_is() -> None:
    claim = {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    there = {"data": Attachment("Ready", "VolumeReady", "", claim)}
    found = changed(attachments=there)["conditions"]
    assert not conditions.is_true(found, "LiveMigratable")
    assert conditions.is_true(changed(attachments={})["conditions"], "LiveMigratable")


def test_a_node_that_cannot_send_guests_reports_that_they_do_not_migrate() -> None:
    found = changed(migrates=False)["conditions"]
    condition = conditions.find(found, "LiveMigratable")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "MigrationNotSupported")


def test_free_ports_are_told() -> None:
    view = replace(RUNNING, observed=replace(OBSERVED, free_ports=("port7", "port8")))
    assert changed(view=view)["freePCIePorts"] == 2


def test_a_machine_that_has_not_answered_says_nothing() -> None:
    assert changed(view=View()) == {}
    assert not vmi_status.is_paused(None)


def test_a_guest_found_again_keeps_what_its_agent_told_until_it_is_asked() -> None:
    view = replace(RUNNING, observed=replace(OBSERVED, agent_open=True))
    vmi = a_vmi()
    known = followed(vmi, changed(vmi, replace(view, agent=AGENT)))
    assert not {"conditions", "guestOSInfo", "interfaces"} & changed(known, view).keys()
    assert "conditions" in changed(known, RUNNING)  # its port is closed: it is gone


def test_a_change_of_size_that_goes_well_is_reported_with_the_first_write_there_is() -> None:
    size = {"domain": {"cpu": {"sockets": 2}, "memory": {"guest": "512Mi"}}}
    resources = {"requests": {"cpu": "100m", "memory": "1Gi"}}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "compute", "resources": resources}]},
        "status": {"containerStatuses": [{"name": "compute", "resources": resources}]},
    }
    vmi = followed(a_vmi(), changed())
    vmi["spec"] |= size
    vmi["status"]["sizeRevision"] = {"cpu": 1}
    assert changed(vmi, pod=pod, brief=True) == {}
    assert set(changed(vmi, pod=pod)) == {"conditions"}
    grown = replace(RUNNING, machine_type="pc-q35-8.0")
    found = changed(vmi, grown, pod=pod, brief=True)
    assert set(found) == {"machine", "conditions"}
    assert conditions.is_true(found["conditions"], "HotVCPUChange")


# ---------------------------------------------------------------- what the guest confirms

BLOCK = 128 * MIB
GROWN = replace(
    OBSERVED, memory=MemoryState(256 * MIB, 256 * MIB, 256 * MIB, 768 * MIB, 32 * BLOCK)
)
ONE_CPU = (Vcpu(0, True),)


def reporting(online: tuple[bool, ...], **more: Any) -> View:
    """Return a guest whose agent lists that many blocks of 256Mi plugged memory."""
    blocks = tuple(MemoryBlock(32 + n, up) for n, up in enumerate(online))
    agent = replace(AGENT, vcpus=ONE_CPU, blocks=GuestMemory(BLOCK, blocks), **more)
    return replace(RUNNING, observed=GROWN, agent=agent)


def test_memory_that_the_guest_left_offline_is_plugged_and_not_there() -> None:
    found = changed(view=reporting((True, False)))["memory"]
    assert (found["guestCurrent"], found["guestPlugged"]) == ("384Mi", "512Mi")
    assert found["confirmed"] is True
    found = changed(view=reporting((True, True)))["memory"]
    assert (found["guestCurrent"], found["guestPlugged"]) == ("512Mi", "512Mi")


def test_cpus_are_reported_with_what_the_kernel_knows_of() -> None:
    found = changed(view=reporting((), possible_cpus=4))["currentCPUTopology"]
    assert found == {
        "cores": 1, "sockets": 1, "threads": 1, "confirmed": True, "present": 1, "possible": 4,
    }  # fmt: skip
    assert changed()["currentCPUTopology"]["confirmed"] is False


def test_memory_brought_online_where_the_kernel_may_keep_it_is_reported_until_it_is_gone() -> None:
    vmi = a_vmi()
    vmi = followed(vmi, changed(vmi, reporting((True, True), unmovable=True)))
    assert vmi["status"]["memory"]["shrinkable"] is False
    vmi = followed(vmi, changed(vmi, reporting((True, True))))
    assert vmi["status"]["memory"]["shrinkable"] is False
    gone = replace(reporting(()), observed=replace(OBSERVED, memory=MemoryState(256 * MIB)))
    assert "shrinkable" not in followed(vmi, changed(vmi, gone))["status"]["memory"]


def test_a_guest_found_again_keeps_the_memory_it_had_confirmed() -> None:
    vmi = followed(a_vmi(), changed(view=reporting((True, False))))
    vmi = followed(vmi, {"conditions": [conditions.condition("AgentConnected", True)]})
    unasked = replace(RUNNING, observed=replace(GROWN, agent_open=True))
    found = followed(vmi, changed(vmi, unasked))["status"]["memory"]
    assert (found["guestCurrent"], found["confirmed"]) == ("384Mi", True)


def test_an_agent_that_hangs_confirms_nothing_any_more() -> None:
    vmi = followed(a_vmi(), changed(view=reporting((True, False))))
    assert conditions.is_true(vmi["status"]["conditions"], "AgentConnected")
    hanging = replace(RUNNING, observed=replace(GROWN, agent_open=True), agent_silent=True)
    vmi = followed(vmi, changed(vmi, hanging))
    assert not conditions.is_true(vmi["status"]["conditions"], "AgentConnected")
    found = vmi["status"]["memory"]
    assert (found["guestCurrent"], found["confirmed"]) == ("512Mi", False)


REVISIONS = {"sizeRevision": {"memory": 2}, "observedSizeRevision": {"memory": 2}}
CONFIRMATIONS = {
    "never changed": ({}, RUNNING, None),
    "done, no agent": (REVISIONS, RUNNING, "NoGuestAgent"),
    "done, an agent without the command": (
        REVISIONS, replace(RUNNING, agent=AGENT), "NotReportedByAgent",
    ),
    "done and confirmed": (REVISIONS, reporting((True, True)), None),
    "another resource": (
        {"sizeRevision": {"cpu": 1}, "observedSizeRevision": {"cpu": 1}},
        replace(RUNNING, agent=replace(AGENT, vcpus=ONE_CPU)),
        None,
    ),
    "under way": ({**REVISIONS, "sizeRevision": {"memory": 3}}, RUNNING, None),
}  # fmt: skip


@pytest.mark.parametrize(("status", "view", "reason"), CONFIRMATIONS.values(), ids=CONFIRMATIONS)
def test_whether_a_change_that_is_done_is_confirmed(
    status: Any, view: View, reason: str | None
) -> None:
    found = conditions.find(changed(a_vmi(**status), view)["conditions"], "SizeConfirmed")
    assert (found or {}).get("reason") == reason
    assert (found or {}).get("status") != "True"
