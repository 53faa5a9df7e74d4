"""The plan of an edit, and that what then happens is what it said."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from livevirt.errors import BadRequest, Conflict, Invalid, NotFound
from livevirt.kube.admission import builtin
from livevirt.kube.client.local import LocalClient
from livevirt.kube.controllers import bootstrap
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.kube.server.api import Api
from livevirt.kube.server.services import Services, StoreReader
from livevirt.kube.store import Store
from livevirt.vm import admission, kinds
from livevirt.vm.config import controller
from livevirt.vm.sizing import hot_change
from livevirt.vm.verdict.judgement import LIVE_VERDICTS

from ..manifests import a_container, a_namespace, a_pod, a_vm
from .edits import configure, edit, plan, required, settled, template
from .served import Served, serving
from .vm_world import ADMIN, CONTROLLER, NAMESPACE, PlayedNode, World, now, running

CORES = template(domain={"cpu": {"cores": 2}})
SSD = template(nodeSelector={"disk": "ssd"})
SECRET = "hunter2-hunter2"


@pytest.fixture
async def guest(world: World, node: PlayedNode) -> World:
    await world.create_vm()
    await world.until(world.ready)
    return world


# ---------------------------------------------------------------- the answer


async def test_a_plan_tells_every_field_and_what_it_was_made_from(guest: World) -> None:
    before = guest.store.revision
    found = await plan(guest, CORES)
    assert guest.store.revision == before
    [change] = found["changes"]
    assert change.pop("message")
    assert change == {
        "path": "spec.template.spec.domain.cpu.cores",
        "from": 1,
        "to": 2,
        "verdict": "Restart",
        "reason": "NotLiveUpdatable",
    }
    assert (found["verdict"], found["running"], found["waits"]) == ("Restart", True, False)
    versions = {
        "virtualMachine": guest.vm(),
        "virtualMachineInstance": guest.vmi(),
        "namespace": guest.read.get(core.NAMESPACE, NAMESPACE),
        "node": guest.read.get(core.NODE, "node-1"),
        "kubevirt": guest.read.get(kinds.KUBEVIRT, "kubevirt", "kubevirt"),
        "controllerRevision": guest.get(
            core.REVISION, guest.vmi()["status"]["virtualMachineRevisionName"]
        ),
    }
    assert found["observed"] == {
        name: (obj or {})["metadata"]["resourceVersion"] for name, obj in versions.items()
    }


async def test_a_whole_vm_is_planned_like_the_patch_that_makes_it(guest: World) -> None:
    vm = a_vm()
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 2}
    assert await plan(guest, vm) == await plan(guest, CORES)


async def test_without_a_body_it_tells_what_waits_now(guest: World) -> None:
    assert (await plan(guest))["changes"] == []
    await guest.patch_vm(CORES)
    assert (await plan(guest))["verdict"] == "Restart"


async def test_a_halted_vm_takes_everything_at_its_next_start(world: World) -> None:
    await world.create_vm("Halted")
    found = await plan(world, CORES)
    assert (found["verdict"], found["running"], found["changes"]) == ("Live", False, [])


async def test_a_vm_that_is_not_there_yet_can_be_planned_as_a_whole(world: World) -> None:
    found = await plan(world, a_vm())
    assert (found["verdict"], found["running"]) == ("Live", False)
    wrong = a_vm()
    wrong["spec"]["runStrategy"] = "Sometimes"
    assert (await plan(world, wrong))["verdict"] == "Refused"
    with pytest.raises(NotFound):
        await plan(world, CORES)


REFUSED = {
    "a value that no VM may have": template(domain={"cpu": {"sockets": 3, "maxSockets": 2}}),
    "a value of the wrong type": template(hostname=7),
    "no spec at all": {"spec": None},
    "an amount that is none": template(domain={"memory": {"guest": "much"}}),
    "an exponent that is not whole": template(domain={"memory": {"guest": "1e1.5"}}),
    "pages of no size": template(domain={"memory": {"hugepages": {"pageSize": "foo"}}}),
    "more sockets than can be counted": template(domain={"cpu": {"sockets": 10**12}}),
    "user data that is no base64": template(
        volumes=[{"name": "a", "cloudInitNoCloud": {"userDataBase64": "é"}}]
    ),
    "a number for a label": {"spec": {"template": {"metadata": {"labels": {"version": 5}}}}},
    "labels that are none": {"spec": {"template": {"metadata": {"labels": {"a b": "c d"}}}}},
    "a place that no pod can have": template(nodeSelector={"a": "x y"}),
    "one claim for two disks": template(
        volumes=[{"name": n, "persistentVolumeClaim": {"claimName": "c"}} for n in ("a", "b")]
    ),
    "two volumes of one name": template(
        volumes=[{"name": "a", "emptyDisk": {"capacity": "1Gi"}}] * 2
    ),
}


@pytest.mark.parametrize("patch", REFUSED.values(), ids=REFUSED)
async def test_what_would_be_refused_is_said_so(guest: World, patch: Object) -> None:
    found = await plan(guest, patch)
    assert found["verdict"] == "Refused"
    with pytest.raises(Invalid) as refusal:
        await edit(guest, patch)
    causes = {cause["field"] for cause in refusal.value.details["causes"]}
    assert causes <= {change["path"] for change in found["changes"]}


@pytest.mark.parametrize(
    "body",
    [[], "text", {**a_vm(), "kind": "Pod"}, a_vm(name="other"), {"kind": 1}],
    ids=["a list", "a text", "another kind", "another name", "a number for a kind"],
)
async def test_a_body_that_is_neither_vm_nor_patch_is_refused(guest: World, body: Any) -> None:
    with pytest.raises(BadRequest):
        await plan(guest, body)


async def test_a_guest_nobody_knows_the_start_of_cannot_be_planned(guest: World) -> None:
    name = guest.vmi()["status"]["virtualMachineRevisionName"]
    await guest.components.delete(core.REVISION, name, NAMESPACE)
    with pytest.raises(Conflict, match="a restart makes a new one"):
        await plan(guest, CORES)


async def test_no_secret_shows_in_a_plan(guest: World) -> None:
    seed = {"name": "seed", "cloudInitNoCloud": {"userData": SECRET}}
    volumes = [*guest.vm()["spec"]["template"]["spec"]["volumes"], seed]
    found = await plan(guest, template(volumes=volumes))
    assert found["verdict"] == "Restart"
    assert SECRET not in json.dumps(found)


async def test_what_is_not_acted_on_is_mentioned(guest: World) -> None:
    found = await plan(
        guest, template(domain={"devices": {"useVirtioTransitional": True}}, colour="red")
    )
    assert 'unknown field "spec.template.spec.colour"' in found["warnings"]
    assert any("ignored by livevirt" in line for line in found["warnings"])


# ---------------------------------------------------------------- the room there is

BIGGER = template(domain={"cpu": {"sockets": 2}})  # a tenth of a CPU more, and some memory
LARGER = template(domain={"memory": {"guest": "1Gi"}})


POD = {
    "a larger guest": (BIGGER, {"requests.cpu", "requests.memory"}),
    "an IO thread more": (template(domain={"ioThreadsPolicy": "auto"}), set()),
    "a host device": (
        template(domain={"devices": {"hostDevices": [{"name": "d", "deviceName": "a/b"}]}}),
        {"requests.memory"},
    ),
    "what costs a pod nothing": (template(hostname="other"), set()),
}


@pytest.mark.parametrize(("patch", "moved"), POD.values(), ids=POD)
async def test_what_the_pod_asks_for_otherwise_is_told(
    guest: World, patch: Object, moved: set[str]
) -> None:
    pod = (await plan(guest, patch)).get("pod", [])
    assert {each["resource"] for each in pod} == moved
    assert all(each["from"] != each["to"] for each in pod)


async def limited(world: World, hard: dict[str, str]) -> Object:
    """Give the namespace a quota; return it once it is counted."""
    team = {"metadata": {"name": "team"}, "spec": {"hard": hard}}
    await world.owner.create(core.QUOTA, {"apiVersion": "v1", **team}, NAMESPACE)
    await world.until(lambda: (world.get(core.QUOTA, "team") or {}).get("status"))
    found = world.get(core.QUOTA, "team")
    assert found is not None
    return found


async def bounded(world: World, type_: str, most: dict[str, str]) -> None:
    """Give the namespace a limit range."""
    limits = [{"type": type_, "max": most}]
    sane = {"apiVersion": "v1", "metadata": {"name": "sane"}, "spec": {"limits": limits}}
    await world.owner.create(core.LIMIT_RANGE, sane, NAMESPACE)


async def shrunk(world: World, **allocatable: str) -> None:
    """Make the node that small."""
    patch = {"status": {"allocatable": allocatable}}
    await world.components.patch(core.NODE, "node-1", "", patch, subresource="status")


async def verdict(world: World, patch: Object) -> tuple[str, str, bool, str]:
    """Return what the plan says of an edit of one field; its warnings are those of the edit."""
    found = await plan(world, patch)
    assert tuple(found["warnings"]) == await edit(world, patch, dry_run=True)
    [change] = found["changes"]
    assert change.get("waits", False) == found["waits"]
    return change["verdict"], change["reason"], found["waits"], change["message"]


async def test_given_room_then_a_guest_grows_with_its_pod(guest: World) -> None:
    await limited(guest, {"requests.cpu": "201m", "memory": "16Gi"})
    await bounded(guest, "Container", {"cpu": "200m"})
    said = await verdict(guest, BIGGER)
    assert said[:3] == ("LiveAfterResize", "PodResize", False)


async def test_given_too_small_a_quota_then_it_waits_and_tells_what_is_missing(
    guest: World,
) -> None:
    await limited(guest, {"requests.cpu": "200m"})
    said = await verdict(guest, BIGGER)
    assert said[:3] == ("LiveAfterResize", "OverQuota", True)
    assert "ResourceQuota team is missing 1m of requests.cpu" in said[3]
    assert (await verdict(guest, LARGER))[:3] == ("LiveAfterResize", "PodResize", False)


async def test_given_too_low_a_limit_range_then_it_waits_and_tells_what_is_missing(
    guest: World,
) -> None:
    await bounded(guest, "Container", {"cpu": "150m"})
    said = await verdict(guest, BIGGER)
    assert said[:3] == ("LiveAfterResize", "OverLimitRange", True)
    assert "LimitRange sane is missing 50m of requests.cpu" in said[3]


async def test_given_a_full_node_then_it_waits_and_tells_what_is_missing(guest: World) -> None:
    await shrunk(guest, cpu="200m")
    said = await verdict(guest, BIGGER)
    assert said[:3] == ("LiveAfterResize", "NodeFull", True)
    assert "Node node-1 is missing 1m of cpu" in said[3]


async def test_other_pods_of_the_node_count_until_they_end(guest: World) -> None:
    await shrunk(guest, cpu="500m")
    busy = a_pod("busy", nodeName="node-1", containers=[a_container(requests={"cpu": "300m"})])
    other = await guest.owner.create(core.NAMESPACE, a_namespace("elsewhere"))
    await guest.owner.create(core.POD, busy, other["metadata"]["name"])
    said = await verdict(guest, BIGGER)
    assert said[1:] == ("NodeFull", True, said[3])
    assert "Node node-1 is missing 1m of cpu" in said[3]
    await guest.components.patch(
        core.POD, "busy", "elsewhere", {"status": {"phase": "Succeeded"}}, subresource="status"
    )
    assert (await verdict(guest, BIGGER))[1] == "PodResize"


@pytest.mark.parametrize("hard", ["201m", "200m"])
async def test_the_pod_grows_just_if_the_plan_did_not_say_it_waits(guest: World, hard: str) -> None:
    await limited(guest, {"requests.cpu": hard})
    said = await plan(guest, BIGGER)
    await edit(guest, BIGGER)

    def outcome() -> str:
        [pod] = guest.pods()
        if pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m":
            return "PodResize"
        return "OverQuota" if hot_change.reason_of(guest.vmi(), "HotVCPUChange") else ""

    await guest.until(outcome)
    assert outcome() == said["changes"][0]["reason"]
    assert said["waits"] == (hard == "200m")


async def test_a_quota_of_another_namespace_does_not_count(guest: World) -> None:
    await guest.owner.create(core.NAMESPACE, a_namespace("elsewhere"))
    team = {"apiVersion": "v1", "metadata": {"name": "team"}, "spec": {"hard": {"cpu": "0"}}}
    await guest.owner.create(core.QUOTA, team, "elsewhere")
    await guest.until(lambda: guest.read.list(core.QUOTA, "elsewhere")[0].get("status"))
    assert (await verdict(guest, BIGGER))[1] == "PodResize"


async def test_a_plan_of_sizes_names_all_that_leaves_room_for_them(guest: World) -> None:
    await limited(guest, {"requests.cpu": "200m"})
    await bounded(guest, "Pod", {"cpu": "8"})
    observed = (await plan(guest, BIGGER))["observed"]
    [pod] = guest.pods()

    def version(kind: Kind, name: str, namespace: str = "") -> str:
        found = guest.read.get(kind, name, namespace)
        assert found is not None
        return str(found["metadata"]["resourceVersion"])

    assert observed.pop("podsOfNode").isdigit()
    assert observed == {
        "virtualMachine": version(kinds.VM, "web", NAMESPACE),
        "virtualMachineInstance": version(kinds.VMI, "web", NAMESPACE),
        "controllerRevision": version(
            core.REVISION, guest.vmi()["status"]["virtualMachineRevisionName"], NAMESPACE
        ),
        "kubevirt": version(kinds.KUBEVIRT, "kubevirt", "kubevirt"),
        "node": version(core.NODE, "node-1"),
        "namespace": version(core.NAMESPACE, NAMESPACE),
        "pod": pod["metadata"]["resourceVersion"],
        "resourceQuotas": {"team": version(core.QUOTA, "team", NAMESPACE)},
        "limitRanges": {"sane": version(core.LIMIT_RANGE, "sane", NAMESPACE)},
    }


# ---------------------------------------------------------------- the law

SELECTORS = st.sampled_from([None, {"disk": "ssd"}, {"disk": "ssd", "zone": "a"}, {"zone": "b"}])
TOLERATIONS = st.sampled_from([None, [{"key": "a", "operator": "Exists"}]])
DOMAINS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.fixed_dictionaries(
            {},
            optional={
                "sockets": st.sampled_from([None, 1, 2, 9]),
                "cores": st.sampled_from([None, 1, 2]),
                "threads": st.sampled_from([None, 1]),
                "maxSockets": st.sampled_from([None, 2, 4]),
            },
        ),
        "memory": st.fixed_dictionaries(
            {}, optional={"guest": st.sampled_from(["512Mi", "524288Ki", "1Gi", "0", "8Gi"])}
        ),
    },
)
SIZES = st.fixed_dictionaries(
    {
        "cpu": st.fixed_dictionaries({"sockets": st.integers(1, 4)}),
        "memory": st.fixed_dictionaries({"guest": st.sampled_from(["512Mi", "1Gi", "2Gi"])}),
    }
)
EDITS = st.fixed_dictionaries({"domain": SIZES}) | st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": SELECTORS,
        "tolerations": TOLERATIONS,
        "hostname": st.sampled_from([None, "other", "not a name"]),
        "domain": DOMAINS,
        "terminationGracePeriodSeconds": st.sampled_from([None, 30, 60]),
    },
)
STRATEGIES = st.sampled_from(["LiveUpdate", "LiveUpdate", "Stage"])
GATES = st.sampled_from(
    [["VMLiveUpdateFeatures"], ["VMLiveUpdateFeatures", "PartialLiveUpdate"], []]
)
#: Fields that the instance gets as the VM has them, with their defaults.
COPIED: dict[str, Any] = {
    "nodeSelector": None,
    "tolerations": None,
    "terminationGracePeriodSeconds": 30,
}
SIZED = {"sockets": "cpu", "guest": "memory"}  # the last word of a path, and its part of the domain


@contextlib.asynccontextmanager
async def a_world(strategy: str, gates: list[str]) -> AsyncIterator[World]:
    """A server with controllers, a played node and one VM that runs, settings held fixed."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "store.db")
        reader = StoreReader(store)
        api = Api(
            Services(store, {**builtin.RULES, **admission.RULES}, now, reader, kinds.REGISTRY), {}
        )
        world = World(store, reader, api, LocalClient(api, ADMIN), LocalClient(api, CONTROLLER))
        await bootstrap.ensure(world.components)
        await controller.ensure(world.components)
        await configure(
            world, vmRolloutStrategy=strategy, developerConfiguration={"featureGates": gates}
        )
        node = PlayedNode(world)
        await node.register()
        played = asyncio.create_task(node.run())
        try:
            async with running(world):
                await world.create_vm()
                await world.until(world.ready)
                yield world
        finally:
            played.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await played
            await store.close()


