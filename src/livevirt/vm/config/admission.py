"""The KubeVirt object: wrong settings are refused, so what is stored is what is in force."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from livevirt.kube.objects import times
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules
from livevirt.vm.config.settings import ALLOW_LOOSER
from livevirt.vm.instancetypes.rules.matchers import POLICIES
from livevirt.vm.volumes.admission import wrong

_AT = "spec.configuration"
_STRATEGIES = ("Stage", "LiveUpdate")
_EVICTION = ("None", "LiveMigrate", "LiveMigrateIfPossible", "External")
_FLAGS = ("true", "false")
_METHODS = ("LiveMigrate", "Evict")
_SMALLEST_OVERCOMMIT = 10  # percent
_MIGRATION_NUMBERS = (
    "parallelMigrationsPerCluster", "parallelOutboundMigrationsPerNode", "progressTimeout",
    "completionTimeoutPerGiB", "utilityVolumesTimeout", "maxDowntimeMs",
)  # fmt: skip


class KubeVirtRules(Rules):
    """What the KubeVirt object must be."""

    def validate(self, review: Review) -> list[FieldError]:
        """List settings that cannot be followed."""
        if review.subresource:
            return []
        spec = review.new.get("spec") or {}
        settings = spec.get("configuration") or {}
        return [
            *_annotation_errors(review.new["metadata"].get("annotations") or {}),
            *_gate_errors(settings.get("developerConfiguration") or {}),
            *_choice_errors(spec, settings),
            *_number_errors(settings),
        ]


def _annotation_errors(annotations: Object) -> Iterator[FieldError]:
    allowed = annotations.get(ALLOW_LOOSER)
    if allowed not in (None, *_FLAGS):
        yield _not_among(f"metadata.annotations[{ALLOW_LOOSER}]", allowed, _FLAGS)


def _gate_errors(developer: Object) -> Iterator[FieldError]:
    disabled = developer.get("disabledFeatureGates") or ()
    for gate in developer.get("featureGates") or ():
        if gate in disabled:
            message = (
                f'feature gate "{gate}" exists on both "FeatureGates" and "DisabledFeatureGates"'
            )
            yield wrong(f"{_AT}.developerConfiguration.disabledFeatureGates", message)


def _choice_errors(spec: Object, settings: Object) -> Iterator[FieldError]:
    for field, allowed in (("vmRolloutStrategy", _STRATEGIES), ("evictionStrategy", _EVICTION)):
        value = settings.get(field)
        if value is not None and value not in allowed:
            yield _not_among(f"{_AT}.{field}", value, allowed)
    policy = (settings.get("instancetype") or {}).get("referencePolicy")
    if policy is not None and policy not in POLICIES:
        yield _not_among(f"{_AT}.instancetype.referencePolicy", policy, POLICIES)
    updates = spec.get("workloadUpdateStrategy") or {}
    for method in updates.get("workloadUpdateMethods") or ():
        if method not in _METHODS:
            at = "spec.workloadUpdateStrategy.workloadUpdateMethods"
            yield _not_among(at, method, _METHODS)
    if interval := updates.get("batchEvictionInterval"):
        try:
            times.parse_duration(interval)
        except times.TimeError as error:
            yield wrong("spec.workloadUpdateStrategy.batchEvictionInterval", str(error))
    if (size := updates.get("batchEvictionSize")) is not None and size < 0:
        yield wrong("spec.workloadUpdateStrategy.batchEvictionSize", "must not be negative")


def _number_errors(settings: Object) -> Iterator[FieldError]:
    developer = settings.get("developerConfiguration") or {}
    if (ratio := developer.get("cpuAllocationRatio")) is not None and ratio <= 0:
        at = f"{_AT}.developerConfiguration.cpuAllocationRatio"
        yield wrong(at, "must be greater than 0")
    overcommit = developer.get("memoryOvercommit")
    if overcommit is not None and overcommit < _SMALLEST_OVERCOMMIT:
        at = f"{_AT}.developerConfiguration.memoryOvercommit"
        yield wrong(at, f"must be at least {_SMALLEST_OVERCOMMIT} percent")
    live = settings.get("liveUpdateConfiguration") or {}
    for field in ("maxHotplugRatio", "maxCpuSockets"):
        if (number := live.get(field)) is not None and number < 0:
            yield wrong(f"{_AT}.liveUpdateConfiguration.{field}", "must not be negative")
    yield from _migration_errors(settings.get("migrations") or {})
    extra = settings.get("additionalGuestMemoryOverheadRatio")
    if extra and not _at_least_one(extra):
        at = f"{_AT}.additionalGuestMemoryOverheadRatio"
        yield wrong(at, "must be a number that is at least 1.0")


def _migration_errors(migrations: Object) -> Iterator[FieldError]:
    for field in _MIGRATION_NUMBERS:
        if (number := migrations.get(field)) is not None and number < 0:
            yield wrong(f"{_AT}.migrations.{field}", "must not be negative")
    bandwidth = migrations.get("bandwidthPerMigration")
    if bandwidth is not None and parse(bandwidth).nano < 0:
        yield wrong(f"{_AT}.migrations.bandwidthPerMigration", "must not be negative")


def _at_least_one(text: str) -> bool:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    return number.is_finite() and number >= 1


def _not_among(at: str, value: str, allowed: tuple[str, ...]) -> FieldError:
    message = f"{value!r} is none of {', '.join(allowed)}"
    return wrong(at, message, "FieldValueNotSupported")
