"""What happens next to a claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.controllers.storage.claim_plan import (
    BIND_COMPLETED,
    SELECTED_NODE,
    Bind,
    ClaimSnapshot,
    Grow,
    GrowDisk,
    Protect,
    Provision,
    Release,
    Report,
    Reserve,
    Rest,
    Step,
    claim_reference,
    plan,
    resizing,
    volume_for,
)
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.storage import BIND_AT_ONCE, PROTECTION

from .volume_builders import EAGER, FOREIGN, WAITING, a_bound_claim, a_claim, a_volume

ROOT = Path("/data/volumes")
FREE = a_volume("2Gi", name="free")


def step(claim: Object, storage_class: Object | None = EAGER, **seen: Any) -> Step:
    return plan(ClaimSnapshot(claim, storage_class, **seen), ROOT)


def reason(found: Step) -> str:
    assert isinstance(found, Rest)
    return found.reason


def takes(found: Step) -> str:
    assert isinstance(found, Reserve)
    return str(found.volume["metadata"]["name"])


def makes(found: Step) -> bool:
    return isinstance(found, Provision)


# ---------------------------------------------------------------- life and death


def test_given_a_new_claim_then_it_is_protected_first() -> None:
    assert step(a_claim(finalizers=())) == Protect((PROTECTION,))


def test_given_a_deleted_claim_then_it_goes_only_when_nothing_uses_it() -> None:
    going = a_claim(deleting=True, finalizers=("other", PROTECTION))
    assert step(going, used=True) == Rest()
    assert step(going) == Release(("other",))
    assert step(a_claim(deleting=True, finalizers=("other",))) == Rest()


# ---------------------------------------------------------------- when

WAITS = {
    "given no consumer, then it waits": ({}, {}, "WaitForFirstConsumer"),
    "given a consumer without a node, then it waits": ({}, {"used": True}, "WaitForFirstConsumer"),
    "given a scheduled consumer, then not": ({}, {"used": True, "scheduled": True}, ""),
    "given a selected node, then not": ({SELECTED_NODE: "n"}, {}, ""),
    "given an import, then not": ({BIND_AT_ONCE: "true"}, {}, ""),
}


@pytest.mark.parametrize(("annotations", "seen", "why"), WAITS.values(), ids=WAITS)
def test_when_a_claim_of_a_waiting_class_is_bound(
    annotations: dict[str, str], seen: dict[str, Any], why: str
) -> None:
    claim = a_claim(class_name="livevirt", annotations=annotations)
    found = step(claim, WAITING, **seen)
    assert reason(found) == why if why else makes(found)


# ---------------------------------------------------------------- with what


def test_given_an_eager_class_then_a_volume_is_made_for_this_claim_alone() -> None:
    claim = a_claim("1536Mi")
    found = step(claim)
    assert found == Provision(volume_for(claim, EAGER, ROOT))
    assert isinstance(found, Provision)
    assert found.volume["metadata"]["name"] == "pvc-u1"
    assert found.volume["spec"]["claimRef"]["uid"] == "u1"
    assert found.volume["spec"]["capacity"] == {"storage": "1536Mi"}


NO_VOLUME = {
    "no class": (a_claim(class_name=""), None, "FailedBinding"),
    "a class that is not there": (a_claim(class_name="gone"), None, "ProvisioningFailed"),
    "another's class": (a_claim(class_name="foreign"), FOREIGN, "ExternalProvisioning"),
    "one pod only": (a_claim(accessModes=["ReadWriteOncePod"]), EAGER, "ProvisioningFailed"),
    "a selector": (a_claim(selector={"matchLabels": {}}), EAGER, "ProvisioningFailed"),
    "a snapshot": (a_claim(dataSource={"kind": "S", "name": "s"}), EAGER, "ProvisioningFailed"),
}


@pytest.mark.parametrize(("claim", "storage_class", "why"), NO_VOLUME.values(), ids=NO_VOLUME)
def test_given_a_claim_we_cannot_serve_then_its_owner_is_told(
    claim: Object, storage_class: Object | None, why: str
) -> None:
    assert reason(step(claim, storage_class)) == why


def test_given_a_block_claim_then_it_is_made_only_where_files_can_be_devices() -> None:
    made = step(a_claim(volumeMode="Block"))
    assert isinstance(made, Provision)
    assert made.volume["spec"]["volumeMode"] == "Block"
    refused = step(a_claim(volumeMode="Block"), no_devices="/dev/loop-control is missing")
    assert reason(refused) == "ProvisioningFailed"
    assert isinstance(refused, Rest)
    assert "/dev/loop-control is missing: create the claim without volumeMode" in refused.message
    assert makes(step(a_claim(), no_devices="none"))


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"])
def test_given_any_usual_access_mode_then_a_volume_is_made(mode: str) -> None:
    assert makes(step(a_claim(accessModes=[mode])))


UNFIT = {
    "too small": a_volume("500Mi"),
    "of another class": a_volume("2Gi", "other"),
    "without the access mode": a_volume("2Gi", accessModes=["ReadOnlyMany"]),
    "a block device": a_volume("2Gi", volumeMode="Block"),
    "another's": a_volume("2Gi", claim=a_claim(uid="u2", name="other")),
    "going": a_volume("2Gi", deleting=True),
    "released": a_volume("2Gi", phase="Released"),
}


@pytest.mark.parametrize("volume", UNFIT.values(), ids=UNFIT)
def test_given_a_volume_that_does_not_fit_then_it_is_not_taken(volume: Object) -> None:
    assert makes(step(a_claim(), others=(volume,)))


def test_given_fitting_volumes_then_the_smallest_is_taken() -> None:
    others = (a_volume("3Gi", name="a"), FREE, a_volume("2Gi", name="g"))
    assert takes(step(a_claim(), others=others)) == "free"


def test_given_a_selector_then_only_a_volume_with_the_labels_is_taken() -> None:
    claim = a_claim(selector={"matchLabels": {"disk": "fast"}})
    fast = a_volume("5Gi", name="fast", labels={"disk": "fast"})
    assert takes(step(claim, others=(FREE, fast))) == "fast"


def test_given_a_waiting_class_and_a_volume_that_names_the_claim_then_it_binds_at_once() -> None:
    claim = a_claim(class_name="livevirt")
    ref = {"namespace": "team", "name": "data"}
    promised = a_volume("2Gi", "livevirt", claimRef=ref)
    found = step(claim, WAITING, volume=promised)
    assert found == Reserve(promised, claim_reference(claim))


MISMATCHES = {
    "too small": a_volume("1Mi"),
    "of another class": a_volume(class_name="other"),
    "a block device": a_volume(volumeMode="Block"),
    "without the access mode": a_volume(accessModes=["ReadOnlyMany"]),
}


@pytest.mark.parametrize("volume", MISMATCHES.values(), ids=MISMATCHES)
def test_given_the_named_volume_does_not_fit_then_its_owner_is_told(volume: Object) -> None:
    assert reason(step(a_claim(volumeName="v"), volume=volume)) == "VolumeMismatch"


# ---------------------------------------------------------------- bound

OURS = a_volume(phase="Bound", ours=True, claim=a_claim())

BINDING = {
    "given a volume not ready, then wait": (
        a_claim(), a_volume(phase="Pending", claim=a_claim()), Rest()),
    "given a ready volume, then bind": (a_claim(), OURS, Bind("v")),
    "given a name and no bind, then bind": (a_claim(volumeName="v"), OURS, Bind("v")),
    "given a bound claim, then report": (
        a_bound_claim(status={"phase": "Pending"}), OURS,
        Report({"phase": "Bound", "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                "capacity": {"storage": "1Gi"}})),
    "given all is well, then nothing": (a_bound_claim(), OURS, Rest()),
    "given a wish for more, then grow": (a_bound_claim(asks="2Gi"), OURS, Grow("2Gi")),
    "given a grown volume, then report": (
        a_bound_claim(asks="2Gi"), a_volume("2Gi", phase="Bound", ours=True, claim=a_claim()),
        Report({"phase": "Bound", "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                "capacity": {"storage": "2Gi"}})),
    "given the volume is gone, then lost": (a_bound_claim(), None, Report({"phase": "Lost"})),
    "given the volume is another's, then lost": (
        a_bound_claim(), a_volume(claim=a_claim(uid="u2")), Report({"phase": "Lost"})),
}  # fmt: skip


@pytest.mark.parametrize(("claim", "volume", "expected"), BINDING.values(), ids=BINDING)
def test_binding(claim: Object, volume: Object | None, expected: Step) -> None:
    assert step(claim, volume=volume) == expected


GROWN = a_volume("2Gi", phase="Bound", ours=True, claim=a_claim())
MODES = {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}
SMALL = {"phase": "Bound", **MODES, "capacity": {"storage": "1Gi"}}
GROWING = {**SMALL, "conditions": [resizing()]}
LARGE = {"phase": "Bound", **MODES, "capacity": {"storage": "2Gi"}}
GROWTH = {
    "given a small disk on a larger volume, then it is said": (SMALL, 2**30, Report(GROWING)),
    "given it is said, then the disk grows": (GROWING, 2**30, GrowDisk(2 * 2**30)),
    "given the disk has grown, then the claim has": (GROWING, 2 * 2**30, Report(LARGE)),
    "given nobody said so before, then too": (SMALL, 2 * 2**30, Report(LARGE)),
    "given there is no disk yet, then it is made as large": (SMALL, None, Report(LARGE)),
    "given all is told, then nothing": (LARGE, 3 * 2**30, Rest()),
}


@pytest.mark.parametrize(("status", "disk", "expected"), GROWTH.values(), ids=GROWTH)
def test_a_disk_grows_with_its_claim(status: Object, disk: int | None, expected: Step) -> None:
    assert step(a_bound_claim(asks="2Gi", status=status), volume=GROWN, disk=disk) == expected


def test_given_another_provisioners_volume_then_growing_is_left_to_it() -> None:
    volume = a_volume(phase="Bound", claim=a_claim())
    assert reason(step(a_bound_claim(asks="2Gi"), volume=volume)) == "ExternalExpanding"


def test_given_a_named_volume_that_never_was_ours_then_it_is_waited_for() -> None:
    assert reason(step(a_claim(volumeName="v"))) == "FailedBinding"
    lost = a_bound_claim(status={"phase": "Lost"}, annotations={BIND_COMPLETED: "yes"})
    assert reason(step(lost)) == "ClaimLost"
