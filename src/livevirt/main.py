"""The composition root: builds the parts of `livevirt up` and hands them to each other."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import importlib
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import uvloop
import yaml
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage

from livevirt import logs
from livevirt.admission import builtin
from livevirt.api.request import User
from livevirt.client.local import LocalClient
from livevirt.controllers import bootstrap
from livevirt.errors import LivevirtError
from livevirt.paths import DataDir
from livevirt.server import actions, pki, protocol, reviews
from livevirt.server.api import Api
from livevirt.server.authenticate import Authenticator
from livevirt.server.http import MAX_BODY, Front
from livevirt.server.metrics import Metrics
from livevirt.server.pki import Pki
from livevirt.server.services import Services, StoreReader
from livevirt.server.tokens import Tokens
from livevirt.settings import Settings
from livevirt.store import Store

log = logging.getLogger(__name__)

CONTROLLER = User(
    "system:serviceaccount:kubevirt:livevirt-controller",
    ("system:serviceaccounts", "system:serviceaccounts:kubevirt", "system:authenticated"),
)


class StartError(LivevirtError):
    """The server cannot start as asked; the message says what to do."""


def utc_now() -> datetime:
    """Return the time of day; every part is given this clock."""
    return datetime.now(UTC)


async def serve(settings: Settings, ready: Callable[[str], None]) -> None:
    """Run everything until SIGTERM or SIGINT; call `ready` with the URL once the API answers."""
    data = DataDir(Path(settings.data_dir))
    data.check()
    data.root.mkdir(mode=0o711, parents=True, exist_ok=True)
    keys = pki.ensure(data.pki, _addresses(settings.host), utc_now())
    store = Store.open(data.database)
    try:
        await _serve(settings, data, keys, store, ready)
    finally:
        await store.close()


async def _serve(
    settings: Settings, data: DataDir, keys: Pki, store: Store, ready: Callable[[str], None]
) -> None:
    reader = StoreReader(store)
    tokens = Tokens(keys.token_key)
    services = Services(store, builtin.RULES, utc_now, reader)
    api = Api(services, reviews.verbs(tokens))
    front = Front(api, Authenticator(tokens, reader, utc_now), Metrics(store), actions.handle, {})
    client = LocalClient(api, CONTROLLER)
    await bootstrap.ensure(client)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with contextlib.AsyncExitStack() as stack:
        port = await _listen(stack, front, keys, settings)
        url = f"https://{_bracketed(settings.host)}:{port}"
        write_kubeconfig(data.kubeconfig, url, keys)
        _write_pid(data.pid)
        stack.callback(_remove_pid, data.pid)
        controllers = asyncio.create_task(_control(client, store))
        ready(url)
        log.info("ready", extra={"url": url, "data_dir": settings.data_dir})
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait({controllers, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        controllers.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await controllers
        log.info("stopped")


async def _control(client: LocalClient, store: Store) -> None:
    """Run the controllers. They are imported beside the API that already answers."""
    embedded = await asyncio.to_thread(importlib.import_module, "livevirt.controllers.embedded")
    await embedded.run(client, store, utc_now)


async def _listen(
    stack: contextlib.AsyncExitStack, front: Front, keys: Pki, settings: Settings
) -> int:
    """Start the HTTPS server; return the port it got."""
    server = protocol.Server(front.handle, request_factory=_request, access_log=None)
    runner = web.ServerRunner(server, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(
        runner, settings.host, settings.port, ssl_context=_tls(keys), backlog=1024,
        reuse_address=True,
    )  # fmt: skip
    try:
        await site.start()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"port {settings.port} of {settings.host} is in use by another program."
                " Choose a free one: --listen 127.0.0.1:0"
            ) from None
        raise StartError(f"cannot listen on {settings.host}:{settings.port}: {error}") from None
    address = runner.addresses[0]
    return int(address[1])


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """Make aiohttp's request object, with our limit on the size of bodies."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)


def _tls(keys: Pki) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(keys.server)
    context.load_verify_locations(keys.ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _addresses(host: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(("127.0.0.1", "::1", host)))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def write_kubeconfig(path: Path, url: str, keys: Pki) -> None:
    """Write the administrator's kubeconfig, readable by its owner only."""
    admin = keys.admin.read_bytes()
    cut = admin.index(b"-----BEGIN PRIVATE KEY-----")
    encoded = {name: base64.b64encode(raw).decode() for name, raw in (
        ("ca", keys.ca.read_bytes()), ("cert", admin[:cut]), ("key", admin[cut:]))}  # fmt: skip
    user = {"client-certificate-data": encoded["cert"], "client-key-data": encoded["key"]}
    cluster = {"server": url, "certificate-authority-data": encoded["ca"]}
    context = {"cluster": "livevirt", "user": "admin", "namespace": "default"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "livevirt", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "livevirt", "context": context}],
        "current-context": "livevirt",
    }
    temporary = path.with_suffix(".new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        yaml.safe_dump(content, file, sort_keys=False)
    os.replace(temporary, path)


def _write_pid(path: Path) -> None:
    path.write_text(f"{os.getpid()}\n")


def _remove_pid(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def main() -> None:
    """Run the server with the settings given as JSON, the way `livevirt up` does."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    logs.configure(settings.log_level)

    def ready(url: str) -> None:
        print(f"ready: {url}, kubeconfig {DataDir(Path(settings.data_dir)).kubeconfig}", flush=True)

    try:
        uvloop.run(serve(settings, ready))
    except (LivevirtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
