"""What a running VM says about an edit, before it and after, against a real server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.client.local import LocalClient
from livevirt.kube.objects import core
from livevirt.vm import kinds

from ..manifests import a_vm
from .edits import configure, edit, required, settled, template, waiting
from .served import Served, serving
from .test_vm_actions import Verbs
from .vm_world import CONTROLLER, NAMESPACE, UNCOUNTED, PlayedNode, World

pytestmark = pytest.mark.both

CORES = template(domain={"cpu": {"cores": 2}})
SSD = template(nodeSelector={"disk": "ssd"})
SECRET = "hunter2-hunter2"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}


@pytest.fixture
async def running(world: World, node: PlayedNode) -> World:
    await world.create_vm()
    await world.until(world.ready)
    return world


async def restart(world: World) -> None:
    before = world.vmi()["metadata"]["uid"]
    await Verbs(world)("restart")
    await world.until(
        lambda: (
            (world.vmi().get("metadata") or {}).get("uid") not in (None, before) and world.ready()
        )
    )


async def written(world: World, since: int) -> list[str]:
    """List what was written to our namespace since a revision, but for events and the like."""
    found: list[Any] = []
    watch = world.store.watch(None, since=since)
    while len(found) < world.store.revision - since:
        found += await anext(watch)
    watch.close()
    return [
        f"{event.type} {event.key.resource}"
        for event in found
        if event.key.namespace == NAMESPACE and event.key.resource not in UNCOUNTED
    ]


# ---------------------------------------------------------------- raised and cleared


@pytest.mark.wording
async def test_the_message_on_a_restart_only_edit_names_the_field(running: World) -> None:
    await running.patch_vm(CORES)
    await running.until(lambda: required(running))
    assert "domain.cpu.cores (NotLiveUpdatable)" in required(running)["message"]


async def test_a_restart_only_edit_is_listed_field_by_field(running: World) -> None:
    before = running.vmi()["spec"]
    await running.patch_vm(CORES)
    await running.until(lambda: required(running))
    assert required(running)["status"] == "True"
    assert running.vm()["status"]["pendingChanges"] == [
        {
            "path": "spec.template.spec.domain.cpu.cores",
            "from": "1",
            "to": "2",
            "verdict": "Restart",
            "reason": "NotLiveUpdatable",
        }
    ]
    assert running.vmi()["spec"] == before
    status = running.vm()["status"]
    assert (status["observedGeneration"], status["desiredGeneration"]) == (1, 2)


async def test_a_revert_clears_it_without_a_restart(running: World) -> None:
    guest = running.vmi()["metadata"]["uid"]
    await running.patch_vm(CORES)
    await running.until(lambda: required(running))
    await running.patch_vm(template(domain={"cpu": None}))
    await running.until(lambda: not required(running))
    assert "pendingChanges" not in running.vm()["status"]
    await running.until(lambda: running.vm()["status"]["observedGeneration"] == 3)
    assert running.vmi()["metadata"]["uid"] == guest


async def test_a_restart_clears_it_and_applies_all(running: World) -> None:
    await running.patch_vm(CORES)
    await running.until(lambda: required(running))
    await restart(running)
    await running.until(lambda: not required(running))
    assert "pendingChanges" not in running.vm()["status"]
    assert running.vmi()["spec"]["domain"]["cpu"]["cores"] == 2


async def test_a_stop_clears_it(running: World) -> None:
    await running.patch_vm(CORES)
    await running.until(lambda: required(running))
    await running.patch_vm({"spec": {"runStrategy": "Halted"}})
    await running.until(lambda: running.shown() == "Stopped" and not required(running))
    assert "pendingChanges" not in running.vm()["status"]


async def test_given_another_edit_then_both_are_listed_and_the_transition_time_stays(
    running: World,
) -> None:
    await running.patch_vm(CORES)
    await running.until(lambda: required(running))
    condition = required(running)
    await running.patch_vm(template(hostname="other"))
    await running.until(lambda: waiting(running).keys() == {"domain.cpu.cores", "hostname"})
    assert required(running)["message"] != condition["message"]
    assert required(running)["lastTransitionTime"] == condition["lastTransitionTime"]


@pytest.mark.wording
async def test_the_message_counts_the_pending_changes(running: World) -> None:
    await running.patch_vm(CORES)
    await running.patch_vm(template(hostname="other"))
    await running.until(lambda: "2 fields wait" in required(running).get("message", ""))


async def lose_record(world: World) -> str:
    """Delete the record of the guest's start; return what is said of that."""
    name = world.vmi()["status"]["virtualMachineRevisionName"]
    await world.components.delete(core.REVISION, name, NAMESPACE)
    return f"the record of the guest's start ({name}) is missing; a restart makes a new one"


@pytest.mark.wording
async def test_the_message_on_a_missing_record_of_the_start_names_it(running: World) -> None:
    lost = await lose_record(running)
    assert await edit(running, CORES) == (lost,)
    await running.until(lambda: required(running))
    assert required(running)["message"] == lost


