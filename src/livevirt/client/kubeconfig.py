"""Finds out how to reach the server: kubeconfig files as kubectl reads them, or a pod's own.

Several files count as one: whichever names a thing first, or a setting, wins. Paths inside a
file are relative to that file.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from livevirt.client.access import INTERACTIVE, Access, Plugin, Tls
from livevirt.client.errors import ConfigError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to take from a kubeconfig instead of what it says itself; empty is its own."""

    context: str = ""
    cluster: str = ""
    user: str = ""


AS_IT_SAYS = Choice()


@dataclass(slots=True)
class _Entry:
    values: dict[str, Any]
    folder: Path  # of the file it came from
    label: str  # for messages: `user "admin"`


@dataclass(slots=True)
class _Merged:
    current: str = ""
    entries: dict[str, dict[str, _Entry]] = field(default_factory=dict)  # sort → name → entry


def find(
    path: str = "", choice: Choice = AS_IT_SAYS, env: Mapping[str, str] = os.environ
) -> Access:
    """Return access by `path`, else $KUBECONFIG, else ~/.kube/config, else as a pod has it.

    Raises ConfigError when there is none of them, or what there is cannot be used.
    """
    paths = [Path(path)] if path else configured(env)
    present = [p for p in paths if p.exists()]
    if path and not present:
        raise ConfigError(f"there is no kubeconfig {path}")
    if present:
        return read(present, choice)
    if env.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(env)
    tried = ", ".join(map(str, paths))
    raise ConfigError(f"no kubeconfig found (looked for {tried}); name one with --kubeconfig")


def configured(env: Mapping[str, str]) -> list[Path]:
    """Return the kubeconfig files the environment asks for, there or not."""
    if env.get("KUBECONFIG"):
        named = dict.fromkeys(p for p in env["KUBECONFIG"].split(os.pathsep) if p)
        return [Path(p) for p in named]
    return [Path(env.get("HOME") or "~").expanduser() / ".kube" / "config"]


def read(paths: Iterable[Path], choice: Choice = AS_IT_SAYS) -> Access:
    """Return the access that the files, taken together, give."""
    merged = _merge(paths)
    context = _context(merged, choice)
    cluster = _pick(merged, "clusters", choice.cluster or _text(context, "cluster"))
    name = choice.user or _text(context, "user")
    # A context may name no user: anonymous, or a proxy knows who we are.
    user = _pick(merged, "users", name) if name else _Entry({}, Path(), "no user")
    server = _text(cluster, "server")
    if not server:
        raise ConfigError(f"{cluster.label} names no server")
    token_file = _text(user, "tokenFile")
    return Access(
        server=server,
        namespace=_text(context, "namespace") or "default",
        user=name,
        tls=_tls(cluster, user),
        token=_text(user, "token"),
        token_file=user.folder / token_file if token_file else None,
        username=_text(user, "username"),
        password=_text(user, "password"),
        plugin=_plugin(user, cluster),
        impersonate=tuple(_impersonation(user)),
        proxy=_text(cluster, "proxy-url"),
        compress=not cluster.values.get("disable-compression"),
    )


def in_cluster(env: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> Access:
    """Return the access every pod has: its service account."""
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT") or "443"
    if not host:
        raise ConfigError("not in a pod: KUBERNETES_SERVICE_HOST is not set")
    try:
        authority = (account / "ca.crt").read_bytes()
        (account / "token").read_bytes()
    except OSError as error:
        raise ConfigError(f"the pod's service account cannot be read: {error}") from error
    namespace = account / "namespace"
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        user="service account",
        tls=Tls(authority=authority),
        token_file=account / "token",
    )


def _merge(paths: Iterable[Path]) -> _Merged:
    merged = _Merged()
    for path in paths:
        document = _load(path)
        merged.current = merged.current or str(document.get("current-context") or "")
        for sort, inner in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            known = merged.entries.setdefault(sort, {})
            for item in document.get(sort) or ():
                if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                    raise ConfigError(f"{path}: an entry of {sort} has no name")
                values = item.get(inner) or {}
                if not isinstance(values, dict):
                    raise ConfigError(f"{path}: {inner} {item['name']!r} is no mapping")
                label = f"{inner} {item['name']!r}"
                known.setdefault(item["name"], _Entry(values, path.absolute().parent, label))
    return merged


