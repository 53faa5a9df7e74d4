"""What makes a guest the same machine at every start: made from its owner's uid, kept nowhere."""

from __future__ import annotations

import functools
import hashlib
import uuid

_FIRMWARE = uuid.UUID("5d3d3c0e-0d2b-5f7e-9c55-6b1f3a2f7a10")  # the namespace of our UUIDs


@functools.lru_cache(maxsize=4096)  # asked for again at every look at a running guest
def firmware_uuid(uid: str) -> str:
    """Return the SMBIOS UUID of the guest of a VM, or of an instance without one."""
    return str(uuid.uuid5(_FIRMWARE, uid))


@functools.lru_cache(maxsize=4096)
def mac_address(uid: str, interface: str) -> str:
    """Return a locally administered unicast address for an interface."""
    digest = hashlib.sha256(f"{uid}/{interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))
