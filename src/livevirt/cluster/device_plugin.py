"""Devices of a node for launcher pods, which have no privileges to open them otherwise.

A plugin per device registers it with the kubelet as an extended resource of KubeVirt's name. Pods
request the resource, so the scheduler places them where the device is, and the kubelet adds the
device to their container. Any number of guests may share a device; the kubelet needs a number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from livevirt.cluster import device_plugin_messages as messages
from livevirt.cluster.device_plugin_messages import DeviceSpec, Register
from livevirt.vm.lifecycle.vmi.kubelet_pod import KVM, TUN, VHOST_NET

log = logging.getLogger(__name__)

DIRECTORY = "device-plugins"  # of the kubelet
COUNT = 1000  # guests of a node that may have a device, as in KubeVirt
POLL_SECONDS = 1.0
REGISTER_SECONDS = 10.0
_KUBELET = "kubelet.sock"


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the node."""

    resource: str
    path: str

    @property
    def name(self) -> str:
        """The part of the resource's name after the slash."""
        return self.resource.partition("/")[2]

    def exists(self) -> bool:
        """Return whether the node has the device now."""
        return Path(self.path).is_char_device()


DEVICES = (
    Device(KVM, "/dev/kvm"), Device(TUN, "/dev/net/tun"), Device(VHOST_NET, "/dev/vhost-net"),
)  # fmt: skip


def usable(devices: Iterable[Device], *, kvm: bool) -> tuple[Device, ...]:
    """Return the devices that exist; /dev/kvm may exist and not work."""
    return tuple(each for each in devices if each.exists() and (kvm or each.resource != KVM))


async def run(devices: Iterable[Device], directory: Path) -> None:
    """Offer devices to the kubelet until cancelled, also to one that is restarted."""
    async with asyncio.TaskGroup() as group:
        for device in devices:
            group.create_task(Plugin(device, directory).run(), name=f"device-{device.name}")


class Plugin:
    """Offers one device to the kubelet."""

    def __init__(self, device: Device, directory: Path) -> None:
        self._device = device
        self._directory = directory
        self._socket = directory / f"livevirt-{device.name}.sock"

    async def run(self) -> None:
        """Serve and register until cancelled.

        A kubelet that starts removes all sockets of plugins and expects them to register again.
        """
        while True:
            try:
                await self._serve_kubelet()
            except (OSError, RuntimeError, TimeoutError, grpc.aio.AioRpcError) as error:
                # The kubelet is not running, or not ready for plugins yet.
                fields = {"device": self._device.resource, "error": str(error)}
                log.debug("device not registered", extra=fields)
            await asyncio.sleep(POLL_SECONDS)

    async def _serve_kubelet(self) -> None:
        """Serve one kubelet until it is gone."""
        before = _identity(self._directory / _KUBELET)
        if before is None:
            return
        self._socket.unlink(missing_ok=True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([_handlers(self._device, self._watch)])
        server.add_insecure_port(f"unix:{self._socket}")
        await server.start()
        try:
            await self._register()
            log.info("device registered", extra={"device": self._device.resource})
            while self._serves(before):  # noqa: ASYNC110 - nothing reports the end of a kubelet
                await asyncio.sleep(POLL_SECONDS)
        finally:
            await server.stop(grace=None)
            with contextlib.suppress(OSError):
                self._socket.unlink(missing_ok=True)

    def _serves(self, kubelet: tuple[int, int]) -> bool:
        """Return whether the plugin is still known to the kubelet that it has registered with."""
        return self._socket.exists() and _identity(self._directory / _KUBELET) == kubelet

    async def _register(self) -> None:
        async with asyncio.timeout(REGISTER_SECONDS):
            async with grpc.aio.insecure_channel(f"unix:{self._directory / _KUBELET}") as channel:
                call = channel.unary_unary(
                    f"/{messages.REGISTRATION}/Register",
                    request_serializer=messages.register_request,
                    response_deserializer=bytes,
                )
                await call(Register(self._socket.name, self._device.resource))

    async def _watch(self) -> AsyncIterator[bytes]:
        """Yield the list of devices whenever it changes."""
        known: bool | None = None
        while True:
            there = self._device.exists()
            if there != known:
                known = there
                names = (f"{self._device.name}{number}" for number in range(COUNT))
                yield messages.device_list((name, there) for name in names)
            await asyncio.sleep(POLL_SECONDS)


def _handlers(device: Device, watch: Callable[[], AsyncIterator[bytes]]) -> Any:
    """Return the handlers of the plugin's calls."""

    async def options(request: bytes, context: object) -> bytes:
        return b""  # neither preferences nor a call before containers start

    async def list_and_watch(request: bytes, context: object) -> AsyncIterator[bytes]:
        async for found in watch():
            yield found

    async def allocate(request: bytes, context: object) -> bytes:
        asked = messages.read_allocate_request(request)
        return messages.allocate_response([DeviceSpec(device.path, device.path)] for _ in asked)

    handlers = {
        "GetDevicePluginOptions": _unary(options),
        "Allocate": _unary(allocate),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch),
    }
    return grpc.method_handlers_generic_handler(messages.PLUGIN, handlers)


def _unary(answer: Callable[[bytes, object], Awaitable[bytes]]) -> Any:
    return grpc.unary_unary_rpc_method_handler(answer)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes a socket from its successor, None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns
