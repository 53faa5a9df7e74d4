"""PUT …/virtualmachines/NAME/restart: end the guest and start a new one from the VM as it is."""

from __future__ import annotations

from livevirt.errors import BadRequest
from livevirt.kube.objects.request import Answer
from livevirt.vm import kinds
from livevirt.vm.lifecycle import requests
from livevirt.vm.spec.run_strategy import run_strategy
from livevirt.vm.subresources import options
from livevirt.vm.subresources.call import Call, decided, running, shorten_grace
from livevirt.vm.subresources.options import Options
from livevirt.vm.volumes import volume_migration

_AT_ONCE = 1  # second: a pod without any would be gone before its guest


async def restart(call: Call) -> Answer:
    """Ask the controller to stop this guest and to start another."""
    asked = options.read(call, "RestartOptions")
    grace = options.grace(asked, "gracePeriodSeconds")
    if grace:
        raise BadRequest("For force restart, only gracePeriod=0 is supported for now")
    return await decided(call, lambda: _restart(call, asked, force=grace == 0))


async def _restart(call: Call, asked: Options, *, force: bool) -> Answer:
    vm, vmi = await call.vm(), await call.instance_or_none()
    strategy = run_strategy(vm["spec"])
    if strategy in ("Halted", "Once"):
        # KubeVirt's own spelling, which clients look for.
        why = f"RunStategy {strategy} does not support manual restart requests"
        raise call.refuse(kinds.VM, why)
    if vmi is None or not running(vmi):
        raise call.refuse(kinds.VM, "VM is not running")
    if volume_migration.copying(vmi):
        raise call.refuse(kinds.VM, "VM volumes are being updated")
    wanted = (requests.stop(vmi), requests.start())
    await requests.ask(call, vm, *wanted, dry_run=asked.dry_run)
    if force and not asked.dry_run:
        await shorten_grace(call, vmi, _AT_ONCE)
    return Answer(202, b"", asked.warnings)
