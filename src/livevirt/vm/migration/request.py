"""Migrations that livevirt asks for by itself, and what is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from livevirt.kube.control.key import Key
from livevirt.kube.objects.phases import FINAL
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

SYSTEM_CRITICAL, USER_TRIGGERED = "system-critical", "user-triggered"  # priorities


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A migration that has not ended."""

    name: str
    uid: str
    vmi: Key
    deleting: bool = False
    annotations: Mapping[str, str] | None = None

    def has(self, annotation: str) -> bool:
        """Whether it bears that mark."""
        return annotation in (self.annotations or {})


def request(vmi: Key, prefix: str, mark: tuple[str, str], priority: str) -> Object:
    """Return the order to move a guest; the name begins with `prefix`, `mark` is an annotation."""
    return {
        "apiVersion": kinds.MIGRATION.api_version,
        "kind": kinds.MIGRATION.kind,
        "metadata": {"generateName": prefix, "annotations": dict([mark])},
        "spec": {"vmiName": vmi.name, "priority": priority},
    }


def final(migration: Object) -> bool:
    """Tell whether a migration has ended."""
    return (migration.get("status") or {}).get("phase") in FINAL


def unfinished(migration: Object) -> Unfinished:
    """Return the view of a migration that has not ended."""
    meta = migration["metadata"]
    return Unfinished(
        meta["name"],
        meta["uid"],
        vmi_of(migration),
        "deletionTimestamp" in meta,
        meta.get("annotations") or {},
    )


def counts(migration: Object, targets: Sequence[Object]) -> bool:
    """Tell whether a migration takes one of the places there are, or is about to.

    One that only waits, for a quota or after failures, keeps nobody else from going.
    """
    phase = (migration.get("status") or {}).get("phase") or ""
    return phase != "Pending" or bool(targets)


def vmi_of(migration: Object) -> Key:
    """Return the key of the instance that a migration is about."""
    namespace = migration["metadata"]["namespace"]
    return Key(namespace, (migration.get("spec") or {}).get("vmiName", ""))
