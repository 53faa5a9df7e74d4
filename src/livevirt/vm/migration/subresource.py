"""PUT …/virtualmachines/NAME/migrate: ask for the guest to be moved to another node."""

from __future__ import annotations

from livevirt.kube.objects.request import Answer, Object
from livevirt.vm import kinds
from livevirt.vm.subresources import call as subresources_call
from livevirt.vm.subresources.call import Call, phase

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
