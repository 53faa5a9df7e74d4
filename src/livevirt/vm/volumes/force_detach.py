"""Volumes that go even if the guest uses them, as the owner of a VM asks by an annotation.

Each is asked for once: the VM's annotation names volumes, the instance's notes by each the claim it
had (`cd=red`), and when the guest has let go of that, the name is taken off the VM.
"""

from __future__ import annotations

from livevirt.kube.objects.request import Object
from livevirt.vm.volumes.volume_lists import Lists
from livevirt.vm.volumes.volume_patch import FORCE_DETACH

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
        for each in (vmi.get("status") or {}).get("volumeStatus") or ()
        if "hotplugVolume" in each and each.get("phase") in _ATTACHED
    }
