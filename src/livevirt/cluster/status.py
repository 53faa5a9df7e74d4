"""`livevirt status` on a cluster: versions, components, leader, certificates, problems and fixes.

`observe` reads the cluster, `problems` decides what is wrong, `document` and `lines` show it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from livevirt import __version__
from livevirt.cluster import (
    api,
    api_manifests,
    node_manifests,
    stored_versions,
    webhook,
    webhook_manifests,
)
from livevirt.cluster.api_manifests import API_SERVICE
from livevirt.cluster.controller import NAME as LEASE
from livevirt.cluster.manifests import ALL, COMPONENT, DAEMON_SET, DEPLOYMENT, VERSION, WORKLOADS
from livevirt.cluster.webhook_manifests import MUTATING, VALIDATING
from livevirt.errors import Forbidden, NotFound
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.objects import conditions, core, times
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.kinds import subresources
from livevirt.x509 import Validity

SECRETS = {"webhook": webhook.SECRET, "api": api.SECRET}
_SOON = timedelta(days=7)  # certificates are renewed long before that
_NODE_LABEL = "kubevirt.io/schedulable=true"
_AGENT_LABEL = f"{COMPONENT}={node_manifests.COMPONENT}"
_GUEST_NODES = "nodes for guests"
_INSTALL = "run `livevirt install`"


class Problem(NamedTuple):
    """Something that is wrong, and what to do about it."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """What a cluster shows of livevirt; None stands for an object that does not exist."""

    now: datetime
    kubernetes: str = ""
    deployments: dict[str, Object | None] = field(default_factory=dict)  # by component
    secrets: dict[str, Object | None] = field(default_factory=dict)  # by component
    registrations: dict[str, Object | None] = field(default_factory=dict)  # by version
    configurations: dict[str, Object | None] = field(default_factory=dict)  # by kind
    definitions: dict[str, Object | None] = field(default_factory=dict)  # by resource
    agents: Object | None = None  # the DaemonSet of node agents
    lease: Object | None = None
    kubevirt: Object | None = None
    counts: dict[str, int] = field(default_factory=dict)  # by what is counted
    hidden: tuple[str, ...] = ()  # what the user may not read

    @property
    def embedded(self) -> bool:
        """Whether this is the embedded server, which has no components to look at."""
        return is_embedded(self.kubernetes)


async def observe(client: RemoteClient, now: datetime) -> ClusterSnapshot:
    """Read what there is of livevirt in a cluster."""
    look = _Look(client)
    version = await server_version(client)
    if is_embedded(version):
        return ClusterSnapshot(now, version)
    namespace = config.NAMESPACE
    counted = {"virtual machines": kinds.VM, "instances": kinds.VMI}
    counts = {words: await look.count(kind) for words, kind in counted.items()}
    counts[_GUEST_NODES] = await look.count(core.NODE, _NODE_LABEL)
    return ClusterSnapshot(
        now,
        version,
        await _components(look),
        {name: await look.at(core.SECRET, each, namespace) for name, each in SECRETS.items()},
        {
            each: await look.at(API_SERVICE, api_manifests.registration_name(each))
            for each in subresources.VERSIONS
        },
        {kind.kind: await look.at(kind, webhook_manifests.NAME) for kind in (MUTATING, VALIDATING)},
        {kind.resource: await look.at(core.CRD, kind.resource) for kind in kinds.KINDS},
        await look.at(DAEMON_SET, node_manifests.NAME, namespace),
        await look.at(core.LEASE, LEASE, namespace),
        await look.at(kinds.KUBEVIRT, config.NAME, namespace),
        counts,
        tuple(dict.fromkeys(look.hidden)),
    )


async def _components(look: _Look) -> dict[str, Object | None]:
    """Return the Deployments of components, only one if it runs all of them."""
    found: dict[str, Object | None] = {}
    for each in WORKLOADS:
        found[each.component] = await look.at(DEPLOYMENT, each.name, config.NAMESPACE)
        if runs_all(found[each.component]):
            return {each.component: found[each.component]}
    return found


def runs_all(deployment: Object | None) -> bool:
    """Return whether the pods of a Deployment run all components."""
    containers = deployment["spec"]["template"]["spec"]["containers"] if deployment else ()
    return any(ALL in (each.get("command") or ()) for each in containers)


async def server_version(client: RemoteClient) -> str:
    """Return the version of the API server."""
    return str(json.loads(await client.raw("GET", "/version"))["gitVersion"])


def is_embedded(version: str) -> bool:
    """Return whether a version is that of livevirt's embedded server."""
    return "+livevirt" in version


