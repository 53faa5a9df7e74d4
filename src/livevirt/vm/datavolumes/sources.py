"""From a DataVolume's source to where its bytes come from."""

from __future__ import annotations

import base64
import binascii

from livevirt.errors import NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm.datavolumes.download import Source as Http
from livevirt.vm.datavolumes.filling import ImportFailed


async def http(source: Object, namespace: str, client: Client) -> Http:
    """Return how to fetch a file, with what the named secrets and config map hold."""
    headers = list(source.get("extraHeaders") or ())
    for name in source.get("secretExtraHeaders") or ():
        headers += (await _secret(client, name, namespace)).values()
    credentials: dict[str, str] = {}
    if name := source.get("secretRef"):
        credentials = await _secret(client, name, namespace)
    authority = ""
    if name := source.get("certConfigMap"):
        authority = "\n".join((await _config(client, name, namespace)).values())
    return Http(
        source["url"],
        dict(_header(line) for line in headers),
        credentials.get("accessKeyId", ""),
        credentials.get("secretKey", ""),
        authority,
        source.get("checksum") or "",
    )


def image_name(source: Object) -> str:
    """Return the name in the local store of a registry source."""
    return str(source["url"]).removeprefix("docker://")


def _header(line: str) -> tuple[str, str]:
    name, separator, value = line.partition(":")
    if not separator or not name.strip() or "\n" in line.strip() or "\r" in line.strip():
        raise ImportFailed("an extra header is not of the form `Name: value`")  # may be a secret
    return name.strip(), value.strip()


async def _secret(client: Client, name: str, namespace: str) -> dict[str, str]:
    try:
        found = await client.get(core.SECRET, name, namespace)
        data = found.get("data") or {}
        return {key: base64.b64decode(value).decode() for key, value in data.items()}
    except NotFound:
        raise ImportFailed(f'secret "{name}" not found') from None
    except (binascii.Error, UnicodeDecodeError):
        raise ImportFailed(f'secret "{name}" holds what is no text') from None


async def _config(client: Client, name: str, namespace: str) -> dict[str, str]:
    try:
        found = await client.get(core.CONFIG_MAP, name, namespace)
    except NotFound:
        raise ImportFailed(f'config map "{name}" not found') from None
    return dict(found.get("data") or {})
