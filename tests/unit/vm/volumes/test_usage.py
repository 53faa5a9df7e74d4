"""A claim is in use as long as a machine names it or its guest has not let go of it."""

from typing import Any

from livevirt.kube.control.cache import Key
from livevirt.vm.volumes.usage import has_left, machine_claims


def a_machine(volumes: list[Any], told: list[Any]) -> Any:
    return {
        "metadata": {"namespace": "ns", "name": "web"},
        "spec": {"domain": {}, "volumes": volumes},
        "status": {"volumeStatus": told},
    }


def attached(name: str, claim: str, **more: Any) -> Any:
    return {"name": name, "persistentVolumeClaimInfo": {"claimName": claim}, **more}


def test_claims_are_those_of_the_spec_and_those_still_attached() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "one"}},
        {"name": "b", "dataVolume": {"name": "two"}},
    ]
    told = [attached("a", "one"), attached("c", "three", hotplugVolume={})]
    found = machine_claims(a_machine(volumes, told))
    assert sorted(found) == [Key("ns", "one"), Key("ns", "three"), Key("ns", "two")]


def test_a_claim_that_is_copied_from_is_in_use_until_the_guest_has_left_it() -> None:
    machine = a_machine([{"name": "a", "persistentVolumeClaim": {"claimName": "new"}}], [])
    machine["status"] |= {"nodeName": "n", "phase": "Running"}
    done = has_left(machine, Key("ns", "old"))
    source, destination = {"claimName": "old"}, {"claimName": "new"}
    move = {"volumeName": "a", "sourcePVCInfo": source, "destinationPVCInfo": destination}
    machine["status"]["migratedVolumes"] = [move]
    assert (done, has_left(machine, Key("ns", "old"))) == (True, False)
    assert not has_left(machine, Key("ns", "new"))


def test_a_guest_that_was_not_placed_has_left_nothing() -> None:
    assert not has_left(a_machine([], []), Key("ns", "old"))


def test_once_it_is_gone_the_claim_is_free() -> None:
    assert machine_claims(a_machine([], [])) == []
