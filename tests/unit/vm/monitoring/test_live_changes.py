"""The steps of live changes, told by events in the order in which they come."""

from __future__ import annotations

import copy
from typing import Any

from livevirt.kube.control.cache import Change, Key
from livevirt.vm.monitoring.live_changes import LiveChanges, Took

KEY = Key("team", "web")
Object = dict[str, Any]


class World:
    """A VM, its instance and its pod; every change is told with the time it happens at."""

    def __init__(self, *, agent: bool = True) -> None:
        self.changes = LiveChanges()
        self.took: list[tuple[str, str, float]] = []
        self.vm: Object = {"metadata": {"generation": 1}}
        listed = [{"type": "AgentConnected", "status": "True"}] if agent else []
        self.vmi: Object = {
            "metadata": {"uid": "u1"},
            "spec": {"domain": {"cpu": {"sockets": 1}, "memory": {"guest": "512Mi"}}},
            "status": {
                "phase": "Running",
                "conditions": listed,
                "currentCPUTopology": {"sockets": 1},
                "memory": {"guestCurrent": "512Mi"},
            },
        }
        self.pod: Object = {
            "metadata": {
                "namespace": "team", "name": "p", "labels": {"kubevirt.io/created-by": "u1"}
            },
        }  # fmt: skip
        self.resize(0.0, cpu="100m", memory="700Mi")

    def edit(self, at: float) -> None:
        old, self.vm = self.vm, copy.deepcopy(self.vm)
        self.vm["metadata"]["generation"] += 1
        self.changes.vm_changed(Change(KEY, old, self.vm), at)

    def patch(self, at: float, change: Any) -> None:
        old, self.vmi = self.vmi, copy.deepcopy(self.vmi)
        change(self.vmi)
        self._note(self.changes.vmi_changed(Change(KEY, old, self.vmi), at))

    def resize(self, at: float, **requests: str) -> None:
        old, self.pod = self.pod, copy.deepcopy(self.pod)
        told = [{"name": "compute", "resources": {"requests": requests}}]
        self.pod["status"] = {"containerStatuses": told}
        self._note(self.changes.pod_changed(Change(Key("team", "p"), old, self.pod), at))

    def plugged(self, at: float, sockets: int, mib: int) -> None:
        self._note(self.changes.guest_changed(KEY, sockets, mib << 20, at))

    def _note(self, took: list[Took]) -> None:
        self.took += [(each.resource, each.step, round(each.seconds, 3)) for each in took]


def asks_for(sockets: int, memory: str, *types: str) -> Any:
    def change(vmi: Object) -> None:
        vmi["spec"]["domain"] = {"cpu": {"sockets": sockets}, "memory": {"guest": memory}}
        vmi["status"]["conditions"] += [{"type": each, "status": "True"} for each in types]

    return change


def has(sockets: int, memory: str) -> Any:
    def change(vmi: Object) -> None:
        vmi["status"]["currentCPUTopology"] = {"sockets": sockets}
        vmi["status"]["memory"] = {"guestCurrent": memory}

    return change


def done(vmi: Object) -> None:
    listed = vmi["status"]["conditions"]
    vmi["status"]["conditions"] = [each for each in listed if each["type"] == "AgentConnected"]


def test_given_sockets_that_grow_then_each_step_counts_from_the_one_before() -> None:
    world = World()
    world.edit(10.0)
    world.patch(10.1, asks_for(2, "512Mi", "HotVCPUChange"))
    world.resize(10.3, cpu="200m", memory="708Mi")
    world.plugged(10.4, 1, 512)  # something else about the guest is new
    world.plugged(10.7, 2, 512)
    world.plugged(10.8, 2, 512)
    world.patch(11.7, has(2, "512Mi"))
    world.patch(12.0, done)
    assert world.took == [
        ("cpu", "vmi_patched", 0.1),
        ("cpu", "pod_resized", 0.2),
        ("cpu", "plugged", 0.4),
        ("cpu", "confirmed", 1.0),
        ("cpu", "", 2.0),
    ]
    assert not world.changes.under_way(KEY)


def test_given_memory_that_shrinks_then_the_pod_comes_last_even_if_it_is_seen_late() -> None:
    world = World()
    world.edit(10.0)
    world.patch(10.1, asks_for(1, "256Mi", "HotMemoryChange"))
    world.plugged(11.0, 1, 256)
    world.patch(11.5, has(1, "256Mi"))
    world.patch(12.0, done)
    world.resize(12.1, cpu="100m", memory="444Mi")
    assert world.took == [
        ("memory", "vmi_patched", 0.1),
        ("memory", "plugged", 0.9),
        ("memory", "confirmed", 0.5),
        ("memory", "", 2.0),
        ("memory", "pod_resized", 0.6),
    ]


