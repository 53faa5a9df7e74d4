"""Edits of a VM whose guest runs: made, dry-run and planned, and what is to be seen of them."""

from __future__ import annotations

from typing import Any

from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import ActionPath, Object
from livevirt.vm import kinds

from .vm_world import NAMESPACE, World


def template(**fields: Any) -> Object:
    """Return the merge patch of a VM that changes fields of its template."""
    return {"spec": {"template": {"spec": fields}}}


async def edit(world: World, patch: Object, *, dry_run: bool = False) -> tuple[str, ...]:
    """Patch the VM as a person does; return the warnings."""
    return await world.edit(patch, dry_run=dry_run)


async def plan(world: World, body: Any = None, name: str = "web") -> Object:
    """Ask for the plan of an edit."""
    answer = await world.act(ActionPath("virtualmachines", NAMESPACE, name, "plan"), "POST", body)
    assert isinstance(answer.body, dict)
    return answer.body


async def configure(world: World, **settings: Any) -> None:
    """Change the cluster's configuration."""
    patch = {"spec": {"configuration": settings}}
    await world.owner.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", patch)


async def settled(world: World) -> None:
    """Return once the controller has looked at the VM as it is."""
    generation = world.vm()["metadata"]["generation"]
    await world.until(lambda: world.vm()["status"].get("desiredGeneration") == generation)


def required(world: World) -> Object:
    """Return the condition RestartRequired, empty if there is none."""
    return conditions.find(world.vm()["status"].get("conditions"), "RestartRequired") or {}


def waiting(world: World) -> dict[str, str]:
    """Return the reason of each pending change by the short path of its field."""
    pending = world.vm()["status"].get("pendingChanges") or []
    return {each["path"].removeprefix("spec.template.spec."): each["reason"] for each in pending}
