"""What KubeVirt publishes, in its own version, is taken as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.objects.request import Object, Request
from livevirt.vm.instancetypes.rules.expansion import Sizing, expand, unmet
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE

from ..manifests import an_object
from .catalog_server import ADMIN, Server, a_server

FACTS = Path(__file__).parents[4] / "shared" / "facts" / "common-instancetypes.json"


@pytest.fixture(scope="module")
def facts() -> Object:
    if not FACTS.exists():
        pytest.skip("the table of KubeVirt's published objects is not here")
    found: Object = json.loads(FACTS.read_text())
    return found


def type_spec(row: Object, series: Object) -> Object:
    cpu: Object = {"guest": row["vcpu"]}
    memory: Object = {"guest": row["memory"]}
    for name in ("maxSockets", "dedicatedCPUPlacement", "isolateEmulatorThread"):
        if name in row:
            cpu[name] = row[name]
    if "numa" in row:
        cpu["numa"] = {"guestMappingPassthrough": {}}
    if "realtime" in row:
        cpu["realtime"] = {}
    if "hugepagesPageSize" in row:
        memory["hugepages"] = {"pageSize": row["hugepagesPageSize"]}
    if "overcommitPercent" in row:
        memory["overcommitPercent"] = row["overcommitPercent"]
    spec: Object = {"cpu": cpu, "memory": memory}
    if "ioThreadsPolicy" in row:
        spec["ioThreadsPolicy"] = row["ioThreadsPolicy"]
    if annotations := series[row["series"]].get("vmiAnnotations"):
        spec["annotations"] = annotations
    return spec


def preference_spec(row: Object, fragments: Object) -> Object:
    spec: Object = _filled(row["spec"], fragments)
    needs = row.get("requirements") or {}
    required = {part: {"guest": needs[part]} for part in ("cpu", "memory") if part in needs}
    if "architecture" in needs:
        required["architecture"] = needs["architecture"]
    if required:
        spec["requirements"] = required
    if "preferredArchitecture" in row:
        spec["preferredArchitecture"] = row["preferredArchitecture"]
    return spec


def _filled(value: Any, fragments: Object) -> Any:
    if isinstance(value, dict):
        if "$fragment" in value:
            return fragments[value["$fragment"]]
        return {name: _filled(inner, fragments) for name, inner in value.items()}
    return value


def bundle(facts: Object) -> list[Object]:
    types = [
        an_object(
            CLUSTER_INSTANCETYPE, row["name"], "v1beta1", spec=type_spec(row, facts["series"])
        )
        for row in facts["instancetypes"]
    ]
    return types + [
        an_object(
            CLUSTER_PREFERENCE,
            row["name"],
            "v1beta1",
            spec=preference_spec(row, facts["fragments"]),
        )
        for row in facts["preferences"]
    ]


async def send(server: Server, obj: Object) -> tuple[str, ...]:
    kind = CLUSTER_PREFERENCE if "Preference" in obj["kind"] else CLUSTER_INSTANCETYPE
    options = {"fieldValidation": "Strict"}
    request = Request("create", kind, "v1beta1", ADMIN, options=options, body=obj)
    return (await server.api.call(request)).warnings


async def test_every_published_object_is_taken_and_shown_as_it_was_written(facts: Object) -> None:
    published = bundle(facts)
    assert len(published) == len(facts["instancetypes"]) + len(facts["preferences"])
    async with a_server() as server:
        for obj in published:
            await send(server, json.loads(json.dumps(obj)))
        for kind in (CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE):
            shown = (await server.call("list", "v1beta1", kind=kind))["items"]
            sent = {o["metadata"]["name"]: o["spec"] for o in published if o["kind"] == kind.kind}
            assert {obj["metadata"]["name"]: obj["spec"] for obj in shown} == sent


async def test_every_published_preference_expands_with_a_type_it_is_content_with(
    facts: Object,
) -> None:
    """A type of 8 vCPUs comes out even however it is spread."""
    owned = {"cpu": {"guest": 8}, "memory": {"guest": "32Gi"}}
    template = {"spec": {"domain": {"devices": {}}, "volumes": [{"name": "root"}]}}
    for row in facts["preferences"]:
        sizing = Sizing(owned, preference_spec(row, facts["fragments"]))
        found = expand(template, sizing)
        assert (row["name"], found.errors) == (row["name"], ())
        assert unmet(template, found, sizing) == []
