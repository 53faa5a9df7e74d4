"""What a door of an object may not write stays as it is stored."""

from __future__ import annotations

import copy

from livevirt.kube.objects.request import Object


def keep(target: Object, stored: Object, key: str) -> None:
    """Make `key` of an object what it was, which may be nothing."""
    if key in stored:
        target[key] = copy.deepcopy(stored[key])
    else:
        target.pop(key, None)
