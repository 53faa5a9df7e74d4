"""Parts of a generated VM: its volumes, cloud-init data and access credentials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from livevirt.cli.vm.flags import FlagError, params, quantity, required

# ---------------------------------------------------------------- volumes

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


# ---------------------------------------------------------------- access

SOURCES = {"nocloud": "cloudInitNoCloud", "configdrive": "cloudInitConfigDrive"}
VOLUME = "cloudinitdisk"


@dataclass(frozen=True, slots=True)
class Login:
    """What the flags about the first login said."""

    user: str = ""
    password: str = ""
    ssh_keys: tuple[str, ...] = ()
    agent_manages_ssh: bool = False
    user_data: str = ""  # base64
    network_data: str = ""  # base64
    source: str = "nocloud"  # none: no cloud-init at all

    @property
    def generated(self) -> bool:
        """Whether user data has to be written."""
        return bool(self.user or self.password or self.ssh_keys or self.agent_manages_ssh)


def cloud_init(login: Login) -> Object | None:
    """Return the cloud-init volume, if anything was asked of it."""
    source = login.source.lower()
    if source != "none" and source not in SOURCES:
        known = ", ".join((*SOURCES, "none"))
        raise FlagError("cloud-init", f'invalid source "{source}", supported values are: {known}')
    if login.user_data and login.generated:
        raise FlagError(
            "cloud-init-user-data",
            "it excludes --user, --password-file, --ssh-key, --ga-manage-ssh",
        )
    data: Object = {}
    if login.generated:
        data["userData"] = _user_data(login)
    if login.user_data:
        data["userDataBase64"] = login.user_data
    if login.network_data:
        data["networkDataBase64"] = login.network_data
    if not data:
        return None
    if source == "none":
        raise FlagError("cloud-init", "none excludes every flag that needs cloud-init")
    return {"name": VOLUME, SOURCES[source]: data}


def _user_data(login: Login) -> str:
    config: Object = {}
    if login.user:
        config["user"] = login.user
    if login.password:
        config |= {"password": login.password, "chpasswd": {"expire": False}}
    if login.ssh_keys:
        config["ssh_authorized_keys"] = list(login.ssh_keys)
    if login.agent_manages_ssh:
        # Lets the agent write keys where SELinux confines it.
        config["runcmd"] = [["setsebool", "-P", "virt_qemu_ga_manage_ssh", "on"]]
    return "#cloud-config\n" + yaml.safe_dump(config, sort_keys=False, width=1000)


def credential(text: str) -> Object:
    """Return the access credential of `src:SECRET[,type:T][,method:M][,user:U]`."""
    flag = "access-cred"
    given = params(flag, text, ("type", "src", "method", "user"))
    type_, method = given.get("type", "ssh").lower(), given.get("method", "ga").lower()
    source = {"secret": {"secretName": required(flag, given, "src")}}
    user = given.get("user", "")
    if user and (type_, method) != ("ssh", "ga"):
        raise FlagError(flag, "user can only be specified with type ssh and method ga")
    match type_, method:
        case "ssh", "ga":
            if not user:
                raise FlagError(flag, "user must be specified with type ssh and method ga")
            how: Object = {"qemuGuestAgent": {"users": [user]}}
        case "ssh", "nocloud":
            how = {"noCloud": {}}
        case "ssh", "configdrive":
            how = {"configDrive": {}}
        case "password", "ga":
            return {"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}}
        case "password", _:
            raise FlagError(flag, f'invalid method "{method}", type password supports: ga')
        case "ssh", _:
            known = "ga, nocloud, configdrive"
            raise FlagError(flag, f'invalid method "{method}", supported values are: {known}')
        case _:
            raise FlagError(flag, f'invalid type "{type_}", supported values are: ssh, password')
    return {"sshPublicKey": {"source": source, "propagationMethod": how}}
