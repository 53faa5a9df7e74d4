"""The status of a pod, from what the node sees. Pure; the shape is a kubelet's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.times import format_time
from livevirt.node.exit_record import ExitRecord

UNPAUSED = "kubevirt.io/virtual-machine-unpaused"  # KubeVirt's readiness gate
RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run yet."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Resources:
    """What the node has granted and what is in force; and a resize that is neither, if any."""

    allocated: Object
    in_force: Object
    pending: Waiting | None = None
    failed: str = ""  # why a granted resize could not be put in force


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPod:
    """Everything the status depends on."""

    pod: Object
    now: datetime
    resources: Resources
    address: str = "127.0.0.1"
    pod_addresses: tuple[str, ...] = ()  # the node's own if there are none
    started: str = ""  # when QEMU was started; empty before
    paused: bool = False
    waiting: Waiting | None = None
    ending: ExitRecord | None = None
    ready: bool = True  # by the guest's readiness probe


def status(seen: ObservedPod) -> Object:
    """Return the whole status of a pod that is bound to this node."""
    old = status_of(seen.pod)
    new = {
        **old,
        "phase": _phase(seen),
        "startTime": old.get("startTime") or seen.started or format_time(seen.now),
        "hostIP": seen.address,
        "hostIPs": [{"ip": seen.address}],
        "containerStatuses": [
            _container(seen, each) | _resources(seen)
            for each in seen.pod["spec"].get("containers") or ()
        ],
        "conditions": _conditions(seen),
    }
    if sidecars := seen.pod["spec"].get("initContainers"):  # the console's log lives as QEMU does
        new["initContainerStatuses"] = [_container(seen, each) for each in sidecars]
    if seen.started:
        own = seen.pod_addresses or (seen.address,)
        new |= {"podIP": own[0], "podIPs": [{"ip": each} for each in own]}
    if seen.ending is not None and seen.ending.phase == "Failed":
        message = conditions.human_readable(seen.ending.message)
        new |= {"reason": seen.ending.reason, "message": message}
    return new


def refused(pod: Object, message: str, now: datetime) -> Object:
    """Return the status of a pod this node cannot run at all."""
    found = conditions.with_condition(
        status_of(pod).get("conditions"),
        {"type": "Ready", "status": "False", "reason": "PodFailed"},
        now,
    )
    return {
        **status_of(pod),
        "phase": "Failed",
        "reason": "NotAVirtualMachine",
        "message": conditions.human_readable(message),
        "startTime": format_time(now),
        "conditions": found,
    }


def _phase(seen: ObservedPod) -> str:
    if seen.ending is not None:
        return seen.ending.phase
    return "Running" if seen.started else "Pending"


def _container(seen: ObservedPod, container: Object) -> Object:
    running = bool(seen.started) and seen.ending is None
    found: Object = {
        "name": container["name"],
        "image": container.get("image") or "",
        "imageID": "",
        "restartCount": 0,
        "ready": running and seen.ready,
        "started": running,
        "state": _state(seen),
        "lastState": {},
    }
    if seen.started:
        found["containerID"] = f"qemu://{seen.pod['metadata']['uid']}"
    return found


def _resources(seen: ObservedPod) -> Object:
    found: Object = {"resources": seen.resources.in_force}
    if seen.resources.allocated:
        found["allocatedResources"] = seen.resources.allocated
    return found


def _state(seen: ObservedPod) -> Object:
    ending = seen.ending
    if ending is not None:
        ended = {
            "exitCode": ending.exit_code,
            "reason": _exit_reason(ending),
            "message": conditions.human_readable(ending.message),
            "finishedAt": ending.at,
        }
        if seen.started:
            ended |= {
                "startedAt": seen.started,
                "containerID": f"qemu://{seen.pod['metadata']['uid']}",
            }
        return {"terminated": ended}
    if seen.started:
        return {"running": {"startedAt": seen.started}}
    waiting = seen.waiting or Waiting("ContainerCreating")
    found = {"reason": waiting.reason}
    if waiting.message:
        found["message"] = conditions.human_readable(waiting.message)
    return {"waiting": found}


def _exit_reason(ending: ExitRecord) -> str:
    """Return the reason that container runtimes use for it; the details are in the message."""
    if ending.phase == "Succeeded":
        return "Completed"
    return ending.reason if ending.reason == "OOMKilled" else "Error"


def _conditions(seen: ObservedPod) -> list[Condition]:
    found: list[Condition] = status_of(seen.pod).get("conditions") or []
    for wanted in _wanted(seen):
        found = conditions.with_condition(found, wanted, seen.now)
    for type_, resize in _resize(seen).items():
        if resize is None:
            found = conditions.without_condition(found, type_)
        else:
            found = conditions.with_condition(found, resize, seen.now)
    return found


def _wanted(seen: ObservedPod) -> list[Condition]:
    names = [each["name"] for each in seen.pod["spec"].get("containers") or ()]
    unready: Condition | None = None
    if seen.ending is not None:
        reason = "PodCompleted" if seen.ending.phase == "Succeeded" else "PodFailed"
        unready = {"status": "False", "reason": reason}
    elif not seen.started or not seen.ready:
        message = f"containers with unready status: [{' '.join(names)}]"
        unready = conditions.condition("ContainersReady", False, "ContainersNotReady", message)
    containers: Condition = unready or {"status": "True"}
    wanted: list[Condition] = [
        {"type": "PodReadyToStartContainers", "status": "True"},
        {"type": "Initialized", "status": "True"},
        {**containers, "type": "ContainersReady"},
    ]
    ready = containers
    gates = [gate["conditionType"] for gate in seen.pod["spec"].get("readinessGates") or ()]
    if UNPAUSED in gates and seen.started and seen.ending is None:
        wanted.append(unpaused(seen.paused))
        if seen.paused and unready is None:
            message = f'readiness gate "{UNPAUSED}" is not "True", but False'
            ready = conditions.condition("Ready", False, "ReadinessGatesNotReady", message)
    return [*wanted, {**ready, "type": "Ready"}]


def unpaused(paused: bool) -> Condition:
    """Return the condition of KubeVirt's readiness gate, without a time."""
    if paused:
        return conditions.condition(UNPAUSED, False, "Paused", "the virtual machine is paused")
    return conditions.condition(UNPAUSED, True, "NotPaused", "the virtual machine is not paused")


def _resize(seen: ObservedPod) -> dict[str, Condition | None]:
    found: dict[str, Condition | None] = {RESIZE_PENDING: None, RESIZE_IN_PROGRESS: None}
    if seen.ending is not None:
        return found
    seen_generation = {"observedGeneration": seen.pod["metadata"].get("generation", 1)}
    if (pending := seen.resources.pending) is not None:
        waits = conditions.condition(RESIZE_PENDING, True, pending.reason, pending.message)
        found[RESIZE_PENDING] = waits | seen_generation
    if seen.resources.failed:
        fails = conditions.condition(RESIZE_IN_PROGRESS, True, "Error", seen.resources.failed)
        found[RESIZE_IN_PROGRESS] = fails | seen_generation
    return found