async def test_without_the_record_of_the_start_an_edit_needs_a_restart(running: World) -> None:
    await lose_record(running)
    assert len(await edit(running, CORES)) == 1
    await running.until(lambda: required(running))
    assert required(running)["status"] == "True"
    await restart(running)
    await running.until(lambda: not required(running))
    assert running.vmi()["spec"]["domain"]["cpu"]["cores"] == 2


async def test_without_an_edit_a_missing_record_is_nothing_to_tell(running: World) -> None:
    await lose_record(running)
    await running.patch_vm({"metadata": {"labels": {"look": "again"}}})
    await running.create_vm("Halted", "last")  # handled after it
    await running.until(lambda: running.shown("last") == "Stopped")
    assert not required(running)


async def test_without_the_record_of_the_start_what_waits_stays_listed(running: World) -> None:
    await running.patch_vm(CORES)
    await running.until(lambda: required(running))
    known = required(running)["message"]
    await lose_record(running)
    await running.patch_vm(template(domain={"cpu": None}))
    await running.until(lambda: required(running)["message"] != known)
    assert waiting(running)


# ---------------------------------------------------------------- live


@pytest.mark.parametrize(
    "fields",
    [
        {"nodeSelector": {"disk": "ssd"}},
        {"tolerations": [{"key": "a", "operator": "Exists"}]},
        {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}}},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_placement_reaches_the_instance_at_once(
    running: World, fields: dict[str, Any]
) -> None:
    await running.patch_vm(template(**fields))
    await running.until(lambda: running.vm()["status"]["observedGeneration"] == 2)
    assert not required(running)
    [name] = fields
    assert running.vmi()["spec"][name] == fields[name]


async def test_a_selector_can_be_taken_back_live(running: World) -> None:
    await running.patch_vm(SSD)
    await running.until(lambda: running.vmi()["spec"].get("nodeSelector"))
    await running.patch_vm(template(nodeSelector=None))
    await running.until(lambda: not running.vmi()["spec"].get("nodeSelector"))
    await running.until(lambda: running.vm()["status"]["observedGeneration"] == 3)
    assert not required(running)


async def test_a_restart_only_field_holds_the_others_back(running: World) -> None:
    await running.patch_vm(template(hostname="other", nodeSelector={"disk": "ssd"}))
    await running.until(lambda: required(running))
    assert waiting(running) == {"hostname": "NotLiveUpdatable", "nodeSelector": "HeldBack"}
    assert "nodeSelector" not in running.vmi()["spec"]
    await running.patch_vm(template(hostname=None))
    await running.until(lambda: running.vmi()["spec"].get("nodeSelector") == {"disk": "ssd"})
    await running.until(lambda: not required(running))


async def test_other_words_for_the_same_guest_are_no_change(running: World) -> None:
    await running.patch_vm(template(domain={"memory": {"guest": "524288Ki"}, "cpu": {"cores": 1}}))
    await running.until(lambda: running.vm()["status"]["observedGeneration"] == 2)
    assert not required(running)


