"""When a volume is copied to another claim, what is told of it, and what the next guest gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.request import Object
from livevirt.node.volumes import DATA_FAILED, DATA_NOT_READY, PVC_NOT_FOUND
from livevirt.vm.config.settings import Config
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.live_patch import settles
from livevirt.vm.verdict.verdict import judge
from livevirt.vm.verdict.verdict_inputs import VerdictInputs
from livevirt.vm.volumes.volume_lists import claim_of
from livevirt.vm.volumes.volume_migration import (
    COPIED,
    COPYING,
    SWITCHING,
    moved,
    remembered,
    state,
    switching,
    to_start_from,
)
from livevirt.vm.volumes.volume_patch import volume_patch

from ..cases import KVM, LIVE, STAGE, a_claim, a_spec, edited, running

FIXED = {"name": "fixed", "disk": {"bus": "sata"}}
CLAIM, FIXED_CLAIM = "volumes.1.persistentVolumeClaim", "volumes.2.persistentVolumeClaim"


def a_template(**edits: Any) -> Object:
    """Return one with a volume that may come and go, `data`, and one that may not, `fixed`."""
    spec = a_spec()
    spec["volumes"].append(a_claim("fixed", hot=False))
    spec["domain"]["devices"]["disks"].append(FIXED)
    return edited(spec, {path.replace("__", "."): value for path, value in edits.items()})


def an_entry(volume: str, source: str, destination: str, phase: str = COPYING) -> Object:
    return {
        "volumeName": volume,
        "sourcePVCInfo": {"claimName": source},
        "destinationPVCInfo": {"claimName": destination},
        "phase": phase,
    }


def an_instance(spec: Object | None = None, *moves: Object, **status: Any) -> Object:
    listed = [{"name": "data", "phase": "Ready", "hotplugVolume": {}}]
    found = running(spec or a_template(), volumeStatus=listed, **status)
    if moves:
        found["status"]["migratedVolumes"] = list(moves)
    return found


def judged(
    edits: Object, vmi: Object | None = None, strategy: str = "Migration", config: Config = LIVE
) -> Judgement:
    started = a_template()
    return judge(
        VerdictInputs(
            started,
            edited(started, edits),
            vmi or an_instance(),
            config,
            **KVM,
            volumes_strategy=strategy,
        )
    )


def verdict(edits: Object, **how: Any) -> set[tuple[str, str, bool]]:
    found = judged(edits, **how).changes
    return {(str(c.verdict), str(c.reason), c.waits) for c in found}


def pending(reason: str) -> Object:
    """Return an instance whose volume `data` is not attached for a reason."""
    return running(
        a_template(),
        volumeStatus=[{"name": "data", "phase": "Pending", "reason": reason, "hotplugVolume": {}}],
    )


def unstarted(claim: str) -> Object:
    """Return an instance that waits for a claim before it starts."""
    return running(a_template(), phase="Pending", missingClaim=claim)


COPY = {("Live", "VolumeMigration", False)}
LATER = {("Live", "VolumeMigration", True)}
NOT_COPIED = {("Restart", "VolumeNotMigratable", False)}
OTHER, OTHER_FIXED = {f"{CLAIM}.claimName": "other"}, {f"{FIXED_CLAIM}.claimName": "other"}
DV = {"volumes.1": {"name": "data", "dataVolume": {"name": "other", "hotpluggable": True}}}
MOVING = an_instance(a_template(**{f"{CLAIM}.claimName": "new"}), an_entry("data", "data", "new"))
LEAVING = an_instance(
    a_template(**{f"{CLAIM}.claimName": "new"}), an_entry("data", "data", "new", SWITCHING)
)

VERDICTS: dict[str, tuple[Object, dict[str, Any], set[tuple[str, str, bool]]]] = {
    "another claim is copied to": (OTHER, {}, COPY),
    "also for a volume that does not come and go": (OTHER_FIXED, {}, COPY),
    "also to a DataVolume": (DV, {}, COPY),
    "also with the gates of hotplug closed": (
        OTHER, {"config": replace(LIVE, gates=frozenset({"VMLiveUpdateFeatures"}))}, COPY,
    ),
    "Replacement replaces it": (
        OTHER, {"strategy": ""}, {("Live", "VolumeHotplug", False)},
    ),
    "Replacement waits for a restart if it does not come and go": (
        OTHER_FIXED, {"strategy": "Replacement"}, {("Restart", "NotHotpluggable", False)},
    ),
    "Stage replaces it": (OTHER, {"config": STAGE}, {("Live", "VolumeHotplug", False)}),
    "Stage waits for a restart if it does not come and go": (
        OTHER_FIXED, {"config": STAGE}, {("Restart", "NotHotpluggable", False)},
    ),
    "it goes as ever": (
        {"volumes": [v for v in a_template()["volumes"] if v["name"] != "data"],
         "domain.devices.disks": [
             d for d in a_template()["domain"]["devices"]["disks"] if d["name"] != "data"
         ]},
        {}, {("Live", "VolumeHotplug", False)},
    ),
    "a disc comes as ever": (
        {"volumes.+": a_claim("cd", "iso")}, {}, {("Live", "MediumChange", False)},
    ),
    "a guest that does not run yet waits": (OTHER, {"vmi": an_instance(phase="Scheduled")}, LATER),
    "a volume that is not attached yet waits": (
        OTHER, {"vmi": running(a_template(), volumeStatus=[])}, LATER,
    ),
    "a volume of a claim that is being attached waits": (
        OTHER, {"vmi": pending("ClaimInUse")}, LATER,
    ),
    **{
        f"a volume that is pending for {reason} is replaced": (
            OTHER, {"vmi": pending(reason)}, {("Live", "VolumeHotplug", False)},
        )
        for reason in (PVC_NOT_FOUND, "PVCNotReady", DATA_NOT_READY, DATA_FAILED)
    },
    "a guest that waits for the claim takes another at a restart": (
        OTHER_FIXED, {"vmi": unstarted("fixed")},
        {("Restart", "NotHotpluggable", False)},
    ),
    "a guest that boots from a claim that is missing gets another": (
        OTHER, {"vmi": unstarted("data")}, {("Live", "VolumeHotplug", False)},
    ),
    "a guest that waits for another claim waits": (
        OTHER_FIXED, {"vmi": unstarted("other-fixed")}, LATER,
    ),
    "a guest that migrates waits": (
        OTHER, {"vmi": an_instance(migrationState={"startTimestamp": "now"})}, LATER,
    ),
    "read-only is not copied": ({**OTHER, f"{CLAIM}.readOnly": True}, {}, NOT_COPIED),
    "what was read-only is not copied": (
        OTHER, {"vmi": an_instance(a_template(**{f"{CLAIM}.readOnly": True}))}, NOT_COPIED,
    ),
    "the same claim is not copied": (
        {f"{CLAIM}.readOnly": True}, {}, {("Live", "VolumeHotplug", False)},
    ),
    "read-only while it is copied waits": (
        {f"{CLAIM}.claimName": "new", f"{CLAIM}.readOnly": True}, {"vmi": MOVING}, LATER,
    ),
    "shareable is not copied": (
        OTHER, {"vmi": an_instance(a_template(**{"domain.devices.disks.1.shareable": True}))},
        NOT_COPIED,
    ),
    "another setting of the disk is not copied": (
        {**OTHER, "domain.devices.disks.1.serial": "x"}, {}, NOT_COPIED,
    ),
    "hotpluggable that changes too is not copied": (
        {**OTHER_FIXED, f"{FIXED_CLAIM}.hotpluggable": True}, {}, NOT_COPIED,
    ),
    "back to the source while it is copied": ({}, {"vmi": MOVING}, COPY),
    "back to the source under Replacement": ({}, {"vmi": MOVING, "strategy": ""}, COPY),
    "back to the source with other settings of the disk": (
        {"domain.devices.disks.1.serial": "x"}, {"vmi": MOVING},
        {*COPY, ("Restart", "DiskSettingsOnly", False)},
    ),
    "on to a third claim while it is copied": (OTHER, {"vmi": MOVING}, COPY),
    "back to the source while the guest leaves it": ({}, {"vmi": LEAVING}, LATER),
    "nothing while it is copied": ({f"{CLAIM}.claimName": "new"}, {"vmi": MOVING}, set()),
}  # fmt: skip


@pytest.mark.parametrize(("edits", "how", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_verdict(edits: Object, how: dict[str, Any], expected: set[Any]) -> None:
    if "shareable" in str(how.get("vmi", "")):
        edits = {**edits, "domain.devices.disks.1.shareable": True}
    assert verdict(edits, **how) == expected


# ---------------------------------------------------------------- what the instance is told


def patched(judgement: Judgement, vmi: Object) -> Object:
    """Return the instance as the VM's controller leaves it."""
    patch = volume_patch(judgement, vmi)
    volumes = (patch.get("spec") or {}).get("volumes") or vmi["spec"]["volumes"]
    entries = moved(
        judgement, vmi, volumes, {"other": {"claimName": "other", "volumeMode": "Block"}}
    )
    found: Object = apply(patch, vmi)
    found["status"] = {**found["status"], "migratedVolumes": entries}
    return found


