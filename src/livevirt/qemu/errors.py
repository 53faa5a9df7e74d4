"""What can go wrong between us, QEMU and the guest agent.

LivevirtError
├── QmpError
│   ├── CommandFailed     QEMU or the guest agent understood and refused; `kind` is its error class
│   ├── UnplugRefused     the guest kept the device or the medium: ask again later
│   ├── NotNow            QEMU cannot do it at this moment: ask again
│   └── Disconnected      the outcome is unknown: observe before acting again
└── AgentUnavailable      nobody in the guest answers; nothing is known about its state
"""

from livevirt.errors import (
    CommandFailed,
    Disconnected,
    LivevirtError,
    NotNow,
    QmpError,
    UnplugRefused,
)


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
]
