"""The `paths` of the OpenAPI documents: what can be done with each kind, and with which options.

kubectl reads here whether the server knows `dryRun`, `fieldValidation` and which kinds of patch.
"""

from __future__ import annotations

import re
from typing import Any

from livevirt.kube.objects.kind import Kind, Subresource
from livevirt.kube.objects.registry import ActionGroup, Registry
from livevirt.kube.objects.schema import definitions

Object = dict[str, Any]

_JSON = "application/json"
_PATCHES = ("application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = ("application/apply-patch+yaml",)


def _query(name: str, type_: str, description: str) -> Object:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": type_, "uniqueItems": True},
    }


def _in_path(name: str, description: str) -> Object:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "uniqueItems": True},
    }


_NAME = _in_path("name", "name of the object")
_NAMESPACE = _in_path("namespace", "namespace of the object")
_PRETTY = _query("pretty", "string", "true: indent the answer")
_DRY_RUN = _query("dryRun", "string", "All: do everything but store the result")
_MANAGER = _query("fieldManager", "string", "name under which the changed fields are owned")
_VALIDATION = _query(
    "fieldValidation", "string", "what to do about unknown fields: Ignore, Warn or Strict"
)
_FORCE = _query("force", "boolean", "apply: take over fields that others own")
_WRITE = (_DRY_RUN, _MANAGER, _VALIDATION)
_DELETE = (
    _DRY_RUN,
    _query("gracePeriodSeconds", "integer", "how long the object may take to end"),
    _query("orphanDependents", "boolean", "old form of propagationPolicy"),
    _query("propagationPolicy", "string", "Orphan, Background or Foreground"),
)
_LIST = (
    _query("allowWatchBookmarks", "boolean", "watch: send bookmarks now and then"),
    _query("continue", "string", "where the next page begins"),
    _query("fieldSelector", "string", "only objects with these field values"),
    _query("labelSelector", "string", "only objects with these labels"),
    _query("limit", "integer", "at most so many objects in a page"),
    _query("resourceVersion", "string", "not older than this version, or exactly this one"),
    _query("resourceVersionMatch", "string", "how resourceVersion is meant"),
    _query("sendInitialEvents", "boolean", "watch: begin with what is there"),
    _query("timeoutSeconds", "integer", "end the call after so long"),
    _query("watch", "boolean", "stream changes instead of listing"),
)

_HTTP = {
    "get": "get", "list": "get", "create": "post", "update": "put", "patch": "patch",
    "delete": "delete", "deletecollection": "delete",
}  # fmt: skip
_ACTIONS = {"create": "post", "update": "put"}  # the others are called as they are


def of_kind(kind: Kind, version: str) -> Object:
    """Return every path of a kind and the operations there."""
    root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    place = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    within = (_NAMESPACE,) if kind.namespaced else ()
    collection, one = f"{place}/{kind.plural}", f"{place}/{kind.plural}/{{name}}"
    paths: Object = {}
    paths |= _path(collection, kind, version, ("list", "create", "deletecollection"), within)
    paths |= _path(one, kind, version, ("get", "update", "patch", "delete"), (_NAME, *within))
    if kind.namespaced:
        everywhere = f"{root}/{kind.plural}"
        paths |= _path(everywhere, kind, version, ("list",), (), "ForAllNamespaces")
    for sub in kind.subresources:
        operations = {_HTTP[verb]: _operation(kind, version, verb, sub=sub) for verb in sub.verbs}
        paths[f"{one}/{sub.name}"] = {**operations, "parameters": [_NAME, *within, _PRETTY]}
    return paths


def _path(
    path: str, kind: Kind, version: str, verbs: tuple[str, ...],
    parameters: tuple[Object, ...], suffix: str = "",
) -> Object:  # fmt: skip
    """Return a path with the operations of those verbs that the kind has, nothing without any."""
    operations = {
        _HTTP[verb]: _operation(kind, version, verb, suffix) for verb in verbs if verb in kind.verbs
    }
    return {path: {**operations, "parameters": [*parameters, _PRETTY]}} if operations else {}


