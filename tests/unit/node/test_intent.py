from __future__ import annotations

import json

import pytest

from livevirt.node.intent import Exclusive, Intent, Limits, UnknownIntent, decode, encode
from livevirt.qemu.cmdline import argv
from livevirt.qemu.machine import MIB, Cpu, Machine, Memory

MACHINE = Machine(
    name="web",
    uuid="12345678-1234-1234-1234-123456789abc",
    accelerator="tcg",
    cpu=Cpu(model="max"),
    memory=Memory(boot=MIB, max=MIB),
    run_dir="/run/vm",
    serial_log="/serial",
)
OWN = Exclusive(cpus=(1, 2), vcpus=(1,), io_threads={"io0": 2}, emulator=(1, 2))
INTENT = Intent(
    boot_id="b", node="n", namespace="ns", pod="p", pod_uid="u", vmi="v", vmi_uid="w",
    argv=("qemu",), machine=MACHINE, cgroups=(), limits=Limits(), exclusive=OWN, created="now",
)  # fmt: skip


def test_an_intent_is_read_back_as_it_was_written() -> None:
    assert decode(encode(INTENT)) == INTENT


def test_an_intent_of_the_first_version_knows_no_cpus_of_its_own() -> None:
    old = json.loads(encode(INTENT)) | {"version": 1}
    del old["exclusive"], old["machine"]["numa"], old["machine"]["io_threads"]
    found = decode(json.dumps(old).encode())
    assert (found.exclusive, found.machine) == (None, MACHINE)


def test_an_intent_of_the_second_version_knows_no_migration() -> None:
    old = json.loads(encode(INTENT)) | {"version": 2}
    del old["incoming"], old["machine"]["ports"]
    found = decode(json.dumps(old).encode())
    assert (found.incoming, found.machine) == (None, MACHINE)


def test_a_guest_of_an_earlier_release_keeps_the_machine_it_was_started_with() -> None:
    old = json.loads(encode(INTENT))
    del old["machine"]["vmware_port"]
    found = decode(json.dumps(old).encode()).machine
    assert argv(found) == argv(MACHINE)
    assert "vmport=off" in " ".join(argv(found))


def test_an_intent_of_a_later_version_is_not_touched() -> None:
    with pytest.raises(UnknownIntent, match="version 4"):
        decode(json.dumps(json.loads(encode(INTENT)) | {"version": 4}).encode())
