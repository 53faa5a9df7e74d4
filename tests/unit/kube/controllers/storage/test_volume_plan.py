"""What happens next to a PersistentVolume."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.controllers.storage.claim_plan import VOLUME_PROTECTION
from livevirt.kube.controllers.storage.volume_plan import (
    Delete,
    Facts,
    MakeDirectory,
    Protect,
    Release,
    RemoveDirectory,
    Rest,
    SetPhase,
    Step,
    plan,
)

from .volume_builders import a_claim, a_volume

CLAIM = a_claim()
NAMESAKE = a_claim(uid="u2")


def ours(phase: str, **rest: Any) -> Any:
    return a_volume(phase=phase, ours=True, claim=CLAIM, **rest)


RETAIN = {"persistentVolumeReclaimPolicy": "Retain"}

RULES: dict[str, tuple[Facts, Step]] = {
    "given a new volume, then it is protected": (
        Facts(a_volume(finalizers=()), None), Protect((VOLUME_PROTECTION,))),
    "given nobody's volume, then it is available": (
        Facts(a_volume(phase="Pending"), None), SetPhase("Available")),
    "given an available one, then nothing": (Facts(a_volume(), None), Rest()),
    "given one promised by name, then it is available": (
        Facts(a_volume(phase="Pending", claimRef={"namespace": "team", "name": "data"}), CLAIM),
        SetPhase("Available")),
    "given nobody's volume is deleted, then it goes": (
        Facts(a_volume(deleting=True), None), Release(())),
    "given a claim, then the directory comes before the phase": (
        Facts(ours("Pending"), CLAIM), MakeDirectory()),
    "given a claim and a directory, then it is bound": (
        Facts(ours("Pending"), CLAIM, directory=True), SetPhase("Bound")),
    "given another's volume, then no directory is made": (
        Facts(a_volume(phase="Available", claim=CLAIM), CLAIM), SetPhase("Bound")),
    "given a bound volume, then nothing": (Facts(ours("Bound"), CLAIM, directory=True), Rest()),
    "given a bound volume without its directory, then no empty one hides that": (
        Facts(ours("Bound"), CLAIM), Rest()),
    "given a bound volume is deleted, then it stays": (
        Facts(ours("Bound", deleting=True), CLAIM, directory=True), Rest()),
    "given the claim is gone, then it is released": (
        Facts(ours("Bound"), None, directory=True), SetPhase("Released")),
    "given a namesake of the claim, then it is released": (
        Facts(ours("Bound"), NAMESAKE, directory=True), SetPhase("Released")),
    "given the claim was torn from its user, then the data stays": (
        Facts(ours("Released"), None, directory=True, used=True), Rest()),
    "given it has a namesake since, then the data stays": (
        Facts(ours("Bound"), NAMESAKE, directory=True, used=True), Rest()),
    "given it is released, then the data goes first": (
        Facts(ours("Released"), None, directory=True), RemoveDirectory()),
    "given the data is gone, then the object": (Facts(ours("Released"), None), Delete()),
    "given the object is deleted, then it is let go": (
        Facts(ours("Released", deleting=True), None), Release(())),
    "given Retain, then all stays": (
        Facts(ours("Released", **RETAIN), None, directory=True), Rest()),
    "given Retain and deleted, then the data stays": (
        Facts(ours("Released", deleting=True, **RETAIN), None, directory=True), Release(())),
    "given another's volume, then it is its provisioner's to delete": (
        Facts(a_volume(phase="Released", claim=CLAIM), None), Rest()),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "step"), RULES.values(), ids=RULES)
def test_plan(seen: Facts, step: Step) -> None:
    assert plan(seen) == step