def _operation(
    kind: Kind, version: str, verb: str, suffix: str = "", sub: Subresource | None = None
) -> Object:
    own = kind.schema(version).name
    body = _body_type(kind, version, sub)
    group, body_version, name = kind.group, version, kind.kind
    if sub is not None and sub.kind:
        group, body_version, name = sub.group or kind.group, sub.version or version, sub.kind
    scope = "Namespaced" if kind.namespaced and not suffix else ""
    words = (verb, kind.group.split(".")[0] or "core", version, scope, kind.kind)
    identifier = "".join(_title(word) for word in (*words, sub.name if sub else "", suffix))
    operation: Object = {
        "tags": [f"{kind.group}_{version}" if kind.group else f"core_{version}"],
        "operationId": identifier[0].lower() + identifier[1:],
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": {
            "group": group, "version": body_version, "kind": name,
        },
    }  # fmt: skip
    answer, code = body, "200"
    match verb:
        case "list":
            operation["parameters"] = list(_LIST)
            answer = f"{own}List"
        case "create":
            operation["parameters"] = list(_WRITE)
            operation["requestBody"] = _request(body)
            code = "201"
        case "update":
            operation["parameters"] = list(_WRITE)
            operation["requestBody"] = _request(body)
        case "patch":
            operation["parameters"] = [*_WRITE, _FORCE]
            media = (*_PATCHES, *(() if kind.custom else (_STRATEGIC,)), *_APPLY)
            operation["requestBody"] = {
                "required": True,
                "content": {name: {"schema": {"type": "object"}} for name in media},
            }
        case "delete":
            operation["parameters"] = list(_DELETE)
            operation["requestBody"] = _request(_DELETE_OPTIONS, required=False)
            answer = _STATUS
        case "deletecollection":
            operation["parameters"] = [*_DELETE, *_LIST]
            operation["requestBody"] = _request(_DELETE_OPTIONS, required=False)
            answer = _STATUS
    operation["responses"] = _responses(code, answer)
    return operation


_DELETE_OPTIONS = definitions()["meta.DeleteOptions"].name
_STATUS = definitions()["meta.Status"].name


def _title(word: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", word))


def _body_type(kind: Kind, version: str, sub: Subresource | None) -> str:
    if sub is None or not sub.kind:
        return kind.schema(version).name
    return definitions()[_definition(sub)].name


def _definition(sub: Subresource) -> str:
    """Return `table.Type` of a subresource's own kind; tables are named after the group."""
    return f"{sub.group.split('.')[0] or 'core'}.{sub.kind}"


def bodies(registry: Registry, group: str, version: str) -> list[str]:
    """List the types, as `table.Type`, that the operations of a version mention besides kinds."""
    found = ["meta.DeleteOptions", "meta.Status"]
    for kind in registry.of(group, version):
        found += [_definition(sub) for sub in kind.subresources if sub.kind]
    if registry.actions is not None and group == registry.actions.group:
        found += [each.definition for each in registry.actions.actions if each.definition]
    return found


def _request(type_: str, *, required: bool = True) -> Object:
    content = {_JSON: {"schema": {"$ref": f"#/components/schemas/{type_}"}}}
    return {"content": content, "required": required}


def _responses(code: str, type_: str) -> Object:
    schema = {"$ref": f"#/components/schemas/{type_}"}
    return {
        code: {
            "description": "Created" if code == "201" else "OK",
            "content": {_JSON: {"schema": schema}},
        },
        "401": {"description": "Unauthorized"},
    }


def of_actions(group: ActionGroup, version: str) -> Object:
    """Return the paths of an action group."""
    root = f"/apis/{group.group}/{version}/namespaces/{{namespace}}"
    paths: Object = {}
    for action in group.actions:
        place = f"{root}/{action.resource}/{{name}}" if action.resource else root
        type_ = definitions()[action.definition].name if action.definition else ""
        operation: Object = {
            "tags": [f"{group.group}_{version}"],
            "operationId": f"{action.verb}{_title(version)}{_title(action.path)}",
            "responses": _responses("200", type_)
            if type_ and action.verb == "get"
            else {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}},
        }
        if type_ and action.verb != "get":
            operation["requestBody"] = _request(type_, required=False)
        named = (_NAME, _NAMESPACE) if action.resource else (_NAMESPACE,)
        paths[f"{place}/{action.name}"] = {
            _HTTP[action.verb]: operation,
            "parameters": list(named),
        }
    return paths
