"""Preferences: a topology that follows from them, and no older names without a word."""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules
from livevirt.vm.instancetypes.rules import topology
from livevirt.vm.volumes.disk_admission import wrong

_OLDER_FIRMWARE = {
    "preferredUseEfi": "preferredEfi",
    "preferredUseSecureBoot": "preferredEfi.secureBoot",
}


class PreferenceRules(Rules):
    """What a preference must be."""

    def prepare(self, review: Review) -> None:
        """Warn of what is on its way out."""
        if _changed(review):
            review.warnings += _warnings(review.new["spec"])

    def validate(self, review: Review) -> list[FieldError]:
        """List what no VM could follow."""
        if not _changed(review):
            return []
        spec = review.new["spec"]
        problem = topology.problem(spec)
        return [*([] if problem is None else [wrong(*problem)]), *_requirement_errors(spec)]


def _changed(review: Review) -> bool:
    return review.old is None or review.new["spec"] != review.old["spec"]


def _warnings(spec: Object) -> Iterator[str]:
    wanted = (spec.get("cpu") or {}).get("preferredCPUTopology") or ""
    if wanted in topology.ALIASES:
        yield (
            f"PreferredCPUTopology {wanted} is deprecated for removal in a future release, please"
            f" use {topology.ALIASES[wanted]} instead"
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
