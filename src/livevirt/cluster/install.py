"""Install livevirt on a cluster, and remove it again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from livevirt import __version__
from livevirt.catalog import controller as catalog
from livevirt.cluster import manifests, node_manifests, stored_versions
from livevirt.cluster.api_manifests import API_SERVICE
from livevirt.cluster.manifests import (
    DAEMON_SET,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    PART_OF,
    PRODUCT,
    SERVICE,
    VERSION,
    InstallOptions,
)
from livevirt.cluster.webhook_manifests import MUTATING, VALIDATING
from livevirt.errors import AlreadyExists, ApiError, LivevirtError, NotFound
from livevirt.kube.client.interface import Client, Patch
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings as config

MANAGER = "livevirt-install"  # of the fields it applies
_OURS = f"{PART_OF}={PRODUCT}"
_POLL_SECONDS = 0.5

#: Kinds of what is installed, in the order in which they are removed: first what makes
#: kube-apiserver call components, then the components, then what they use.
INSTALLED: tuple[Kind, ...] = (
    VALIDATING, MUTATING, API_SERVICE, DEPLOYMENT, DAEMON_SET, DISRUPTION_BUDGET, NETWORK_POLICY,
    SERVICE, core.CLUSTER_ROLE_BINDING, core.ROLE_BINDING, core.CLUSTER_ROLE, core.ROLE,
    core.SERVICE_ACCOUNT, core.CRD, core.PRIORITY_CLASS, core.NAMESPACE,
)  # fmt: skip
#: Kinds of which a newer version may have fewer objects. Objects of users depend on the others.
_PRUNED = tuple(each for each in INSTALLED if each not in (core.CRD, core.NAMESPACE))
_BY_NAME = {(each.api_version, each.kind): each for each in (*INSTALLED, *kinds.KINDS)}
#: Objects whose loss would lose a guest or its disks.
_PRECIOUS = (kinds.VM, kinds.VMI, kinds.DATA_VOLUME)

Report = Callable[[str], None]


class InstallError(LivevirtError):
    """The cluster cannot be changed as asked; the message names what to do."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """For how long to wait for a cluster, and where to report progress."""

    seconds: float | None = 300.0  # None: forever
    report: Report = lambda _: None

    async def until(self, what: str, fact: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a fact; raises InstallError if it does not become true in time."""
        self.report(f"waiting for {what}")
        began = time.monotonic()
        while not await fact():
            if self.seconds is not None and time.monotonic() - began > self.seconds:
                raise InstallError(
                    f"{what}: not ready after {self.seconds:g} s; see `livevirt status`"
                )
            await asyncio.sleep(_POLL_SECONDS)


def kind_of(obj: Object) -> Kind:
    """Return the kind of an object that is installed."""
    return _BY_NAME[obj["apiVersion"], obj["kind"]]


# ---------------------------------------------------------------- install


async def install(
    client: Client,
    options: InstallOptions,
    waiting: Waiting,
    *,
    adopt: bool = False,
    wait: bool = True,
) -> None:
    """Apply everything, and remove what an older version has installed and this one has not.

    Without `wait` everything that the webhook has to check is left to the next run: the KubeVirt
    object, the catalog and the migration of stored objects.
    """
    await _report_versions(client, waiting.report)
    wanted = manifests.control_plane(options)
    kept = _kept(await _foreign_definitions(client, wanted), adopt=adopt)
    for name in kept:
        waiting.report(f"keeping {name}, which livevirt did not install")
    wanted = [each for each in wanted if each["metadata"]["name"] not in kept]
    for obj in wanted:
        await _apply(client, obj)
    waiting.report(f"applied {len(wanted)} objects")
    await _prune(client, wanted, waiting.report)
    await waiting.until("CustomResourceDefinitions", lambda: _established(client))
    if not wait:
        waiting.report(
            "not waiting: run it again for the KubeVirt object, the catalog and stored objects"
        )
        return
    await waiting.until("components", lambda: _available(client, options))
    await waiting.until("the webhook", lambda: _create(client, manifests.settings(options)[0]))
    await migrate_storage(client, waiting)
    if options.catalog:
        await waiting.until("the catalog", lambda: _installed_catalog(client))