def claim(vmi: Object, name: str = "data") -> str:
    return next(claim_of(each) for each in vmi["spec"]["volumes"] if each["name"] == name)


def test_an_instance_that_is_to_copy_has_the_new_claim_and_knows_the_old_one() -> None:
    vmi = an_instance()
    info = {"claimName": "data", "capacity": {"storage": "1Gi"}}
    vmi["status"]["volumeStatus"][0]["persistentVolumeClaimInfo"] = info
    found = patched(judged(OTHER, vmi), vmi)
    assert claim(found) == "other"
    assert found["status"]["migratedVolumes"] == [
        {
            "volumeName": "data",
            "sourcePVCInfo": info,
            "destinationPVCInfo": {"claimName": "other", "volumeMode": "Block"},
            "phase": COPYING,
        }
    ]


def test_a_third_claim_is_copied_to_from_the_first() -> None:
    found = patched(judged(OTHER, MOVING), MOVING)
    (entry,) = found["status"]["migratedVolumes"]
    assert claim(found) == "other"
    assert (entry["sourcePVCInfo"], entry["phase"]) == ({"claimName": "data"}, COPYING)


def test_a_revert_leaves_nothing_to_copy() -> None:
    found = patched(judged({}, MOVING), MOVING)
    assert (claim(found), found["status"]["migratedVolumes"]) == ("data", [])


