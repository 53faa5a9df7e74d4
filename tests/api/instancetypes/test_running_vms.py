"""VMs that run by a preference, a volume's advice or a policy; the controllers are real."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from livevirt.errors import Invalid
from livevirt.kube.objects.core import CLAIM, REVISION
from livevirt.kube.objects.request import Object
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, DATA_VOLUME, KUBEVIRT, VM

from ..manifests import a_type, an_object
from ..vm.edits import edit, required, settled, waiting
from ..vm.served import Served, serving
from ..vm.vm_world import NAMESPACE, PlayedNode, World

pytestmark = pytest.mark.both

BARE: Object = {
    "domain": {"devices": {}},
    "volumes": [{"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}],
}
MATCHERS = {"instancetype": {"name": "pair"}, "preference": {"name": "flat"}}
CORES = "domain.cpu.cores"
ADVICE = "instancetype.kubevirt.io/default-"


def prefers(name: str, topology: str) -> Object:
    spec = {"cpu": {"preferredCPUTopology": topology}}
    return an_object(CLUSTER_PREFERENCE, name, spec=spec)


@pytest.fixture
async def filled(world: World, node: PlayedNode) -> World:
    """A world with types of one and two vCPUs, and preferences that show them in two ways."""
    for obj in (a_type("one"), a_type("pair", 2)):
        await world.owner.create(CLUSTER_INSTANCETYPE, obj)
    for obj in (prefers("flat", "sockets"), prefers("deep", "cores")):
        await world.owner.create(CLUSTER_PREFERENCE, obj)
    return world


@pytest.fixture
async def served(filled: World, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(filled, tmp_path) as server:
        yield server


async def run(world: World, template: Object = BARE, **spec: Any) -> None:
    """Create the VM and return once its guest runs."""
    await world.create_vm(template={"spec": template}, **spec)
    await world.until(world.ready)


def taken(world: World, role: str) -> Object:
    found: Object = (world.vm().get("status") or {}).get(f"{role}Ref") or {}
    return found


def revision(world: World, role: str) -> str:
    return str((taken(world, role).get("controllerRevisionRef") or {}).get("name", ""))


def cpu(world: World) -> tuple[int, int]:
    found = world.vmi()["spec"]["domain"]["cpu"]
    return found["sockets"], found["cores"]


async def test_what_a_vm_was_given_goes_with_it(filled: World) -> None:
    await run(filled, **MATCHERS)
    await edit(filled, {"spec": {"preference": {"name": "deep"}}})
    await filled.until(lambda: required(filled))
    assert len(filled.read.list(REVISION, NAMESPACE)) == 4, "of the start, the type, both others"
    await filled.owner.delete(VM, "web", NAMESPACE)
    await filled.until(lambda: filled.read.list(REVISION, NAMESPACE) == [])


@pytest.mark.slow
async def test_a_preference_is_switched_refreshed_and_rolled_back(
    filled: World, served: Served
) -> None:
    update = ("vm", "update-preference", "web")
    await run(filled, **MATCHERS)
    assert cpu(filled) == (2, 1)
    first = revision(filled, "preference")

    there = await served.virtctl(*update, "deep", "--wait", "--timeout", "50")
    assert there.status == 2, there.err
    assert "VM web needs a restart for preference deep" in there.out
    assert waiting(filled)[CORES] == "NotLiveUpdatable"

    back = await served.virtctl(*update, "flat", "--wait", "--timeout", "50")
    assert back.status == 0, back.err
    assert "VM web runs with preference flat" in back.out
    assert revision(filled, "preference") == first, "the one of before was kept"
    await filled.until(lambda: not required(filled))

    deeper = {"spec": {"cpu": {"preferredCPUTopology": "cores"}}}
    await filled.owner.patch(CLUSTER_PREFERENCE, "flat", "", deeper)
    generation = filled.vm()["metadata"]["generation"]
    newest = await served.virtctl(*update, "flat", "--wait", "--timeout", "50")
    assert newest.status == 2, newest.err
    assert revision(filled, "preference") not in ("", first)
    assert filled.vm()["metadata"]["generation"] == generation

    await edit(filled, {"spec": {"preference": {"name": "flat", "revisionName": first}}})
    await filled.until(lambda: revision(filled, "preference") == first and not required(filled))
    assert cpu(filled) == (2, 1)


@pytest.mark.slow
async def test_of_a_running_vm_it_is_told_what_comes_live_and_what_does_not(
    filled: World, served: Served
) -> None:
    threads = a_type("threads")
    threads["spec"]["ioThreadsPolicy"] = "shared"
    await filled.owner.create(CLUSTER_INSTANCETYPE, threads)
    await filled.owner.create(CLUSTER_INSTANCETYPE, a_type("huge", 1, "500Gi"))
    await run(filled, instancetype={"name": "one"})
    before = filled.vm()["spec"], filled.vmi()["spec"]
    fits = json.loads(await served.succeed("virtctl", "what-fits", "web", "-o", "json"))
    told = {each["name"]: each for each in fits}
    assert [each["name"] for each in fits if each["current"]] == ["one"]
    assert (told["one"]["reach"], told["pair"]["reach"]) == ("live", "live")
    assert told["pair"]["why"] == "cpu.sockets 1 -> 2"
    assert told["threads"]["reach"] == "restart"
    assert told["threads"]["why"].startswith("ioThreadsPolicy: ")
    assert told["huge"]["reach"] == "restart", "beyond what it can grow to"
    assert (filled.vm()["spec"], filled.vmi()["spec"]) == before


# ---------------------------------------------------------------- a volume's advice


def disk(**source: Any) -> Object:
    return {"domain": {"devices": {}}, "volumes": [{"name": "root", **source}]}


async def create_claim(world: World, name: str, **labels: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    meta = {"name": name, "labels": {f"{ADVICE}{key}": value for key, value in labels.items()}}
    await world.owner.create(CLAIM, {"metadata": meta, "spec": spec}, NAMESPACE)


async def create_volume(world: World, name: str, spec: Object, **labels: str) -> None:
    volume = an_object(DATA_VOLUME, name, spec=spec)
    volume["metadata"]["labels"] = {f"{ADVICE}{key}": value for key, value in labels.items()}
    await world.owner.create(DATA_VOLUME, volume, NAMESPACE)


def copy_of(name: str) -> Object:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    return {"source": {"pvc": {"name": name, "namespace": NAMESPACE}}, "pvc": claim}


async def inferred(world: World, template: Object, policy: str = "", **spec: Any) -> None:
    """Create a stopped VM that asks its volume, and return once the controller has looked."""
    matcher = {"inferFromVolume": "root"}
    if policy:
        matcher["inferFromVolumeFailurePolicy"] = policy
    both = {"instancetype": matcher, "preference": matcher}
    await world.create_vm("Halted", template={"spec": template}, **both, **spec)
    await world.until(lambda: world.vm().get("status"))
    await settled(world)


async def test_a_data_volume_is_asked_before_its_source(filled: World) -> None:
    await create_claim(filled, "origin", instancetype="one", preference="flat")
    advice = {"instancetype": "pair", "preference": "deep"}
    await create_volume(filled, "copy", copy_of("origin"), **advice)
    await inferred(filled, disk(dataVolume={"name": "copy"}))
    assert taken(filled, "instancetype")["name"] == "pair"
    assert taken(filled, "instancetype")["inferFromVolume"] == "root"
    assert taken(filled, "preference")["name"] == "deep"
    assert filled.vm()["spec"]["instancetype"] == {"inferFromVolume": "root"}, "as it was written"


async def test_a_data_volume_without_advice_passes_on_its_source(filled: World) -> None:
    await create_claim(filled, "origin", instancetype="one", preference="flat")
    await create_volume(filled, "copy", copy_of("origin"))
    await inferred(filled, disk(dataVolume={"name": "copy"}))
    assert taken(filled, "instancetype")["name"] == "one"
    assert taken(filled, "preference")["name"] == "flat"


async def test_a_template_of_a_data_volume_is_asked_before_there_is_one(filled: World) -> None:
    await create_claim(filled, "origin", instancetype="pair", preference="deep")
    template = {"metadata": {"name": "web-root"}, "spec": copy_of("origin")}
    await inferred(filled, disk(dataVolume={"name": "web-root"}), dataVolumeTemplates=[template])
    assert taken(filled, "instancetype")["name"] == "pair"
    assert taken(filled, "preference")["name"] == "deep"


async def test_with_the_policy_ignore_no_advice_means_no_type_for_good(filled: World) -> None:
    await create_claim(filled, "plain")
    own = disk(persistentVolumeClaim={"claimName": "plain"})
    own["domain"]["memory"] = {"guest": "256Mi"}
    with pytest.raises(Invalid, match=r"unable to find required .*default-instancetype label"):
        await inferred(filled, own)
    await inferred(filled, own, "Ignore")
    await filled.until(lambda: taken(filled, "instancetype"))
    assert "name" not in taken(filled, "instancetype")
    label = {"metadata": {"labels": {f"{ADVICE}instancetype": "pair"}}}
    await filled.owner.patch(CLAIM, "plain", NAMESPACE, label)
    await edit(filled, {"spec": {"runStrategy": "Always"}})
    await filled.until(lambda: filled.vmi())
    assert filled.vmi()["spec"]["domain"]["memory"]["guest"] == "256Mi"
    assert "name" not in taken(filled, "instancetype")


# ---------------------------------------------------------------- policies


async def test_given_expand_all_when_a_vm_runs_then_it_is_rewritten_and_its_guest_is_not_touched(
    filled: World,
) -> None:
    await run(filled, **MATCHERS)
    before = filled.vmi()
    policy = {"spec": {"configuration": {"instancetype": {"referencePolicy": "expandAll"}}}}
    await filled.owner.patch(KUBEVIRT, "kubevirt", "kubevirt", policy)
    await edit(filled, {"metadata": {"labels": {"look": "again"}}})
    await filled.until(lambda: "instancetype" not in filled.vm()["spec"])
    await filled.until(
        lambda: not taken(filled, "instancetype") and not taken(filled, "preference")
    )
    await settled(filled)
    assert "preference" not in filled.vm()["spec"]
    assert filled.vm()["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"] == 2
    assert not required(filled)
    assert filled.vmi()["metadata"]["uid"] == before["metadata"]["uid"]
    assert filled.vmi()["spec"] == before["spec"]


async def test_given_expand_when_a_vm_that_holds_revisions_runs_then_it_stays_as_it_is(
    filled: World,
) -> None:
    await run(filled, **MATCHERS)
    policy = {"spec": {"configuration": {"instancetype": {"referencePolicy": "expand"}}}}
    await filled.owner.patch(KUBEVIRT, "kubevirt", "kubevirt", policy)
    await edit(filled, {"spec": {"preference": {"name": "deep"}}})
    await filled.until(lambda: taken(filled, "preference").get("name") == "deep")
    assert filled.vm()["spec"]["instancetype"] == {"name": "pair"}
