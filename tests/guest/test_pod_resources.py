"""Requests and limits of a running guest's pod, changed without a change of the guest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from livevirt.kube.objects.quantity import parse

from .guest_host import GuestHost, Object, a_vm, until

pytestmark = [pytest.mark.guest, pytest.mark.slow]
NAME = "resourced"
RESIZE_SECONDS = 60.0


def edit(host: GuestHost, **resources: Any) -> None:
    patch = json.dumps({"spec": {"template": {"spec": {"domain": {"resources": resources}}}}})
    host.run("kubectl", "patch", "vm", NAME, "--type=merge", "-p", patch)


def in_force(host: GuestHost) -> Object:
    """Return what the node reports of the guest's container."""
    [pod] = host.pods(NAME)
    [found] = [
        each["resources"]
        for each in pod["status"]["containerStatuses"]
        if each["name"] == "compute"
    ]
    return found


def test_amounts_change_by_a_resize_of_the_pod_and_go_back(guest_host: GuestHost) -> None:
    host = guest_host
    vm = a_vm(NAME)
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain["cpu"] = {"sockets": 1}
    domain["resources"] = {"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}
    host.apply(vm)
    host.answers(NAME)
    boot, [pod] = host.boot_id(NAME), host.pods(NAME)
    before = in_force(host)

    def is_settled() -> bool:
        status = host.get("vmi", NAME)["status"]
        return bool(status.get("sizeRevision") == status.get("observedSizeRevision"))

    def has(side: str, name: str, amount: str) -> bool:
        found = (in_force(host).get(side) or {}).get(name)
        return found is not None and parse(found) == parse(amount)

    edit(host, requests={"cpu": "300m"}, limits={"cpu": "3"})
    until("the pod has it", lambda: has("requests", "cpu", "300m") and has("limits", "cpu", "3"))
    until("the change is over", is_settled, RESIZE_SECONDS)
    [qemu] = host.qemus(NAME)
    edit(host, limits={"memory": "1Gi"})
    until("a limit is added", lambda: "memory" in (in_force(host).get("limits") or {}))
    until("the change is over", is_settled, RESIZE_SECONDS)
    edit(host, limits={"cpu": "2"}, requests={"cpu": "100m"})
    until("it goes back", lambda: has("limits", "cpu", "2") and has("requests", "cpu", "100m"))
    until("the change is over", is_settled, RESIZE_SECONDS)
    assert in_force(host)["requests"]["cpu"] == before["requests"]["cpu"]
    assert not host.holds("vm", NAME, "RestartRequired")
    assert host.boot_id(NAME) == boot
    assert [each["metadata"]["uid"] for each in host.pods(NAME)] == [pod["metadata"]["uid"]]
    assert host.qemus(NAME) == [qemu]

    edit(host, limits={"memory": None})
    until(
        "it waits for a migration",
        lambda: (
            host.condition("vmi", NAME, "HotMemoryChange").get("reason") == "WaitingForMigration"
        ),
        RESIZE_SECONDS,
    )
    edit(host, limits={"memory": "1Gi"})
    until("it is called off", is_settled, RESIZE_SECONDS)
    host.discard(NAME)