@pytest.mark.parametrize("vmi", [LEAVING, an_instance(phase="Scheduled")])
def test_what_waits_is_not_passed_on(vmi: Object) -> None:
    judgement = judged(OTHER, vmi)
    assert not settles(judgement)
    assert volume_patch(judgement, vmi) == {}


def test_a_volume_that_goes_is_not_copied_any_more() -> None:
    spec = a_template()
    edits = {
        "volumes": [v for v in spec["volumes"] if v["name"] != "data"],
        "domain.devices.disks": [
            d for d in spec["domain"]["devices"]["disks"] if d["name"] != "data"
        ],
    }
    found = patched(judged(edits, MOVING), MOVING)
    assert found["status"]["migratedVolumes"] == []


# ---------------------------------------------------------------- what the VM remembers


def a_vm(claim: str, *entries: Object, strategy: str = "Migration") -> Object:
    spec = a_template(**{f"{CLAIM}.claimName": claim})
    return {
        "spec": {"updateVolumesStrategy": strategy, "template": {"spec": spec}},
        "status": {"volumeUpdateState": state(list(entries))},
    }


UNDONE, DONE = an_entry("data", "old", "new"), an_entry("data", "old", "new", SWITCHING)
READY = an_entry("data", "old", "new", COPIED)
STARTS: dict[str, tuple[Object, str]] = {
    "nothing was copied": (a_vm("new"), "new"),
    "a copy was not finished": (a_vm("new", UNDONE), "old"),
    "a copy was finished and nobody had switched": (a_vm("new", READY), "old"),
    "the guest may have switched": (a_vm("new", DONE), "new"),
    "the edit was taken back": (a_vm("old", UNDONE), "old"),
    "a third claim is wanted": (a_vm("third", UNDONE), "old"),
    "it was taken back after the guest may have switched": (a_vm("old", DONE), "new"),
    "the owner wants it as it is": (a_vm("new", UNDONE, strategy="Replacement"), "new"),
}


