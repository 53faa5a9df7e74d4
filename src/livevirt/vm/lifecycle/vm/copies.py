"""Copies of a VM's volumes: the VM knows of each before its instance does.

Whenever a guest dies, its VM tells the next one which claim has all that was written.
"""

from __future__ import annotations

from livevirt.errors import NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.volumes import volume_migration
from livevirt.vm.volumes.claim_info import claim_info
from livevirt.vm.volumes.volume_lists import claim_of


async def moved(
    client: Client, vmi: Object, judgement: Judgement, patch: Object
) -> list[Object] | None:
    """Return the copies an instance makes once it is patched, None if they stay the same."""
    volumes = patch["spec"].get("volumes")
    if volumes is None:
        return None
    copied, infos = volume_migration.follows(judgement), {}
    for volume in volumes:
        if volume["name"] in copied:
            name = claim_of(volume)
            infos[name] = await _info(client, name, vmi["metadata"]["namespace"])
    found = volume_migration.moved(judgement, vmi, volumes, infos)
    told = (vmi.get("status") or {}).get("migratedVolumes") or []
    return found if found != told else None


def news(vm: Object, vmi: Object, patch: Object, moved: list[Object]) -> Object | None:
    """Return what a VM must say before its instance is patched and makes these copies.

    None if it says so already.
    """
    spec = vmi["spec"]
    volumes = (patch.get("spec") or {}).get("volumes", spec.get("volumes"))
    soon = {**vmi, "spec": {**spec, "volumes": volumes}, "status": {"migratedVolumes": moved}}
    known = volume_migration.remembered(vm, soon, None)
    if known == volume_migration.written(vm):
        return None
    return {"volumeUpdateState": volume_migration.state(known)}


async def _info(client: Client, name: str, namespace: str) -> Object:
    try:
        return claim_info(await client.get(core.CLAIM, name, namespace))
    except NotFound:
        return {}
