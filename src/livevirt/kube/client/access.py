"""How to reach a server and as whom: plain data, and the TLS context made of it."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from livevirt.kube.client.errors import ConfigError

Interactive = Literal["Never", "IfAvailable", "Always"]
INTERACTIVE: dict[str, Interactive] = {mode: mode for mode in get_args(Interactive)}


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom to trust and what to show; the bytes are PEM."""

    authority: bytes | None = None  # None: whom the system trusts
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    server_name: str = ""  # expected in the certificate instead of the host's name
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class Plugin:
    """A program that prints credentials (client-go's exec plugins)."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = "client.authentication.k8s.io/v1"
    hint: str = ""  # how to install it
    interactive: Interactive = "IfAvailable"
    cluster: Mapping[str, Any] | None = None  # passed to the plugin if it asks for it


@dataclass(frozen=True, slots=True)
class Access:
    """One server and one user of it."""

    server: str
    namespace: str = "default"
    user: str = ""  # what the configuration calls them; who they are, the server knows
    tls: Tls = Tls()
    token: str = field(default="", repr=False)
    token_file: Path | None = None  # read again when it changes; wins over `token`
    username: str = ""
    password: str = field(default="", repr=False)
    plugin: Plugin | None = None
    impersonate: tuple[tuple[str, str], ...] = ()  # headers
    proxy: str = ""
    compress: bool = True


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the context for connections; raises ConfigError if the PEM is no good."""
    try:
        authority = tls.authority.decode() if tls.authority else None
        context = ssl.create_default_context(cadata=authority)
        # Newer Pythons ask for extensions that are missing from many cluster authorities.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if tls.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.certificate and tls.key:
            load_pair(context, tls.certificate, tls.key)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"a certificate or key cannot be used: {error}") from error
    return context


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have a context present a certificate, given as PEM with its key."""
    # OpenSSL through Python reads a pair from files only; this one exists for an instant, for us.
    with tempfile.TemporaryDirectory(prefix="livevirt-") as folder:
        pair = os.path.join(folder, "pair.pem")
        with open(os.open(pair, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(certificate.rstrip() + b"\n" + key)
        context.load_cert_chain(pair, password=_no_password)


def _no_password() -> str:
    raise ValueError("the key is encrypted")  # instead of asking on the terminal