@pytest.mark.parametrize(("vm", "expected"), STARTS.values(), ids=STARTS)
def test_a_guest_starts_from_the_claim_that_has_all_that_was_written(
    vm: Object, expected: str
) -> None:
    volumes = vm["spec"]["template"]["spec"]["volumes"]
    found = {each["name"]: each for each in to_start_from(vm, volumes)}
    assert claim_of(found["data"]) == expected
    assert found["data"]["persistentVolumeClaim"]["hotpluggable"]
    assert claim_of(found["fixed"]) == "fixed"


def on(claim: str, *entries: Object) -> Object:
    return an_instance(a_template(**{f"{CLAIM}.claimName": claim}), *entries)


REMEMBERED: dict[str, tuple[Object, Object | None, list[Object]]] = {
    "what its instance copies": (a_vm("new"), on("new", UNDONE), [UNDONE]),
    "while there is none": (a_vm("new", UNDONE), None, [UNDONE]),
    "until the next one begins": (a_vm("new", UNDONE), on("old"), [UNDONE]),
    "where the data is, if a third claim is wanted": (
        a_vm("third", UNDONE), None, [an_entry("data", "old", "third")],
    ),
    "where the data is, if it was taken back too late": (
        a_vm("old", DONE), None, [an_entry("data", "new", "old")],
    ),
    "not once it is done": (a_vm("new", DONE), on("new"), []),
    "not what was taken back": (a_vm("old", UNDONE), None, []),
    "not under Replacement": (a_vm("new", UNDONE, strategy=""), None, []),
}  # fmt: skip


@pytest.mark.parametrize(("vm", "vmi", "expected"), REMEMBERED.values(), ids=REMEMBERED)
def test_a_vm_remembers(vm: Object, vmi: Object | None, expected: list[Object]) -> None:
    assert remembered(vm, vmi, None) == expected


def test_what_waits_for_a_restart_is_forgotten_so_that_the_restart_does_it() -> None:
    vmi = on("old")
    vm = a_vm("new", UNDONE)
    wanted = vm["spec"]["template"]["spec"]
    edit = edited(wanted, {"domain.devices.disks.1.shareable": True})
    shared = VerdictInputs(wanted, edit, vmi, LIVE, **KVM, volumes_strategy="Migration")
    assert remembered(vm, vmi, judge(shared)) == []


@pytest.mark.parametrize(
    ("name", "path", "vmi"),
    [
        ("data", CLAIM, pending(PVC_NOT_FOUND)),
        ("fixed", FIXED_CLAIM, unstarted("fixed")),
    ],
)
def test_a_claim_that_was_never_there_is_not_what_the_next_guest_starts_from(
    name: str, path: str, vmi: Object
) -> None:
    spec = a_template(**{f"{path}.claimName": "right"})
    vm: Object = {"spec": {"updateVolumesStrategy": "Migration", "template": {"spec": spec}}}
    judgement = judge(
        VerdictInputs(a_template(), spec, vmi, LIVE, **KVM, volumes_strategy="Migration")
    )
    vmi = apply(volume_patch(judgement, vmi), vmi)
    vm["status"] = {"volumeUpdateState": state(remembered(vm, vmi, judgement))}
    found = {each["name"]: claim_of(each) for each in to_start_from(vm, spec["volumes"])}
    assert found[name] == "right"


