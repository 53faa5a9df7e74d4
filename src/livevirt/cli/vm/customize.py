"""`virtctl customize`: a copy of an instance type or preference with changes."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import click

from livevirt import catalog
from livevirt.cli import cluster
from livevirt.cli.session import Session, refusals, talk
from livevirt.cli.vm.documents import INSTANCETYPES, PREFERENCES, Named, named, print_yaml
from livevirt.cli.vm.flags import Command, quantity
from livevirt.cli.vm.manifest import TOPOLOGIES
from livevirt.kube.objects import names
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object

# ---------------------------------------------------------------- the changed copy

NO = "none"  # what takes a setting away
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: What only works with CPUs of one's own, and with huge pages.
_NEED_DEDICATED = ("isolateEmulatorThread", "numa", "realtime")
_NEED_PAGES = ("numa", "realtime")


@dataclass(frozen=True, slots=True)
class Changes:
    """The requested changes; empty and None are left as they are."""

    name: str
    namespace: str = ""
    keep_labels: bool = False
    vcpus: int = 0
    memory: str = ""
    max_sockets: int = 0
    max_guest: str = ""
    dedicated: bool | None = None
    hugepages: str = ""  # a page size, or none
    io_threads_policy: str = ""  # or none
    io_threads: int = 0
    topology: str = ""  # of a preference

    def of_instancetype(self) -> bool:
        """Return whether a field that only an instance type has should change."""
        return self.dedicated is not None or any(
            (self.vcpus, self.memory, self.max_sockets, self.max_guest, self.hugepages,
             self.io_threads_policy, self.io_threads)
        )  # fmt: skip


def variant(source: Object, kind: Kind, changes: Changes) -> Object:
    """Return the copy, as an object of the kind; raises UsageError for what it cannot have."""
    spec: Object = copy.deepcopy(source.get("spec") or {})
    if kind in INSTANCETYPES:
        if changes.topology:
            raise click.UsageError("--cpu-topology is for preferences")
        _size(spec, changes)
        _place(spec, changes)
    else:
        if changes.of_instancetype():
            raise click.UsageError("a preference has no sizes; it takes --cpu-topology")
        if changes.topology:
            spec.setdefault("cpu", {})["preferredCPUTopology"] = changes.topology
    return {
        "apiVersion": source["apiVersion"],
        "kind": kind.kind,
        "metadata": _metadata(source["metadata"], kind, changes, spec),
        "spec": spec,
    }


def _size(spec: Object, changes: Changes) -> None:
    cpu, memory = spec.setdefault("cpu", {}), spec.setdefault("memory", {})
    if changes.vcpus:
        sockets, old = cpu.get("maxSockets") or 0, cpu.get("guest") or 0
        # Fewer sockets than vCPUs are meant for cores or threads, and 0 is no limit: those stay.
        if sockets and old <= sockets and _follows(sockets, old, changes.vcpus):
            cpu["maxSockets"] = changes.vcpus
        cpu["guest"] = changes.vcpus
    if changes.memory:
        limit, size = _amount(memory.get("maxGuest")), _amount(memory.get("guest"))
        if limit is not None and _follows(limit, size, _amount(changes.memory)):
            memory["maxGuest"] = changes.memory
        memory["guest"] = changes.memory
    if changes.max_sockets:
        cpu["maxSockets"] = changes.max_sockets
    if changes.max_guest:
        memory["maxGuest"] = changes.max_guest
        size = _amount(memory.get("guest"))
        if size is not None and parse(changes.max_guest) < size:
            raise click.UsageError(
                f"--max-guest {changes.max_guest} is less than its memory; give more, or less"
                " --memory"
            )


def _follows(limit: Any, old: Any, new: Any) -> bool:
    """Return whether a limit goes with the size: it was the size, or the new one is beyond it."""
    return bool(limit == old or limit < new)


def _amount(text: Any) -> Quantity | None:
    return None if text is None else parse(str(text))


def _place(spec: Object, changes: Changes) -> None:
    cpu, memory = spec["cpu"], spec["memory"]
    if changes.dedicated is True:
        cpu["dedicatedCPUPlacement"] = True
    if changes.dedicated is False:
        _drop(cpu, "dedicatedCPUPlacement", *_NEED_DEDICATED)
    if changes.hugepages == NO:
        _drop(memory, "hugepages")
        _drop(cpu, *_NEED_PAGES)
    elif changes.hugepages:
        memory["hugepages"] = {"pageSize": changes.hugepages}
        _drop(memory, "overcommitPercent")  # huge pages are taken whole
    if changes.io_threads_policy == NO:
        _drop(spec, "ioThreadsPolicy", "ioThreads")
    elif changes.io_threads_policy:
        spec["ioThreadsPolicy"] = changes.io_threads_policy
    if changes.io_threads:
        if spec.setdefault("ioThreadsPolicy", "supplementalPool") != "supplementalPool":
            raise click.UsageError("--iothreads needs --iothreadspolicy supplementalPool")
        spec["ioThreads"] = {"supplementalPoolThreadCount": changes.io_threads}


def _drop(of: Object, *names: str) -> None:
    for name in names:
        of.pop(name, None)


def _metadata(old: Object, kind: Kind, changes: Changes, spec: Object) -> Object:
    meta: Object = {"name": changes.name}
    if kind.namespaced and changes.namespace:
        meta["namespace"] = changes.namespace
    for field in ("labels", "annotations"):
        marks = {k: v for k, v in (old.get(field) or {}).items() if k != _LAST_APPLIED}
        if not changes.keep_labels:
            marks = {k: v for k, v in marks.items() if not k.startswith(catalog.PREFIX)}
        # It is no object of any bundle now, so none may replace it when it is upgraded.
        marks.pop(catalog.LABEL, None)
        if marks:
            meta[field] = marks | (_resized(marks, spec) if field == "labels" else {})
    return meta


def _resized(labels: dict[str, str], spec: Object) -> dict[str, str]:
    """Return the labels that name a size, with the size it has now."""
    sizes = {
        f"{catalog.PREFIX}{name}": str(spec[name]["guest"])
        for name in ("cpu", "memory")
        if "guest" in (spec.get(name) or {})
    }
    return {key: value for key, value in sizes.items() if key in labels}


# ---------------------------------------------------------------- the command

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
    help="Whether each vCPU has a dedicated CPU; without, what needs that is removed.",
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
    changes = _changes(given, cluster.chosen().namespace)
    with refusals(f"error customizing {original.title}: {{}}"):
        found = talk(lambda session: _read(session, original))
    print_yaml(variant(found, target, changes))


def _target(kind: Kind, namespaced: bool) -> Kind:
    kinds = INSTANCETYPES if kind in INSTANCETYPES else PREFERENCES
    return next(each for each in kinds if each.namespaced is namespaced)


def _changes(given: dict[str, Any], namespace: str) -> Changes:
    if wrong := names.validate_dns1123_subdomain(given["name"]):
        raise click.UsageError(f"--name {given['name']!r}: {wrong[0]}")
    for flag in ("memory", "max-guest"):
        if text := given[flag.replace("-", "_")]:
            quantity(flag, text)
    return Changes(
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
