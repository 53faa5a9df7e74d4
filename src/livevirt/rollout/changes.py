"""Where two trees of meaning differ, field by field, named as the manifest names them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from livevirt.rollout.effective import ByName

Path = tuple[str, ...]

TEMPLATE = "spec.template.spec"  # where an instance's spec is in a VirtualMachine

#: Fields that are one value to those who set them, however deep they are.
WHOLE: frozenset[Path] = frozenset({("nodeSelector",), ("affinity",), ("tolerations",)})
#: Parts that group fields and are nothing by themselves: what is in them is named instead.
_GROUPS: frozenset[Path] = frozenset(
    {
        ("domain",),
        *(("domain", part) for part in ("cpu", "devices", "features", "firmware", "machine")),
        *(("domain", part) for part in ("memory", "resources")),
        ("domain", "resources", "requests"),
        ("domain", "resources", "limits"),
    }
)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]*")


class Name(str):
    """The part of a path that picks an item of a list by its name."""

    __slots__ = ()


class Difference(NamedTuple):
    """One field that differs; None is left out."""

    path: Path
    running: Any
    wanted: Any


def differences(running: Any, wanted: Any, path: Path = ()) -> Iterator[Difference]:
    """Yield every field in which two trees differ, in the order of the first, then the second."""
    if running == wanted:
        return
    if path not in WHOLE and _descends(running, wanted, path):
        named = isinstance(running, ByName) or isinstance(wanted, ByName)
        before, after = running or {}, wanted or {}
        for key in [*before, *(each for each in after if each not in before)]:
            step = Name(key) if named else key
            yield from differences(before.get(key), after.get(key), (*path, step))
    else:
        yield Difference(path, running, wanted)


def _descends(running: Any, wanted: Any, path: Path) -> bool:
    group = path in _GROUPS
    sides = [side for side in (running, wanted) if side is not None]
    if all(isinstance(side, ByName) for side in sides):
        return True
    if any(isinstance(side, ByName) or not isinstance(side, dict) for side in sides):
        return False
    return group or len(sides) == 2


def find(tree: Any, path: Path) -> Any:
    """Return what a tree has at a path, None if nothing."""
    for part in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(part)
    return tree


def spell(path: Path) -> str:
    """Return a path as people write it: `domain.devices.disks[root].serial`."""
    text = ""
    for part in path:
        bare = not isinstance(part, Name) and _PLAIN.fullmatch(part)
        text += (f".{part}" if text else part) if bare else f"[{part}]"
    return text


def in_vm(path: Path) -> str:
    """Return a path as it is in a VirtualMachine."""
    return f"{TEMPLATE}.{spell(path)}"
