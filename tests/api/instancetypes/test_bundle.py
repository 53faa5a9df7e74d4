"""`kubectl apply` of all that KubeVirt publishes, in the version and with the labels it has."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from livevirt.kube.objects.request import Object

from ...server_process import ServerProcess, short_directory
from .test_published_bundle import FACTS, bundle

pytestmark = pytest.mark.slow  # a server of its own

PREFIX, RELEASE = "instancetype.kubevirt.io/", "v1.7.0"
KINDS = ("virtualmachineclusterinstancetypes", "virtualmachineclusterpreferences")


@pytest.fixture(scope="module")
def published() -> list[Object]:
    if not FACTS.exists():
        pytest.skip("the table of KubeVirt's published objects is not here")
    facts = json.loads(FACTS.read_text())
    objects, rows = bundle(facts), [*facts["instancetypes"], *facts["preferences"]]
    for obj, row in zip(objects, rows, strict=True):
        obj["metadata"] |= {"labels": labels(row), "annotations": {"tags": row.get("tags", "")}}
    return objects


def labels(row: Object) -> dict[str, str]:
    """Return the labels an object of the bundle has."""
    found = {"vendor": "kubevirt.io", "common-instancetypes-version": RELEASE}
    if "size" in row:
        found |= {"class": row["class"], "cpu": str(row["vcpu"]), "memory": row["memory"]}
        found |= {"size": row["size"], "version": "1"}
    else:
        found["os-type"] = row["osType"]
    return {PREFIX + name: value for name, value in found.items()}


@pytest.fixture(
    scope="module",
    params=["--no-catalog", pytest.param("", marks=pytest.mark.long)],
    ids=["alone", "over our catalog"],
)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    flags = (request.param,) if request.param else ()
    with short_directory() as home:
        server = ServerProcess(home, flags=flags)
        server.start()
        try:
            if not flags:
                server.kubectl("wait", "--for=create", "vmcp/windows.2k25.virtio", "--timeout=50s")
            yield server
        finally:
            server.kill()


def shown(server: ServerProcess, version: str) -> dict[tuple[str, str], Object]:
    """Return every object as one version shows it, by kind and name."""
    resources = ",".join(f"{kind}.{version}.instancetype.kubevirt.io" for kind in KINDS)
    found = json.loads(server.kubectl("get", resources, "-o", "json"))["items"]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def test_all_of_it_is_applied_unchanged_and_stays_as_it_is(
    server: ServerProcess, published: list[Object]
) -> None:
    text = yaml.safe_dump_all(published)
    done = server.run_kubectl("apply", "-f", "-", input=text)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(published)

    again = server.kubectl("apply", "-f", "-", input=text).splitlines()
    assert [line for line in again if not line.endswith(" unchanged")] == []
    assert server.run_kubectl("diff", "-f", "-", input=text).returncode == 0

    server.kubectl("delete", "vmcf", "cx1.custom", "--ignore-not-found")
    server.stop()
    server.start()
    if not server.flags:  # ours are brought to their version now, and these are not ours
        server.kubectl("wait", "--for=create", "vmcf/cx1.custom", "--timeout=50s")
    for version in ("v1beta1", "v1beta2"):
        found = shown(server, version)
        for obj in published:
            there = found[obj["kind"], obj["metadata"]["name"]]
            assert there["apiVersion"] == f"instancetype.kubevirt.io/{version}"
            assert there["spec"] == obj["spec"], obj["metadata"]["name"]
            assert there["metadata"]["labels"].items() >= obj["metadata"]["labels"].items()


def test_a_vm_is_sized_by_it(server: ServerProcess, published: list[Object]) -> None:
    server.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(published))
    vm = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "web"},
        "spec": {
            "runStrategy": "Halted",
            "instancetype": {"name": "u1.2xmedium"},
            "preference": {"name": "fedora"},
            "template": {"spec": {"domain": {"devices": {}}}},
        },
    }
    server.kubectl("apply", "-f", "-", input=yaml.safe_dump(vm))
    path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/web/expand-spec"
    domain = json.loads(server.kubectl("get", "--raw", path))["spec"]["template"]["spec"]["domain"]
    assert domain["cpu"] == {"sockets": 2, "cores": 1, "threads": 1}
    assert domain["memory"]["guest"] == "4Gi"
