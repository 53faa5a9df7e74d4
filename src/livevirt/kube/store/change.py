"""The two changes a caller can ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from livevirt.kube.store.key import Key

Encode = Callable[[int], bytes]
"""Given the revision a change gets, return the bytes to store.

Called once for each attempt, while the batch is put together: it must be quick and must not wait.
What it raises, the caller of `write` gets.
"""


class Put(NamedTuple):
    """Create the object (`expected` is None), or replace the one of revision `expected`."""

    key: Key
    expected: int | None
    encode: Encode


class Delete(NamedTuple):
    """Remove the object of revision `expected`; `encode` gives its last form for watchers."""

    key: Key
    expected: int
    encode: Encode


Change = Put | Delete
