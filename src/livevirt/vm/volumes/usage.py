"""Which claims are in use, and by whom: pods and machines that have not ended."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from livevirt.kube.control.cache import Key, ToKeys
from livevirt.kube.control.controller import Controller
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.storage import ClaimUser
from livevirt.vm.volumes import volume_migration

_INDEX = "volumes.claim"


class Usage:
    """Looks up claims in the pods and machines that name them."""

    def __init__(self, pods: Informer, machines: Informer) -> None:
        self._pods, self._machines = pods, machines
        pods.index(_INDEX, pod_claims)
        machines.index(_INDEX, machine_claims)

    def of(self, claim: Key) -> list[ClaimUser]:
        """Return who uses a claim; a machine counts from when it has a node."""
        return list(self._find(claim))

    def claims_of(self, user: Object) -> list[Key]:
        """Return the claims a pod or an instance names."""
        return claims_of(user)

    def wakes(self, controller: Controller, keys: ToKeys | None = None) -> None:
        """Have a controller reconcile claims, or what `keys` makes of users, when use changes."""
        controller.watches(self._pods, keys or pod_claims)
        controller.watches(self._machines, keys or machine_claims)

    def _find(self, claim: Key) -> Iterator[ClaimUser]:
        for pod in self._pods.by(_INDEX, claim):
            if _phase(pod) not in FINAL and not self._has_left(pod, claim):
                node = pod["spec"].get("nodeName") or ""
                yield ClaimUser(_named("pod", pod), node, _reads_only(pod, claim.name))
        for machine in self._machines.by(_INDEX, claim):
            node = status_of(machine).get("nodeName") or ""
            if node and _phase(machine) not in FINAL:
                yield ClaimUser(_named("virtual machine instance", machine), node, False)

    def _has_left(self, pod: Object, claim: Key) -> bool:
        for owner in pod["metadata"].get("ownerReferences") or ():
            machine = self._machines.get(Key(claim.namespace, owner["name"]))
            if machine is not None and machine["metadata"]["uid"] == owner["uid"]:
                return has_left(machine, claim)
        return False


def has_left(machine: Object, claim: Key) -> bool:
    """Return whether the guest of a pod that names a claim has gone over to another one."""
    placed = status_of(machine).get("nodeName")
    return bool(placed) and _phase(machine) not in FINAL and claim not in machine_claims(machine)


def claims_of(obj: Object) -> list[Key]:
    """Return the claims a pod or a machine names."""
    return machine_claims(obj) if "domain" in obj.get("spec", {}) else pod_claims(obj)


def pod_claims(pod: Object) -> list[Key]:
    """Return the claims a pod names."""
    namespace = pod["metadata"]["namespace"]
    sources = (each.get("persistentVolumeClaim") for each in pod["spec"].get("volumes") or ())
    return [Key(namespace, source["claimName"]) for source in sources if source]


def machine_claims(machine: Object) -> list[Key]:
    """Return the claims a VirtualMachineInstance names; a DataVolume's has the same name.

    One that its guest has not released yet is still in use, though the spec names it no more.
    """
    namespace = machine["metadata"]["namespace"]
    held = (*_attached(machine), *volume_migration.claims(machine))
    found = list(map(partial(Key, namespace), held))
    for volume in (machine.get("spec") or {}).get("volumes") or ():
        claim = volume.get("persistentVolumeClaim") or (volume.get("ephemeral") or {}).get(
            "persistentVolumeClaim"
        )
        name = (claim or {}).get("claimName") or (volume.get("dataVolume") or {}).get("name")
        if name:
            found.append(Key(namespace, name))
    return list(dict.fromkeys(found))


def _attached(machine: Object) -> Iterator[str]:
    for volume in status_of(machine).get("volumeStatus") or ():
        name = (volume.get("persistentVolumeClaimInfo") or {}).get("claimName")
        if name and "hotplugVolume" in volume:
            yield name


def _reads_only(pod: Object, claim: str) -> bool:
    sources = (each.get("persistentVolumeClaim") for each in pod["spec"].get("volumes") or ())
    return all(each.get("readOnly") for each in sources if each and each["claimName"] == claim)


def _phase(obj: Object) -> str:
    return str(status_of(obj).get("phase", ""))


def _named(what: str, obj: Object) -> str:
    return f"{what} {obj['metadata']['namespace']}/{obj['metadata']['name']}"
