"""What the pod of a guest that changes its size must hold, and why it may not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from livevirt.errors import ApiError
from livevirt.kube.client.refusals import Refusal, classify
from livevirt.kube.control import backoff
from livevirt.kube.objects import conditions
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.config.settings import Config
from livevirt.vm.lifecycle.vmi.launcher import CONTAINER
from livevirt.vm.migration import migratability
from livevirt.vm.sizing import baseline, hot_change
from livevirt.vm.sizing.hot_change import Obstacle
from livevirt.vm.sizing.reservation import held, qos_class, reported_size, reservation, resized
from livevirt.vm.spec import instance
from livevirt.vm.spec.resources import Compute, Namespace
from livevirt.vm.verdict.growth import BY_MIGRATION, amounts, growth, needs_migration, shortages
from livevirt.vm.verdict.headroom import under_limit_ranges, under_quotas
from livevirt.vm.verdict.judgement import Reason

_FIRST_WAIT, _LONGEST_WAIT = 2, 60  # seconds
_PLUG_WAIT = timedelta(seconds=3)  # in which a node that tries again reports how that goes


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a namespace lets its pods have."""

    quotas: Sequence[Object] = ()
    ranges: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A resize that is asked for, and what the answer and its message depend on."""

    need: Compute
    bounds: Bounds
    hindrance: str = ""  # why the guest may not leave a node that is too small for it


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a change has failed, and when it did last.

    Where the API server refused it also what was asked for and what that met. Where QEMU did, also
    since when it may try again: until it has, what its node reports is of the attempt before.
    """

    count: int = 0
    last: datetime | None = None
    refused: Ask | None = None
    obstacle: Obstacle | None = None
    retried: datetime | None = None

    def failed(self, now: datetime) -> Attempts:
        """Return them with one more."""
        return Attempts(self.count + 1, now)

    def again(self, now: datetime) -> Attempts:
        """Return them with one that has just begun."""
        return Attempts(self.count, retried=now)

    def waits(self, ask: Ask, now: datetime) -> bool:
        """Return whether just that was refused so lately that it is not asked again."""
        return self.refused == ask and bool(self.wait(now))

    def is_trying(self, now: datetime) -> bool:
        """Return whether an attempt has begun so lately that nothing is known of it."""
        return self.retried is not None and now < self.retried + _PLUG_WAIT

    def wait(self, now: datetime) -> timedelta:
        """Return how long to leave it alone: longer each time, and nothing once that is over."""
        if self.retried is not None:
            return max(self.retried + _PLUG_WAIT - now, timedelta(0))
        if self.last is None:
            return timedelta(0)
        seconds = backoff.delay(self.count, _FIRST_WAIT, _LONGEST_WAIT)
        return max(self.last + timedelta(seconds=seconds) - now, timedelta(0))


def needed(vmi: Object, namespace: Namespace, *, back: bool = False) -> Compute:
    """Return what the pod must hold now; `back`: only what the guest already has."""
    has = reported_size(vmi)
    return held(vmi, has, namespace) if back else reservation(vmi, has, namespace)


def containers(vmi: Object, pod: Object, need: Compute) -> list[Object] | None:
    """Return the pod's containers with the resources they need, None if they have them."""
    found = [
        {**each, "resources": _resized(vmi, each, need)} if each["name"] == CONTAINER else each
        for each in pod["spec"]["containers"]
    ]
    return None if found == pod["spec"]["containers"] else found


def _resized(vmi: Object, container: Object, need: Compute) -> Object:
    own = instance.read(vmi["spec"]).domain.resources.limits
    return resized(container.get("resources") or {}, need, own)


def by_migration(vmi: Object, pod: Object, need: Compute, config: Config) -> str:
    """Return why the pod cannot come to hold what it must where it is; empty if it can or does."""
    has = _asked(pod).requests
    changed = [n for n, amount in need.requests.items() if parse(has.get(n, 0)) != parse(amount)]
    reason = needs_migration(instance.read(vmi["spec"]), changed, config)
    for container in pod["spec"]["containers"]:
        if container["name"] == CONTAINER and reason is None:
            reason = _changes_kind(vmi, container, need)
    return BY_MIGRATION[reason] if reason is not None else ""


def _changes_kind(vmi: Object, container: Object, need: Compute) -> Reason | None:
    """Return why a pod cannot get such resources at all once it is created."""
    has = container.get("resources") or {}
    if baseline.left_behind(vmi, has):
        return Reason.LIMIT_REMOVED
    same = qos_class(has) == qos_class(_resized(vmi, container, need))
    return None if same else Reason.QOS_CLASS


def waiting(vmi: Object, why: str, config: Config) -> Obstacle:
    """Return the obstacle of a change that takes a migration."""
    message = "; ".join(filter(None, (why, migratability.hindrance(vmi, config))))
    return Obstacle(hot_change.WAITING_FOR_MIGRATION, message)


def moving(vmi: Object) -> Obstacle | None:
    """Return the obstacle of a change whose guest is on its way to another pod."""
    found = hot_change.obstacle(vmi)
    if found is None or found.reason != hot_change.WAITING_FOR_MIGRATION:
        return found
    target = vmi["status"]["migrationState"].get("targetNode", "another node")
    return Obstacle(found.reason, f"the guest is being migrated to {target}")


def is_plug_failed(vmi: Object) -> bool:
    """Return whether QEMU has refused a change, as its node reports."""
    listed = status_of(vmi).get("conditions")
    return any(
        (conditions.find(listed, type_) or {}).get("reason") == hot_change.PLUG_FAILED
        for type_ in hot_change.under_way(vmi)
    )


def refusal(error: ApiError, pod: Object, ask: Ask) -> Obstacle:
    """Return the obstacle that a resize has met which the API server did not allow."""
    message, has, bounds = error.message, _asked(pod), ask.bounds
    asked, more = amounts(has), growth(has, ask.need)
    match classify(error):
        case Refusal.QUOTA:
            short = shortages(more, tuple(under_quotas(pod, asked, bounds.quotas)))
            missing = "; ".join(each for _, each in short) or message
            cure = "it resumes automatically when there is room"
            return Obstacle(hot_change.OVER_QUOTA, f"{missing}; {cure}")
        case Refusal.NODE_CAPACITY:
            next_move = ask.hindrance or "the guest is to migrate to a node that has room"
            return Obstacle(hot_change.INFEASIBLE, f"{message}; {next_move}")
        case Refusal.LIMIT_RANGE:
            short = shortages(more, tuple(under_limit_ranges(pod, asked, bounds.ranges)))
            missing = "; ".join(each for _, each in short) or message
            cure = "it resumes automatically when that changes"
            return Obstacle(hot_change.OVER_LIMIT_RANGE, f"{missing}; {cure}")
    return Obstacle(hot_change.RESIZE_REFUSED, message)


def _asked(pod: Object) -> Compute:
    """Return what the pod's container asks for today."""
    for container in pod["spec"]["containers"]:
        if container["name"] == CONTAINER:
            resources = container.get("resources") or {}
            return Compute(resources.get("requests") or {}, resources.get("limits") or {}, 0)
    return Compute({}, {}, 0)
