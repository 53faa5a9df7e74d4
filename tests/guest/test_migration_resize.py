"""Sizes that change by moving to another node: where they must, and where there is no room."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from .guest_host import IMAGE, GuestHost, Object, image_missing, until
from .moving_guest import MOVE_SECONDS, MovingGuest, a_movable_vm, two_nodes
from .sized_guest import SWITCHING, alpine, recorded, whole_script

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

KUBEVIRT = ("patch", "kubevirt", "kubevirt", "-n", "kubevirt", "--type", "merge", "-p")
BY_MOVING = {"disabledFeatureGates": ["InPlaceHotplug"]}
MAY_MOVE = {"workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]}}
# Stands in for the script of the requirement that calls kubectl. The catalog is there already.
KUBECTL = '#!/bin/sh\n[ "$1 $2" = "apply -k" ] || exec kubectl "$@"\n'


def configure(host: GuestHost, gates: Object, strategy: Object | None = None) -> None:
    """Change the settings of the cluster."""
    spec: Object = {"configuration": {"developerConfiguration": gates}, **(strategy or {})}
    host.server.kubectl(*KUBEVIRT, json.dumps({"spec": spec}))


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with two_nodes() as host:
        host.server.kubectl("wait", "--for=create", "vmcf/u1.nano", "--timeout=50s")
        yield host


def edit(guest: MovingGuest, **domain: Object) -> None:
    patch = json.dumps({"spec": {"template": {"spec": {"domain": domain}}}})
    guest.host.server.kubectl("patch", "vm", guest.name, "--type", "merge", "-p", patch)


def memory(guest: MovingGuest) -> int:
    """Return the KiB that the guest sees."""
    return int(guest.host.shell(guest.name, "awk '/^MemTotal/ {print $2}' /proc/meminfo"))


@pytest.mark.skipif(not SWITCHING.exists(), reason="the requirements are not here")
def test_the_script_of_the_requirement_runs_as_it_is_written(host: GuestHost) -> None:
    configure(host, BY_MOVING)
    wrapper = host.server.home / "cluster-up" / "kubectl.sh"
    wrapper.parent.mkdir()
    wrapper.write_text(KUBECTL)
    wrapper.chmod(0o755)
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", whole_script()], env=host.server.environment(),
        cwd=host.server.home, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    guest = MovingGuest(host, {"metadata": {"name": "alpine"}})
    host.answers("alpine")
    assert memory(guest) > 900 * 1024
    (migration,) = guest.migrations()
    meta = migration["metadata"]
    assert meta["name"].startswith("kubevirt-workload-update-")
    assert "kubevirt.io/workloadUpdateMigration" in meta["annotations"]
    guest.is_alone()
    until(
        "no condition to be left",
        lambda: not host.condition("vmi", "alpine", "HotMemoryChange"),
        MOVE_SECONDS,
    )
    host.discard("alpine")


@pytest.mark.long
@pytest.mark.skipif(not SWITCHING.exists(), reason="the requirements are not here")
def test_the_script_does_the_same_for_cpus(host: GuestHost) -> None:
    configure(host, BY_MOVING, MAY_MOVE)
    for name, sockets in (("one", 1), ("two", 2)):
        host.apply(a_type(name, sockets))
    guest = MovingGuest(host, alpine())
    guest.vm["spec"]["instancetype"] = {"kind": "VirtualMachineInstancetype", "name": "one"}
    guest.vm["metadata"]["name"] = guest.name = "typed"
    guest.boot()
    before = guest.node
    switch = '{"spec":{"instancetype":{"name":"two","revisionName":""}}}'
    script = f"""
        kubectl patch vms/typed --type merge -p '{switch}'
        kubectl wait vmis/typed --for=condition=HotVCPUChange --timeout=60s
        while ! kubectl get virtualmachineinstancemigrations -l kubevirt.io/vmi-name=typed; do
          sleep 1
        done
        kubectl wait virtualmachineinstancemigrations -l kubevirt.io/vmi-name=typed \\
          --for=jsonpath='{{.status.phase}}'=Succeeded --timeout=60s
        kubectl wait vmis/typed --for=jsonpath='{{.status.currentCPUTopology.sockets}}'=2
    """
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script], env=host.server.environment(),
        cwd=host.server.home, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert guest.node != before
    host.found("typed")
    assert host.shell("typed", "nproc") == "2"
    guest.went_on()
    guest.is_alone()
    host.discard("typed")


def a_type(name: str, sockets: int) -> Object:
    """Return an instance type of so many vCPUs, which are sockets."""
    spec = {"cpu": {"guest": sockets, "maxSockets": 4}, "memory": {"guest": "512Mi"}}
    kind = {"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


@pytest.mark.long
def test_cpus_change_by_a_move_that_exists_as_soon_as_the_condition_does(host: GuestHost) -> None:
    configure(host, BY_MOVING, MAY_MOVE)
    guest = MovingGuest(host, a_movable_vm("cpus"))
    guest.boot()
    before = guest.node
    with recorded(host, "cpus", "HotVCPUChange") as recording:
        edit(guest, cpu={"sockets": 2})
        until("a condition", lambda: "True" in recording.states, MOVE_SECONDS)
        until("a migration", guest.migrations, 2)
        (migration,) = guest.migrations()
        ended = guest.ends(migration["metadata"]["name"])
        assert ended["status"]["phase"] == "Succeeded", ended
        recording.shows("", "True", "")
    assert guest.node != before
    host.found("cpus")
    assert host.shell("cpus", "nproc") == "2"
    assert host.get("vmi", "cpus")["status"]["currentCPUTopology"]["sockets"] == 2
    guest.went_on()
    guest.is_alone()
    host.discard("cpus")


# ------------------------------------------------------------ no room


@pytest.fixture(scope="module")
def small() -> Iterator[GuestHost]:
    """Two nodes, each with room for little more than two small guests."""
    with two_nodes("--node-capacity", "memory=1500Mi") as host:
        configure(host, {"disabledFeatureGates": []}, MAY_MOVE)
        yield host


def on(vm: Object, node: str) -> Object:
    """Return the VM tied to a node."""
    vm["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return vm


def a_filler(node: str) -> Object:
    """Return a VM that only takes room of a node: it stands before its first instruction."""
    vm = on(a_movable_vm("filler", memory={"guest": "500Mi"}), node)
    vm["spec"]["template"]["spec"]["startStrategy"] = "Paused"
    return vm


@pytest.mark.long
def test_given_no_room_on_its_node_then_a_guest_grows_on_the_other(small: GuestHost) -> None:
    guest = MovingGuest(small, a_movable_vm("grower"))
    guest.boot()
    before, had = guest.node, memory(guest)
    small.apply(a_filler(before))
    until("a filler", lambda: small.phase("filler") == "Running", MOVE_SECONDS)
    warned = small.server.run_kubectl(
        "patch", "vm", "grower", "--type", "merge", "--dry-run=server", "-p",
        '{"spec":{"template":{"spec":{"domain":{"memory":{"guest":"768Mi"}}}}}}',
    )  # fmt: skip
    assert "by migration" in warned.stderr
    edit(guest, memory={"guest": "768Mi"})
    until(
        "all of it",
        lambda: small.get("vmi", "grower")["status"]["memory"]["guestCurrent"] == "768Mi",
        MOVE_SECONDS,
    )
    assert guest.node != before
    small.found("grower")
    assert memory(guest) == had + 512 * 1024
    guest.went_on()
    small.discard("grower", "filler")


@pytest.mark.long
def test_given_quota_for_the_difference_only_then_a_guest_grows_in_place(small: GuestHost) -> None:
    guest = MovingGuest(small, a_movable_vm("frugal"))
    guest.boot()
    before, had = guest.node, memory(guest)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tight"},
        "spec": {"hard": {"requests.memory": "900Mi"}},
    }
    small.apply(quota)
    try:
        edit(guest, memory={"guest": "512Mi"})
        until(
            "all of it",
            lambda: small.get("vmi", "frugal")["status"]["memory"]["guestCurrent"] == "512Mi",
            MOVE_SECONDS,
        )
        assert (guest.node, guest.migrations()) == (before, [])
        assert memory(guest) == had + 256 * 1024

        # A second pod would need even more of what is lacking: it waits, and says for what.
        edit(guest, memory={"guest": "1Gi"})

        def told() -> str:
            return str(small.condition("vmi", "frugal", "HotMemoryChange").get("message", ""))

        until("the quota to be named", lambda: "tight" in told(), MOVE_SECONDS)
        assert (guest.node, guest.migrations()) == (before, [])
        edit(guest, memory={"guest": "512Mi"})
        until(
            "nothing to wait for",
            lambda: not small.condition("vmi", "frugal", "HotMemoryChange"),
            MOVE_SECONDS,
        )
    finally:
        small.server.kubectl("delete", "quota", "tight")
    guest.went_on()
    small.discard("frugal")
