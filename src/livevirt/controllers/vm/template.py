"""The objects a VirtualMachine makes: its instance, the record of its start, its DataVolumes."""

from __future__ import annotations

import copy

from livevirt.api import registry
from livevirt.api.kind import Kind
from livevirt.api.request import Object
from livevirt.controllers.vm.status import GENERATION
from livevirt.rollout import disks

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
    """Return the instance a VM starts; admission will make it complete."""
    meta, template = vm["metadata"], vm["spec"]["template"]
    given = template.get("metadata") or {}
    spec = copy.deepcopy(template["spec"])
    disks.add_missing(spec)
    if paused:
        spec["startStrategy"] = "Paused"
    generation = str(meta["generation"])
    return {
        "apiVersion": registry.VMI.api_version,
        "kind": registry.VMI.kind,
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": dict(given.get("labels") or {}),
            "annotations": {**(given.get("annotations") or {}), GENERATION: generation},
            "ownerReferences": [owned_by(registry.VM, vm)],
        },
        "spec": spec,
        "status": {"virtualMachineRevisionName": revision_name(vm)},
    }


def revision_name(vm: Object) -> str:
    """Return the name of the record of a start at the VM's present generation."""
    return f"{revision_prefix(vm)}{vm['metadata']['generation']}"


def revision_prefix(vm: Object) -> str:
    """Return what the names of all records of the VM's starts begin with."""
    return f"revision-start-vm-{vm['metadata']['uid']}-"


def revision_of(vm: Object) -> Object:
    """Return the record of a start: the whole spec, so that the past can be expanded again."""
    meta, status = vm["metadata"], vm.get("status") or {}
    spec = copy.deepcopy(vm["spec"])
    for field in ("instancetype", "preference"):
        used = (status.get(f"{field}Ref") or {}).get("controllerRevisionRef") or {}
        if spec.get(field) and used.get("name"):
            spec[field]["revisionName"] = used["name"]
    return {
        "apiVersion": registry.REVISION.api_version,
        "kind": registry.REVISION.kind,
        "metadata": {
            "name": revision_name(vm),
            "namespace": meta["namespace"],
            "ownerReferences": [owned_by(registry.VM, vm)],
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
        "apiVersion": registry.DATA_VOLUME.api_version,
        "kind": registry.DATA_VOLUME.kind,
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {**(given.get("labels") or {}), _CREATED_BY: meta["uid"]},
            "annotations": {**(given.get("annotations") or {}), _ADOPTABLE: "true"},
            "ownerReferences": [owned_by(registry.VM, vm)],
        },
        "spec": copy.deepcopy(template["spec"]),
    }