class _Look:
    """Reads objects that may be missing or not allowed to be read."""

    def __init__(self, client: RemoteClient) -> None:
        self._client = client
        self.hidden: list[str] = []

    async def at(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        try:
            return await self._client.get(kind, name, namespace)
        except NotFound:
            return None
        except Forbidden:
            self.hidden.append(kind.plural)
            return None

    async def count(self, kind: Kind, labels: str = "") -> int:
        try:
            return len((await self._client.list(kind, labels=labels)).items)
        except NotFound:
            return 0
        except Forbidden:
            self.hidden.append(kind.plural)
            return 0


# ---------------------------------------------------------------- what is wrong


def problems(snapshot: ClusterSnapshot) -> list[Problem]:
    """Return what is wrong, the causes of other problems first."""
    if not any(snapshot.definitions.values()) and not snapshot.hidden:
        return [Problem("livevirt is not installed", _INSTALL)]
    return [
        *_definitions(snapshot),
        *_deployments(snapshot),
        *_agents(snapshot),
        *_certificates(snapshot),
        *_leadership(snapshot),
        *_registrations(snapshot),
        *_settings(snapshot),
        *(
            Problem(f"you may not read {each}", "ask an administrator for the permission")
            for each in snapshot.hidden
        ),
    ]


def _definitions(snapshot: ClusterSnapshot) -> Iterator[Problem]:
    if core.CRD.plural in snapshot.hidden:
        return
    for name, found in snapshot.definitions.items():
        if found is None:
            yield Problem(f"CustomResourceDefinition {name} is missing", _INSTALL)
        elif not _is_true(found, "Established"):
            fix = f"see `kubectl describe crd {name}`"
            yield Problem(f"CustomResourceDefinition {name} is not established", fix)
        elif old := stored_versions.outdated(found):
            what = f"objects of {name} may still be stored as {', '.join(old)}"
            yield Problem(what, "run `livevirt install --migrate-only`")


def _deployments(snapshot: ClusterSnapshot) -> Iterator[Problem]:
    for component, found in snapshot.deployments.items():
        if found is None:
            if DEPLOYMENT.plural not in snapshot.hidden:
                yield Problem(f"component {component} is missing", _INSTALL)
            continue
        name, wanted, ready = found["metadata"]["name"], _wanted(found), _ready(found)
        if ready < wanted or not wanted:
            logs = f"`kubectl -n {config.NAMESPACE} describe deployment {name}` and its logs"
            fix = f"see {logs}" if wanted else f"scale it up, or {_INSTALL}"
            yield Problem(f"component {component}: {ready} of {wanted} replicas are ready", fix)
        yield from _versions(component, found)


def _agents(snapshot: ClusterSnapshot) -> Iterator[Problem]:
    found = snapshot.agents
    if found is None:
        if DAEMON_SET.plural not in snapshot.hidden:
            yield Problem("node agents are missing, so no guest can run", _INSTALL)
        return
    ready, wanted = _agent_counts(found)
    if ready < wanted:
        pods = f"kubectl -n {config.NAMESPACE} get pods -o wide -l {_AGENT_LABEL}"
        yield Problem(f"node agents: {ready} of {wanted} are ready", f"see `{pods}` and their logs")
    yield from _versions(node_manifests.COMPONENT, found)


def _versions(component: str, workload: Object) -> Iterator[Problem]:
    if (version := _version(workload)) not in ("", __version__):
        fix = f"{_INSTALL}, or use livevirt {version}"
        yield Problem(f"component {component} is version {version}", fix)


def _certificates(snapshot: ClusterSnapshot) -> Iterator[Problem]:
    if core.SECRET.plural in snapshot.hidden:
        return
    for component, secret in snapshot.secrets.items():
        end = expiry(secret)
        restart = f"restart it: `kubectl -n {config.NAMESPACE} rollout restart deployment"
        fix = f"see the log of component {component}; {restart} livevirt-{component}`"
        if end is None:
            yield Problem(f"component {component} has no certificate yet", fix)
        elif end - snapshot.now < _SOON:
            state = "expired" if end <= snapshot.now else "expires"
            what = f"the certificate of component {component} {state} {times.format_time(end)}"
            yield Problem(what, fix)


def _leadership(snapshot: ClusterSnapshot) -> Iterator[Problem]:
    if core.LEASE.plural in snapshot.hidden:
        return
    holder, renewed = leader(snapshot)
    fix = f"see `kubectl -n {config.NAMESPACE} logs deployment/livevirt-controller`"
    if not holder:
        yield Problem("no controller leads, so nothing is reconciled", fix)
    elif renewed is not None:
        spec = (snapshot.lease or {}).get("spec") or {}
        if snapshot.now - renewed > timedelta(seconds=2 * (spec.get("leaseDurationSeconds") or 15)):
            age = times.human_duration(snapshot.now - renewed)
            yield Problem(f"controller {holder} has not renewed its lease for {age}", fix)


def _registrations(snapshot: ClusterSnapshot) -> Iterator[Problem]:
    for version, found in snapshot.registrations.items():
        name = api_manifests.registration_name(version)
        if found is None:
            if API_SERVICE.plural not in snapshot.hidden:
                yield Problem(f"APIService {name} is missing", _INSTALL)
        elif not _is_true(found, "Available"):
            fix = f"see `kubectl describe apiservice {name}` and component api"
            yield Problem(f"APIService {name} is not available", fix)
    for kind, found in snapshot.configurations.items():
        if found is None and f"{kind.lower()}s" not in snapshot.hidden:
            yield Problem(f"{kind} {webhook_manifests.NAME} is missing", _INSTALL)
        elif found is not None and not all(
            each["clientConfig"].get("caBundle") for each in found.get("webhooks") or ()
        ):
            fix = "see the log of component webhook, which sets it"
            yield Problem(f"{kind} {webhook_manifests.NAME} has no CA bundle", fix)


def _settings(snapshot: ClusterSnapshot) -> Iterator[Problem]:
    if snapshot.kubevirt is None and kinds.KUBEVIRT.plural not in snapshot.hidden:
        yield Problem("the KubeVirt object is missing, so defaults are used", _INSTALL)


def _is_true(obj: Object, condition: str) -> bool:
    return conditions.is_true((obj.get("status") or {}).get("conditions"), condition)


def _wanted(deployment: Object) -> int:
    return int(deployment["spec"].get("replicas", 1))


def _ready(deployment: Object) -> int:
    return int((deployment.get("status") or {}).get("readyReplicas", 0))


def _agent_counts(agents: Object) -> tuple[int, int]:
    """Return how many node agents are ready, and how many there should be."""
    status = agents.get("status") or {}
    return int(status.get("numberReady", 0)), int(status.get("desiredNumberScheduled", 0))


def _version(deployment: Object) -> str:
    meta = deployment["spec"]["template"].get("metadata") or {}
    return str((meta.get("labels") or {}).get(VERSION, ""))


def leader(snapshot: ClusterSnapshot) -> tuple[str, datetime | None]:
    """Return which controller leads, and when it renewed its lease."""
    spec = (snapshot.lease or {}).get("spec") or {}
    renewed = spec.get("renewTime")
    return spec.get("holderIdentity") or "", times.parse_micro_time(renewed) if renewed else None


def expiry(secret: Object | None) -> datetime | None:
    """Return when the serving certificate in a Secret expires, None if there is none."""
    try:
        return Validity.of(base64.b64decode(((secret or {}).get("data") or {})["tls.crt"])).end
    except (KeyError, ValueError, binascii.Error):
        return None


# ---------------------------------------------------------------- how it is shown


def document(snapshot: ClusterSnapshot) -> Object:
    """Return everything as one JSON object."""
    holder, renewed = leader(snapshot)
    agents: Object = {}
    if snapshot.agents is not None:
        ready, wanted = _agent_counts(snapshot.agents)
        version = _version(snapshot.agents)
        agents = {"node": {"version": version, "ready": ready, "replicas": wanted}}
    ends = {name: expiry(secret) for name, secret in snapshot.secrets.items()}
    return {
        "versions": {"client": __version__, "kubernetes": snapshot.kubernetes},
        "components": {
            name: {"version": _version(found), "ready": _ready(found), "replicas": _wanted(found)}
            for name, found in snapshot.deployments.items()
            if found is not None
        }
        | agents,
        "leader": {
            "holder": holder,
            "renewed": times.format_time(renewed) if renewed else None,
        },
        "certificates": {
            name: times.format_time(end) if end else None for name, end in ends.items()
        },
        "counts": snapshot.counts,
        "problems": [each._asdict() for each in problems(snapshot)],
    }


def lines(snapshot: ClusterSnapshot) -> Iterator[str]:
    """Yield the lines to print."""
    shown = document(snapshot)
    yield f"livevirt {__version__} (this command), Kubernetes {snapshot.kubernetes}"
    for name, each in shown["components"].items():
        ready = f"{each['ready']}/{each['replicas']} ready"
        yield f"component {name:<11} {ready}, version {each['version'] or 'unknown'}"
    if (holder := shown["leader"]["holder"]) and (renewed := leader(snapshot)[1]):
        age = times.human_duration(max(snapshot.now - renewed, timedelta()))
        yield f"leader    {holder}, lease renewed {age} ago"
    for name, end in shown["certificates"].items():
        if end:
            yield f"certificate of {name}: valid until {end}"
    yield ", ".join(f"{number} {words}" for words, number in shown["counts"].items())
    if not snapshot.counts.get(_GUEST_NODES):
        yield "no node runs guests: no Node has the label kubevirt.io/schedulable=true"
    found = shown["problems"]
    yield f"problems: {len(found)}" if found else "no problems found"
    for each in found:
        yield f"- {each['what']}"
        yield f"  fix: {each['fix']}"
