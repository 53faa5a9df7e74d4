"""When the edits of one VM reach its running guest: its rollout strategy and maintenance window.

The annotation `livevirt.io/rollout` of a VM, or else of its namespace, is `LiveUpdate`, `Stage` or
`Window`. It may always be stricter than the strategy of the cluster, and looser only if the
KubeVirt object allows that. Everything here is computed from plain data; the time is an input.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from livevirt.kube.objects import times
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import ALLOW_LOOSER, LIVE_UPDATE_GATE, Config
from livevirt.vm.volumes.admission import wrong

ROLLOUT = "livevirt.io/rollout"
WINDOW = "livevirt.io/maintenance-window"
FORMAT = "MINUTE HOUR DAY MONTH WEEKDAY DURATION TIMEZONE, such as 0 2 * * 6 2h Europe/Berlin"

LIVE_UPDATE, IN_WINDOW, STAGE = "LiveUpdate", "Window", "Stage"
STRATEGIES = (STAGE, IN_WINDOW, LIVE_UPDATE)  # from strict to loose

_LONGEST_TEXT = 200
_SHORTEST, _LONGEST = timedelta(minutes=1), timedelta(days=7)
_CRON_FIELDS = 5


# ---------------------------------------------------------------- maintenance windows


class WindowError(ValueError):
    """The text is no maintenance window."""


@dataclass(frozen=True, slots=True)
class Window:
    """A maintenance window that recurs: it opens by a cron expression in a time zone."""

    cron: str
    duration: timedelta
    zone: ZoneInfo

    def start_after(self, moment: datetime) -> datetime:
        """Return the first start that is later than a moment, in UTC.

        A start in the hour that a change to summer time skips is at the end of that hour; one in
        the hour that is repeated in autumn is in the first of the two, as in Debian's cron.
        """
        for start in CronSim(self.cron, moment.astimezone(self.zone)):
            # In the second of two repeated hours the expression also yields starts in the first.
            if (found := start.astimezone(UTC)) > moment:
                return found
        raise WindowError(f"{self.cron!r} never opens")

    def opens(self, now: datetime) -> datetime | None:
        """Return when the window opens next, None if it is open."""
        start = self.start_after(now - self.duration)
        return start if start > now else None


@functools.lru_cache(maxsize=256)
def parse_window(text: str) -> Window:
    """Return the window that a text describes in the form of `FORMAT`; raises WindowError."""
    words = text.split()
    if len(text) > _LONGEST_TEXT or len(words) != _CRON_FIELDS + 2:
        raise WindowError(f"must be {FORMAT}")
    cron, length, zone = " ".join(words[:_CRON_FIELDS]), *words[_CRON_FIELDS:]
    window = Window(cron, _duration(length), _zone(zone))
    try:
        window.start_after(datetime(2024, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise WindowError(f"{cron!r} is no cron expression: {error}; must be {FORMAT}") from None
    return window


def _duration(text: str) -> timedelta:
    try:
        found = times.parse_duration(text)
    except times.TimeError:
        raise WindowError(f"{text!r} is no duration such as 90m or 2h; must be {FORMAT}") from None
    if not _SHORTEST <= found <= _LONGEST:
        raise WindowError(f"the duration {text} must be between 1m and 168h")
    return found


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # unknown, a directory, or not a relative path
        message = f"{name!r} is no time zone such as UTC or Europe/Berlin; must be {FORMAT}"
        raise WindowError(message) from None


# ---------------------------------------------------------------- the strategy of a VM


@dataclass(frozen=True, slots=True)
class Rollout:
    """How edits of a VM are rolled out at a moment.

    `why` explains a strategy that is not simply the cluster's. `opens` is when the maintenance
    window opens that edits wait for, None if they wait for none.
    """

    strategy: str
    why: str = ""
    opens: datetime | None = None


def decide(vm: Object, namespace: Object | None, cluster: Config, now: datetime) -> Rollout:
    """Return the rollout of a VM's edits, given its namespace and the settings of the cluster.

    What cannot be followed (an unknown strategy or a wrong window, which only a namespace can
    have) stages all edits, because that is the strictest.
    """
    given = LIVE_UPDATE if cluster.live_update else STAGE
    asked, holder = _annotation(ROLLOUT, vm, namespace)
    if not asked or not cluster.enabled(LIVE_UPDATE_GATE):
        return Rollout(given)
    what = f"annotation {ROLLOUT} of the {holder}"
    if asked not in STRATEGIES:
        return Rollout(STAGE, f"{what} is {asked!r}, none of {', '.join(STRATEGIES)}")
    if _is_looser(asked, given) and not cluster.looser_rollout:
        why = (
            f"the rollout strategy is {given}; {what} is {asked}, which the KubeVirt object does"
            f" not allow (annotation {ALLOW_LOOSER})"
        )
        return Rollout(given, why)
    if asked != IN_WINDOW:
        return Rollout(asked, f"{what} is {asked}")
    return _in_window(vm, namespace, now, f"{what} is {asked}")


def _in_window(vm: Object, namespace: Object | None, now: datetime, why: str) -> Rollout:
    text, holder = _annotation(WINDOW, vm, namespace)
    if not text:
        return Rollout(STAGE, f"{why}, but there is no annotation {WINDOW}")
    try:
        opens = parse_window(text).opens(now)
    except WindowError as error:
        return Rollout(STAGE, f"annotation {WINDOW} of the {holder}: {error}")
    return Rollout(IN_WINDOW, why, opens)


def config_of(rollout: Rollout, cluster: Config) -> Config:
    """Return the settings of the cluster as they apply to one VM."""
    given = LIVE_UPDATE if cluster.live_update else STAGE
    in_force = STAGE if rollout.strategy == STAGE else LIVE_UPDATE
    return cluster if in_force == given else replace(cluster, strategy=in_force)


def _is_looser(asked: str, given: str) -> bool:
    return STRATEGIES.index(asked) > STRATEGIES.index(given)


def _annotation(name: str, vm: Object, namespace: Object | None) -> tuple[str, str]:
    """Return the annotation of a VM, or else of its namespace, and which of the two has it."""
    for obj, holder in ((vm, "VM"), (namespace, "namespace")):
        if value := _annotations(obj).get(name):
            return value, holder
    return "", ""


def _annotations(obj: Object | None) -> dict[str, str]:
    found: dict[str, str] = ((obj or {}).get("metadata") or {}).get("annotations") or {}
    return found


# ---------------------------------------------------------------- admission


def is_changed(new: Object, old: Object | None) -> bool:
    """Return whether a write changes how edits of a VM are rolled out."""
    after, before = _annotations(new), _annotations(old)
    return any(after.get(name) != before.get(name) for name in (ROLLOUT, WINDOW))


def errors(vm: Object, namespace: Object | None) -> list[FieldError]:
    """List what is wrong with the annotations of a VM, given its namespace."""
    at, own = "metadata.annotations", _annotations(vm)
    found, strategy = [], own.get(ROLLOUT)
    if strategy is not None and strategy not in STRATEGIES:
        message = f"{strategy!r} is none of {', '.join(STRATEGIES)}"
        found.append(wrong(f"{at}[{ROLLOUT}]", message, "FieldValueNotSupported"))
    if (text := own.get(WINDOW)) is not None:
        try:
            parse_window(text)
        except WindowError as error:
            found.append(wrong(f"{at}[{WINDOW}]", str(error)))
    elif strategy == IN_WINDOW and not _annotations(namespace).get(WINDOW):
        message = f"{ROLLOUT} is {IN_WINDOW}, so the VM or its namespace needs a window: {FORMAT}"
        found.append(wrong(f"{at}[{WINDOW}]", message, "FieldValueRequired"))
    return found


def warnings(vm: Object, namespace: Object | None, cluster: Config, now: datetime) -> list[str]:
    """Return why the rollout strategy that a VM's annotation names is not in force, if so."""
    asked = _annotations(vm).get(ROLLOUT)
    rollout = decide(vm, namespace, cluster, now)
    if not asked or rollout.strategy == asked:
        return []
    if not cluster.enabled(LIVE_UPDATE_GATE):
        return [f"feature gate {LIVE_UPDATE_GATE} is not open, so the rollout strategy is Stage"]
    return [rollout.why]
