"""Migrations on request: those livevirt creates itself, and the subresource `migrate`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Answer, Object
from livevirt.vm import kinds
from livevirt.vm.subresources import call as subresources_call
from livevirt.vm.subresources.call import Call, phase

SYSTEM_CRITICAL, USER_TRIGGERED = "system-critical", "user-triggered"  # priorities
_SUFFIX_LENGTH = 10


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A migration that has not ended."""

    name: str
    uid: str
    vmi: Key
    deleting: bool = False
    annotations: Mapping[str, str] | None = None

    def has(self, annotation: str) -> bool:
        """Return whether it has that annotation."""
        return annotation in (self.annotations or {})


def manifest(vmi: Key, name: str, annotation: tuple[str, str], priority: str) -> Object:
    """Return a migration of an instance to create."""
    return {
        "apiVersion": kinds.MIGRATION.api_version,
        "kind": kinds.MIGRATION.kind,
        "metadata": {"name": name, "annotations": dict([annotation])},
        "spec": {"vmiName": vmi.name, "priority": priority},
    }


def next_name(prefix: str, vmi: Object, migrations: Iterable[Object]) -> str:
    """Return the name of an instance's next migration, given the migrations of its namespace.

    The name is derived from the instance and the migrations it has had. Two controllers that
    decide on the same migration choose the same name, so only one of them can create it.
    """
    key, uid = key_of(vmi), vmi["metadata"]["uid"]
    had = sorted(each["metadata"]["uid"] for each in migrations if vmi_of(each) == key)
    return prefix + hashlib.sha256("/".join([uid, *had]).encode()).hexdigest()[:_SUFFIX_LENGTH]


def is_final(migration: Object) -> bool:
    """Return whether a migration has ended."""
    return (migration.get("status") or {}).get("phase") in FINAL


def read_unfinished(migration: Object) -> Unfinished:
    """Read a migration that has not ended."""
    meta = migration["metadata"]
    return Unfinished(
        meta["name"],
        meta["uid"],
        vmi_of(migration),
        "deletionTimestamp" in meta,
        meta.get("annotations") or {},
    )


def is_active(migration: Object, targets: Sequence[Object]) -> bool:
    """Return whether a migration counts towards the limits on parallel migrations.

    One that waits, for a quota or in a back-off, does not block others.
    """
    phase = (migration.get("status") or {}).get("phase") or ""
    return phase != "Pending" or bool(targets)


def vmi_of(migration: Object) -> Key:
    """Return the key of the instance of a migration."""
    namespace = migration["metadata"]["namespace"]
    return Key(namespace, (migration.get("spec") or {}).get("vmiName", ""))


GENERATE_NAME = "kubevirt-migrate-vm-"


async def migrate(call: Call) -> Answer:
    """Create the migration of a VM's guest; whether it may be made is admission's to say."""
    asked = subresources_call.read(call, "MigrateOptions")
    await call.vm()
    if phase(await call.instance_or_none()) != "Running":
        raise call.refuse(kinds.VM, "VM is not running")
    migration = _migration(call.name, asked.given.get("addedNodeSelector") or {})
    await call.client.create(kinds.MIGRATION, migration, call.namespace, dry_run=asked.dry_run)
    return Answer(202, b"", asked.warnings)


def _migration(vmi: str, selector: Object) -> Object:
    return {
        "apiVersion": kinds.MIGRATION.api_version,
        "kind": kinds.MIGRATION.kind,
        "metadata": {"generateName": GENERATE_NAME},
        "spec": {"vmiName": vmi, **({"addedNodeSelector": selector} if selector else {})},
    }
