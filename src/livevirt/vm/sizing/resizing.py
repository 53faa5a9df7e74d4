"""What the pod of a guest that changes its size must hold, and why it may not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from livevirt.errors import ApiError
from livevirt.kube.objects import conditions
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.lifecycle.vmi.launcher import CONTAINER
from livevirt.vm.migration import migratability
from livevirt.vm.sizing import hot_change
from livevirt.vm.sizing.reservation import held, reservation, resized, told
from livevirt.vm.spec import instance
from livevirt.vm.spec.resources import Compute, Namespace
from livevirt.vm.verdict.growth import BY_MIGRATION, amounts, growth, needs_migration, shortages
from livevirt.vm.verdict.headroom import under_limit_ranges, under_quotas

#: Reasons that are given here, and taken back here.
OURS = (
    hot_change.OVER_QUOTA,
    hot_change.OVER_LIMIT_RANGE,
    hot_change.INFEASIBLE,
    hot_change.RESIZE_REFUSED,
)
_FIRST_WAIT, _LONGEST_WAIT = 2, 60  # seconds


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a namespace lets its pods have."""

    quotas: Sequence[Object] = ()
    ranges: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A resize that is asked for, and what the answer and its words depend on."""

    need: Compute
    bounds: Bounds
    hindrance: str = ""  # why the guest may not leave a node that is too small for it


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a change has failed, and when it did last.

    Where the API server did not allow it also what was asked, and the reason and words to give for
    it as long as they are not written.
    """

    count: int = 0
    last: datetime | None = None
    refused: Ask | None = None
    unsaid: tuple[str, str] | None = None

    def failed(self, now: datetime) -> Attempts:
        """Return them with one more."""
        return Attempts(self.count + 1, now)

    def waits(self, ask: Ask, now: datetime) -> bool:
        """Tell whether just that was refused so lately that it is not asked again."""
        return self.refused == ask and bool(self.wait(now))

    def wait(self, now: datetime) -> timedelta:
        """Return how long to leave it alone: longer each time, and nothing once that is over."""
        if self.last is None:
            return timedelta(0)
        seconds = min(_FIRST_WAIT * 2 ** min(self.count - 1, 10), _LONGEST_WAIT)
        return max(self.last + timedelta(seconds=seconds) - now, timedelta(0))


def needed(vmi: Object, namespace: Namespace, *, back: bool = False) -> Compute:
    """Return what the pod must hold now; `back`: only what the guest already has."""
    has = told(vmi)
    return held(vmi, has, namespace) if back else reservation(vmi, has, namespace)


def containers(pod: Object, need: Compute) -> list[Object] | None:
    """Return the pod's containers with the resources they need, None if they have them."""
    found = [
        {**each, "resources": resized(each.get("resources") or {}, need)}
        if each["name"] == CONTAINER
        else each
        for each in pod["spec"]["containers"]
    ]
    return None if found == pod["spec"]["containers"] else found


def infeasible(pod: Object) -> bool:
    """Tell whether the node says that it never has room for what the pod asks for."""
    listed = (pod.get("status") or {}).get("conditions")
    pending = conditions.find(listed, "PodResizePending") or {}
    return pending.get("reason") == hot_change.INFEASIBLE


def by_migration(vmi: Object, pod: Object, need: Compute, config: Config) -> str:
    """Return why the pod cannot come to hold what it must where it is; empty if it can or does."""
    has = _asked(pod).requests
    changed = [n for n, amount in need.requests.items() if parse(has.get(n, 0)) != parse(amount)]
    reason = needs_migration(instance.read(vmi["spec"]), changed, config)
    return BY_MIGRATION[reason] if reason is not None else ""


def waiting(vmi: Object, why: str, config: Config) -> tuple[str, str] | None:
    """Return what to say of a change that takes a migration, None if that is said already."""
    words = "; ".join(filter(None, (why, migratability.hindrance(vmi, config))))
    return _unless_said(vmi, hot_change.WAITING_FOR_MIGRATION, words)


def moving(vmi: Object) -> tuple[str, str] | None:
    """Return what to say of a change whose guest is being moved, None if that is said already."""
    if reason_of(vmi) != hot_change.WAITING_FOR_MIGRATION:
        return None
    target = vmi["status"]["migrationState"].get("targetNode", "another node")
    words = f"the guest is being migrated to {target}"
    return _unless_said(vmi, hot_change.WAITING_FOR_MIGRATION, words)


def _unless_said(vmi: Object, reason: str, words: str) -> tuple[str, str] | None:
    """Return a reason and words; who began the change may have said more than that."""
    listed = vmi["status"]["conditions"]
    told = [conditions.find(listed, type_) or {} for type_ in hot_change.under_way(vmi)]
    said = all(t.get("reason") == reason and t.get("message", "").endswith(words) for t in told)
    return None if said else (reason, words)


def reason_of(vmi: Object) -> str:
    """Return where the changes of an instance stand, as far as they stand in one place."""
    listed = (vmi.get("status") or {}).get("conditions")
    reasons = {
        (conditions.find(listed, t) or {}).get("reason", "") for t in hot_change.under_way(vmi)
    }
    for reason in (hot_change.PLUG_FAILED, *OURS, hot_change.WAITING_FOR_MIGRATION):
        if reason in reasons:
            return reason
    return ""


def refusal(error: ApiError, pod: Object, ask: Ask) -> tuple[str, str]:
    """Return the reason and words for a resize that the API server did not allow."""
    message, has, bounds = error.message, _asked(pod), ask.bounds
    asked, more = amounts(has), growth(has, ask.need)
    if "exceeded quota" in message:
        short = shortages(more, tuple(under_quotas(pod, asked, bounds.quotas)))
        words = "; ".join(words for _, words in short) or message
        return hot_change.OVER_QUOTA, f"{words}; it goes on by itself when there is room"
    causes = {cause.get("reason") for cause in error.details.get("causes") or ()}
    if "NodeCapacity" in causes or "node didn't have enough" in message:
        next_move = ask.hindrance or "the guest is to migrate to a node that has room"
        return hot_change.INFEASIBLE, f"{message}; {next_move}"
    if "per Container" in message or "per Pod" in message or "limit to request ratio" in message:
        short = shortages(more, tuple(under_limit_ranges(pod, asked, bounds.ranges)))
        words = "; ".join(words for _, words in short) or message
        return hot_change.OVER_LIMIT_RANGE, f"{words}; it goes on by itself when that changes"
    return hot_change.RESIZE_REFUSED, message


def _asked(pod: Object) -> Compute:
    """Return what the pod's container asks for today."""
    for container in pod["spec"]["containers"]:
        if container["name"] == CONTAINER:
            resources = container.get("resources") or {}
            return Compute(resources.get("requests") or {}, resources.get("limits") or {}, 0)
    return Compute({}, {}, 0)
