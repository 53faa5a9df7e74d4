"""Finds out how to reach the server: kubeconfig files as kubectl reads them, or a pod's own.

Several files count as one: whichever names a thing first, or a setting, wins. Paths inside a
file are relative to that file.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from livevirt.kube.client.access import INTERACTIVE, Access, Plugin, Tls
from livevirt.kube.client.errors import ConfigError

T = TypeVar("T")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to take from a kubeconfig instead of its own values; empty keeps them."""

    context: str = ""
    cluster: str = ""
    user: str = ""


AS_IT_SAYS = Choice()


class _Extension(msgspec.Struct):
    name: str = ""
    extension: Any = None


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[_Extension] = []


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel"):
    command: str = ""
    api_version: str = ""
    args: list[str] = []
    env: list[_Variable] = []
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    as_user: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    exec_: _Exec | None = msgspec.field(default=None, name="exec")
    auth_provider: Any = None


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context = msgspec.field(default_factory=_Context)


class _NamedUser(msgspec.Struct):
    name: str
    user: _User = msgspec.field(default_factory=_User)


class _File(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] = []
    contexts: list[_NamedContext] = []
    users: list[_NamedUser] = []


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    values: T
    folder: Path  # of the file it came from
    label: str  # for messages: `user 'admin'`


@dataclass(slots=True)
class _Merged:
    current: str = ""
    clusters: dict[str, _Entry[_Cluster]] = field(default_factory=dict)
    contexts: dict[str, _Entry[_Context]] = field(default_factory=dict)
    users: dict[str, _Entry[_User]] = field(default_factory=dict)


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
    cluster = _pick(merged.clusters, "cluster", choice.cluster or context.cluster)
    name = choice.user or context.user
    # A context may name no user: anonymous, or a proxy knows who we are.
    user = _pick(merged.users, "user", name) if name else _Entry(_User(), Path(), "no user")
    if not cluster.values.server:
        raise ConfigError(f"{cluster.label} names no server")
    token_file = user.values.token_file
    return Access(
        server=cluster.values.server,
        namespace=context.namespace or "default",
        user=name,
        tls=_tls(cluster, user),
        token=user.values.token,
        token_file=user.folder / token_file if token_file else None,
        username=user.values.username,
        password=user.values.password,
        plugin=_plugin(user, cluster),
        impersonate=tuple(_impersonation(user.values)),
        proxy=cluster.values.proxy_url,
        compress=not cluster.values.disable_compression,
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
        file = _decode(path)
        folder = path.absolute().parent
        merged.current = merged.current or file.current_context
        for cluster in file.clusters:
            _keep(merged.clusters, cluster.name, cluster.cluster, folder, "cluster")
        for context in file.contexts:
            _keep(merged.contexts, context.name, context.context, folder, "context")
        for user in file.users:
            _keep(merged.users, user.name, user.user, folder, "user")
    return merged


def _keep(known: dict[str, _Entry[T]], name: str, values: T, folder: Path, sort: str) -> None:
    known.setdefault(name, _Entry(values, folder, f"{sort} {name!r}"))


def _decode(path: Path) -> _File:
    """Return the content of a file; raises ConfigError with the file and the place in it."""
    try:
        document = _given(yaml.load(path.read_bytes(), Loader=_Loader)) or {}
    except OSError as error:
        raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    # A tag such as `!!bool x` promises what its text does not hold; PyYAML stumbles over that.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigError(f"the kubeconfig {path} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"the kubeconfig {path} is no mapping")
    try:
        return msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        # "Expected `str`, got `int` - at `$.users[0].user.token`"
        what, _, place = str(error).partition(" - at ")
        raise ConfigError(f"{path}: {place.strip('`').removeprefix('$.')}: {what}") from error


def _given(value: Any) -> Any:
    """Return it without what is null, which is as good as not given, and with keys of text."""
    if isinstance(value, dict):
        return {str(key): _given(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_given(each) for each in value]
    return value


def _context(merged: _Merged, choice: Choice) -> _Context:
    name = choice.context or merged.current
    if name:
        return _pick(merged.contexts, "context", name).values
    if choice.cluster:
        return _Context()
    raise ConfigError("the kubeconfig has no current-context; choose one with --context")


def _pick(known: Mapping[str, _Entry[T]], sort: str, name: str) -> _Entry[T]:
    if name not in known:
        raise ConfigError(f"the kubeconfig has no {sort} {name!r}")
    return known[name]


def _tls(cluster: _Entry[_Cluster], user: _Entry[_User]) -> Tls:
    shown = user.values
    tls = Tls(
        authority=_authority(cluster),
        certificate=_pem(
            user, "client-certificate", shown.client_certificate_data, shown.client_certificate
        ),
        key=_pem(user, "client-key", shown.client_key_data, shown.client_key),
        server_name=cluster.values.tls_server_name,
        insecure=cluster.values.insecure_skip_tls_verify,
    )
    if tls.insecure and tls.authority:
        raise ConfigError(f"{cluster.label}: insecure-skip-tls-verify excludes an authority")
    if bool(tls.certificate) != bool(tls.key):
        raise ConfigError(f"{user.label}: a client certificate and its key come together")
    return tls


def _authority(cluster: _Entry[_Cluster]) -> bytes | None:
    values = cluster.values
    inline, path = values.certificate_authority_data, values.certificate_authority
    return _pem(cluster, "certificate-authority", inline, path)


def _pem(entry: _Entry[T], name: str, inline: str, path: str) -> bytes | None:
    """Return the setting's bytes, which may be inline; inline wins over a file."""
    if inline:
        try:
            return base64.b64decode(inline, validate=False)
        except ValueError as error:
            raise ConfigError(f"{entry.label}: {name}-data is no base64") from error
    try:
        return (entry.folder / path).read_bytes() if path else None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{entry.label}: {name}: {error}") from error


def _plugin(user: _Entry[_User], cluster: _Entry[_Cluster]) -> Plugin | None:
    spec = user.values.exec_
    if spec is None:
        if user.values.auth_provider:
            raise ConfigError(f"{user.label}: auth-provider is gone from Kubernetes; use exec")
        return None
    if not spec.command or spec.api_version not in _EXEC_VERSIONS:
        needed = " or ".join(_EXEC_VERSIONS)
        raise ConfigError(f"{user.label}: exec needs a command and an apiVersion of {needed}")
    mode = spec.interactive_mode or "IfAvailable"
    if mode not in INTERACTIVE:
        raise ConfigError(f"{user.label}: exec: interactiveMode {mode!r} is unknown")
    return Plugin(
        command=str(user.folder / spec.command) if os.sep in spec.command else spec.command,
        args=tuple(spec.args),
        env={variable.name: variable.value for variable in spec.env},
        api_version=spec.api_version,
        hint=spec.install_hint,
        interactive=INTERACTIVE[mode],
        cluster=_cluster_info(cluster) if spec.provide_cluster_info else None,
    )


def _cluster_info(cluster: _Entry[_Cluster]) -> dict[str, Any]:
    """Return the cluster as a plugin wants it: the authority inline, the rest as it stands."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
    values = msgspec.to_builtins(cluster.values)
    info = {name: values[name] for name in names if values[name]}
    authority = _authority(cluster)
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.values.extensions:
        if extension.name == "client.authentication.k8s.io/exec":
            info["config"] = extension.extension
    return info


def _impersonation(user: _User) -> Iterable[tuple[str, str]]:
    return impersonation(
        user.as_user, groups=user.as_groups, uid=user.as_uid, extra=user.as_user_extra
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
            yield f"Impersonate-Extra-{key}", value