SWITCHES = {
    "it may once both are the same": (a_vm("new"), READY, DONE),
    "not before": (a_vm("new"), UNDONE, None),
    "not twice": (a_vm("new"), DONE, None),
    "not if it was taken back": (a_vm("old"), READY, None),
}


@pytest.mark.parametrize(("vm", "entry", "expected"), SWITCHES.values(), ids=SWITCHES)
def test_the_guest_switches(vm: Object, entry: Object, expected: Object | None) -> None:
    assert switching(vm, on("new", entry)) == ([expected] if expected else None)


# ---------------------------------------------------------------- the law of it all


class World:
    """A VM, its instance and two claims; data is where a guest wrote last, never torn apart."""

    def __init__(self) -> None:
        self.spec = "a"
        self.vm: list[Object] = []
        self.vmi: tuple[str, list[Object]] | None = ("a", [])
        self.drive = "a"
        self.whole = {"a"}  # the claims that have all that was written
        self.noticed = True  # the controller has seen what is wanted

    def _vm(self) -> Object:
        return a_vm(self.spec, *self.vm)

    def control(self, *, writes: int) -> None:
        """Do one pass of the VM's controller, cut short after so many writes."""
        if self.vmi is None:
            return
        self.noticed = True
        vm, vmi = self._vm(), on(self.vmi[0], *self.vmi[1])
        entries = switching(vm, vmi)
        claim = self.vmi[0]
        if entries is None:
            case = VerdictInputs(
                a_template(),
                vm["spec"]["template"]["spec"],
                vmi,
                LIVE,
                **KVM,
                volumes_strategy="Migration",
            )
            judgement = judge(case)
            patch = volume_patch(judgement, vmi)
            if not patch:
                self.vm = remembered(vm, vmi, judgement)
                return
            entries = moved(judgement, vmi, patch["spec"]["volumes"], {})
            claim = self.spec
        soon = on(claim, *entries)
        soon["status"]["migratedVolumes"] = entries
        for step in range(writes):
            if step == 0:
                self.vm = remembered(vm, soon, None)
            else:
                self.vmi = (claim, entries)

    def node(self, *, switch: bool) -> None:
        """Do one pass of the node."""
        if self.vmi is None:
            return
        claim, entries = self.vmi
        if not entries:
            if self.drive == claim:
                self.whole = {claim}
            return
        (entry,) = entries
        if self.drive == claim:
            self.whole = {claim}
            self.vmi = (claim, [])
        elif entry["phase"] == COPYING:
            self.whole = {self.drive, claim}  # kept the same from here on
            self.vmi = (claim, [{**entry, "phase": COPIED}])
        elif entry["phase"] == SWITCHING and switch:
            self.drive, self.whole = claim, {claim}

    def die(self) -> None:
        """Lose the guest, and start the next one."""
        vm = self._vm()
        if self.vmi is not None:
            self.vm = remembered(vm, on(self.vmi[0], *self.vmi[1]), None)
            vm = self._vm()
        volumes = to_start_from(vm, vm["spec"]["template"]["spec"]["volumes"])
        started = next(claim_of(each) for each in volumes if each["name"] == "data")
        if self.noticed or self.vm:  # else it is as if the VM was edited without a guest
            assert started in self.whole
        self.vmi, self.drive, self.whole = (started, []), started, {started}


steps = st.sampled_from(["a", "b", "c", "control", "vm only", "node", "switch", "die"])


@given(st.lists(steps, max_size=25))
def test_whenever_a_guest_dies_the_next_one_starts_from_a_claim_that_has_all(
    happens: list[str],
) -> None:
    world = World()
    for each in happens:
        match each:
            case "a" | "b" | "c":
                world.spec, world.noticed = each, world.noticed and each == world.spec
            case "control":
                world.control(writes=2)
            case "vm only":
                world.control(writes=1)
            case "node" | "switch":
                world.node(switch=each == "switch")
            case "die":
                world.die()
    world.die()