async def test_labels_of_the_template_wait_for_the_next_start_and_nothing_waits_for_them(
    running: World,
) -> None:
    patch = {"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}}
    [line] = await edit(running, patch)
    assert line == "at the next restart only: labels and annotations of the template"
    await running.until(lambda: running.vm()["status"]["observedGeneration"] == 2)
    assert not required(running)
    assert "team" not in (running.vmi()["metadata"].get("labels") or {})
    await restart(running)
    assert running.vmi()["metadata"]["labels"]["team"] == "a"


# ---------------------------------------------------------------- strategy and gates


async def test_given_stage_then_everything_waits_and_live_update_lets_it_go(
    running: World,
) -> None:
    await configure(running, vmRolloutStrategy="Stage")
    await running.patch_vm(SSD)
    await running.until(lambda: required(running))
    assert waiting(running) == {"nodeSelector": "StageStrategy"}
    await configure(running, vmRolloutStrategy="LiveUpdate")
    await running.until(lambda: running.vmi()["spec"].get("nodeSelector") == {"disk": "ssd"})
    await running.until(lambda: not required(running))


async def test_given_no_gate_then_the_reason_names_it(running: World) -> None:
    await configure(running, developerConfiguration={"featureGates": []})
    await running.patch_vm(SSD)
    await running.until(lambda: required(running))
    assert waiting(running) == {"nodeSelector": "FeatureGateMissing"}
    assert "nodeSelector" not in running.vmi()["spec"]


async def test_other_defaults_of_the_cluster_change_nothing_that_runs(running: World) -> None:
    revision = running.store.revision
    await configure(
        running, liveUpdateConfiguration={"maxHotplugRatio": 2}, cpuModel="host-passthrough"
    )
    await running.patch_vm({"spec": {"runStrategy": "RerunOnFailure"}})
    await running.until(lambda: running.vm()["status"]["observedGeneration"] == 2)
    assert not required(running)
    assert "MODIFIED pods" not in await written(running, revision)


# ---------------------------------------------------------------- what it costs, what it shows


async def test_what_is_not_about_the_guest_costs_no_write(running: World) -> None:
    await running.patch_vm(CORES)
    await running.until(lambda: required(running))
    since = running.store.revision
    await running.patch_vm({"metadata": {"labels": {"team": "a"}}})
    await running.create_vm("Halted", "last")  # handled after it
    await running.until(lambda: running.shown("last") == "Stopped")
    assert (await written(running, since))[0].startswith("MODIFIED virtualmachines")
    vm_writes = [w for w in await written(running, since) if w.startswith("MODIFIED")]
    assert len(vm_writes) == 2, vm_writes  # the label, and the status of the other VM


async def test_a_live_edit_takes_three_writes(running: World) -> None:
    since = running.store.revision
    await running.patch_vm(SSD)
    await running.until(lambda: running.vm()["status"]["observedGeneration"] == 2)
    assert len(await written(running, since)) - 1 <= 3


async def test_the_spec_stays_as_its_owner_wrote_it(running: World) -> None:
    for patch in (SSD, CORES, template(hostname="other"), template(hostname=None)):
        wanted = (await running.patch_vm(patch))["spec"]
        await settled(running)
        assert running.vm()["spec"] == wanted


async def test_warnings_tell_each_verdict_and_where_to_read_more(running: World) -> None:
    [line] = await edit(running, SSD)
    assert line.startswith("live: nodeSelector null -> {disk:ssd} (NextPlacement)")
    assert line.endswith("see virtctl plan web -n default")
    [line] = await edit(running, CORES)
    assert line.startswith("at the next restart only: domain.cpu.cores 1 -> 2 (NotLiveUpdatable)")


async def test_only_edits_of_the_template_of_a_running_guest_are_commented(
    running: World,
) -> None:
    assert await edit(running, {"metadata": {"labels": {"team": "a"}}}) == ()
    assert await edit(running, {"spec": {"runStrategy": "RerunOnFailure"}}) == ()
    assert await edit(running, CORES | {"spec": {**CORES["spec"], "runStrategy": "Halted"}}) == ()


async def test_components_are_told_nothing(running: World) -> None:
    told: list[str] = []
    component = LocalClient(running.api, CONTROLLER, warn=told.append)
    await component.patch(kinds.VM, "web", NAMESPACE, CORES)
    assert told == []


async def test_a_dry_run_warns_and_stores_nothing(running: World) -> None:
    before = running.store.revision
    [line] = await edit(running, CORES, dry_run=True)
    assert line.startswith("at the next restart only: ")
    assert running.store.revision == before


async def test_no_secret_shows_in_status_or_warnings(world: World, node: PlayedNode) -> None:
    vm = a_vm()
    seed = {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}}
    volumes = vm["spec"]["template"]["spec"]["volumes"]
    volumes.append(seed)
    await world.owner.create(kinds.VM, vm, NAMESPACE)
    await world.until(world.ready)
    changed = {**seed, "cloudInitNoCloud": {"userData": f"#cloud-config\npassword: {SECRET}\n"}}
    told = await edit(world, template(volumes=[volumes[0], changed]))
    await world.until(lambda: required(world))
    assert SECRET not in json.dumps([told, world.vm()["status"]])
    assert "<changed>" in json.dumps(world.vm()["status"]["pendingChanges"])
    assert all(SECRET not in json.dumps(e) for e in world.read.list(core.EVENT, NAMESPACE))


# ---------------------------------------------------------------- as kubectl shows it


@pytest.fixture
async def served(world: World, node: PlayedNode, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(world, tmp_path) as server:
        yield server


@pytest.mark.slow
async def test_kubectl_shows_the_verdict_and_the_manifest_never_drifts(
    served: Served, world: World, tmp_path: Path
) -> None:
    manifest = tmp_path / "web.json"
    vm = a_vm()
    manifest.write_text(json.dumps(vm))
    await served.succeed("kubectl", "apply", "-f", str(manifest))
    await world.until(world.ready)
    vm["spec"]["template"]["spec"]["hostname"] = "other"
    manifest.write_text(json.dumps(vm))
    tried = await served.run("kubectl", "apply", "--dry-run=server", "-f", str(manifest))
    warning = "Warning: at the next restart only: hostname null -> other (NotLiveUpdatable)"
    assert warning in tried.err
    assert "hostname" not in world.vm()["spec"]["template"]["spec"]
    del vm["spec"]["template"]["spec"]["hostname"]
    vm["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/arch": "amd64"}
    manifest.write_text(json.dumps(vm))
    ran = await served.run("kubectl", "apply", "-f", str(manifest))
    assert "Warning: live: nodeSelector" in ran.err
    await world.until(lambda: world.vm()["status"]["observedGeneration"] == 2)
    assert await served.succeed("kubectl", "diff", "-f", str(manifest)) == ""
