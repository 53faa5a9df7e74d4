"""Why a connection failed, in plain words."""

from __future__ import annotations

import os
import socket
import ssl

import aiohttp


def cause(error: Exception) -> str:
    """Return where the connection was to go, if that is known, and what went wrong."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"{_place(error)}: {_words(error.certificate_error)}"
        case aiohttp.ClientProxyConnectionError():
            return f"the proxy at {_place(error)}: {_words(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"{_place(error)}: {_words(error.os_error)}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered {error.status} {error.message}".rstrip()
        case aiohttp.ServerTimeoutError():
            return "nothing answers there"
        case _:
            return _words(error)


def _place(error: aiohttp.ClientConnectorError) -> str:
    return f"{error.host} port {error.port}"


def _words(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            reason = (error.reason or "").replace("_", " ").lower()
            return f"TLS failed: {reason or error}"
        case socket.gaierror():  # its number is no errno
            return error.strerror or str(error)
        case OSError(errno=int(number)) if number:
            return os.strerror(number)
        case _:
            return str(error) or repr(error)
