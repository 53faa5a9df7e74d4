"""`virtctl create`: manifests from flags. It prints them and contacts no server."""

from __future__ import annotations

import secrets
from typing import Any

import click

from livevirt.cli import cluster
from livevirt.cli.vm import manifest, manifest_parts
from livevirt.cli.vm.absent import CreateGroup
from livevirt.cli.vm.documents import print_yaml, read_text
from livevirt.cli.vm.flags import Command
from livevirt.cli.vm.manifest import Machine, Matcher
from livevirt.cli.vm.manifest_parts import Login

# Kubernetes' own alphabet for made-up names: no vowels and no digits that look like letters.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def _suffix() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(5))


@click.group(cls=CreateGroup)
def create() -> None:
    """Print a manifest made from flags.

    \b
    virtctl create vm --name web --volume-containerdisk src:livevirt/guest:latest
    virtctl create instancetype --name small --cpu 1 --memory 1Gi
    virtctl create preference --name spread --cpu-topology spread
    """


@create.command("vm", cls=Command)
@click.option("--name", default="", help="Its name (default: vm- and five characters).")
@click.option(
    "--run-strategy",
    default="Always",
    show_default=True,
    help="Always, Manual, Halted, Once or RerunOnFailure.",
)
@click.option(
    "--termination-grace-period",
    "grace_period",
    type=int,
    default=180,
    show_default=True,
    help="Seconds the guest may take to shut down.",
)
@click.option("--memory", default="", help="The guest's memory (default: 512Mi).")
@click.option(
    "--vcpus",
    type=click.IntRange(min=1),
    default=None,
    help="Its vCPUs; with --memory also beside an instance type that leaves both open.",
)
@click.option("--instancetype", default="", metavar="[KIND/]NAME", help="Its instance type.")
@click.option(
    "--infer-instancetype/--no-infer-instancetype",
    default=None,
    help="Take the instance type from the boot volume (default: if it names one).",
)
@click.option(
    "--infer-instancetype-from",
    default="",
    metavar="VOLUME",
    help="Take the instance type from this volume.",
)
@click.option("--preference", default="", metavar="[KIND/]NAME", help="Its preference.")
@click.option(
    "--infer-preference/--no-infer-preference",
    default=None,
    help="Take the preference from the boot volume (default: if it names one).",
)
@click.option(
    "--infer-preference-from",
    default="",
    metavar="VOLUME",
    help="Take the preference from this volume.",
)
@click.option(
    "--volume-containerdisk",
    multiple=True,
    metavar="PARAMS",
    help="A container disk; src, name, bootorder. Repeatable, as all volumes are.",
)
@click.option(
    "--volume-pvc",
    multiple=True,
    metavar="PARAMS",
    help="A claim that exists; src, name, bootorder.",
)
@click.option(
    "--volume-import",
    multiple=True,
    metavar="PARAMS",
    help=f"A new volume, filled from type: {', '.join(manifest_parts.TYPES)}; size, name,"
    " bootorder, src (pvc, snapshot, ds) or url and the source's other fields.",
)
@click.option(
    "--volume-sysprep",
    default="",
    metavar="PARAMS",
    help="Answers for Windows' set-up; src, type (configmap or secret).",
)
@click.option(
    "--volume-datasource",
    multiple=True,
    hidden=True,
    help="Write --volume-import type:ds,… instead.",
)
@click.option(
    "--volume-clone-pvc",
    multiple=True,
    hidden=True,
    help="Write --volume-import type:pvc,… instead.",
)
@click.option(
    "--volume-blank",
    multiple=True,
    hidden=True,
    help="Write --volume-import type:blank,… instead.",
)
@click.option("--user", "login_user", default="", help="The user to log in as.")
@click.option(
    "--password-file",
    default=None,
    type=click.Path(exists=True, dir_okay=False),
    help="A file with their password; it ends up readable in the manifest.",
)
@click.option("--ssh-key", multiple=True, help="A public key that may log in. Repeatable.")
@click.option(
    "--ga-manage-ssh", is_flag=True, help="Let the guest agent manage keys where SELinux would not."
)
@click.option(
    "--cloud-init",
    "source",
    default="nocloud",
    show_default=True,
    help="Where the guest finds it: nocloud, configdrive or none.",
)
@click.option(
    "--cloud-init-user-data",
    "user_data",
    default="",
    metavar="BASE64",
    help="User data of your own.",
)
@click.option(
    "--cloud-init-network-data",
    "network_data",
    default="",
    metavar="BASE64",
    help="Network data of your own.",
)
@click.option(
    "--access-cred",
    multiple=True,
    metavar="PARAMS",
    help="Credentials from a secret; src, type (ssh or password), method (ga, nocloud"
    " or configdrive), user.",
)
@cluster.namespace_flag
def create_vm(**given: Any) -> None:
    """Print the manifest of a VirtualMachine.

    Volumes boot in this order, unless one has a bootorder: container disks, claims, imports.

    \b
    virtctl create vm --name web --volume-containerdisk src:livevirt/guest:latest
    virtctl create vm --memory 1Gi --volume-import type:http,url:https://host/disk.qcow2,size:5Gi
    virtctl create vm --instancetype u1.small --volume-pvc src:my-disk --ssh-key "$(cat key.pub)"
    virtctl create vm --instancetype m1.custom --vcpus 2 --memory 4Gi --volume-pvc src:my-disk
    """
    print_yaml(manifest.vm(_machine(given)))


