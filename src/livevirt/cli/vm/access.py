"""How people get into a generated VM: cloud-init data and access credentials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from livevirt.cli.vm.flags import FlagError, params, required

Object = dict[str, Any]

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
