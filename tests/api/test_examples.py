"""What becomes of each of KubeVirt's example manifests, and that the page on them says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from livevirt.errors import Invalid
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object, Request
from livevirt.vm import kinds
from livevirt.vm.kinds import support

from ..server_process import ServerProcess
from .examples import EXAMPLES, PAGE, Example, page
from .vm.conftest import node, quiet, world
from .vm.vm_world import ADMIN, NAMESPACE, PlayedNode, World

__all__ = ["node", "quiet", "world"]  # fixtures

FACTS = Path(__file__).resolve().parents[3] / "shared" / "facts" / "kubevirt-examples.md"


def having(outcome: str, *, served: bool = True) -> list[str]:
    """Return the names of the examples with an outcome, of kinds that are served or are not."""
    return [
        name
        for name, each in EXAMPLES.items()
        if each.outcome == outcome and is_served(each.manifest) == served
    ]


def is_served(manifest: Object) -> bool:
    return kinds.REGISTRY.of_object(manifest) is not None


async def create(world: World, manifest: Object) -> tuple[str, ...]:
    """Create an object as a person does; return the warnings."""
    kind = kinds.REGISTRY.of_object(manifest)
    assert kind is not None
    version = manifest["apiVersion"].rpartition("/")[2]
    space = NAMESPACE if kind.namespaced else ""
    options = {"fieldValidation": "Strict"}
    request = Request("create", kind, version, ADMIN, space, options=options, body=manifest)
    return (await world.api.call(request)).warnings


async def apply(world: World, example: Example) -> tuple[str, ...]:
    """Create an example after those that it needs; return the warnings about it."""
    for name in example.needs:
        await create(world, EXAMPLES[name].manifest)
    return await create(world, example.manifest)


def unsupported(manifest: Object) -> set[str]:
    """Return the fields of an instance that are set and not acted on."""
    spec = manifest["spec"]
    return set(support.unsupported(spec.get("template", {}).get("spec") or spec))


@pytest.mark.parametrize("name", having("boots"))
async def test_a_guest_that_boots(world: World, node: PlayedNode, name: str) -> None:
    example = EXAMPLES[name]
    warnings = await apply(world, example)
    assert unsupported(example.manifest) == set(example.ignored)
    assert bool(warnings) == bool(example.ignored or "windows" in example.needs), warnings
    await world.until(lambda: (world.vmi(name).get("status") or {}).get("phase") == "Running")
    devices = world.vmi(name)["spec"]["domain"]["devices"]
    shown = {disk["name"] for disk in devices["disks"]}
    assert shown == {volume["name"] for volume in world.vmi(name)["spec"]["volumes"]}


STARTED_LATER = [name for name in having("boots") if name.startswith("vm-cirros-c")]


@pytest.mark.parametrize("name", STARTED_LATER)
async def test_a_vm_starts_once_its_instance_type_is_there(
    world: World, node: PlayedNode, name: str
) -> None:
    example = EXAMPLES[name]
    assert await create(world, example.manifest), "nobody is warned"
    for each in example.needs:
        assert not world.vmi(name)
        await create(world, EXAMPLES[each].manifest)
    await world.until(lambda: (world.vmi(name).get("status") or {}).get("phase") == "Running")


def waits_for(world: World, name: str) -> str:
    """Return the reason that a status gives for a guest that does not run."""
    status = (world.vmi(name).get("status") or {}, world.vm(name).get("status") or {})
    for each in status:
        for type_ in ("Synchronized", "PodScheduled", "Failure"):
            found = conditions.find(each.get("conditions"), type_) or {}
            if found.get("reason") and (found["status"] == "False") == (type_ != "Failure"):
                return str(found["reason"])
    return "Provisioning" if status[1].get("printableStatus") == "Provisioning" else ""


WAITING = {
    "vm-alpine-datavolume": "Provisioning",
    "vm-alpine-multipvc": "FailedPvcNotFound",
    "vm-windows-clarge-windows": "FailedPvcNotFound",
    "vmi-fedora-isolated": "Unschedulable",
    "vmi-pvc": "FailedPvcNotFound",
    "vmi-windows": "FailedPvcNotFound",
}


@pytest.mark.parametrize("name", having("accepted"))
async def test_an_example_that_is_accepted_says_what_it_waits_for(
    world: World, node: PlayedNode, name: str
) -> None:
    example = EXAMPLES[name]
    warnings = await apply(world, example)
    is_guest = example.manifest["kind"] in ("VirtualMachine", "VirtualMachineInstance")
    assert is_guest == (name in WAITING)
    if is_guest:
        assert unsupported(example.manifest) == set(example.ignored)
        await world.until(lambda: waits_for(world, name) == WAITING[name])
    if name == "vm-alpine-datavolume":
        assert warnings, "nobody is warned of the missing storage class"


@pytest.mark.parametrize("name", having("refused"))
async def test_a_refusal_names_the_field(quiet: World, name: str) -> None:
    example = EXAMPLES[name]
    with pytest.raises(Invalid) as refusal:
        await apply(quiet, example)
    fields = [cause["field"] for cause in refusal.value.details["causes"]]
    assert fields == list(example.fields)


def test_kubectl_says_which_kinds_are_not_served(server: ServerProcess, namespace: str) -> None:
    assert having("boots", served=False) == having("accepted", served=False) == []
    unserved = having("refused", served=False)
    assert unserved
    listed = {"apiVersion": "v1", "kind": "List"}
    items = [EXAMPLES[name].manifest for name in unserved]
    text = json.dumps({**listed, "items": items})
    done = server.run_kubectl("apply", "-n", namespace, "-f", "-", input=text)
    assert done.returncode != 0
    for item in items:
        assert item["kind"] in done.stderr


async def test_what_an_example_needs_is_refused_or_warned_of_without_it(quiet: World) -> None:
    with pytest.raises(Invalid):
        await create(quiet, EXAMPLES["vm-priorityclass"].manifest)


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == page(), "run .venv/bin/python -m tests.api.examples"


def test_every_example_of_kubevirt_has_its_row_and_sets_its_fields() -> None:
    if not FACTS.exists():
        pytest.skip("the list of KubeVirt's examples is not on this machine")
    rows = [line.split("|") for line in FACTS.read_text().splitlines() if line.startswith("|")]
    facts = {row[1].strip(): (row[2].strip(), row[3]) for row in rows[2:]}
    assert {name: each.manifest["kind"] for name, each in EXAMPLES.items()} == {
        name: kind for name, (kind, _) in facts.items()
    }
    for name, (_, fields) in facts.items():
        for field in fields.replace("[]", "").replace("…", "").split(";"):
            assert is_set(EXAMPLES[name].manifest, field.strip().split(".")), (name, field)


def is_set(value: Any, path: list[str]) -> bool:
    """Return whether a field is set, wherever its path begins; keys may hold dots."""
    if path == [""]:
        return True
    if isinstance(value, list):
        return any(is_set(each, path) for each in value)
    if not isinstance(value, dict):
        return False
    return any(
        key == ".".join(path)
        or (
            key.split(".") == path[: len(key.split("."))]
            and is_set(inner, path[len(key.split(".")) :])
        )
        or is_set(inner, path)
        for key, inner in value.items()
    )
