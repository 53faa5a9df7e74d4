"""Writes to a VirtualMachine itself: status, finalizer and spec, each against what was read."""

from __future__ import annotations

import contextlib
from typing import Any

from livevirt.errors import Conflict, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vm_admission import FINALIZER


class VirtualMachineWriter:
    """Patches VMs; raises Conflict if one has changed since it was read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def patch(self, vm: Object, patch: Object, subresource: str = "") -> Object:
        """Change the VM as it was read; raises Conflict if it is another one by now."""
        meta = vm["metadata"]
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch["metadata"] = {**patch.get("metadata", {}), **version}
        return await self._client.patch(
            kinds.VM, meta["name"], meta["namespace"], patch, subresource=subresource
        )

    async def write_status(self, vm: Object, changed: dict[str, Any]) -> None:
        """Write the fields of the status that changed, if any did."""
        if not changed:
            return
        with contextlib.suppress(NotFound):
            await self.patch(vm, {"status": changed}, subresource="status")

    async def set_finalizer(self, vm: Object, *, present: bool) -> Object:
        """Add our finalizer or remove it; return the VM as it is then."""
        others = [f for f in vm["metadata"].get("finalizers") or () if f != FINALIZER]
        wanted = [*others, FINALIZER] if present else others
        try:
            return await self.patch(vm, {"metadata": {"finalizers": wanted}})
        except NotFound:
            return vm

    async def switch_to_always(self, vm: Object) -> None:
        """Let a halted VM run, in the field its owner chose."""
        running = {"running": True} if vm["spec"].get("running") is not None else {}
        await self.patch(vm, {"spec": running or {"runStrategy": "Always"}})

    async def check_current(self, vm: Object) -> None:
        """Raise Conflict unless the VM is stored as it was read."""
        meta = vm["metadata"]
        try:
            current = await self._client.get(kinds.VM, meta["name"], meta["namespace"])
        except NotFound:
            raise Conflict(f"VM {meta['name']} is gone") from None
        if current["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict(f"VM {meta['name']} has changed since it was read")


def facts(vm: Object) -> dict[str, object]:
    """Return the fields that identify a VM in logs."""
    return {"vm": f"{vm['metadata']['namespace']}/{vm['metadata']['name']}"}
