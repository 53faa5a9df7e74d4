"""What can go wrong between us, QEMU and the guest agent.

LivevirtError
├── QmpError
│   ├── CommandFailed     QEMU or the guest agent understood and refused; `kind` is its error class
│   ├── UnplugRefused     the guest kept the device or the medium: ask again later
│   ├── NotNow            QEMU cannot do it at this moment: ask again
│   └── Disconnected      the outcome is unknown: observe before acting again
└── AgentUnavailable      the guest agent does not answer; nothing is known about its state
"""

import re

from livevirt.errors import (
    CommandFailed,
    Disconnected,
    LivevirtError,
    NotNow,
    QmpError,
    UnplugRefused,
)

_LOCKED = re.compile(r'Failed to get (shared )?"\w+" lock')  # block/file-posix.c


def is_image_locked(error: QmpError) -> bool:
    """Return whether QEMU refused because another process has the image open.

    QEMU gives no class for it, only its wording.
    """
    return _LOCKED.search(str(error)) is not None


class AgentUnavailable(LivevirtError):
    """No guest agent answered: not installed, not started yet, or gone."""


__all__ = [
    "AgentUnavailable",
    "CommandFailed",
    "Disconnected",
    "LivevirtError",
    "NotNow",
    "QmpError",
    "UnplugRefused",
    "is_image_locked",
]
