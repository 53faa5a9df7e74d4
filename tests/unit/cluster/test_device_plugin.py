"""The device plugin, with a kubelet that is played by the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from livevirt.cluster import device_plugin_messages as messages
from livevirt.cluster.device_plugin_messages import DeviceSpec, Register
from livevirt.vm.lifecycle.vmi.kubelet_pod import KVM, TUN

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")

from livevirt.cluster import device_plugin  # noqa: E402
from livevirt.cluster.device_plugin import COUNT, Device, usable  # noqa: E402

NULL = Device("devices.kubevirt.io/null", "/dev/null")
WITHIN = 20.0


def remove_sockets(directory: Path) -> None:
    for old in directory.glob("*.sock"):
        old.unlink()


@contextlib.asynccontextmanager
async def a_kubelet(directory: Path) -> AsyncIterator[asyncio.Queue[Register]]:
    """Play a kubelet, which yields what is registered with it."""
    registered: asyncio.Queue[Register] = asyncio.Queue()

    async def register(request: bytes, context: object) -> bytes:
        registered.put_nowait(messages.read_register_request(request))
        return b""

    handlers = {"Register": grpc.unary_unary_rpc_method_handler(register)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(messages.REGISTRATION, handlers)]
    )
    remove_sockets(directory)
    server.add_insecure_port(f"unix:{directory / 'kubelet.sock'}")
    await server.start()
    try:
        yield registered
    finally:
        await server.stop(grace=None)
        (directory / "kubelet.sock").unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def running(directory: Path, *devices: Device) -> AsyncIterator[None]:
    task = asyncio.ensure_future(device_plugin.run(devices, directory))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def call(socket: Path, method: str, request: bytes) -> bytes:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        answer: bytes = await channel.unary_unary(f"/{messages.PLUGIN}/{method}")(request)
        return answer


async def first_list(socket: Path) -> dict[str, bool]:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        stream: Any = channel.unary_stream(f"/{messages.PLUGIN}/ListAndWatch")(b"")
        async for answer in stream:
            return messages.read_device_list(answer)
    raise AssertionError("nothing was listed")


async def test_given_a_kubelet_then_devices_are_registered_listed_and_allocated(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(WITHIN), a_kubelet(tmp_path) as registered, running(tmp_path, NULL):
        found = await registered.get()
        assert found == Register("livevirt-null.sock", NULL.resource)
        socket = tmp_path / found.endpoint
        assert await call(socket, "GetDevicePluginOptions", b"") == b""
        devices = await first_list(socket)
        assert len(devices) == COUNT
        assert all(devices.values())
        request = messages.allocate_request([["null1"], ["null2", "null3"]])
        allocated = messages.read_allocate_response(await call(socket, "Allocate", request))
        assert allocated == [[DeviceSpec("/dev/null", "/dev/null", "rw")]] * 2


async def test_given_a_kubelet_is_started_again_then_devices_are_registered_again(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(3 * WITHIN), running(tmp_path, NULL):
        for _ in range(2):
            async with a_kubelet(tmp_path) as registered:
                assert await registered.get() == Register("livevirt-null.sock", NULL.resource)
                assert await first_list(tmp_path / "livevirt-null.sock")


async def test_given_it_ends_then_its_socket_is_gone(tmp_path: Path) -> None:
    async with asyncio.timeout(WITHIN), a_kubelet(tmp_path) as registered:
        async with running(tmp_path, NULL):
            await registered.get()
        assert not (tmp_path / "livevirt-null.sock").exists()


def test_only_devices_that_exist_and_work_are_offered(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kvm, tun = Device(KVM, "/dev/null"), Device(TUN, "/dev/zero")
    missing = [Device(TUN, str(tmp_path / name)) for name in ("missing", "file")]
    assert usable([kvm, tun, *missing], kvm=True) == (kvm, tun)
    assert usable([kvm, tun, *missing], kvm=False) == (tun,)


def test_messages_are_read_as_they_were_written() -> None:
    long = "x" * 300
    assert messages.read_register_request(
        messages.register_request(Register("a.sock", long))
    ) == Register("a.sock", long)
    assert messages.read_allocate_request(messages.allocate_request([[], ["a", long]])) == [
        [], ["a", long],
    ]  # fmt: skip
    listed = {"a": True, "b": False}
    assert messages.read_device_list(messages.device_list(listed.items())) == listed


# From the definition of the API: field numbers 1, 2 and 3 are texts.
WIRE: tuple[tuple[bytes, Callable[[], bytes]], ...] = (
    (
        b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x03x/y",
        lambda: messages.register_request(Register("a.sock", "x/y")),
    ),
    (b"\x0a\x0c\x0a\x01a\x12\x07Healthy", lambda: messages.device_list([("a", True)])),
    (
        b"\x0a\x10\x1a\x0e\x0a\x03/c/\x12\x03/h/\x1a\x02rw",
        lambda: messages.allocate_response([[DeviceSpec("/c/", "/h/")]]),
    ),
)


@pytest.mark.parametrize(("wire", "written"), WIRE)
def test_messages_have_the_fields_of_the_api(wire: bytes, written: Callable[[], bytes]) -> None:
    assert written() == wire


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0a", b"\x80", b"\x0d1234"])
def test_given_no_message_then_it_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"message|wire type"):
        list(messages.records(data))
