"""A VM's PriorityClass: its pod carries it, and one that is missing is named."""

from __future__ import annotations

import pytest

from livevirt.errors import Invalid
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

from ..manifests import a_priority_class, a_vm
from .edits import plan, template
from .vm_world import NAMESPACE, PlayedNode, World

pytestmark = pytest.mark.both

FIELD = "spec.template.spec.priorityClassName"


def an_urgent_vm() -> Object:
    vm = a_vm()
    vm["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    return vm


async def test_the_pod_of_a_vm_has_its_priority(world: World, node: PlayedNode) -> None:
    await world.owner.create(core.PRIORITY_CLASS, a_priority_class("urgent", 1000))
    await world.owner.create(kinds.VM, an_urgent_vm(), NAMESPACE)
    await world.until(world.ready)
    [pod] = world.pods()
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("urgent", 1000)


async def test_a_class_that_does_not_exist_is_refused_with_its_field(quiet: World) -> None:
    with pytest.raises(Invalid) as refusal:
        await quiet.owner.create(kinds.VM, an_urgent_vm(), NAMESPACE)
    assert [cause["field"] for cause in refusal.value.details["causes"]] == [FIELD]
    await quiet.owner.create(kinds.VM, a_vm(), NAMESPACE)
    assert (await plan(quiet, template(priorityClassName="urgent")))["verdict"] == "Refused"


async def test_given_a_class_that_is_gone_when_it_comes_back_then_the_vm_starts(
    world: World, node: PlayedNode
) -> None:
    await world.owner.create(core.PRIORITY_CLASS, a_priority_class("urgent", 1000))
    halted = an_urgent_vm()
    halted["spec"]["runStrategy"] = "Halted"
    await world.owner.create(kinds.VM, halted, NAMESPACE)
    await world.owner.delete(core.PRIORITY_CLASS, "urgent")
    await world.patch_vm({"spec": {"runStrategy": "Always"}})

    def failure() -> Object:
        status = world.vm().get("status") or {}
        return conditions.find(status.get("conditions"), "Failure") or {}

    await world.until(lambda: failure().get("reason") == "FailedCreate")
    await world.owner.create(core.PRIORITY_CLASS, a_priority_class("urgent", 1000))
    await world.until(world.ready)
    assert not failure()
