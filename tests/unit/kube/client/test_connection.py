"""Why a connection failed is told in plain words."""

from __future__ import annotations

import errno
import socket
import ssl
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest

from livevirt.kube.client.connection import cause

KEY: Any = SimpleNamespace(host="one", port=6443, ssl=ssl.create_default_context(), is_ssl=True)
REFUSED = OSError(errno.ECONNREFUSED, "Connect call failed ('192.0.2.1', 6443)")
SEVERAL = "Multiple exceptions: [Errno 111] …, [Errno 101] …"


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] … (_ssl.c:1006)")
    error.reason = reason
    return error


def untrusted(why: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "… (_ssl.c:1006)")
    error.verify_message = why
    return error


CAUSES: dict[str, tuple[Exception, str]] = {
    "nobody listens": (
        aiohttp.ClientConnectorError(KEY, REFUSED),
        "one port 6443: Connection refused",
    ),
    "each address fails in its own way": (
        aiohttp.ClientConnectorError(KEY, OSError(SEVERAL)),
        f"one port 6443: {SEVERAL}",
    ),
    "the name is unknown": (
        aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(-2, "Name or service not known")),
        "one port 6443: Name or service not known",
    ),
    "it speaks no TLS": (
        aiohttp.ClientConnectorSSLError(KEY, tls_error("WRONG_VERSION_NUMBER")),
        "one port 6443: TLS failed: wrong version number",
    ),
    "it is not to be trusted": (
        aiohttp.ClientConnectorCertificateError(KEY, untrusted("certificate has expired")),
        "one port 6443: its certificate is not trusted: certificate has expired",
    ),
    "the proxy is not there": (
        aiohttp.ClientProxyConnectionError(KEY, REFUSED),
        "the proxy at one port 6443: Connection refused",
    ),
    "the proxy refuses": (
        aiohttp.ClientHttpProxyError(Mock(), (), status=407, message="Authentication Required"),
        "the proxy answered 407 Authentication Required",
    ),
    "there is silence": (
        aiohttp.ServerTimeoutError("Connection timeout to host https://one:6443/api/v1/pods"),
        "nothing answers there",
    ),
    "it hangs up": (
        aiohttp.ClientOSError(errno.ECONNRESET, "[Errno 104] Connection reset by peer"),
        "Connection reset by peer",
    ),
    "something else": (aiohttp.ServerDisconnectedError(), "Server disconnected"),
    "something without words": (OSError(), "OSError()"),
}


@pytest.mark.parametrize(("error", "words"), CAUSES.values(), ids=CAUSES)
def test_causes(error: Exception, words: str) -> None:
    assert cause(error) == words
