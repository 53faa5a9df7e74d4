"""Guests as `port-forward`, `ssh` and `scp` name them: `[user@]vm/web[/namespace]`. Pure."""

from __future__ import annotations

from typing import NamedTuple

import click

from livevirt.cli.session import VM, VMI

_KINDS = {
    "vm": ("vm", "vms", "virtualmachine", "virtualmachines"),
    "vmi": ("vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances"),
}
_RESOURCES = {"vm": VM, "vmi": VMI}


class Target(NamedTuple):
    """A VM or an instance, and who to be there."""

    kind: str  # vm or vmi
    name: str
    namespace: str = ""  # the chosen one if it is empty
    user: str = ""

    @property
    def resource(self) -> str:
        return _RESOURCES[self.kind]


def parse(text: str) -> Target:
    """Return the guest that `type/name[/namespace]` or `type/name.namespace` names."""
    words = text.split("/")
    if not 2 <= len(words) <= 3:
        raise click.UsageError(
            f"{text!r} is no target: write vm/NAME, vmi/NAME or vm/NAME/NAMESPACE"
        )
    kind = next((kind for kind, names in _KINDS.items() if words[0].lower() in names), "")
    if not kind:
        raise click.UsageError(f"{text!r}: the type of a target is vm or vmi, not {words[0]!r}")
    name, namespace = words[1], words[2] if len(words) == 3 else ""
    if len(words) == 2 and "." in name:
        name, _, namespace = name.rpartition(".")
    if not name or (len(words) == 3 and not namespace):
        raise click.UsageError(
            f"{text!r} names no guest: write {kind}/NAME or {kind}/NAME/NAMESPACE"
        )
    return Target(kind, name, namespace)


def parse_with_user(text: str) -> Target:
    """Return the guest that `[user@]type/name[/namespace]` names."""
    user, at, rest = text.rpartition("@")
    if at and not user:
        raise click.UsageError(f"{text!r}: there is no user before the @")
    return parse(rest)._replace(user=user)


class Ports(NamedTuple):
    """A local port and the port of the guest that it leads to."""

    local: int
    remote: int
    protocol: str = "tcp"


def parse_ports(text: str) -> Ports:
    """Return what `[protocol/]localPort[:targetPort]` names."""
    protocol, slash, rest = text.rpartition("/")
    protocol = protocol.lower() if slash else "tcp"
    if protocol not in ("tcp", "udp"):
        raise click.UsageError(f"{text!r}: the protocol is tcp or udp, not {protocol!r}")
    local, colon, remote = rest.partition(":")
    numbers = [local, remote if colon else local]
    if not all(each.isascii() and each.isdecimal() and len(each) < 6 for each in numbers):
        raise click.UsageError(f"{text!r} is no port: write 8080, 8080:80 or udp/5353:53")
    found = Ports(int(numbers[0]), int(numbers[1]), protocol)
    if found.local > 65535 or not 0 < found.remote < 65536:
        raise click.UsageError(f"{text!r}: ports are numbers from 1 to 65535")
    return found
