"""TLS of a server whose certificate and client authority change while it serves."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest

from livevirt import x509
from livevirt.cluster.serving import ServingTls, listening_context
from livevirt.kube.client.access import load_pair
from livevirt.x509 import Pair, Subject

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def an_authority(name: str) -> Pair:
    return x509.new_authority(name, NOW, DAY)


def served_by(authority: Pair) -> Pair:
    return x509.issue(authority, Subject("server", x509.SERVER, (), ("localhost",)), NOW, DAY)


def client_of(authority: Pair) -> Pair:
    return x509.issue(authority, Subject("proxy", x509.CLIENT), NOW, DAY)


async def names_seen(port: int, trusted: Pair, shown: Pair | None) -> str:
    """Connect and return the common name that the server sees."""
    context = ssl.create_default_context(cadata=trusted.certificate.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if shown is not None:
        load_pair(context, shown.certificate, shown.key)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()


async def is_refused(port: int, trusted: Pair, shown: Pair) -> bool:
    """Return whether a client certificate is refused, which TLS 1.3 reports after the handshake."""
    try:
        return not await names_seen(port, trusted, shown)
    except (ssl.SSLError, ConnectionError):
        return True


async def test_given_new_authorities_then_the_next_connection_uses_them_only() -> None:
    first, second = an_authority("first"), an_authority("second")
    proxy, other = an_authority("proxy-ca"), an_authority("other-ca")
    current = ServingTls(served_by(first), proxy.certificate.decode())

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("peercert") or {}
        subject = [pair for rdn in certificate.get("subject", ()) for pair in rdn]
        writer.write(dict(subject).get("commonName", "nobody").encode())
        writer.close()

    context = listening_context(lambda: current)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert await names_seen(port, first, client_of(proxy)) == "proxy"
        assert await names_seen(port, first, None) == "nobody"
        assert await is_refused(port, first, client_of(other))
        current = ServingTls(served_by(second), other.certificate.decode())
        assert await names_seen(port, second, client_of(other)) == "proxy"
        assert await is_refused(port, second, client_of(proxy))  # no longer trusted
        with pytest.raises(ssl.SSLCertVerificationError):  # no longer shown
            await names_seen(port, first, None)
