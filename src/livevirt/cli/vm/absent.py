"""Commands of KubeVirt's virtctl that livevirt does not have: why, and what to use instead."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

import click


class Absent(NamedTuple):
    """Why there is no such command, and what to do instead."""

    why: str
    instead: str


#: By what is typed after `virtctl`.
ABSENT: Final[dict[str, Absent]] = {
    "config ssh": Absent(
        "entries of ~/.ssh/config are not written",
        "log in with `virtctl ssh USER@vm/VM`",
    ),
    "image-upload": Absent(
        "there is no upload service",
        "fill a claim with `livevirt volume import FILE --pvc NAME`, or import a container disk"
        " with `livevirt image import PATH --name NAME`",
    ),
    "vmexport": Absent(
        "there is no export service",
        "stop the VM and copy the disk of its claim:"
        " DIR/volumes/VOLUME/disk.img below the data directory, where VOLUME is the"
        " spec.volumeName that `kubectl get pvc NAME -o yaml` shows",
    ),
    "guestfs": Absent(
        "there is no libguestfs image",
        "look at the files of a running guest with `livevirt exec VM -- COMMAND`",
    ),
    "memory-dump": Absent(
        "the memory of a guest is not dumped to a claim",
        "look at the running guest with `livevirt exec VM -- COMMAND`",
    ),
    "create clone": Absent(
        "VirtualMachineClone is not served",
        "clone the disks with a DataVolume whose source is a claim"
        " (`virtctl create vm --volume-import type:pvc,src:NAMESPACE/CLAIM`)",
    ),
    "addinterface": Absent(
        "interfaces do not change while a guest runs",
        "edit `interfaces` and `networks` with `kubectl edit vm VM`, then `virtctl restart VM`",
    ),
    "removeinterface": Absent(
        "interfaces do not change while a guest runs",
        "edit `interfaces` and `networks` with `kubectl edit vm VM`, then `virtctl restart VM`",
    ),
    "credentials": Absent(
        "credentials of a running guest are not managed",
        "set them at the first boot with `virtctl create vm --user USER --ssh-key KEY`, or change"
        " them inside with `livevirt exec -i VM -- chpasswd`",
    ),
    "evacuate-cancel": Absent(
        "an evacuation that has begun cannot be cancelled",
        "let it finish, run `kubectl uncordon NODE`, and move the guest back with"
        " `virtctl migrate VM --addedNodeSelector=kubernetes.io/hostname=NODE`",
    ),
    "adm": Absent(
        "the components are one process with one log level",
        "start the server with `livevirt up --log-level debug`",
    ),
    "permitted-devices": Absent(
        "host devices are not passed to guests", "see `kubectl describe node` for what nodes offer"
    ),
    "objectgraph": Absent(
        "the object graph is not served",
        "list the objects of a VM with `kubectl get vm,vmi,pod,pvc,dv`",
    ),
    "template": Absent(
        "VirtualMachineTemplate is not served",
        "write a manifest with `virtctl create vm`, or a size of your own with `virtctl customize`",
    ),
    "options": Absent(
        "flags of all commands are listed with the program", "run `virtctl` without a command"
    ),
}


class Group(click.Group):
    """A group that answers to commands of KubeVirt's virtctl which it does not have."""

    PREFIX: ClassVar[str] = ""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was typed; name the alternative to one that is absent."""
        for name in (f"{self.PREFIX}{args[0]}", f"{self.PREFIX}{' '.join(args[:2])}"):
            if found := ABSENT.get(name):
                raise click.ClickException(
                    f"livevirt has no `virtctl {name}`: {found.why}; {found.instead}"
                )
        return super().resolve_command(ctx, args)


class CreateGroup(Group):
    """`virtctl create`."""

    PREFIX = "create "
