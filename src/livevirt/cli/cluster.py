"""Which cluster a command talks to and as whom: KubeVirt's global flags, and what they mean.

Every command takes these flags, before its name or after it. Without any the cluster is the one
of $KUBECONFIG, else the server of the default data directory, else what kubectl would use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from livevirt.paths import DataDir, default_data_dir

if TYPE_CHECKING:  # costly to import, and `virtctl version --client` needs none of it
    from livevirt.kube.client.access import Access
    from livevirt.kube.client.remote import RemoteClient

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Chosen:
    """The global flags as they were given; empty is not given."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    namespace: str = ""
    server: str = ""
    token: str = ""
    as_: str = ""
    as_group: tuple[str, ...] = ()
    as_uid: str = ""
    certificate_authority: str = ""
    client_certificate: str = ""
    client_key: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    request_timeout: str = ""
    username: str = ""
    password: str = ""
    v: str = ""


# Flag, help, and whether `--help` of every single command shows it.
_FLAGS: tuple[tuple[tuple[str, ...], str, bool], ...] = (
    (("--kubeconfig",), "The kubeconfig file to use.", True),
    (("--context",), "The context of the kubeconfig to use.", True),
    (("-n", "--namespace"), "The namespace (default: the context's).", True),
    (("--cluster",), "The cluster of the kubeconfig to use.", False),
    (("--user",), "The user of the kubeconfig to use.", False),
    (("-s", "--server"), "The URL of the server.", False),
    (("--token",), "A bearer token.", False),
    (("--as", "as_"), "Act as this user.", False),
    (("--as-uid",), "Act as the user of this uid.", False),
    (("--certificate-authority",), "A file with the authority to trust.", False),
    (("--client-certificate",), "A file with the certificate to show.", False),
    (("--client-key",), "A file with its key.", False),
    (("--tls-server-name",), "The name to expect in the server's certificate.", False),
    (("--proxy-url",), "The proxy to go through.", False),
    (("--request-timeout",), "Give up on a request after this long, such as 30s.", False),
    (("--username",), "The user name for basic authentication.", False),
    (("--password",), "Its password.", False),
    (("-v", "--v", "v"), "Accepted as KubeVirt's virtctl does; changes nothing.", False),
)
_SWITCHES: tuple[tuple[str, str], ...] = (
    ("--insecure-skip-tls-verify", "Trust any certificate."),
    ("--disable-compression", "Ask for answers that are not compressed."),
)


def flags(*, all_shown: bool = False, without: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Give a command the global flags; `chosen` returns what was given.

    One that a command needs for something else is left out; before the command's name it is taken.
    """

    def add(command: F) -> F:
        more: dict[str, Any] = {"expose_value": False, "callback": _remember}
        hidden = not all_shown
        for name, text in reversed(_SWITCHES):
            command = click.option(
                name, is_flag=True, default=None, help=text, hidden=hidden, **more
            )(command)
        command = click.option(
            "--as-group", multiple=True, help="Act as a member of this group; repeatable.",
            hidden=hidden, **more,
        )(command)  # fmt: skip
        for names, text, shown in reversed(_FLAGS):
            if names[0] in without:
                continue
            command = click.option(*names, help=text, hidden=hidden and not shown, **more)(command)
        return command

    return add


def namespace_flag(command: F) -> F:
    """Give a command that contacts no server the one global flag it can use."""
    return click.option(
        "-n", "--namespace", expose_value=False, callback=_remember, help="The namespace."
    )(command)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    given: dict[str, Any] = ctx.find_root().ensure_object(dict)
    if value not in (None, ()):
        given[str(param.name)] = value


def chosen() -> Chosen:
    """Return the global flags of the command that runs."""
    return Chosen(**click.get_current_context().find_root().ensure_object(dict))


def access(
    choice: Chosen, data: DataDir | None = None, env: Mapping[str, str] = os.environ
) -> Access:
    """Return how to reach the cluster; `data` is the data directory given by the user.

    Raises ConfigError.
    """
    from livevirt.kube.client import kubeconfig
    from livevirt.kube.client.access import Access
    from livevirt.kube.client.errors import ConfigError

    path = choice.kubeconfig
    if data is not None:
        path = str(data.kubeconfig)
        if not data.kubeconfig.exists():
            raise ConfigError(
                f"livevirt has never run on {data.root}; start it with:"
                f" livevirt up --detach --data-dir {data.root}"
            )
    elif not path and not env.get("KUBECONFIG"):
        own = DataDir(default_data_dir()).kubeconfig
        path = str(own) if os.access(own, os.R_OK) else ""
    picked = kubeconfig.Choice(choice.context, choice.cluster, choice.user)
    try:
        found = kubeconfig.find(path, picked, env)
    except ConfigError:
        if not choice.server or path:
            raise
        found = Access(choice.server)  # the flags alone must do
    return overridden(found, choice)


def component_access(choice: Chosen, env: Mapping[str, str] = os.environ) -> Access:
    """Return how a component reaches its cluster: by the kubeconfig, in a pod by the pod's own.

    It is never the embedded server of this machine by default, which has the same components.
    Raises ConfigError.
    """
    from livevirt.kube.client import kubeconfig

    picked = kubeconfig.Choice(choice.context, choice.cluster, choice.user)
    return overridden(kubeconfig.find(choice.kubeconfig, picked, env), choice)


def overridden(found: Access, choice: Chosen) -> Access:
    """Return the access with the values given by flags."""
    from livevirt.kube.client.kubeconfig import impersonation

    _check_headers(choice)
    tls = replace(
        found.tls,
        authority=_file(choice.certificate_authority) or found.tls.authority,
        certificate=_file(choice.client_certificate) or found.tls.certificate,
        key=_file(choice.client_key) or found.tls.key,
        server_name=choice.tls_server_name or found.tls.server_name,
    )
    if choice.insecure_skip_tls_verify:
        tls = replace(tls, insecure=True, authority=None)
    changes: dict[str, Any] = {
        "server": choice.server,
        "namespace": choice.namespace,
        "username": choice.username,
        "password": choice.password,
        "proxy": choice.proxy_url,
    }
    if choice.token:
        changes |= {"token": choice.token, "token_file": None, "plugin": None}
    if choice.as_:
        changes["impersonate"] = tuple(
            impersonation(choice.as_, groups=choice.as_group, uid=choice.as_uid)
        )
    kept: dict[str, Any] = {n: value for n, value in changes.items() if value or value is None}
    return replace(
        found, tls=tls, compress=found.compress and not choice.disable_compression, **kept
    )


def _check_headers(choice: Chosen) -> None:
    """Refuse what cannot be sent in a header, such as a token of several lines."""
    groups = [("--as-group", group) for group in choice.as_group]
    single = [("--token", choice.token), ("--as", choice.as_), ("--as-uid", choice.as_uid)]
    for flag, text in (*single, *groups):
        if not text.isprintable():
            raise click.UsageError(f"{flag} must be one line of text")


def _file(path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from error


def connect(found: Access) -> RemoteClient:
    """Return a client; the server's warnings go to standard error."""
    from livevirt.kube.client.remote import RemoteClient

    return RemoteClient(found, manager="virtctl", warn=_warn)


def _warn(text: str) -> None:
    click.echo(f"Warning: {text}", err=True)
