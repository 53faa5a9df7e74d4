"""Credentials that may change while we run: token files and exec plugins."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from livevirt.kube.client.access import Access, Plugin
from livevirt.kube.client.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class Issued:
    """What to show the server, until it expires or is refused."""

    authorization: str = field(default="", repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    expires: datetime | None = None


def _utc() -> datetime:
    return datetime.now(UTC)


class Credentials:
    """Gives the credentials of an access as they are now."""

    def __init__(self, access: Access, now: Callable[[], datetime] = _utc) -> None:
        self._access = access
        self._now = now
        self._issued: Issued | None = None
        self._file: tuple[int, ...] = ()  # the token file as last read
        self._asking = asyncio.Lock()

    async def current(self) -> Issued:
        """Return credentials that are good as far as we know, asking the plugin if need be."""
        if self._access.plugin is not None:
            async with self._asking:  # one question at a time, and one is enough
                if self._issued is None or self._expired(self._issued):
                    self._issued = await ask(self._access.plugin)
                return self._issued
        if self._access.token_file is not None:
            return self._from_file(self._access.token_file)
        if self._issued is None:
            self._issued = Issued(_fixed(self._access))
        return self._issued

    def refused(self, issued: Issued) -> bool:
        """Take note that the server refused them; return whether others may be had."""
        if self._access.plugin is None and self._access.token_file is None:
            return False
        if self._issued is issued:
            self._issued, self._file = None, ()
        return True

    def _expired(self, issued: Issued) -> bool:
        return issued.expires is not None and issued.expires <= self._now()

    def _from_file(self, path: Path) -> Issued:
        try:
            stat = path.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if self._issued is None or seen != self._file:
                self._issued, self._file = Issued(f"Bearer {path.read_text().strip()}"), seen
        except (OSError, ValueError) as error:
            if self._issued is None:
                raise ConfigError(f"the token cannot be read: {error}") from error
        return self._issued


def _fixed(access: Access) -> str:
    if access.token:
        return f"Bearer {access.token}"
    if access.username:
        pair = f"{access.username}:{access.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"
    return ""


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _Status


def issued_of(plugin: Plugin, output: bytes) -> Issued:
    """Return the credentials a plugin printed; raises ConfigError if they are none."""
    try:
        printed = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{plugin.command} printed no ExecCredential: {error}") from error
    if (printed.kind, printed.api_version) != ("ExecCredential", plugin.api_version):
        said = f"{printed.api_version} {printed.kind}"
        raise ConfigError(f"{plugin.command} printed {said}, not {plugin.api_version}")
    status = printed.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigError(f"{plugin.command} printed a certificate or a key without the other")
    if not status.token and not status.client_certificate_data:
        raise ConfigError(f"{plugin.command} printed neither a token nor a certificate")
    expires = status.expiration_timestamp
    return Issued(
        authorization=f"Bearer {status.token}" if status.token else "",
        certificate=status.client_certificate_data.encode() or None,
        key=status.client_key_data.encode() or None,
        expires=expires.replace(tzinfo=expires.tzinfo or UTC) if expires else None,
    )


async def ask(plugin: Plugin) -> Issued:
    """Run the plugin and return what it prints."""
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive == "Always" and not terminal:
        raise ConfigError(f"{plugin.command} wants to ask something and there is no terminal")
    interactive = terminal and plugin.interactive != "Never"
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    env = os.environ | plugin.env | {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=env,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,  # its stderr is ours: it may have to say something
        )
    except OSError as error:
        hint = f"\n{plugin.hint}" if plugin.hint else ""
        raise ConfigError(f"cannot run {plugin.command}: {error.strerror}{hint}") from error
    except ValueError as error:  # a NUL, or an environment variable that can be none
        raise ConfigError(f"cannot run {plugin.command!a}: {error}") from error
    try:
        output, _ = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    if process.returncode:
        raise ConfigError(f"{plugin.command} failed with exit status {process.returncode}")
    return issued_of(plugin, output)
