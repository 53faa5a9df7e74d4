"""Refuses what only a browser on a foreign page would send.

A browser holds client certificates and reaches loopback, so a page could use them. A name in `Host`
that is not ours means that the page's own name was resolved to our address (DNS rebinding); an
`Origin` other than this server is a request across sites.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Mapping

from livevirt.errors import Forbidden

NAMES = frozenset({"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"})
_OWN_SITE = ("", "same-origin", "none")  # what `Sec-Fetch-Site` may say


def check(headers: Mapping[str, str], names: frozenset[str]) -> None:
    """Raise Forbidden for a foreign host or origin; `names` are this server's beside `NAMES`."""
    host = headers.get("Host", "")
    if not _is_ours(host, names):
        raise Forbidden(f"this server is not {host!r}: use an address or name of its certificate")
    origin = headers.get("Origin", "")
    if origin and origin != f"https://{host}":
        raise Forbidden("requests from other sites are refused: Origin is not this server")
    if headers.get("Sec-Fetch-Site", "") not in _OWN_SITE:
        raise Forbidden("requests from other sites are refused: Sec-Fetch-Site")


@functools.lru_cache(256)
def _is_ours(host: str, names: frozenset[str]) -> bool:
    """Return whether a `Host` header names this server; an address cannot be rebound."""
    if not host:
        return True  # HTTP/1.0
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() in NAMES or name.lower() in names
    return True