async def check_one(world: World, patch: Object) -> None:
    """Plan an edit, make it, and compare."""
    said = await plan(world, patch)
    spec, before = world.vm()["spec"], world.vmi()["spec"]
    if said["verdict"] == "Refused":
        with pytest.raises(Invalid):
            await edit(world, patch)
        assert world.vm()["spec"] == spec
        return
    same = await edit(world, patch, dry_run=True)
    told = await edit(world, patch)
    assert told == same
    assert not told or told == tuple(said["warnings"])  # an edit that changes no text says nothing
    await settled(world)
    waits = [(c["path"], c["reason"]) for c in said["changes"] if c["verdict"] == "Restart"]
    pending = world.vm()["status"].get("pendingChanges") or []
    assert [(each["path"], each["reason"]) for each in pending] == waits
    assert bool(required(world)) == bool(waits)
    if not waits:
        generation = world.vm()["metadata"]["generation"]
        await world.until(lambda: world.vm()["status"]["observedGeneration"] == generation)
    wanted = world.vm()["spec"]["template"]["spec"]
    live = {c["path"].rpartition(".")[2] for c in said["changes"] if c["verdict"] in LIVE_VERDICTS}
    assert live <= {*COPIED, *SIZED}
    expected = before | {name: wanted.get(name, COPIED[name]) for name in live if name in COPIED}
    expected["domain"] = dict(before["domain"])
    for name in live & SIZED.keys():
        part = SIZED[name]
        value = wanted["domain"][part][name]
        expected["domain"][part] = expected["domain"][part] | {name: value}
    await world.until(
        lambda: (
            {n: v for n, v in world.vmi()["spec"].items() if v}
            == {n: v for n, v in expected.items() if v}
        )
    )


@settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(strategy=STRATEGIES, gates=GATES, edits=st.lists(EDITS, min_size=3, max_size=10))
def test_given_any_edits_then_what_happens_is_what_the_plan_said(
    strategy: str, gates: list[str], edits: list[Object]
) -> None:
    async def law() -> None:
        async with a_world(strategy, gates) as world:
            for fields in edits:
                await check_one(world, template(**fields))

    asyncio.run(law())


# ---------------------------------------------------------------- virtctl plan


@pytest.fixture
async def served(guest: World, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(guest, tmp_path) as server:
        yield server


@pytest.mark.slow
async def test_virtctl_plan_prints_a_table_and_exits_by_the_verdict(
    served: Served, guest: World
) -> None:
    ran = await served.virtctl("plan", "web", "--patch", json.dumps(SSD))
    assert ran.status == 0, ran.err
    head, row, *_, last = ran.out.splitlines()
    assert head.split() == ["FIELD", "CURRENT", "DESIRED", "VERDICT", "WHY"]
    assert row.split()[:4] == ["nodeSelector", "-", '{"disk":"ssd"}', "Live"]
    assert last == "web: live: no restart is needed"
    ran = await served.virtctl("plan", "web", "--patch", json.dumps(CORES), "-o", "json")
    assert (ran.status, json.loads(ran.out)["verdict"]) == (2, "Restart")
    ran = await served.virtctl("plan", "web", "-p", "spec: {runStrategy: Sometimes}")
    assert ran.status == 3
    assert "would be refused" in ran.out
    ran = await served.virtctl("plan", "web")
    done = "web: all changes are applied in the guest, nothing would change\n"
    assert (ran.status, ran.out) == (0, done)


@pytest.mark.slow
async def test_virtctl_plan_exits_with_4_when_it_will_wait(served: Served, guest: World) -> None:
    await limited(guest, {"requests.cpu": "200m"})
    ran = await served.virtctl("plan", "web", "--patch", json.dumps(BIGGER))
    assert ran.status == 4, ran.err
    assert "OverQuota" in ran.out
    ran = await served.virtctl("plan", "web", "--patch", json.dumps(LARGER))
    assert ran.status == 0, ran.err


@pytest.mark.slow
async def test_virtctl_plan_reads_manifests(served: Served, guest: World, tmp_path: Path) -> None:
    changed = a_vm()
    changed["spec"]["template"]["spec"]["hostname"] = "other"
    manifest = tmp_path / "both.yaml"
    texts = [json.dumps(changed), json.dumps({"kind": "Secret"}), json.dumps(a_vm(name="new"))]
    manifest.write_text("\n---\n".join(texts))
    ran = await served.virtctl("plan", "-f", str(manifest))
    assert ran.status == 2, ran.err
    assert "web: needs a restart\n" in ran.out
    assert "new: no guest runs, all of it takes effect at the next start\n" in ran.out
    ran = await served.run("virtctl", "plan", "-f", "-", "-o", "json", stdin=texts[0].encode())
    assert json.loads(ran.out)["changes"][0]["path"] == "spec.template.spec.hostname"


@pytest.mark.slow
async def test_virtctl_plan_errors_exit_with_1(served: Served, tmp_path: Path) -> None:
    for arguments, why in (
        (("none",), 'virtualmachines.kubevirt.io "none" not found'),
        ((), "nothing to plan"),
        (("web", "-f", "x.yaml"), "either -f FILE"),
        (("web", "--patch", "{"), "neither JSON nor YAML"),
        (("-f", str(tmp_path / "none.yaml")), "No such file"),
    ):
        ran = await served.virtctl("plan", *arguments)
        assert ran.status == 1, (arguments, ran)
        assert why in ran.err
