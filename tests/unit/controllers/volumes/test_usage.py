"""A claim is in use as long as a machine names it or its guest has not let go of it."""

from typing import Any

from livevirt.control.key import Key
from livevirt.controllers.volumes.usage import machine_claims


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


def test_once_it_is_gone_the_claim_is_free() -> None:
    assert machine_claims(a_machine([], [])) == []
