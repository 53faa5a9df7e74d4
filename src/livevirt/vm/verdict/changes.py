"""Where two trees of meaning differ, field by field, named as the manifest names them."""

from __future__ import annotations

from typing import Any, NamedTuple

from livevirt.vm.spec.effective import ByName

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


class Name(str):
    """The part of a path that picks an item of a list by its name."""

    __slots__ = ()


class Difference(NamedTuple):
    """One field that differs; None is left out."""

    path: Path
    running: Any
    wanted: Any


def differences(running: Any, wanted: Any, path: Path = ()) -> list[Difference]:
    """List every field in which two trees differ, in the order of the first, then the second."""
    found: list[Difference] = []
    if running != wanted:
        _compare(running, wanted, path, found)
    return found


def _compare(running: Any, wanted: Any, path: Path, found: list[Difference]) -> None:
    """Add every field in which two values that differ do so."""
    if path in WHOLE or not _descends(running, wanted, path):
        found.append(Difference(path, running, wanted))
        return
    named = isinstance(running, ByName) or isinstance(wanted, ByName)
    before, after = running or {}, wanted or {}
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if old != new:
            _compare(old, new, (*path, Name(key) if named else key), found)


def _descends(running: Any, wanted: Any, path: Path) -> bool:
    """Tell whether what differs is in the fields of two values, rather than the values."""
    if running is not None and wanted is not None:
        if not isinstance(running, dict) or not isinstance(wanted, dict):
            return False
        return isinstance(running, ByName) == isinstance(wanted, ByName)
    there = running if wanted is None else wanted
    return isinstance(there, ByName) or (isinstance(there, dict) and path in _GROUPS)


def find(tree: Any, path: Path) -> Any:
    """Return what a tree has at a path, None if nothing."""
    for part in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(part)
    return tree


def spell(path: Path) -> str:
    """Return a path as people write it: `domain.devices.disks[root].serial`."""
    return "".join(map(_step, path)).removeprefix(".")


def _step(part: str) -> str:
    plain = part.isascii() and part.isalnum() and not part[0].isdigit()
    return f".{part}" if plain and not isinstance(part, Name) else f"[{part}]"


def in_vm(path: Path) -> str:
    """Return a path as it is in a VirtualMachine."""
    return f"{TEMPLATE}.{spell(path)}"
