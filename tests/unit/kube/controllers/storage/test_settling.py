"""Whatever happens in whatever order, claims and volumes settle, and no data is lost or left."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.kube.controllers.storage import claim_plan, volume_plan
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object

from .volume_builders import EAGER, WAITING, a_claim, a_volume

ROOT = Path("/data/volumes")
NAMES = ("a", "b")
CLASSES = {"eager": EAGER, "livevirt": WAITING}


@dataclass
class Model:
    """The API server and the disk, as far as the plans can tell."""

    claims: dict[str, Object] = field(default_factory=dict)
    volumes: dict[str, Object] = field(default_factory=dict)
    users: set[str] = field(default_factory=set)  # names of claims with a running pod
    directories: set[str] = field(default_factory=set)
    disks: dict[str, int] = field(default_factory=dict)  # bytes, by volume
    serial: int = 0

    # ------------------------------------------------ what users do

    def ask(self, name: str, class_name: str) -> None:
        if name not in self.claims:
            self.serial += 1
            uid = f"u{self.serial}"
            self.claims[name] = a_claim(name=name, uid=uid, class_name=class_name, finalizers=())

    def offer(self, name: str, class_name: str) -> None:
        self.volumes.setdefault(
            f"static-{name}", a_volume("2Gi", class_name, name=f"static-{name}", phase="Pending")
        )

    def use(self, name: str, _: str) -> None:
        if name in self.claims:
            self.users.add(name)
            volume = self.claims[name]["spec"].get("volumeName")
            if volume in self.directories:
                self.disks.setdefault(volume, 2**30)

    def end_use(self, name: str, _: str) -> None:
        self.users.discard(name)

    def delete_claim(self, name: str, _: str) -> None:
        if name in self.claims:
            self._mark(self.claims, name)

    def delete_volume(self, name: str, _: str) -> None:
        for volume in list(self.volumes):
            reference = self.volumes[volume]["spec"].get("claimRef") or {}
            if reference.get("name") == name:
                self._mark(self.volumes, volume)

    def grow(self, name: str, _: str) -> None:
        claim = self.claims.get(name)
        if claim is not None and claim["status"]["phase"] == "Bound":
            claim["spec"]["resources"]["requests"]["storage"] = "3Gi"

    @staticmethod
    def _mark(objects: dict[str, Object], name: str) -> None:
        objects[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if not objects[name]["metadata"]["finalizers"]:
            del objects[name]

    # ------------------------------------------------ what the controllers do, a step at a time

    def step_claim(self, name: str) -> bool:
        claim = self.claims.get(name)
        if claim is None:
            return False
        named = claim["spec"].get("volumeName")
        promised = [v for v in self.volumes.values() if claim_plan.promised_to(v, claim)]
        volume = self.volumes.get(named) if named else next(iter(promised), None)
        seen = claim_plan.ClaimSnapshot(
            claim,
            CLASSES[claim["spec"]["storageClassName"]],
            volume,
            tuple(self.volumes.values()) if volume is None else (),
            disk=self.disks.get((volume or {"metadata": {"name": ""}})["metadata"]["name"]),
            used=name in self.users,
            scheduled=name in self.users,
        )
        match claim_plan.plan(copy.deepcopy(seen), ROOT):
            case claim_plan.Protect(finalizers) | claim_plan.Release(finalizers):
                self._finalize(self.claims, name, finalizers)
            case claim_plan.Reserve(volume, reference):
                target = self.volumes[volume["metadata"]["name"]]
                holder = target["spec"].get("claimRef", {}).get("uid")
                assert holder in (None, claim["metadata"]["uid"]), "no claim takes another's volume"
                target["spec"]["claimRef"] = reference
            case claim_plan.Provision(volume):
                assert volume["metadata"]["name"] not in self.volumes
                volume["metadata"]["uid"] = f"uid-{volume['metadata']['name']}"
                volume["status"] = {"phase": "Pending"}
                self.volumes[volume["metadata"]["name"]] = volume
            case claim_plan.Bind(volume_name):
                claim["spec"]["volumeName"] = volume_name
                claim["metadata"]["annotations"][claim_plan.BIND_COMPLETED] = "yes"
            case claim_plan.Grow(capacity):
                assert volume is not None
                volume["spec"]["capacity"]["storage"] = capacity
            case claim_plan.GrowDisk(size):
                assert volume is not None
                assert size > self.disks[volume["metadata"]["name"]], "no disk shrinks"
                self.disks[volume["metadata"]["name"]] = size
            case claim_plan.Report(status):
                claim["status"] = status
            case claim_plan.Rest():
                return False
        return True

    def step_volume(self, name: str) -> bool:
        volume = self.volumes.get(name)
        if volume is None:
            return False
        reference = volume["spec"].get("claimRef") or {}
        claim = self.claims.get(reference.get("name", ""))
        used = claim is None and reference.get("name") in self.users
        seen = volume_plan.Facts(volume, claim, name in self.directories, used)
        match volume_plan.plan(copy.deepcopy(seen)):
            case volume_plan.Protect(finalizers) | volume_plan.Release(finalizers):
                self._finalize(self.volumes, name, finalizers)
            case volume_plan.MakeDirectory():
                self.directories.add(name)
            case volume_plan.RemoveDirectory():
                assert reference["name"] not in self.users or claim is not None
                self.directories.remove(name)
                self.disks.pop(name, None)
            case volume_plan.Delete():
                self._mark(self.volumes, name)
            case volume_plan.SetPhase(phase):
                volume["status"]["phase"] = phase
            case volume_plan.Rest():
                return False
        return True

    @staticmethod
    def _finalize(objects: dict[str, Object], name: str, finalizers: tuple[str, ...]) -> None:
        meta = objects[name]["metadata"]
        meta["finalizers"] = list(finalizers)
        if not finalizers and "deletionTimestamp" in meta:
            del objects[name]

    def settle(self) -> None:
        """Follow the plans until they say there is nothing to do."""
        for _ in range(200):
            moved = [self.step_claim(name) for name in list(self.claims)]
            moved += [self.step_volume(name) for name in list(self.volumes)]
            if not any(moved):
                return
        raise AssertionError("the plans never come to rest")


DEEDS: tuple[Callable[[Model, str, str], None], ...] = (
    Model.ask, Model.ask, Model.offer, Model.use, Model.end_use, Model.delete_claim,
    Model.delete_volume, Model.grow,
)  # fmt: skip
happenings = st.lists(
    st.tuples(
        st.sampled_from(DEEDS),
        st.sampled_from(NAMES),
        st.sampled_from(["eager", "eager", "livevirt"]),
        st.lists(st.booleans(), max_size=12),  # steps taken until the next thing happens
    ),
    min_size=3,
    max_size=14,
)


@settings(max_examples=300, deadline=None)
@given(happenings)
def test_given_any_happenings_then_all_settles_and_is_true(
    happened: list[tuple[Callable[[Model, str, str], None], str, str, list[bool]]],
) -> None:
    model = Model()
    for deed, name, class_name, steps in happened:
        deed(model, name, class_name)
        for of_claim in steps:
            if of_claim:
                model.step_claim(name)
            else:
                any(model.step_volume(volume) for volume in list(model.volumes))
        check_always(model)
    model.settle()
    check_always(model)
    check_settled(model)
    model.users.clear()
    for name in list(model.claims):
        model.delete_claim(name, "")
    model.settle()
    assert model.claims == {}
    assert model.directories == set(), "no data is left of claims that are gone"
    assert all(name.startswith("static-") for name in model.volumes)


def check_always(model: Model) -> None:
    assert model.directories <= model.volumes.keys(), "every directory is some volume's"
    bound = [c["spec"]["volumeName"] for c in model.claims.values() if "volumeName" in c["spec"]]
    assert len(bound) == len(set(bound)), "no two claims have one volume"


def check_settled(model: Model) -> None:
    for name, claim in model.claims.items():
        going = "deletionTimestamp" in claim["metadata"]
        assert not going or name in model.users, "only use keeps a deleted claim"
        wanted = claim["spec"]["storageClassName"] == "eager" or name in model.users
        phase = claim["status"]["phase"]
        assert phase == "Bound" or not wanted or going
        if phase == "Bound" and not going:
            volume = model.volumes[claim["spec"]["volumeName"]]
            assert claim_plan.held_by(volume, claim)
            assert volume["status"]["phase"] == "Bound"
            if claim_plan.is_ours(volume):
                assert volume["metadata"]["name"] in model.directories
                assert claim["status"]["capacity"] == volume["spec"]["capacity"]
                assert "conditions" not in claim["status"]
                size = parse(volume["spec"]["capacity"]["storage"]).bytes
                assert model.disks.get(volume["metadata"]["name"], size) == size
