"""Values as they may be shown: what could be a secret is hidden."""

from __future__ import annotations

from typing import Any

import msgspec

CHANGED = "<changed>"
LONGEST = 120
_BEGINNINGS = ("userdata", "networkdata")
_WORDS = ("password", "key", "token")


def secret(path: str) -> bool:
    """Return whether a field, given its path or its own name, may hold a secret."""
    lower = path.lower()
    return any(word in lower for word in (*_WORDS, *_BEGINNINGS))


def redacted(path: str, value: Any) -> Any:
    """Return a value with all that may be secret in it made unreadable; None stays None."""
    if value is None:
        return None
    if secret(path):
        return CHANGED
    if isinstance(value, dict):
        return {name: redacted(name, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [redacted("", item) for item in value]
    return value


def compact(path: str, value: Any) -> str:
    """Return a value as short JSON, at most 120 characters of it."""
    shown = redacted(path, value)
    text = CHANGED if shown == CHANGED else msgspec.json.encode(shown).decode()
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
