"""CPU models and machine types: what the node says it has, and guests that name one."""

from __future__ import annotations

import pytest

from .guest_host import GuestHost, a_bare_vm, until

pytestmark = [pytest.mark.guest, pytest.mark.slow]

MODEL = "Westmere"  # which every emulated CPU can be, and most real ones


def node_labels(host: GuestHost) -> dict[str, str]:
    (node,) = host.read("api/v1/nodes")["items"]
    found: dict[str, str] = node["metadata"]["labels"]
    return found


def test_a_node_says_which_cpus_and_machines_guests_may_name(guest_host: GuestHost) -> None:
    until("a node", lambda: guest_host.read("api/v1/nodes")["items"])
    found = node_labels(guest_host)
    for name in ("cpu-model", "cpu-feature", "machine-type"):
        assert [each for each in found if each.startswith(f"{name}.node.kubevirt.io/")], name


def test_given_a_model_the_node_has_then_the_guest_gets_it_and_else_it_waits(
    guest_host: GuestHost,
) -> None:
    until("a node", lambda: guest_host.read("api/v1/nodes")["items"])
    if f"cpu-model.node.kubevirt.io/{MODEL}" not in node_labels(guest_host):
        pytest.skip(f"a guest cannot be a {MODEL} here")
    vms = {"named": MODEL, "unheard-of": "Pentium-VIII"}
    for name, model in vms.items():
        vm = a_bare_vm(name)
        vm["spec"]["template"]["spec"]["domain"]["cpu"] = {"model": model}
        guest_host.apply(vm)
    try:
        until("Running", lambda: guest_host.word("named") == "Running")
        until("waiting", lambda: guest_host.word("unheard-of") == "ErrorUnschedulable")
        assert guest_host.qemus("unheard-of") == []
    finally:
        guest_host.discard(*vms)
