"""The composition root: builds the parts of `livevirt up` and hands them to each other."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from livevirt import logs, programs
from livevirt.errors import LivevirtError
from livevirt.files import private
from livevirt.files.reserve import Reserve
from livevirt.kube.admission import builtin
from livevirt.kube.admission.pods import PodRules
from livevirt.kube.admission.services import NOT_FORWARDED, ServiceRules
from livevirt.kube.client.local import LocalClient
from livevirt.kube.controllers import bootstrap
from livevirt.kube.objects import core
from livevirt.kube.objects.request import User
from livevirt.kube.server import pki, reviews
from livevirt.kube.server.api import Api
from livevirt.kube.server.authenticate import Authenticator, Tokens
from livevirt.kube.server.http import Front
from livevirt.kube.server.listen import listening
from livevirt.kube.server.metrics import Metrics
from livevirt.kube.server.pki import Pki
from livevirt.kube.server.services import Services, StoreReader
from livevirt.kube.store import Store
from livevirt.node.network import namespace
from livevirt.paths import DataDir
from livevirt.settings import Settings
from livevirt.vm import admission, kinds
from livevirt.vm.config import controller
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.migration import eviction

log = logging.getLogger(__name__)

#: How seldom cyclic garbage is looked for. A request leaves next to none, but makes many objects;
#: by Python's own thresholds a seventh of the time of a write went into looking.
MOST_FILES = 65536  # that the process opens at most, if the system allows it
COLLECT = (50_000, 20, 50)

CONTROLLER = User(
    "system:serviceaccount:kubevirt:livevirt-controller",
    ("system:serviceaccounts", "system:serviceaccounts:kubevirt", "system:authenticated"),
)
Ready = Callable[[str], None]


def utc_now() -> datetime:
    """Return the time of day; every part is given this clock."""
    return datetime.now(UTC)


async def serve(settings: Settings, ready: Ready) -> None:
    """Run everything until SIGTERM or SIGINT; call `ready` with the URL once the API answers."""
    programs.check()  # or nodes would fail behind an API that reports ready
    data = DataDir(Path(settings.data_dir))
    data.check()
    private.folders(data.root)
    addresses = tuple(dict.fromkeys(("127.0.0.1", "::1", settings.host)))
    reserve = Reserve(data.reserve)
    keys = reserve.spend(lambda: pki.ensure(data.pki, addresses, utc_now()))
    store = Store.open(data.database, release_space=reserve.release)
    reserve.hold()
    try:
        await _serve(settings, data, keys, (store, reserve), ready)
    finally:
        await store.close()


async def _serve(
    settings: Settings, data: DataDir, keys: Pki, storage: tuple[Store, Reserve], ready: Ready
) -> None:
    store, reserve = storage
    reader = StoreReader(store)
    tokens = Tokens(keys.token_key)
    rules = {
        **builtin.RULES,
        core.POD.resource: PodRules(launcher.not_run),
        core.SERVICE.resource: ServiceRules(NOT_FORWARDED if namespace.problem() else ""),
        **admission.RULES,
    }
    services = Services(store, rules, utc_now, reader, kinds.REGISTRY)
    api = Api(services, reviews.verbs(tokens))
    client = LocalClient(api, CONTROLLER)
    services.space_guards.append(reserve.shortage)
    services.eviction_guards.append(eviction.Guard(client.for_component("eviction-guard")))
    front = Front(api, Authenticator(tokens, reader, utc_now), Metrics(store))
    front.names = frozenset({settings.host.lower(), platform.node().lower()})
    await bootstrap.ensure(client)
    await controller.ensure(client)
    async with listening(front.handle, keys, settings.host, settings.port) as port:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"https://{host}:{port}"
        reserve.spend(lambda: pki.write_kubeconfig(data.kubeconfig, url, keys))
        reserve.spend(lambda: data.pid.write_text(f"{os.getpid()}\n"))
        ready(url)
        log.info("ready", extra={"url": url, "data_dir": settings.data_dir})
        try:
            background = await asyncio.to_thread(
                importlib.import_module, "livevirt.background"
            )  # beside the API that already answers
            bound = msgspec.structs.replace(settings, port=port)  # the setting may be 0
            await _until_stopped(background.run(bound, data, client, services, front))
        finally:
            with contextlib.suppress(OSError):
                data.pid.unlink()
    log.info("stopped")


async def _until_stopped(work: Any) -> None:
    """Run until a signal asks to stop; an error of the work itself is raised."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main() -> None:
    """Run the server with the settings given as JSON, the way `livevirt up` does."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    logs.configure(settings.log_level)
    os.umask(private.UMASK)
    _raise_file_limit()
    gc.set_threshold(*COLLECT)

    def ready(url: str) -> None:
        gc.freeze()  # what is there by now stays: no collection need walk it
        print(f"ready: {url}, kubeconfig {DataDir(Path(settings.data_dir)).kubeconfig}", flush=True)

    try:
        uvloop.run(serve(settings, ready))
    except (LivevirtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except BaseExceptionGroup as group:
        log.error("stopped by an internal error", exc_info=group)
        print(f"error: livevirt stopped: {_first(group)}", file=sys.stderr)
        sys.exit(1)


def _raise_file_limit() -> None:
    """Allow as many open files as we may: connections, guests and disks each take some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _first(group: BaseException) -> BaseException:
    """Return the innermost error of nested groups: what a person can act on."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


if __name__ == "__main__":
    main()
