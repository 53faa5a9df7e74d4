"""The volumes of a generated VM, each from one flag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from livevirt.cli.vm.flags import FlagError, params, quantity, required

Object = dict[str, Any]
Suffix = Callable[[], str]  # returns five random characters

# Source → the fields it takes; on the command line their names are in lower case.
_FIELDS: dict[str, tuple[str, ...]] = {
    "blank": (),
    "gcs": ("url", "secretRef"),
    "http": ("url", "secretRef", "certConfigMap"),
    "imageio": ("url", "diskId", "secretRef", "certConfigMap"),
    "registry": ("url", "imageStream", "pullMethod", "secretRef", "certConfigMap"),
    "s3": ("url", "secretRef", "certConfigMap"),
    "vddk": ("url", "uuid", "backingFile", "thumbprint", "secretRef", "initImageURL"),
}
_COPIES = ("pvc", "snapshot", "ds")  # they know their size
_INFERABLE = ("pvc", "registry", "snapshot", "ds")
_LAST = 2**31 - 1  # place in the boot order that the API can say
TYPES = tuple(sorted((*_FIELDS, *_COPIES)))


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume of the VM, and the flag that asked for it."""

    flag: str
    name: str
    source: Object  # of the VM's volume
    boot_order: int | None = None
    template: Object | None = None  # of the DataVolume that fills it
    inferable: bool = False  # whether an instance type can be read off it

    @property
    def entry(self) -> Object:
        """The entry of the VM's `volumes`."""
        return {"name": self.name, **self.source}


def containerdisk(flag: str, text: str, vm: str, index: int) -> Volume:
    """Return the volume of `src:IMAGE[,name:N][,bootorder:B]`."""
    given = params(flag, text, ("src", "name", "bootorder"))
    image = required(flag, given, "src")
    name = given.get("name") or f"{vm}-containerdisk-{index}"
    return Volume(flag, name, {"containerDisk": {"image": image}}, _order(flag, given))


def claim(flag: str, text: str) -> Volume:
    """Return the volume of `src:PVC[,name:N][,bootorder:B]`."""
    given = params(flag, text, ("src", "name", "bootorder"))
    pvc = required(flag, given, "src")
    if "/" in pvc:
        raise FlagError(flag, "not allowed to specify namespace of PVC, it is the VM's own")
    source = {"persistentVolumeClaim": {"claimName": pvc}}
    return Volume(flag, given.get("name") or pvc, source, _order(flag, given), inferable=True)


def imported(flag: str, text: str, suffix: Suffix, type_: str = "") -> Volume:
    """Return the volume of `type:T,…`, filled through a DataVolume template."""
    if not type_:
        type_ = dict(p.partition(":")[::2] for p in text.split(",")).get("type", "").lower()
        if type_ not in TYPES:
            known = ", ".join(TYPES)
            raise FlagError(flag, f'invalid type "{type_}", supported values are: {known}')
    fields = {field.lower(): field for field in _FIELDS.get(type_, ("src",))}
    given = params(flag, text, ("type", "size", "name", "bootorder", *fields))
    name = given.get("name") or f"imported-volume-{suffix()}"
    spec: Object = {"storage": {"resources": _size(flag, type_, given)}}
    if type_ in _COPIES:
        spec |= _copy(flag, type_, required(flag, given, "src"))
    else:
        if fields and not {"url", "imagestream"} & given.keys():
            raise FlagError(flag, "url must be specified")
        spec["source"] = {type_: {f: given[p] for p, f in fields.items() if p in given}}
    return Volume(
        flag, name, {"dataVolume": {"name": name}}, _order(flag, given),
        {"metadata": {"name": name}, "spec": spec}, type_ in _INFERABLE,
    )  # fmt: skip


def sysprep(flag: str, text: str) -> Volume:
    """Return the volume with answers for Windows' set-up: `src:NAME[,type:configmap|secret]`."""
    given = params(flag, text, ("src", "type"))
    name, type_ = required(flag, given, "src"), given.get("type", "configmap").lower()
    fields = {"configmap": "configMap", "secret": "secret"}
    if "/" in name:
        raise FlagError(flag, "not allowed to specify namespace, it is the VM's own")
    if type_ not in fields:
        raise FlagError(flag, f'invalid type "{type_}", supported values are: configmap, secret')
    return Volume(flag, "sysprepdisk", {"sysprep": {fields[type_]: {"name": name}}})


def _copy(flag: str, type_: str, source: str) -> Object:
    namespace, slash, name = source.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise FlagError(flag, f"src: {source!r} is not namespace/name")
    if type_ == "ds":
        place = {"namespace": namespace} if namespace else {}
        return {"sourceRef": {"kind": "DataSource", "name": name, **place}}
    if not namespace:
        raise FlagError(flag, f"src: namespace of {type_} {name} must be specified")
    return {"source": {type_: {"name": name, "namespace": namespace}}}


def _size(flag: str, type_: str, given: dict[str, str]) -> Object:
    if "size" not in given and type_ in _COPIES:
        return {}
    return {"requests": {"storage": quantity(flag, required(flag, given, "size"))}}


def _order(flag: str, given: dict[str, str]) -> int | None:
    text = given.get("bootorder")
    if text is None:
        return None
    digits = text.lstrip("0") if text.isascii() and text.isdecimal() else ""
    if not digits:
        raise FlagError(flag, "bootorder must be greater than 0")
    if len(digits) > len(str(_LAST)) or int(digits) > _LAST:
        raise FlagError(flag, f"bootorder must be at most {_LAST}")
    return int(digits)
