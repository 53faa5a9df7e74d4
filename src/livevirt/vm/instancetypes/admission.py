"""Admission of instance types and preferences, in either version."""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.kube.objects.field_checks import MAX_INT32
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules
from livevirt.vm.instancetypes.rules import sizes
from livevirt.vm.kinds import conversion as versions
from livevirt.vm.volumes.admission import wrong

IO_THREADS = ("shared", "auto", "supplementalPool")
PAGE_SIZES = ("2Mi", "1Gi")
_LAUNCH_SECURITY = (
    "launchSecurity is deprecated and will be removed in a future release. Use preference instead."
)
_NOT_TOGETHER = (
    "spec.memory.overcommitPercent and spec.memory.hugepages should not be requested together."
)
_LARGEST_CEILING = 2**32 - 1


class InstancetypeRules(Rules):
    """What an instance type must be."""

    def default(self, obj: Object) -> None:
        """Write down parts that say nothing: with them both versions can show the same object."""
        for part, _ in versions.SIZES:
            if obj["spec"].get(part) is None:
                obj["spec"][part] = {}

    def prepare(self, review: Review) -> None:
        """Warn of what is on its way out."""
        if _changed(review) and review.new["spec"].get("launchSecurity") is not None:
            review.warnings.append(_LAUNCH_SECURITY)

    def validate(self, review: Review) -> list[FieldError]:
        """List sizes that no guest can have."""
        if not _changed(review):
            return []
        spec = review.new["spec"]
        return [
            *_size_errors(review),
            *_ceiling_errors(spec),
            *_overcommit_errors(spec["memory"]),
            *_choice_errors(spec),
        ]


def _changed(review: Review) -> bool:
    return review.old is None or review.new["spec"] != review.old["spec"]


def _size_errors(review: Review) -> Iterator[FieldError]:
    """A size is above zero, or left open; v1beta1 can keep one open but not make it so."""
    new, old = review.new["spec"], (review.old or {}).get("spec") or {}
    for part, _ in versions.SIZES:
        guest = new[part].get("guest")
        if guest is None:
            continue
        at = f"spec.{part}.guest"
        if versions.is_open(part, guest):
            was_open = old and versions.is_open(part, (old.get(part) or {}).get("guest"))
            if review.version != versions.OLD or not was_open:
                yield wrong(
                    at,
                    f"{at} '{guest}': must be greater than 0;"
                    f" {versions.STORED} may leave it out, so that the VM sets it",
                )
        elif part == "cpu" and not 0 < guest <= MAX_INT32:
            yield wrong(at, f"{at} '{guest}': must be greater than 0 and fit into 32 bits")
        elif part == "memory" and parse(guest).nano < 0:
            yield wrong(at, f"{at} '{guest}': must be greater than 0")


def _ceiling_errors(spec: Object) -> Iterator[FieldError]:
    sockets = spec["cpu"].get("maxSockets") or 0
    if not 0 <= sockets <= _LARGEST_CEILING:
        at = "spec.cpu.maxSockets"
        yield wrong(at, f"{at} '{sockets}': must be greater than or equal to 0")
    guest, most = spec["memory"].get("guest"), spec["memory"].get("maxGuest")
    if most is None:
        return
    at = "spec.memory.maxGuest"
    if parse(most).nano <= 0:
        yield wrong(at, f"{at} '{most}': must be greater than 0")
    elif guest is not None and parse(most) < parse(guest):
        yield wrong(at, f"{at} '{most}': must not be less than spec.memory.guest '{guest}'")


def _overcommit_errors(memory: Object) -> Iterator[FieldError]:
    percent, at = memory.get("overcommitPercent") or 0, "spec.memory.overcommitPercent"
    if not 0 <= percent <= 100:
        yield wrong(at, f"{at} '{percent}': must be in range between 0 and 100.")
    if percent and memory.get("hugepages") is not None:
        yield wrong(at, _NOT_TOGETHER)


def _choice_errors(spec: Object) -> Iterator[FieldError]:
    """What no VM of the type could start with is said here, not at each of them."""
    policy = spec.get("ioThreadsPolicy")
    if policy is not None and policy not in IO_THREADS:
        at = "spec.ioThreadsPolicy"
        yield wrong(at, f"{at} '{policy}': must be one of: {', '.join(IO_THREADS)}")
    pages = spec["memory"].get("hugepages")
    if pages is not None and (size := pages.get("pageSize") or "") not in PAGE_SIZES:
        at = "spec.memory.hugepages.pageSize"
        yield wrong(at, f"{at} '{size}': must be one of: {', '.join(PAGE_SIZES)}")


_OLDER_FIRMWARE = {
    "preferredUseEfi": "preferredEfi",
    "preferredUseSecureBoot": "preferredEfi.secureBoot",
}


class PreferenceRules(Rules):
    """What a preference must be."""

    def prepare(self, review: Review) -> None:
        """Warn of what is on its way out."""
        if _preference_changed(review):
            review.warnings += _warnings(review.new["spec"])

    def validate(self, review: Review) -> list[FieldError]:
        """List what no VM could follow."""
        if not _preference_changed(review):
            return []
        spec = review.new["spec"]
        problem = sizes.problem(spec)
        return [*([] if problem is None else [wrong(*problem)]), *_requirement_errors(spec)]


def _preference_changed(review: Review) -> bool:
    return review.old is None or review.new["spec"] != review.old["spec"]


def _warnings(spec: Object) -> Iterator[str]:
    wanted = (spec.get("cpu") or {}).get("preferredCPUTopology") or ""
    if wanted in sizes.ALIASES:
        yield (
            f"PreferredCPUTopology {wanted} is deprecated for removal in a future release, please"
            f" use {sizes.ALIASES[wanted]} instead"
        )
    for older, newer in _OLDER_FIRMWARE.items():
        if (spec.get("firmware") or {}).get(older) is not None:
            yield (
                f"spec.firmware.{older} is deprecated for removal in a future release, please use"
                f" spec.firmware.{newer} instead"
            )


def _requirement_errors(spec: Object) -> Iterator[FieldError]:
    least = ((spec.get("requirements") or {}).get("cpu") or {}).get("guest") or 0
    if least < 0:
        at = "spec.requirements.cpu.guest"
        yield wrong(at, f"{at} '{least}': must be greater than or equal to 0")
