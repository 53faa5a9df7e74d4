"""The messages of the kubelet's device plugin API (v1beta1), on the wire.

There are five small ones, so they are written and read here rather than by generated code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

VERSION = "v1beta1"
REGISTRATION = f"{VERSION}.Registration"
PLUGIN = f"{VERSION}.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
_BYTES = 2  # the wire type of texts and messages


@dataclass(frozen=True, slots=True)
class Register:
    """What a plugin registers with the kubelet."""

    endpoint: str  # the name of its socket
    resource: str


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device of the node, as a container gets it."""

    container_path: str
    host_path: str
    permissions: str = "rw"


def register_request(request: Register) -> bytes:
    """Return a `RegisterRequest`."""
    return _text(1, VERSION) + _text(2, request.endpoint) + _text(3, request.resource)


def read_register_request(data: bytes) -> Register:
    """Return what a `RegisterRequest` registers."""
    fields = dict(records(data))
    return Register(fields[2].decode(), fields[3].decode())


def device_list(devices: Iterable[tuple[str, bool]]) -> bytes:
    """Return a `ListAndWatchResponse` with devices, each with whether it can be used."""
    return b"".join(
        _bytes(1, _text(1, name) + _text(2, HEALTHY if usable else UNHEALTHY))
        for name, usable in devices
    )


def read_device_list(data: bytes) -> dict[str, bool]:
    """Return the devices of a `ListAndWatchResponse`."""
    listed = (dict(records(device)) for _, device in records(data))
    return {each[1].decode(): each[2].decode() == HEALTHY for each in listed}


def allocate_request(containers: Iterable[Iterable[str]]) -> bytes:
    """Return an `AllocateRequest` with the devices of each container."""
    return b"".join(
        _bytes(1, b"".join(_text(1, name) for name in devices)) for devices in containers
    )


def read_allocate_request(data: bytes) -> list[list[str]]:
    """Return the devices of each container of an `AllocateRequest`."""
    return [[name.decode() for _, name in records(one)] for _, one in records(data)]


def allocate_response(containers: Iterable[Iterable[DeviceSpec]]) -> bytes:
    """Return an `AllocateResponse` with the devices that each container gets."""
    return b"".join(
        _bytes(1, b"".join(_bytes(3, _device_spec(each)) for each in devices))
        for devices in containers
    )


def read_allocate_response(data: bytes) -> list[list[DeviceSpec]]:
    """Return what the containers of an `AllocateResponse` get."""
    return [
        [_read_device_spec(spec) for number, spec in records(one) if number == 3]
        for _, one in records(data)
    ]


def _device_spec(device: DeviceSpec) -> bytes:
    paths = _text(1, device.container_path) + _text(2, device.host_path)
    return paths + _text(3, device.permissions)


def _read_device_spec(data: bytes) -> DeviceSpec:
    fields = dict(records(data))
    return DeviceSpec(fields[1].decode(), fields[2].decode(), fields[3].decode())


# ---------------------------------------------------------------- the wire format


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each field that is a text or a message.

    Raises ValueError for what is no message.
    """
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        match tag & 7:
            case 0:
                _, position = _read_varint(data, position)
            case 2:
                length, position = _read_varint(data, position)
                if position + length > len(data):
                    raise ValueError("the message is cut short")
                yield tag >> 3, data[position : position + length]
                position += length
            case kind:
                raise ValueError(f"wire type {kind} is not part of the device plugin API")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise ValueError("the message is cut short")


def _varint(value: int) -> bytes:
    shifts = range(0, max(value.bit_length(), 1), 7)
    *more, last = (value >> shift & 0x7F for shift in shifts)
    return bytes([*(group | 0x80 for group in more), last])


def _bytes(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _text(number: int, content: str) -> bytes:
    return _bytes(number, content.encode())
