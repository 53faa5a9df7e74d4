"""What pods and nodes use, in terms of the resource metrics API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol


class Use(NamedTuple):
    """Billionths of a CPU on average over some time, and bytes of memory at its end."""

    cpu_nano: int
    memory: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What was measured at one moment; CPU is an average over the window before it."""

    at: datetime
    window: float  # seconds
    pods: Mapping[tuple[str, str], Mapping[str, Use]] = field(default_factory=dict)  # containers
    nodes: Mapping[str, Use] = field(default_factory=dict)


class UsageSource(Protocol):
    """Measures the pods of some nodes."""

    async def __call__(self) -> Usage:
        """Return what they use; it may take as long as the shortest window."""