def _machine(given: dict[str, Any]) -> Machine:
    name = given["name"] or f"vm-{_suffix()}"
    flag = "volume-containerdisk"
    disks = enumerate(given["volume_containerdisk"])
    asked = [manifest_parts.containerdisk(flag, text, name, index) for index, text in disks]
    asked += [manifest_parts.claim("volume-pvc", text) for text in given["volume_pvc"]]
    for flag, type_ in (("volume-datasource", "ds"), ("volume-clone-pvc", "pvc"),
                        ("volume-blank", "blank")):  # fmt: skip
        texts = given[flag.replace("-", "_")]
        if texts:
            instead = f"--volume-import type:{type_},…"
            click.echo(f"Flag --{flag} has been deprecated, use {instead}", err=True)
        asked += [manifest_parts.imported(flag, text, _suffix, type_) for text in texts]
    asked += [manifest_parts.imported("volume-import", t, _suffix) for t in given["volume_import"]]
    sysprep = given["volume_sysprep"]
    return Machine(
        name=name,
        namespace=cluster.chosen().namespace,
        run_strategy=given["run_strategy"],
        grace_period=given["grace_period"],
        memory=given["memory"],
        vcpus=given["vcpus"] or 0,
        instancetype=Matcher(
            given["instancetype"], given["infer_instancetype"], given["infer_instancetype_from"]
        ),
        preference=Matcher(
            given["preference"], given["infer_preference"], given["infer_preference_from"]
        ),
        volumes=asked,
        sysprep=manifest_parts.sysprep("volume-sysprep", sysprep) if sysprep else None,
        login=_login(given),
        credentials=[manifest_parts.credential(text) for text in given["access_cred"]],
    )


def _login(given: dict[str, Any]) -> Login:
    password = ""
    if given["password_file"]:
        password = read_text(given["password_file"]).rstrip("\r\n")
        click.echo("Warning: the password is readable by everybody who sees the VM", err=True)
    return Login(
        given["login_user"], password, given["ssh_key"], given["ga_manage_ssh"],
        given["user_data"], given["network_data"], given["source"],
    )  # fmt: skip


@create.command("instancetype", cls=Command)
@click.option("--name", default="", help="Its name (default: made up).")
@click.option("--cpu", type=int, help="vCPUs (default: each VM sets them).")
@click.option("--memory", default="", help="Memory, such as 1Gi (default: each VM sets it).")
@click.option("--namespaced", is_flag=True, help="Of a namespace; implied by -n.")
@click.option("--gpu", multiple=True, metavar="PARAMS", help="name, devicename. Repeatable.")
@click.option("--hostdevice", multiple=True, metavar="PARAMS", help="name, devicename. Repeatable.")
@click.option("--iothreadspolicy", default="", help="auto or shared.")
@cluster.namespace_flag
def create_instancetype(
    name: str, cpu: int | None, memory: str, namespaced: bool, gpu: tuple[str, ...],
    hostdevice: tuple[str, ...], iothreadspolicy: str,
) -> None:  # fmt: skip
    """Print the manifest of an instance type, for the cluster or a namespace.

    \b
    virtctl create instancetype --name small --cpu 1 --memory 1Gi
    virtctl create instancetype --namespaced --cpu 4 --memory 8Gi --iothreadspolicy auto
    virtctl create instancetype --name custom --iothreadspolicy shared
    """
    namespace = cluster.chosen().namespace
    name = name or _made_up("instancetype", namespaced or bool(namespace))
    asked = manifest.Instancetype(
        name, namespace, namespaced, cpu, memory, gpu, hostdevice, iothreadspolicy
    )
    print_yaml(manifest.instancetype(asked))


@create.command("preference", cls=Command)
@click.option("--name", default="", help="Its name (default: made up).")
@click.option("--namespaced", is_flag=True, help="Of a namespace; implied by -n.")
@click.option("--cpu-topology", default="", help=f"{', '.join(manifest.TOPOLOGIES)}.")
@click.option("--machine-type", default="", help="Such as q35.")
@click.option("--volume-storage-class", default="", help="The storage class of its volumes.")
@cluster.namespace_flag
def create_preference(
    name: str, namespaced: bool, cpu_topology: str, machine_type: str, volume_storage_class: str
) -> None:
    """Print the manifest of a preference, for the cluster or a namespace.

    \b
    virtctl create preference --name spread --cpu-topology spread
    virtctl create preference --namespaced --machine-type q35
    """
    namespace = cluster.chosen().namespace
    name = name or _made_up("preference", namespaced or bool(namespace))
    print_yaml(manifest.preference(
        name, namespace, namespaced, cpu_topology, machine_type, volume_storage_class,
    ))  # fmt: skip


def _made_up(sort: str, own: bool) -> str:
    return f"{'' if own else 'cluster'}{sort}-{_suffix()}"