def _load(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_bytes(), Loader=_Loader) or {}
    except OSError as error:
        raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"the kubeconfig {path} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"the kubeconfig {path} is no mapping")
    return document


def _context(merged: _Merged, choice: Choice) -> _Entry:
    name = choice.context or merged.current
    if name:
        return _pick(merged, "contexts", name)
    if choice.cluster:
        return _Entry({}, Path(), "no context")
    raise ConfigError("the kubeconfig has no current-context; choose one with --context")


def _pick(merged: _Merged, sort: str, name: str) -> _Entry:
    entry = merged.entries.get(sort, {}).get(name)
    if entry is None:
        raise ConfigError(f"the kubeconfig has no {sort.removesuffix('s')} {name!r}")
    return entry


def _tls(cluster: _Entry, user: _Entry) -> Tls:
    tls = Tls(
        authority=_pem(cluster, "certificate-authority"),
        certificate=_pem(user, "client-certificate"),
        key=_pem(user, "client-key"),
        server_name=_text(cluster, "tls-server-name"),
        insecure=bool(cluster.values.get("insecure-skip-tls-verify")),
    )
    if tls.insecure and tls.authority:
        raise ConfigError(f"{cluster.label}: insecure-skip-tls-verify excludes an authority")
    if bool(tls.certificate) != bool(tls.key):
        raise ConfigError(f"{user.label}: a client certificate and its key come together")
    return tls


def _pem(entry: _Entry, name: str) -> bytes | None:
    """Return the setting's bytes, which may be inline; inline wins over a file."""
    inline, path = _text(entry, f"{name}-data"), _text(entry, name)
    try:
        if inline:
            return base64.b64decode(inline, validate=False)
        return (entry.folder / path).read_bytes() if path else None
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{entry.label}: {name}-data is no base64") from error
    except OSError as error:
        raise ConfigError(f"{entry.label}: {name}: {error}") from error


def _plugin(user: _Entry, cluster: _Entry) -> Plugin | None:
    spec = user.values.get("exec")
    if not spec:
        if user.values.get("auth-provider"):
            raise ConfigError(f"{user.label}: auth-provider is gone from Kubernetes; use exec")
        return None
    exec_ = _Entry(spec, user.folder, f"{user.label}: exec")
    command, version = _text(exec_, "command"), _text(exec_, "apiVersion")
    if not command or version not in _EXEC_VERSIONS:
        needed = " or ".join(_EXEC_VERSIONS)
        raise ConfigError(f"{exec_.label} needs a command and an apiVersion of {needed}")
    mode = _text(exec_, "interactiveMode") or "IfAvailable"
    if mode not in INTERACTIVE:
        raise ConfigError(f"{exec_.label}: interactiveMode {mode!r} is unknown")
    if os.sep in command:
        command = str(user.folder / command)
    return Plugin(
        command=command,
        args=tuple(map(str, spec.get("args") or ())),
        env={str(pair["name"]): str(pair.get("value", "")) for pair in spec.get("env") or ()},
        api_version=version,
        hint=_text(exec_, "installHint"),
        interactive=INTERACTIVE[mode],
        cluster=_told(cluster) if spec.get("provideClusterInfo") else None,
    )


def _told(cluster: _Entry) -> dict[str, Any]:
    """Return the cluster as a plugin wants it: the authority inline, the rest as it stands."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
    told = {name: cluster.values[name] for name in names if cluster.values.get(name)}
    authority = _pem(cluster, "certificate-authority")
    if authority:
        told["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.values.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = extension.get("extension")
    return told


def _impersonation(user: _Entry) -> Iterable[tuple[str, str]]:
    return impersonation(
        _text(user, "as"),
        groups=map(str, user.values.get("as-groups") or ()),
        uid=_text(user, "as-uid"),
        extra=user.values.get("as-user-extra") or {},
    )


def impersonation(
    user: str, *, groups: Iterable[str] = (), uid: str = "", extra: Mapping[str, list[str]] = {}
) -> Iterable[tuple[str, str]]:
    """Yield the headers that ask the server to treat us as another user."""
    if user:
        yield "Impersonate-User", user
    if uid:
        yield "Impersonate-Uid", uid
    for group in groups:
        yield "Impersonate-Group", group
    for key, values in extra.items():
        for value in values:
            yield f"Impersonate-Extra-{key}", str(value)


def _text(entry: _Entry, name: str) -> str:
    value = entry.values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ConfigError(f"{entry.label}: {name} is no text")
    return value