async def migrate_storage(client: Client, waiting: Waiting) -> None:
    """Rewrite the objects that are stored in an older version than this one stores."""

    async def migrated() -> bool:
        try:
            await stored_versions.migrate(client, kinds.KINDS, waiting.report)
        except ApiError as error:
            if not _is_no_answer(error):
                raise
            return False
        return True

    await waiting.until("stored objects", migrated)


async def _apply(client: Client, obj: Object) -> None:
    meta = obj["metadata"]
    await client.patch(kind_of(obj), meta["name"], meta.get("namespace", ""), Patch("apply", obj))


async def _report_versions(client: Client, report: Report) -> None:
    """Report which version of the components is replaced."""
    found = await _list(client, DEPLOYMENT, labels=_OURS)
    versions = {each["spec"]["template"]["metadata"]["labels"].get(VERSION, "") for each in found}
    for old in sorted(versions - {"", __version__}):
        report(f"replacing version {old} with {__version__}")


async def _foreign_definitions(client: Client, wanted: Iterable[Object]) -> set[str]:
    """Return the names of definitions that exist and were not installed by us."""
    ours = {each["metadata"]["name"] for each in wanted if each["kind"] == core.CRD.kind}
    return {
        each["metadata"]["name"]
        for each in (await client.list(core.CRD)).items
        if each["metadata"]["name"] in ours
        and (each["metadata"].get("labels") or {}).get(PART_OF) != PRODUCT
    }


def _kept(foreign: set[str], *, adopt: bool) -> list[str]:
    """Return the definitions to leave as they are, which are those of CDI; refuse the others."""
    others = sorted(each for each in foreign if not each.endswith(f".{kinds.DATA_VOLUME.group}"))
    if others and not adopt:
        raise InstallError(
            f"the cluster has CustomResourceDefinitions that livevirt did not install:"
            f" {', '.join(others)}. If it does not run KubeVirt, take them over with --adopt"
        )
    return sorted(foreign.difference(others))


