"""TLS of a server whose certificate and client authority change while it serves."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from livevirt.kube.client.access import load_pair
from livevirt.x509 import Pair


@dataclass(frozen=True, slots=True)
class ServingTls:
    """What a server shows, and whose client certificates it verifies."""

    pair: Pair
    client_authority: str = ""  # PEM; no client certificate is accepted if empty


def listening_context(current: Callable[[], ServingTls]) -> ssl.SSLContext:
    """Return a context for a listening socket; every connection uses what is current by then.

    A context of Python's cannot forget an authority, so a change needs another context.
    """
    contexts: dict[ServingTls, ssl.SSLContext] = {}

    def choose(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        wanted = current()
        if wanted not in contexts:
            contexts.clear()
            contexts[wanted] = _context(wanted)
        connection.context = contexts[wanted]

    listening = _context(current())
    listening.sni_callback = choose
    return listening


def _context(tls: ServingTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    # A resumed session would keep a client certificate that an earlier authority has signed.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if tls.client_authority:
        context.load_verify_locations(cadata=tls.client_authority)
    load_pair(context, tls.pair.certificate, tls.pair.key)
    return context
