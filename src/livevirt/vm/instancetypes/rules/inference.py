"""Which instance type or preference a volume's origin recommends, by its labels."""

from __future__ import annotations

from dataclasses import dataclass

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.instancetypes.rules.matchers import Lookup, Role

PREFIX = "instancetype.kubevirt.io"
# Read where a cluster has them; we serve neither.
DATA_SOURCE = Kind("cdi.kubevirt.io", "DataSource", "datasources", ("v1beta1",), "")
SNAPSHOT = Kind("snapshot.storage.k8s.io", "VolumeSnapshot", "volumesnapshots", ("v1",), "")


class NotInferred(Exception):
    """Nothing can be inferred; `ignorable` if the policy Ignore makes do with nothing."""

    def __init__(self, message: str, *, ignorable: bool) -> None:
        super().__init__(message)
        self.ignorable = ignorable


@dataclass(frozen=True, slots=True)
class Inferred:
    """What the labels name; the kind is empty if they do not say."""

    name: str
    kind: str = ""


def infer(role: Role, volume: str, vm: Object, lookup: Lookup) -> Inferred:
    """Return what the origin of a VM's volume recommends; raises NotInferred."""
    return _Walk(role, vm, lookup).volume(volume)


class _Walk:
    """From a volume to the labels: PVC, DataVolume, its source, and what that refers to."""

    def __init__(self, role: Role, vm: Object, lookup: Lookup) -> None:
        self._label = f"{PREFIX}/default-{role.field}"
        self._vm, self._lookup = vm, lookup
        self._namespace = str(vm["metadata"].get("namespace") or "")

    def volume(self, name: str) -> Inferred:
        template = self._vm["spec"]["template"].get("spec") or {}
        for volume in template.get("volumes") or ():
            if volume["name"] != name:
                continue
            if (claim := volume.get("persistentVolumeClaim")) is not None:
                return self._labelled(core.CLAIM, claim["claimName"], self._namespace)
            if (data := volume.get("dataVolume")) is not None:
                return self._data_volume(data["name"])
            text = f"unable to infer defaults from volume {name} as type is not supported"
            raise NotInferred(text, ignorable=True)
        text = f"unable to find volume {name} to infer defaults"
        raise NotInferred(text, ignorable=False)

    def _data_volume(self, name: str) -> Inferred:
        for template in self._vm["spec"].get("dataVolumeTemplates") or ():
            if (template.get("metadata") or {}).get("name") == name:
                return self._source(template.get("spec") or {})
        found = self._lookup.get(kinds.DATA_VOLUME, name, self._namespace)
        if found is None:
            return self._labelled(core.CLAIM, name, self._namespace)
        return self._recommended(found) or self._source(found.get("spec") or {})

    def _source(self, spec: Object) -> Inferred:
        if (reference := spec.get("sourceRef")) is not None:
            if reference.get("kind") != DATA_SOURCE.kind:
                text = (
                    "unable to infer defaults from DataVolumeSourceRef as Kind"
                    f" {reference.get('kind')} is not supported"
                )
                raise NotInferred(text, ignorable=True)
            return self._data_source(reference)
        found = self._copied(spec.get("source") or {}, self._namespace)
        if found is None:
            text = (
                "unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported"
            )
            raise NotInferred(text, ignorable=True)
        return found

    def _data_source(self, reference: Object) -> Inferred:
        namespace = reference.get("namespace") or self._namespace
        found = self._get(DATA_SOURCE, reference["name"], namespace)
        recommended = self._recommended(found)
        if recommended is None:
            recommended = self._copied((found.get("spec") or {}).get("source") or {}, namespace)
        if recommended is None:
            text = (
                "unable to infer defaults from DataSource that doesn't provide"
                " DataVolumeSourcePVC or DataVolumeSourceSnapshot"
            )
            raise NotInferred(text, ignorable=True)
        return recommended

    def _copied(self, source: Object, namespace: str) -> Inferred | None:
        for field, kind in (("pvc", core.CLAIM), ("snapshot", SNAPSHOT)):
            if (origin := source.get(field)) is not None:
                return self._labelled(kind, origin["name"], origin.get("namespace") or namespace)
        return None

    def _labelled(self, kind: Kind, name: str, namespace: str) -> Inferred:
        found = self._recommended(self._get(kind, name, namespace))
        if found is None:
            text = f"unable to find required {self._label} label on the volume"
            raise NotInferred(text, ignorable=True)
        return found

    def _get(self, kind: Kind, name: str, namespace: str) -> Object:
        found = self._lookup.get(kind, name, namespace)
        if found is None:
            raise NotInferred(f'{kind.resource} "{name}" not found', ignorable=False)
        return found

    def _recommended(self, obj: Object) -> Inferred | None:
        labels = obj["metadata"].get("labels") or {}
        name = labels.get(self._label)
        return Inferred(name, labels.get(f"{self._label}-kind") or "") if name else None
