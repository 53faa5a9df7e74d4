"""What no VM may be is refused at the door, and what is let in can start and can go."""

from __future__ import annotations

import pytest

from livevirt.errors import Invalid
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

from ..bad_requests import WRONG_TEMPLATES, with_wrong_template
from ..manifests import a_halted_vm, a_vm
from .vm_world import NAMESPACE, PlayedNode, World

pytestmark = pytest.mark.both

SOURCE = {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}}


async def test_a_template_nothing_can_be_made_of_is_refused_and_its_place_named(
    quiet: World,
) -> None:
    for path, value in WRONG_TEMPLATES:
        vm = with_wrong_template(a_halted_vm("web"), path, value)
        with pytest.raises(Invalid) as refusal:
            await quiet.owner.create(kinds.VM, vm, NAMESPACE)
        fields = [cause["field"] for cause in refusal.value.details["causes"]]
        assert any(f.startswith(f"spec.template.{path}") for f in fields), (path, value, fields)
        assert not quiet.vm(), (path, value)


WITHOUT_NAMES: dict[str, list[Object]] = {
    "no metadata": [{"spec": SOURCE}],
    "no name": [{"metadata": {"labels": {"a b": "c"}}, "spec": SOURCE}],
}


@pytest.mark.parametrize("templates", WITHOUT_NAMES.values(), ids=WITHOUT_NAMES)
async def test_a_vm_edited_on_its_way_out_still_goes(
    world: World, node: PlayedNode, templates: list[Object]
) -> None:
    await world.owner.create(kinds.VM, a_vm(), NAMESPACE)
    await world.until(world.ready)
    node.stuck = True  # so that the guest outlives the edit
    await world.owner.delete(kinds.VM, "web", NAMESPACE)
    await world.until(lambda: world.shown() == "Terminating")
    await world.patch_vm({"spec": {"dataVolumeTemplates": templates}})
    node.stuck = False
    await world.owner.patch(
        kinds.VM, "web", NAMESPACE, {"metadata": {"annotations": {"wake": "the node"}}}
    )
    await world.until(lambda: not world.vm() and not world.vmi() and not world.pods())
