"""The objects a VirtualMachine makes: its instance, the record of its start, its DataVolumes."""

from __future__ import annotations

import copy
import hashlib

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.instancetypes.rules.machine import detached, instance_annotations, sized_by
from livevirt.vm.lifecycle.vm.status import GENERATION, marks
from livevirt.vm.spec import defaults, disks
from livevirt.vm.volumes import volume_migration

_ADOPTABLE = "cdi.kubevirt.io/allowClaimAdoption"
_CREATED_BY = "kubevirt.io/created-by"


def owned_by(kind: Kind, owner: Object) -> Object:
    """Return the reference to the controller of an object."""
    meta = owner["metadata"]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def instance_of(vm: Object, *, paused: bool = False) -> Object:
    """Return the instance a VM starts; admission will make it complete.

    One that starts from a claim which was to be copied has not all of its VM yet.
    """
    meta, template = vm["metadata"], vm["spec"]["template"]
    given = template.get("metadata") or {}
    machine = (vm.get("status") or {}).get("machine")
    spec = defaults.kept(copy.deepcopy(template["spec"]), machine)
    disks.add_missing(spec)
    volumes = spec.get("volumes") or []
    begins = volume_migration.to_start_from(vm, volumes)
    mark = marks(vm)
    if begins != volumes:
        spec["volumes"] = begins
        del mark[GENERATION]
    if paused:
        spec["startStrategy"] = "Paused"
    return {
        "apiVersion": kinds.VMI.api_version,
        "kind": kinds.VMI.kind,
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": dict(given.get("labels") or {}),
            "annotations": {
                **(given.get("annotations") or {}),
                **instance_annotations(vm),
                **mark,
            },
            "ownerReferences": [owned_by(kinds.VM, vm)],
        },
        "spec": spec,
        "status": {"virtualMachineRevisionName": revision_name(vm)},
    }


def revision_name(vm: Object) -> str:
    """Return the name of the record of a start at the VM's present generation."""
    name = f"{revision_prefix(vm)}{vm['metadata']['generation']}"
    used = sized_by(vm)
    return f"{name}-{hashlib.sha256(used.encode()).hexdigest()[:8]}" if used else name


def revision_prefix(vm: Object) -> str:
    """Return what the names of all records of the VM's starts begin with."""
    return f"revision-start-vm-{vm['metadata']['uid']}-"


def revision_of(vm: Object) -> Object:
    """Return the record of a start: the whole spec, expanded, so that nothing can change it."""
    meta = vm["metadata"]
    spec = copy.deepcopy(detached(vm)["spec"])
    return {
        "apiVersion": core.REVISION.api_version,
        "kind": core.REVISION.kind,
        "metadata": {
            "name": revision_name(vm),
            "namespace": meta["namespace"],
            "ownerReferences": [owned_by(kinds.VM, vm)],
        },
        "data": {"spec": spec},
        "revision": meta["generation"],
    }


def data_volume_of(vm: Object, name: str) -> Object:
    """Return the DataVolume made from the template of that name."""
    meta = vm["metadata"]
    template = next(t for t in vm["spec"]["dataVolumeTemplates"] if t["metadata"]["name"] == name)
    given = template["metadata"]
    return {
        "apiVersion": kinds.DATA_VOLUME.api_version,
        "kind": kinds.DATA_VOLUME.kind,
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {**(given.get("labels") or {}), _CREATED_BY: meta["uid"]},
            "annotations": {**(given.get("annotations") or {}), _ADOPTABLE: "true"},
            "ownerReferences": [owned_by(kinds.VM, vm)],
        },
        "spec": copy.deepcopy(template["spec"]),
    }
