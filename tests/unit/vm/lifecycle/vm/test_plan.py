from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.vm.lifecycle.vm.plan import (
    STARTING,
    AddFinalizer,
    Adopt,
    CreateInstance,
    CreateVolume,
    DeleteInstance,
    RemoveFinalizer,
    Step,
    SwitchToAlways,
    Wait,
    plan,
)
from livevirt.vm.lifecycle.vm.snapshot import Guest, Machine, Request, VmSnapshot

from .vm_builders import NOON, START, STOP, a_guest, a_machine, failed, seen

ENDED, FAILED = a_guest("Succeeded"), a_guest("Failed")
DELETE = [DeleteInstance("g1")]
VOLUMES = {"volumes": ("disk",)}

RULES: dict[str, tuple[VmSnapshot, list[Step]]] = {
    # Always
    "given Always, when none exists, then create": (seen(a_machine()), [CreateInstance()]),
    "given Always, when it runs, then nothing": (seen(a_machine(), a_guest()), []),
    "given Always, when it ended, then delete": (seen(a_machine(), ENDED), DELETE),
    "given Always, when it is being deleted, then wait for its end": (
        seen(a_machine(), a_guest("Succeeded", deleting=True)), [],
    ),
    "given Always, when a stop is asked for, then delete": (
        seen(a_machine(requests=(STOP, START)), a_guest()), DELETE,
    ),
    "given Always, when another guest is to be stopped, then nothing": (
        seen(a_machine(requests=(Request("Stop", "g0"),)), a_guest()), [],
    ),
    "given Always, when starts failed, then wait": (
        seen(a_machine(failure=failed(9))), [Wait(NOON + timedelta(seconds=9))],
    ),
    "given Always, when the wait is over, then create": (
        seen(a_machine(failure=failed(0))), [CreateInstance()],
    ),
    # RerunOnFailure
    "given rerun, when newly chosen, then create": (
        seen(a_machine("RerunOnFailure", known_strategy="Halted")), [CreateInstance()],
    ),
    "given rerun, when it ended before, then nothing": (seen(a_machine("RerunOnFailure")), []),
    "given rerun, when a start is asked for, then create": (
        seen(a_machine("RerunOnFailure", requests=(START,))), [CreateInstance()],
    ),
    "given rerun, when it failed, then delete": (seen(a_machine("RerunOnFailure"), FAILED), DELETE),
    "given rerun, when it succeeded, then delete": (
        seen(a_machine("RerunOnFailure"), ENDED), DELETE,
    ),
    "given rerun, when starts failed, then wait all the same": (
        seen(a_machine("RerunOnFailure", requests=(START,), failure=failed(5))),
        [Wait(NOON + timedelta(seconds=5))],
    ),
    # Manual
    "given Manual, when none exists, then nothing": (seen(a_machine("Manual")), []),
    "given Manual, when a start is asked for, then create": (
        seen(a_machine("Manual", requests=(START,))), [CreateInstance()],
    ),
    "given Manual, when a paused start is asked for, then create it paused": (
        seen(a_machine("Manual", requests=(Request("Start", paused=True),))),
        [CreateInstance(paused=True)],
    ),
    "given Manual, when it ended, then keep it": (seen(a_machine("Manual"), ENDED), []),
    "given Manual, when a stop is asked for, then delete": (
        seen(a_machine("Manual", requests=(STOP,)), a_guest()), DELETE,
    ),
    "given Manual, when the stop is done, then the start is next": (
        seen(a_machine("Manual", requests=(STOP, START))), [CreateInstance()],
    ),
    # Halted
    "given Halted, when none exists, then nothing": (seen(a_machine("Halted")), []),
    "given Halted, when it runs, then delete": (seen(a_machine("Halted"), a_guest()), DELETE),
    "given Halted, when a paused start is asked for, then let it run": (
        seen(a_machine("Halted", requests=(Request("Start", paused=True),))), [SwitchToAlways()],
    ),
    "given Halted, when the start of a restart is left, then nothing": (
        seen(a_machine("Halted", requests=(START,))), [],
    ),
    # Once
    "given Once, when none exists, then create": (seen(a_machine("Once")), [CreateInstance()]),
    "given Once, when it ended, then keep it": (seen(a_machine("Once"), ENDED), []),
    "given Once, when starts failed, then wait": (
        seen(a_machine("Once", failure=failed(9))), [Wait(NOON + timedelta(seconds=9))],
    ),
    # other people's instances
    "given an instance without an owner, then adopt it": (
        seen(a_machine(), a_guest(owner="none")), [Adopt("g1")],
    ),
    "given an instance of another, then leave it alone": (
        seen(a_machine("Halted"), a_guest(owner="another")), [],
    ),
    # finalizer and deletion
    "given a VM without our finalizer, then add it first": (
        seen(a_machine(has_finalizer=False)), [AddFinalizer(), CreateInstance()],
    ),
    "given a deleted VM, when it runs, then delete the guest": (
        seen(a_machine(deleting=True), a_guest()), DELETE,
    ),
    "given a deleted VM, when its guest is going, then wait": (
        seen(a_machine(deleting=True), a_guest(deleting=True)), [],
    ),
    "given a deleted VM, when the guest is gone, then let go": (
        seen(a_machine(deleting=True)), [RemoveFinalizer()],
    ),
    "given a deleted VM, when its guest is to stay, then let go": (
        seen(a_machine(deleting=True, orphaning=True), a_guest()), [RemoveFinalizer()],
    ),
    "given a deleted VM, when only others have finalizers, then nothing": (
        seen(a_machine(deleting=True, has_finalizer=False)), [],
    ),
    # DataVolumes
    "given a missing volume, then make it and do not start": (
        seen(a_machine(**VOLUMES)), [CreateVolume("disk")],
    ),
    "given a halted VM, then make its volume too": (
        seen(a_machine("Halted", **VOLUMES)), [CreateVolume("disk")],
    ),
    "given a halted VM with late volumes, then make none": (
        seen(a_machine("Halted", late_volumes=True, **VOLUMES)), [],
    ),
    "given late volumes, when it starts, then make them": (
        seen(a_machine(late_volumes=True, **VOLUMES)), [CreateVolume("disk")],
    ),
    "given a volume that is being filled, then do not start": (
        seen(a_machine(**VOLUMES), disk="ImportInProgress"), [],
    ),
    "given a volume that waits for its user, then start": (
        seen(a_machine(**VOLUMES), disk="WaitForFirstConsumer"), [CreateInstance()],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("state", "steps"), RULES.values(), ids=RULES)
def test_plan(state: VmSnapshot, steps: list[Step]) -> None:
    assert plan(state) == steps


strategies = st.sampled_from(["Always", "RerunOnFailure", "Manual", "Halted", "Once"])
machines = st.builds(
    Machine,
    st.just("web"),
    strategies,
    known_strategy=strategies,
    deleting=st.booleans(),
    has_finalizer=st.booleans(),
    requests=st.lists(st.sampled_from([START, STOP]), max_size=2).map(tuple),
)
phases = st.sampled_from(["Pending", "Scheduled", "Running", "Succeeded", "Failed"])
guests = st.none() | st.builds(Guest, st.just("g1"), phases, deleting=st.booleans())


def follow(state: VmSnapshot) -> VmSnapshot:
    """Return the world after every step was done and what was deleted is gone."""
    vm, guest = state.vm, state.guest
    if guest is not None and guest.deleting:
        guest = None
    for step in plan(state):
        match step:
            case AddFinalizer():
                vm = replace(vm, has_finalizer=True)
            case RemoveFinalizer():
                vm = replace(vm, has_finalizer=False)
            case CreateInstance():
                guest = Guest("g2", "Running", ran=True)
                vm = replace(vm, known_strategy=vm.strategy)
            case DeleteInstance():
                guest = None
            case SwitchToAlways():
                vm = replace(vm, strategy="Always")
    after = replace(state, vm=vm, guest=guest)
    return replace(after, vm=replace(vm, requests=after.requests))


@given(machines, guests)
def test_given_any_state_when_plans_are_followed_then_it_settles(
    vm: Machine, guest: Guest | None
) -> None:
    state = seen(vm, guest)
    for _ in range(5):
        state = follow(state)
    assert plan(state) == []
    runs = state.guest is not None and not state.guest.final
    if state.vm.deleting:
        assert not state.vm.has_finalizer
    else:
        assert state.vm.has_finalizer
        assert runs or state.vm.strategy != "Always"
        assert not runs or state.vm.strategy != "Halted"


@given(machines, guests)
def test_a_guest_is_never_started_beside_another(vm: Machine, guest: Guest | None) -> None:
    starts = any(isinstance(step, CreateInstance) for step in plan(seen(vm, guest)))
    assert not starts or guest is None


@given(machines, guests)
def test_a_vm_that_fails_to_start_is_not_started_before_its_time(
    vm: Machine, guest: Guest | None
) -> None:
    waiting = replace(vm, failure=failed(60))
    if waiting.strategy in STARTING:
        assert CreateInstance() not in plan(seen(waiting, guest))
