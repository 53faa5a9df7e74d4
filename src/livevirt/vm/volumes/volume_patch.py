"""What the instance's volumes and disks must become so that live edits reach the guest."""

from __future__ import annotations

from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.verdict.comparison import in_vm
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.live_patch import followed
from livevirt.vm.verdict.volume_edits import DISKS, VOLUMES
from livevirt.vm.volumes.volume_lists import Lists

_ATTACHED = ("Ready", "Detaching")


def names(obj: Object) -> list[str]:
    """Return the volumes that the annotation of a VM or an instance names."""
    return list(_noted(obj))


def passed_on(vm: Object, vmi: Object) -> str | None:
    """Return the annotation that the instance of a VM is to have, None if none."""
    known, attached = _noted(vmi), _attached(vmi)
    found = {name: known.get(name) or attached.get(name, "") for name in _noted(vm)}
    return ",".join(f"{name}={claim}" if claim else name for name, claim in found.items()) or None


def left(vm: Object, vmi: Object) -> str | None:
    """Return the annotation of a VM without what has been done, None if nothing is left."""
    known, attached = _noted(vmi), _attached(vmi)
    wanted = Lists.of(vm["spec"]["template"].get("spec") or {}).names()
    wanted |= Lists.of(vmi["spec"]).names()

    def is_done(name: str) -> bool:
        before, now = known.get(name, ""), attached.get(name, "")
        return now != before if before else not now and name not in wanted

    return ",".join(name for name in names(vm) if not is_done(name)) or None


def _noted(obj: Object) -> dict[str, str]:
    text = (obj["metadata"].get("annotations") or {}).get(FORCE_DETACH) or ""
    found = (each.strip().partition("=") for each in text.split(","))
    return {name: claim for name, _, claim in found if name}


def _attached(vmi: Object) -> dict[str, str]:
    """Return the claims of the volumes that the guest has, by volume."""
    return {
        each["name"]: (each.get("persistentVolumeClaimInfo") or {}).get("claimName", "")
        for each in status_of(vmi).get("volumeStatus") or ()
        if "hotplugVolume" in each and each.get("phase") in _ATTACHED
    }


#: Annotation of a VM, passed on to its instance: volumes that go even if the guest uses them.
FORCE_DETACH = "livevirt.io/force-detach"


def volume_patch(judgement: Judgement, vmi: Object) -> Object:
    """Return the JSON merge patch of the instance, `{}` if no disk or volume is to change.

    Names that are not live stay as they run. What stays keeps its place, what is new comes last.
    """
    spec, wanted = vmi["spec"], judgement.wanted
    volumes = _rolled_out(spec, wanted, _live(judgement, VOLUMES), VOLUMES)
    disks = _rolled_out(spec, wanted, _live(judgement, DISKS), DISKS)
    patch: Object = {}
    if volumes != _listed(spec, VOLUMES):
        patch["volumes"] = volumes
    if disks != _listed(spec, DISKS):
        patch["domain"] = {"devices": {"disks": disks}}
    return {"spec": patch} if patch else {}


def _live(judgement: Judgement, part: tuple[str, ...]) -> set[str]:
    """Return the names whose disk, or volume, changes while the guest runs."""
    prefix = f"{in_vm(part)}["
    return {
        change.volume
        for change in judgement.changes
        if change.volume and followed(change) and change.path.startswith(prefix)
    }


def _rolled_out(
    spec: Object, wanted: Object, live: set[str], part: tuple[str, ...]
) -> list[Object]:
    goal = {item["name"]: item for item in _listed(wanted, part)}
    found = []
    for item in _listed(spec, part):
        name = item["name"]
        if name not in live:
            found.append(item)
        elif name in goal:
            found.append(goal[name])
    there = {item["name"] for item in found}
    return [*found, *(goal[name] for name in goal if name in live and name not in there)]


def _listed(spec: Object, path: tuple[str, ...]) -> list[Object]:
    value = spec
    for part in path[:-1]:
        value = value.get(part) or {}
    found: list[Object] = value.get(path[-1]) or []
    return found