async def _prune(client: Client, wanted: Sequence[Object], report: Report) -> None:
    kept = {
        (kind_of(each), each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in wanted
    }
    for kind in _PRUNED:
        for obj in (await client.list(kind, labels=_OURS)).items:
            meta = obj["metadata"]
            namespace = meta.get("namespace", "")
            if (kind, namespace, meta["name"]) not in kept:
                await _delete(client, kind, obj)
                report(f"removed {kind.singular} {meta['name']}, which this version does not have")


async def _established(client: Client) -> bool:
    found = (await client.list(core.CRD, labels=_OURS)).items
    return bool(found) and all(
        conditions.is_true((each.get("status") or {}).get("conditions"), "Established")
        for each in found
    )


async def _available(client: Client, options: InstallOptions) -> bool:
    """Return whether every replica of the newest generation answers."""
    for workload in manifests.workloads(options):
        found = await client.get(DEPLOYMENT, workload.name, config.NAMESPACE)
        status = found.get("status") or {}
        if status.get("observedGeneration", 0) < found["metadata"].get("generation", 0):
            return False
        if min(status.get(each, 0) for each in ("updatedReplicas", "availableReplicas")) < (
            options.replicas
        ):
            return False
    return await _has_agents(client)


async def _has_agents(client: Client) -> bool:
    """Return whether a node agent of the newest generation answers; some nodes may be down."""
    found = await client.get(DAEMON_SET, node_manifests.NAME, config.NAMESPACE)
    status = found.get("status") or {}
    if status.get("observedGeneration", 0) < found["metadata"].get("generation", 0):
        return False
    ready = min(status.get(each, 0) for each in ("updatedNumberScheduled", "numberReady"))
    return bool(ready) or not status.get("desiredNumberScheduled")


async def _create(client: Client, obj: Object) -> bool:
    """Create an object unless it exists; return False if the webhook does not answer yet."""
    try:
        await client.create(kind_of(obj), obj, obj["metadata"].get("namespace", ""))
    except AlreadyExists:
        return True  # it belongs to the administrator
    except ApiError as error:
        if not _is_no_answer(error) and not isinstance(error, NotFound):
            raise
        return False  # NotFound: kube-apiserver does not serve the definition yet
    return True


async def _installed_catalog(client: Client) -> bool:
    kubevirt = await client.get(kinds.KUBEVIRT, config.NAME, config.NAMESPACE)
    if not catalog.enabled(kubevirt):
        return True
    try:
        await catalog.install(client)
    except BaseExceptionGroup as group:
        refused, other = group.split(_is_no_answer)
        if other is not None:
            raise other from None
        return refused is None
    return True


def _is_no_answer(error: BaseException) -> bool:
    """Return whether kube-apiserver could not ask the webhook, or not reach anything at all."""
    return isinstance(error, ApiError) and error.status_code in (500, 503)


# ---------------------------------------------------------------- uninstall


async def uninstall(client: Client, waiting: Waiting, *, force: bool = False) -> None:
    """Remove everything; refuse while VMs, instances or DataVolumes exist, unless forced."""
    defined = {each["metadata"]["name"] for each in await _list(client, core.CRD, labels=_OURS)}
    owned = [kind for kind in kinds.KINDS if kind.resource in defined]
    precious = {
        kind: found for kind in _PRECIOUS if kind in owned and (found := await _list(client, kind))
    }
    if precious and not force:
        counts = ", ".join(f"{len(found)} {kind.plural}" for kind, found in precious.items())
        raise InstallError(
            f"the cluster has {counts}, which would be deleted with their disks; delete them"
            " first, or use --force"
        )
    if precious:
        await _empty(client, [kind for kind in (*_PRECIOUS, kinds.MIGRATION) if kind in owned],
                     waiting)  # fmt: skip
    for kind in INSTALLED:
        if kind is core.CRD:  # nothing checks objects any more, so their finalizers can go
            await _release(client, owned)
        found = await _list(client, kind, labels=_OURS)
        for obj in found:
            await _delete(client, kind, obj)
        if found:
            waiting.report(f"removed {len(found)} {kind.plural}")
        if kind in (core.CRD, core.NAMESPACE):
            await waiting.until(f"the removal of {kind.plural}", _none(client, kind))


def _none(client: Client, kind: Kind) -> Callable[[], Awaitable[bool]]:
    async def none() -> bool:
        return not await _list(client, kind, labels=_OURS)

    return none


async def _empty(client: Client, owned: Iterable[Kind], waiting: Waiting) -> None:
    """Delete objects, and give the controllers the time to stop guests and clean up."""
    owned = list(owned)
    for kind in owned:
        for obj in await _list(client, kind):
            await _delete(client, kind, obj)

    async def gone() -> bool:
        return not [obj for kind in owned for obj in await _list(client, kind)]

    with contextlib.suppress(InstallError):  # no controller runs: finalizers are removed later
        await waiting.until("guests to stop", gone)


async def _release(client: Client, owned: Iterable[Kind]) -> None:
    """Remove the finalizers of our objects, which no controller does any more."""
    for kind in owned:
        for obj in await _list(client, kind):
            meta = obj["metadata"]
            if meta.get("finalizers"):
                patch = {"metadata": {"uid": meta["uid"], "finalizers": None}}
                with contextlib.suppress(NotFound):
                    await client.patch(kind, meta["name"], meta.get("namespace", ""), patch)


async def _list(client: Client, kind: Kind, labels: str = "") -> list[Object]:
    try:
        return (await client.list(kind, labels=labels)).items
    except NotFound:
        return []  # not even the kind is there


async def _delete(client: Client, kind: Kind, obj: Object) -> None:
    meta = obj["metadata"]
    with contextlib.suppress(NotFound):
        await client.delete(
            kind, meta["name"], meta.get("namespace", ""), uid=meta["uid"],
            propagation="Background",
        )  # fmt: skip
