"""`virtctl customize`: a copy of an instance type or preference, made to measure."""

from __future__ import annotations

from typing import Any

import click

from livevirt.cli import cluster
from livevirt.cli.session import Session, refusals, talk
from livevirt.cli.vm.flags import Command, quantity
from livevirt.cli.vm.manifest import TOPOLOGIES
from livevirt.cli.vm.named import INSTANCETYPES, PREFERENCES, Named, named
from livevirt.cli.vm.printing import print_yaml
from livevirt.cli.vm.variant import NO, Wish, variant
from livevirt.kube.objects import names
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object

_POSITIVE = click.IntRange(min=1)


@click.command(cls=Command)
@click.argument("source", metavar="[KIND/]NAME")
@click.option("--name", required=True, help="The name of the copy.")
@click.option("--vcpus", type=_POSITIVE, default=None, help="vCPUs.")
@click.option("--memory", default="", help="Memory, such as 4Gi.")
@click.option("--max-sockets", type=_POSITIVE, default=None, help="Up to how many it can grow.")
@click.option("--max-guest", default="", help="Up to how much memory it can grow.")
@click.option(
    "--dedicated-cpus/--no-dedicated-cpus", default=None,
    help="Whether each vCPU has a CPU of its own; without, what needs that goes too.",
)  # fmt: skip
@click.option(
    "--hugepages", type=click.Choice(["2Mi", "1Gi", NO]), default=None,
    help="The size of its memory's pages; such memory is never overcommitted.",
)  # fmt: skip
@click.option(
    "--iothreadspolicy", type=click.Choice(["auto", "shared", "supplementalPool", NO]),
    default=None, help="How disks share I/O threads.",
)  # fmt: skip
@click.option(
    "--iothreads", type=_POSITIVE, default=None, help="How many there are in a supplementalPool."
)
@click.option(
    "--cpu-topology", type=click.Choice(TOPOLOGIES), default=None,
    help="Of a preference: how vCPUs show in the guest.",
)  # fmt: skip
@click.option(
    "--kind", default="", metavar="KIND",
    help="The kind of the original (default: virtualmachineclusterinstancetype).",
)  # fmt: skip
@click.option(
    "--namespaced/--cluster", default=True, show_default=True,
    help="Whether the copy is of a namespace or of the cluster.",
)  # fmt: skip
@click.option(
    "--keep-labels", is_flag=True,
    help="Keep labels and annotations of instancetype.kubevirt.io, which are dropped otherwise.",
)  # fmt: skip
@cluster.flags(without=("--cluster",))
def customize(source: str, kind: str, namespaced: bool, **given: Any) -> None:
    """Print a changed copy of an instance type or a preference. Nothing is changed.

    The cluster of the kubeconfig is chosen before the verb: `virtctl --cluster NAME customize …`.

    \b
    virtctl customize u1.medium --name u1.mysize --vcpus 4 --memory 4Gi | kubectl apply -f -
    virtctl customize u1.medium --name pinned --dedicated-cpus --hugepages 2Mi --cluster
    virtctl customize virtualmachineclusterpreference/fedora --name mine --cpu-topology spread
    virtctl customize mine --kind virtualmachineinstancetype --name bigger --max-guest 16Gi
    """
    original = named(source, (*INSTANCETYPES, *PREFERENCES), kind)
    target = _target(original.kind, namespaced)
    wish = _wish(given, cluster.chosen().namespace)
    with refusals(f"error customizing {original.title}: {{}}"):
        found = talk(lambda session: _read(session, original))
    print_yaml(variant(found, target, wish))


def _target(kind: Kind, namespaced: bool) -> Kind:
    kinds = INSTANCETYPES if kind in INSTANCETYPES else PREFERENCES
    return next(each for each in kinds if each.namespaced is namespaced)


def _wish(given: dict[str, Any], namespace: str) -> Wish:
    if wrong := names.validate_dns1123_subdomain(given["name"]):
        raise click.UsageError(f"--name {given['name']!r}: {wrong[0]}")
    for flag in ("memory", "max-guest"):
        if text := given[flag.replace("-", "_")]:
            quantity(flag, text)
    return Wish(
        name=given["name"],
        namespace=namespace,
        keep_labels=given["keep_labels"],
        vcpus=given["vcpus"] or 0,
        memory=given["memory"],
        max_sockets=given["max_sockets"] or 0,
        max_guest=given["max_guest"],
        dedicated=given["dedicated_cpus"],
        hugepages=given["hugepages"] or "",
        io_threads_policy=given["iothreadspolicy"] or "",
        io_threads=given["iothreads"] or 0,
        topology=given["cpu_topology"] or "",
    )


async def _read(session: Session, original: Named) -> Object:
    namespace = session.namespace if original.kind.namespaced else ""
    return await session.client.get(original.kind, original.name, namespace)
