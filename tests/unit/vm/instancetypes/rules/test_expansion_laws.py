"""Laws of expansion, over instance types, preferences and templates of any shape."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.request import Object
from livevirt.kube.objects.structural import prune, validate
from livevirt.vm.instancetypes.rules.expansion import Sizing, expand
from livevirt.vm.kinds import VMI

flags = st.sampled_from((None, True, False))
sizes = st.sampled_from(("512Mi", "1Gi", "2Gi", "3G"))


def part(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    """An object with any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


cpus = part(
    guest=st.integers(1, 16), model=st.just("m"), dedicatedCPUPlacement=flags,
    isolateEmulatorThread=flags, maxSockets=st.integers(0, 32), realtime=st.just({}),
    numa=st.just({"guestMappingPassthrough": {}}),
)  # fmt: skip
memories = part(
    guest=sizes, maxGuest=sizes, hugepages=st.just({"pageSize": "2Mi"}),
    overcommitPercent=st.integers(0, 100),
)  # fmt: skip
instancetypes = st.none() | part(
    cpu=cpus, memory=memories, nodeSelector=st.just({"a": "b"}), schedulerName=st.just("s"),
    ioThreadsPolicy=st.just("auto"), ioThreads=st.just({"supplementalPoolThreadCount": 2}),
    annotations=st.just({"k": "type"}), gpus=st.just([{"name": "g"}]),
    hostDevices=st.just([{"name": "h"}]), launchSecurity=st.just({"sev": {}}),
)  # fmt: skip
topologies = st.sampled_from(("sockets", "cores", "threads", "spread", "any", "preferSpread", "no"))
buses = st.sampled_from(("virtio", "scsi", "sata"))
preferences = st.none() | part(
    cpu=part(
        preferredCPUTopology=topologies,
        spreadOptions=part(
            ratio=st.integers(0, 4),
            across=st.sampled_from(("SocketsCores", "CoresThreads", "SocketsCoresThreads")),
        ),
        preferredCPUFeatures=st.just([{"name": "vmx", "policy": "require"}]),
    ),
    devices=part(
        preferredDiskBus=buses, preferredCdromBus=buses, preferredDiskCache=st.just("none"),
        preferredDiskDedicatedIoThread=flags, preferredInterfaceModel=st.just("e1000e"),
        preferredInterfaceMasquerade=st.just({}), preferredAutoattachInputDevice=flags,
        preferredAutoattachPodInterface=flags, preferredRng=st.just({}), preferredTPM=st.just({}),
        preferredPanicDeviceModel=st.just("isa"), preferredVideoType=st.just("virtio"),
        preferredSoundModel=st.just("ich9"), preferredDisableHotplug=flags,
        preferredVirtualGPUOptions=st.just({"display": {}}),
    ),
    features=part(preferredAcpi=st.just({}), preferredHyperv=st.just({"relaxed": {}})),
    firmware=part(
        preferredUseBios=flags, preferredUseEfi=flags, preferredEfi=st.just({"persistent": True}),
        preferredUseBiosSerial=flags,
    ),
    machine=part(preferredMachineType=st.just("q35")),
    clock=part(
        preferredClockOffset=st.just({"utc": {}}), preferredTimer=st.just({"hpet": {}}),
    ),
    preferredSubdomain=st.just("sub"), preferredArchitecture=st.just("amd64"),
    preferredTerminationGracePeriodSeconds=st.just(0), annotations=st.just({"k": "p", "l": "p"}),
)  # fmt: skip
templates = part(
    metadata=part(annotations=st.just({"k": "vm"}), labels=st.just({"l": "1"})),
    spec=st.fixed_dictionaries(
        {
            "domain": st.fixed_dictionaries(
                {"devices": part(
                    disks=st.just([{"name": "v"}, {"name": "c", "cdrom": {}}]), rng=st.none(),
                    interfaces=st.just([{"name": "default"}]), sound=st.just({"name": "s"}),
                    inputs=st.just([{"name": "i", "type": "tablet"}]), tpm=st.just({}),
                )},
                optional={
                    "cpu": part(
                        guest=st.integers(0, 16), sockets=st.integers(0, 4),
                        cores=st.integers(0, 2), model=st.just("own"),
                        features=st.just([{"name": "vmx"}]),
                    ),
                    "memory": part(guest=sizes, maxGuest=st.none()),
                    "firmware": part(uuid=st.just("u"), bootloader=part(efi=st.just({}))),
                    "clock": st.just({"timezone": "Europe/Prague"}),
                },
            ),
        },
        optional={
            "volumes": st.just([{"name": "v"}, {"name": "w"}]),
            "networks": st.just([{"name": "default", "pod": {}}]),
            "nodeSelector": st.just({}),
        },
    ),
)  # fmt: skip
SCHEMA = VMI.schema()


@given(templates, instancetypes, preferences)
def test_given_anything_when_expanded_then_it_ends_well_and_changes_nothing_it_was_given(
    template: Object, instancetype: Object | None, preference: Object | None
) -> None:
    before = copy.deepcopy((template, instancetype, preference))
    found = expand(template, Sizing(instancetype, preference, "t"))
    assert (template, instancetype, preference) == before
    if found.errors:
        assert found.template is template
        assert set(found.conflicts) <= {error.field for error in found.errors}
    else:
        again = expand(template, Sizing(instancetype, preference, "t"))
        assert again.template == found.template


@given(templates, instancetypes, preferences)
def test_given_an_expanded_template_when_read_by_the_schema_then_every_field_is_one_of_an_instance(
    template: Object, instancetype: Object | None, preference: Object | None
) -> None:
    found = expand(template, Sizing(instancetype, preference, "t"))
    if found.errors or "spec" not in found.template:
        return
    unknown: list[str] = []
    vmi = {"apiVersion": VMI.api_version, "kind": VMI.kind, "spec": found.template["spec"]}
    clean = prune(SCHEMA, vmi, unknown)
    assert unknown == []
    assert validate(SCHEMA, clean) == []


@given(templates, instancetypes, preferences)
def test_given_an_expanded_template_when_expanded_with_nothing_then_it_stays_as_it_is(
    template: Object, instancetype: Object | None, preference: Object | None
) -> None:
    found = expand(template, Sizing(instancetype, preference, "t"))
    if not found.errors:
        assert expand(found.template, Sizing()).template is found.template


@given(templates, instancetypes, preferences)
def test_given_a_preference_when_expanded_twice_then_the_second_time_changes_nothing(
    template: Object, instancetype: Object | None, preference: Object | None
) -> None:
    found = expand(template, Sizing(instancetype, preference, "t"))
    if not found.errors and preference is not None:
        again = expand(found.template, Sizing(None, preference))
        assert again.errors == ()
        assert again.template == found.template


@given(templates, instancetypes, preferences)
def test_given_vcpus_when_expanded_then_the_guest_has_exactly_so_many(
    template: Object, instancetype: Object | None, preference: Object | None
) -> None:
    found = expand(template, Sizing(instancetype, preference, "t"))
    said = ((template.get("spec") or {}).get("domain") or {}).get("cpu") or {}
    vcpus = ((instancetype or {}).get("cpu") or {}).get("guest") or said.get("guest")
    if found.errors or not vcpus:
        return
    cpu = found.template["spec"]["domain"]["cpu"]
    assert cpu["sockets"] * cpu["cores"] * cpu["threads"] == vcpus
    assert "guest" not in cpu
