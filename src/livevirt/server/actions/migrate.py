"""PUT …/virtualmachines/NAME/migrate: ask for the guest to be moved to another node."""

from __future__ import annotations

from typing import NamedTuple

from livevirt.api import field_error, registry, structural
from livevirt.api.request import Answer, Object
from livevirt.api.schema import definitions
from livevirt.errors import BadRequest
from livevirt.server.actions.call import Call, phase

GENERATE_NAME = "kubevirt-migrate-vm-"


class Asked(NamedTuple):
    """What a request asks for; `unknown` are the fields of it that nobody knows."""

    selector: Object
    dry_run: bool
    unknown: tuple[str, ...]


async def migrate(call: Call) -> Answer:
    """Create the migration of a VM's guest; whether it may be made is admission's to say."""
    asked = _read(call)
    await call.vm()
    if phase(await call.instance_or_none()) != "Running":
        raise call.refuse(registry.VM, "VM is not running")
    migration = _migration(call.name, asked.selector)
    await call.client.create(registry.MIGRATION, migration, call.namespace, dry_run=asked.dry_run)
    return Answer(202, b"", tuple(f'unknown field "{path}"' for path in asked.unknown))


def _read(call: Call) -> Asked:
    unknown: list[str] = []
    schema = definitions()["kubevirt.MigrateOptions"]
    options = structural.prune(schema, call.options, unknown)
    if errors := structural.validate(schema, options):
        raise BadRequest(", ".join(map(str, errors)))
    wanted = options.get("dryRun") or []
    if strange := [each for each in wanted if each != "All"]:
        raise BadRequest(str(field_error.not_supported("dryRun", strange[0], ["All"])))
    return Asked(options.get("addedNodeSelector") or {}, bool(wanted), tuple(unknown))


def _migration(vmi: str, selector: Object) -> Object:
    return {
        "apiVersion": registry.MIGRATION.api_version,
        "kind": registry.MIGRATION.kind,
        "metadata": {"generateName": GENERATE_NAME},
        "spec": {"vmiName": vmi, **({"addedNodeSelector": selector} if selector else {})},
    }
