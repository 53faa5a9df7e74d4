"""Discovery, what the server serves: versions, groups, resources.

Everything is made from the registry of kinds. `answer` gives the encoded document of a path, made
once; the functions above it give the plain objects.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from livevirt import __version__
from livevirt.kube.objects.kind import Kind, Subresource
from livevirt.kube.objects.registry import Action, Registry
from livevirt.kube.server.responses import PLAIN, Form

Object = dict[str, Any]

KUBERNETES_MINOR = "37"  # the release whose API we follow
AGGREGATED = "APIGroupDiscoveryList"
_GROUP = "apidiscovery.k8s.io"
_VERSIONS = ("v2", "v2beta1")
_OTHER_PATHS = (
    "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Document:
    """An answer ready to be sent."""

    body: bytes
    content_type: str = "application/json"
    etag: str = ""


def answer(
    registry: Registry, path: str, form: Form = PLAIN, server_address: str = ""
) -> Document | None:
    """Return the discovery document at a path; None if the path is not one of discovery.

    `/api` and `/apis` come with everything below them when the client asks for `AGGREGATED`.
    """
    at_once = form.as_ == AGGREGATED and form.version in _VERSIONS
    match path.strip("/").split("/"):
        case [""]:
            return _encoded(registry, root_paths)
        case ["version"]:
            return _encoded(registry, server_version)
        case ["api" | "apis" as root] if at_once:
            return _aggregated(registry, root == "api", form.version)
        case ["api"]:
            return Document(_json(core_versions(registry, server_address)))
        case ["apis"]:
            return _encoded(registry, group_list)
        case ["api", version]:
            return _resources(registry, "", version)
        case ["apis", group]:
            found = api_group(registry, group)
            return Document(_json(found)) if found else None
        case ["apis", group, version] if group:
            return _resources(registry, group, version)
        case _:
            return None


def root_paths(registry: Registry) -> Object:
    """Return `/`: the paths that can be read."""
    named = [
        path
        for group, versions in groups(registry).items()
        for path in (f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions))
    ]
    core = ["/api", *(f"/api/{version}" for version in registry.groups().get("", ()))]
    return {"paths": sorted([*core, "/apis", *named, *_OTHER_PATHS])}


def server_version(_: Registry) -> Object:
    """Return `/version`: the Kubernetes release we follow, with our own as build metadata."""
    machine = platform.machine()
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    return {
        "major": "1",
        "minor": KUBERNETES_MINOR,
        "gitVersion": f"v1.{KUBERNETES_MINOR}.0+livevirt.{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{sys.platform}/{arch}",
    }


def core_versions(registry: Registry, server_address: str) -> Object:
    """Return `/api`."""
    return {
        "kind": "APIVersions",
        "versions": registry.groups().get("", []),
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}
        ],
    }


def groups(registry: Registry) -> dict[str, tuple[str, ...]]:
    """Return every named group and its versions, the preferred one first."""
    named = {group: tuple(found) for group, found in registry.groups().items() if group}
    actions = registry.actions
    return named if actions is None else {**named, actions.group: actions.versions}


def group_list(registry: Registry) -> Object:
    """Return `/apis`."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, versions) for name, versions in groups(registry).items()],
    }


def api_group(registry: Registry, name: str) -> Object | None:
    """Return `/apis/<group>`, or None if there is no such group."""
    versions = groups(registry).get(name)
    if versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: tuple[str, ...]) -> Object:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def resource_list(registry: Registry, group: str, version: str) -> Object | None:
    """Return `/api/v1` or `/apis/<group>/<version>`, or None if it is not served."""
    actions = registry.actions
    if actions is not None and group == actions.group and version in actions.versions:
        resources = [_action(action) for action in actions.actions]
    else:
        found = registry.of(group, version)
        resources = [entry for kind in found for entry in _entries(kind, version)]
    if not resources:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _entries(kind: Kind, version: str) -> list[Object]:
    entry: Object = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short:
        entry["shortNames"] = list(kind.short)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.stored:
        entry["storageVersionHash"] = _storage_hash(kind)
    return [entry, *(_subentry(kind, version, sub) for sub in kind.subresources)]


def _subentry(kind: Kind, version: str, sub: Subresource) -> Object:
    entry: Object = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": sub.kind or kind.kind,
        "verbs": list(sub.verbs),
    }
    if sub.version and (sub.group, sub.version) != (kind.group, version):
        entry |= {"group": sub.group, "version": sub.version}
    return entry


def _action(action: Action) -> Object:
    return {
        "name": action.path,
        "singularName": "",
        "namespaced": True,
        "kind": action.kind,
        "verbs": [action.verb],
    }


def _storage_hash(kind: Kind) -> str:
    """Return the hash that changes with the stored version, by Kubernetes' formula."""
    text = f"{kind.group}/{kind.stored_version}/{kind.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def aggregated(registry: Registry, core: bool, version: str) -> Object:
    """Return all of `/api` (core) or of `/apis` in one APIGroupDiscoveryList."""
    groups_served = {"": tuple(registry.groups().get("", ()))} if core else groups(registry)
    return {
        "kind": AGGREGATED,
        "apiVersion": f"{_GROUP}/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {
                        "version": served,
                        "resources": _nested(registry, group, served),
                        "freshness": "Current",
                    }
                    for served in versions
                ],
            }
            for group, versions in groups_served.items()
        ],
    }


def _nested(registry: Registry, group: str, version: str) -> list[Object]:
    """Return the resources of a version with their subresources below them."""
    listing = resource_list(registry, group, version)
    found: dict[str, Object] = {}
    for entry in listing["resources"] if listing else ():
        resource, _, subresource = entry["name"].partition("/")
        kind = {
            "group": entry.get("group", group),
            "version": entry.get("version", version),
            "kind": entry["kind"],
        }
        if not subresource:
            found[resource] = _described(entry, kind)
            continue
        # A resource known by its subresources only has an empty kind: clients then skip it.
        empty = {"group": "", "version": "", "kind": ""}
        parent = found.setdefault(
            resource, _described({"name": resource, "namespaced": entry["namespaced"]}, empty)
        )
        parent.setdefault("subresources", []).append(
            {"subresource": subresource, "responseKind": kind, "verbs": entry["verbs"]}
        )
    return list(found.values())


def _described(entry: Object, kind: Object) -> Object:
    described: Object = {
        "resource": entry["name"],
        "responseKind": kind,
        "scope": "Namespaced" if entry["namespaced"] else "Cluster",
        "singularResource": entry.get("singularName", ""),
        "verbs": entry.get("verbs", []),
    }
    for name in ("shortNames", "categories"):
        if name in entry:
            described[name] = entry[name]
    return described


def _json(obj: Object) -> bytes:
    return json.dumps(obj, separators=(",", ":")).encode()


@functools.cache
def _encoded(registry: Registry, make: Callable[[Registry], Object]) -> Document:
    return Document(_json(make(registry)))


@functools.lru_cache(maxsize=64)  # clients may ask for groups that do not exist
def _resources(registry: Registry, group: str, version: str) -> Document | None:
    listing = resource_list(registry, group, version)
    return Document(_json(listing)) if listing else None


@functools.cache
def _aggregated(registry: Registry, core: bool, version: str) -> Document:
    body = _json(aggregated(registry, core, version))
    return Document(
        body,
        f"application/json;g={_GROUP};v={version};as={AGGREGATED}",
        f'"{hashlib.sha512(body).hexdigest().upper()}"',
    )