def test_given_a_change_that_is_long_over_then_another_resize_is_not_its_own() -> None:
    world = World()
    world.edit(10.0)
    world.patch(10.1, asks_for(1, "256Mi", "HotMemoryChange"))
    world.patch(11.0, lambda vmi: (has(1, "256Mi")(vmi), done(vmi)))
    world.resize(100.0, cpu="100m", memory="444Mi")
    assert ("memory", "pod_resized") not in [each[:2] for each in world.took]


def test_given_a_guest_without_an_agent_then_it_confirms_nothing() -> None:
    world = World(agent=False)
    world.edit(10.0)
    world.patch(10.1, asks_for(2, "512Mi", "HotVCPUChange"))
    world.plugged(10.5, 2, 512)
    world.patch(11.0, lambda vmi: (has(2, "512Mi")(vmi), done(vmi)))
    assert [each[1] for each in world.took] == ["vmi_patched", "plugged", ""]


def test_given_a_status_that_says_it_is_not_confirmed_then_the_step_is_not_counted() -> None:
    world = World()
    world.edit(10.0)
    world.patch(10.1, asks_for(1, "1Gi", "HotMemoryChange"))

    def unconfirmed(vmi: Object) -> None:
        vmi["status"]["memory"] = {"guestCurrent": "1Gi", "confirmed": False}

    world.patch(11.0, unconfirmed)
    assert [each[1] for each in world.took] == ["vmi_patched"]


def test_given_both_sizes_in_one_edit_then_they_are_timed_apart() -> None:
    world = World()
    world.edit(10.0)
    world.patch(10.1, asks_for(2, "1Gi", "HotVCPUChange", "HotMemoryChange"))
    world.resize(10.2, cpu="200m", memory="1300Mi")
    world.plugged(10.5, 2, 512)
    world.plugged(11.0, 2, 1024)
    steps = [each[:2] for each in world.took]
    assert sorted(steps[:4]) == [
        ("cpu", "pod_resized"), ("cpu", "vmi_patched"),
        ("memory", "pod_resized"), ("memory", "vmi_patched"),
    ]  # fmt: skip
    assert world.took[4:] == [("cpu", "plugged", 0.3), ("memory", "plugged", 0.8)]


def test_given_an_edit_before_our_start_then_its_first_step_is_not_made_up() -> None:
    world = World()
    world.patch(10.1, asks_for(2, "512Mi", "HotVCPUChange"))
    world.plugged(10.6, 2, 512)
    assert world.took == [("cpu", "plugged", 0.5)]


def a_volume(name: str) -> Object:
    return {"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}}


def test_given_a_volume_that_comes_and_goes_then_ready_and_released_are_its_last_steps() -> None:
    world = World()
    world.edit(10.0)
    world.patch(10.1, lambda vmi: vmi["spec"].update(volumes=[a_volume("data")]))
    pending, ready = ({"name": "data", "phase": phase} for phase in ("Pending", "Ready"))
    world.patch(10.2, lambda vmi: vmi["status"].update(volumeStatus=[pending]))
    world.patch(10.6, lambda vmi: vmi["status"].update(volumeStatus=[ready]))
    world.edit(20.0)
    world.patch(20.1, lambda vmi: vmi["spec"].update(volumes=[]))
    world.patch(23.1, lambda vmi: vmi["status"].update(volumeStatus=[]))
    assert world.took == [
        ("volume", "vmi_patched", 0.1),
        ("volume", "plugged", 0.5),
        ("volume", "", 0.6),
        ("volume", "vmi_patched", 0.1),
        ("volume", "confirmed", 3.0),
        ("volume", "", 3.1),
    ]


def test_given_an_instance_that_does_not_run_then_nothing_is_live() -> None:
    world = World()
    world.vmi["status"]["phase"] = "Scheduling"
    world.edit(10.0)
    world.patch(10.1, asks_for(2, "512Mi"))
    assert world.took == []


def test_given_an_instance_that_is_gone_then_nothing_is_kept_of_it() -> None:
    world = World()
    world.edit(10.0)
    world.patch(10.1, asks_for(2, "512Mi", "HotVCPUChange"))
    world.changes.vmi_changed(Change(KEY, world.vmi, None), 11.0)
    world.changes.vm_changed(Change(KEY, world.vm, None), 11.0)
    kept = (world.changes._open, world.changes._held, world.changes._edited)
    assert kept == ({}, {}, {})
