"""What is read of a VirtualMachine."""

from __future__ import annotations

from livevirt.vm.lifecycle.vm import snapshot

from .vm_builders import a_vm


def test_data_volumes_without_a_name_are_none() -> None:
    vm = a_vm()
    vm["spec"]["dataVolumeTemplates"] = [
        {"spec": {}},
        {"metadata": {}, "spec": {}},
        {"metadata": {"name": ""}, "spec": {}},
        {"metadata": {"name": "disk"}, "spec": {}},
    ]
    assert snapshot.machine(vm).volumes == ("disk",)
    vm["spec"]["dataVolumeTemplates"] = None
    assert snapshot.machine(vm).volumes == ()
