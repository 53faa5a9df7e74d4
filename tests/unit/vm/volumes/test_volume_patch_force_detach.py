"""Force is for one time: what it was asked for, and when that is done."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.volumes.volume_patch import left, names, passed_on

from ..cases import a_claim


def annotated(text: str | None) -> Object:
    return {"annotations": {"livevirt.io/force-detach": text} if text else {}}


def a_vm(text: str | None, *volumes: str) -> Object:
    spec = {"domain": {}, "volumes": [a_claim(name) for name in volumes]}
    return {"metadata": annotated(text), "spec": {"template": {"spec": spec}}}


def a_vmi(text: str | None, *volumes: str, **attached: str) -> Object:
    """Return an instance of which is told `phase claim` of each volume."""
    told = []
    for name, words in attached.items():
        phase, _, claim = words.partition(" ")
        info = {"persistentVolumeClaimInfo": {"claimName": claim}} if claim else {}
        told.append({"name": name, "phase": phase, "hotplugVolume": {}, **info})
    return {
        "metadata": annotated(text),
        "spec": {"domain": {}, "volumes": [a_claim(name) for name in volumes]},
        "status": {"volumeStatus": told},
    }


def test_volumes_are_named_with_commas_and_spaces() -> None:
    assert names(a_vm(" data , ,cd=red,")) == ["data", "cd"]
    assert names({"metadata": {}}) == []


NOTES: dict[str, tuple[Any, Any, str | None]] = {
    "given nothing is asked for, then nothing is noted": (a_vm(None), a_vmi("cd=red"), None),
    "given it is attached, then its claim is noted": (
        a_vm("data"), a_vmi(None, data="Ready one"), "data=one"),
    "given it is on its way out, then its claim is noted": (
        a_vm("data,cd"), a_vmi(None, cd="Detaching red"), "data,cd=red"),
    "given it is on its way in, then it is noted later": (
        a_vm("cd"), a_vmi("cd", cd="Pending blue"), "cd"),
    "given a claim is noted, then it stays": (
        a_vm("cd"), a_vmi("cd=red", cd="Ready blue"), "cd=red"),
    "given one is no more asked for, then its note goes": (
        a_vm("cd"), a_vmi("data=one,cd=red", cd="Ready red"), "cd=red"),
}  # fmt: skip


@pytest.mark.parametrize(("vm", "vmi", "expected"), NOTES.values(), ids=NOTES)
def test_what_the_instance_is_told(vm: Object, vmi: Object, expected: str | None) -> None:
    assert passed_on(vm, vmi) == expected


LEFT: dict[str, tuple[Any, Any, str | None]] = {
    "given the guest still has it, then it is left": (
        a_vm("data"), a_vmi("data=one", data="Detaching one"), "data"),
    "given it is asked for before the edit, then it is left": (
        a_vm("data", "data"), a_vmi("data=one", "data", data="Ready one"), "data"),
    "given it is gone, then it is done": (a_vm("data"), a_vmi("data=one"), None),
    "given a drive has another disc, then it is done": (
        a_vm("cd", "cd"), a_vmi("cd=red", "cd", cd="Ready blue"), None),
    "given a drive waits for another disc, then it is done": (
        a_vm("cd", "cd"), a_vmi("cd=red", "cd", cd="Pending blue"), None),
    "given there is no such volume, then it is done": (a_vm("data"), a_vmi("data"), None),
    "given it is about to come, then it is left": (a_vm("data", "data"), a_vmi("data"), "data"),
    "given the instance still asks for it, then it is left": (
        a_vm("data"), a_vmi("data", "data"), "data"),
    "given one of two is done, then the other is left": (
        a_vm("data, cd"), a_vmi("data=one,cd=red", cd="Detaching red"), "cd"),
}  # fmt: skip


@pytest.mark.parametrize(("vm", "vmi", "expected"), LEFT.values(), ids=LEFT)
def test_what_is_left_to_do(vm: Object, vmi: Object, expected: str | None) -> None:
    assert left(vm, vmi) == expected
