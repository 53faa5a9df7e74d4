"""Running guests resized by name: another instance type, a custom size, an earlier revision."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from livevirt.kube.objects.quantity import parse

from .guest_host import IMAGE, GuestHost, Object, a_vm, image_missing, running_host, until
from .live_guest import BYTES_PER_VCPU, MEMORY, MIB, MILLI_PER_VCPU, PAGE_TABLES
from .sized_guest import (
    CUSTOM,
    SizedGuest,
    alpine,
    booted,
    custom,
    recorded,
    script,
    shell_lines,
)

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
    pytest.mark.skipif(not CUSTOM.exists(), reason="the requirements are not here"),
]

NANO, MICRO = (1, "512Mi"), (1, "1Gi")
REVISIONS = "apis/apps/v1/namespaces/default/controllerrevisions"
TYPES = "apis/instancetype.kubevirt.io/v1beta2/virtualmachineclusterinstancetypes"


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with running_host() as host:
        host.server.kubectl("wait", "--for=create", "vmcf/u1.nano", "--timeout=50s")
        yield host


@pytest.fixture(scope="module")
def switched(host: GuestHost) -> Iterator[SizedGuest]:
    """The VM of the requirement, which every line before the switch has found as it should be."""
    settings, *waits = script()[0]
    host.server.kubectl(*settings)
    host.apply(alpine())
    for line in waits:
        host.server.kubectl(*line)
    with booted(SizedGuest(host, alpine(), NANO)) as guest:
        yield guest


@pytest.fixture
def guest(switched: SizedGuest) -> SizedGuest:
    """That VM as u1.nano, which it was made as."""
    if switched.manifest["spec"]["instancetype"] != {"name": "u1.nano"}:
        assert switched.update("u1.nano").returncode == 0
    switched.has(NANO)
    return switched


# ------------------------------------------------------------ another type


def test_the_script_of_the_requirement_runs_in_place(guest: SizedGuest) -> None:
    switch, *waits = script()[1]
    assert len(waits) == 3
    with recorded(guest.host, guest.name, MEMORY) as recording:
        guest.host.server.kubectl(*switch)
        for line in waits:
            guest.host.server.kubectl(*line)
        recording.shows("", "True", "")
    guest.manifest["spec"]["instancetype"]["name"] = "u1.micro"
    guest.has(MICRO)


def test_given_virtctl_waits_then_it_tells_what_goes_on_and_ends_when_the_guest_has_it(
    guest: SizedGuest,
) -> None:
    for name, size in (("u1.micro", MICRO), ("u1.nano", NANO)):
        done = guest.update(name)
        assert done.returncode == 0, done.stderr
        assert f"switching {guest.name} to {name}: " in done.stderr
        assert f"runs with instance type {name}: 1 vCPU, {size[1]}" in done.stdout
        status = guest.host.get("vmi", guest.name)["status"]
        assert status["memory"]["guestCurrent"] == size[1]
        guest.has(size)


@pytest.mark.long
def test_given_a_type_beyond_the_guests_room_then_a_restart_is_required_until_it_is_taken_back(
    guest: SizedGuest,
) -> None:
    done = guest.update("u1.xlarge")
    assert done.returncode == 2, done.stderr
    assert "VM alpine needs a restart for instance type u1.xlarge" in done.stdout
    assert "domain.memory.guest (AboveMaximum)" in guest.restart_required()["message"]
    assert guest.is_settled()  # half of it would be no size that anybody asked for
    assert guest.look().memory == guest.born.look.memory
    assert guest.update("u1.nano").returncode == 0
    until("nothing to wait", lambda: not guest.restart_required())
    assert "pendingChanges" not in guest.host.get("vm", guest.name)["status"]
    guest.has(NANO)


# ------------------------------------------------------------ an earlier revision


@pytest.mark.long
def test_given_the_revision_of_the_type_before_when_it_is_named_then_the_guest_goes_back_live(
    guest: SizedGuest,
) -> None:
    first = guest.revision
    guest.patch(name="u1.micro")
    guest.has(MICRO)
    second = guest.revision
    guest.patch(name="u1.nano", revisionName=first)
    guest.has(NANO)
    assert guest.revision == first
    kept = {each["metadata"]["name"] for each in guest.host.read(REVISIONS)["items"]}
    assert {first, second} <= kept
    # What was pinned is of another type than the one named now, so it no longer counts.
    guest.patch(name="u1.micro")
    guest.has(MICRO)
    assert guest.revision == second


# ------------------------------------------------------------ a type of one's own


def shell(host: GuestHost, line: str) -> None:
    """Run a line of a shell, which must succeed."""
    done = host.attempt("/bin/bash", "-o", "pipefail", "-c", line)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.fixture
def measured(host: GuestHost) -> Iterator[SizedGuest]:
    """A VM of a type made to measure, both by the lines of the requirement."""
    customize, create = shell_lines()
    shell(host, customize)
    given = f"--name mine --volume-containerdisk src:{IMAGE}"
    line = f"{create.replace('[..]', given)} -"
    shell(host, line)
    (manifest,) = yaml.safe_load_all(host.run(*line.partition(" |")[0].split()))
    with booted(SizedGuest(host, manifest, (4, "4Gi"))) as guest:
        yield guest


@pytest.mark.long
def test_given_a_type_made_to_measure_when_it_is_edited_then_a_vm_gets_it_only_when_asked(
    measured: SizedGuest,
) -> None:
    guest, host = measured, measured.host
    guest.has((4, "4Gi"))
    assert 0.9 < guest.born.look.memory / (4096 * MIB) < 1
    first, instance = guest.revision, host.get("vmi", guest.name)["metadata"]

    edited = "virtctl customize vmf/u1.mysize --name u1.mysize --vcpus 5 --memory 5Gi"
    shell(host, f"{edited} | kubectl apply -f -")
    until("the VM says so", guest.newer)
    assert "u1.mysize is at generation 2, this VM has generation 1" in guest.newer()["message"]
    guest.has((4, "4Gi"))
    assert host.get("vmi", guest.name)["metadata"]["generation"] == instance["generation"]

    assert guest.update("vmf/u1.mysize").returncode == 0
    guest.has((5, "5Gi"))
    until("the VM to have the newest", lambda: not guest.newer())

    guest.patch(revisionName=first)
    guest.has((4, "4Gi"))
    assert guest.revision == first
    until("the VM to say that there is a newer one", guest.newer)


# ------------------------------------------------------------ custom sizes


def of_custom_size(cpu: int, memory: str) -> Object:
    """Return a VM that gives its size itself; o1 needs neither huge pages nor CPUs of its own."""
    vm = a_vm("own", memory=memory)
    vm["spec"]["instancetype"] = {"name": "o1.custom"}
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = {"guest": cpu}
    return vm


class Overcommitted(SizedGuest):
    """A guest whose pod asks for half of its memory."""

    def pod_holds(self, sockets: int, memory: str) -> None:
        grown, requests = parse(memory).bytes - self.born.memory, self.resources["requests"]
        more = grown // 2 + grown // PAGE_TABLES + (sockets - self.born.sockets) * BYTES_PER_VCPU
        assert parse(requests["cpu"]).milli() == sockets * MILLI_PER_VCPU, requests
        assert parse(requests["memory"]).bytes == self.born.requested + more, requests


@pytest.mark.long
def test_given_a_custom_type_when_the_vm_changes_its_size_then_the_guest_follows(
    host: GuestHost,
) -> None:
    host.apply(of_custom_size(*NANO))
    with booted(Overcommitted(host, of_custom_size(*NANO), NANO)) as guest:
        for size in ((3, "1Gi"), (2, "768Mi"), NANO):
            guest.manifest = of_custom_size(*size)
            host.apply(guest.manifest)
            guest.has(size)


@pytest.mark.long
def test_given_a_host_too_small_for_the_exclusive_custom_type_then_its_vm_is_unschedulable(
    host: GuestHost,
) -> None:
    pages = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    if (os.cpu_count() or 1) > 5 and int(pages.read_text()) * 2 >= 4096:
        pytest.skip("this machine has the CPUs and the huge pages that cx1.custom asks for")
    vm, instancetype = custom()
    installed = host.read(f"{TYPES}/cx1.custom")
    assert installed["spec"] == instancetype["spec"]
    assert set(installed["metadata"]["labels"]) == set(instancetype["metadata"]["labels"])
    vm["metadata"] = {"name": "exclusive"}
    vm["spec"]["runStrategy"] = "Always"
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["devices"] = {}
    spec["volumes"] = [{"name": "root", "containerDisk": {"image": IMAGE}}]
    host.apply(vm)
    try:
        until("its word", lambda: host.word("exclusive") == "ErrorUnschedulable")
        why = host.condition("vm", "exclusive", "PodScheduled")
        assert (why["status"], why["reason"]) == ("False", "Unschedulable")
        assert "Insufficient cpu" in why["message"] or "hugepages-2Mi" in why["message"]
        assert host.qemus("exclusive") == []
        assert host.get("vmi", "exclusive")["spec"]["domain"]["cpu"]["sockets"] == 4
    finally:
        host.delete("exclusive")
