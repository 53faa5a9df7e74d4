"""DataVolumes: one source, one target, and neither changes."""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.admission.checks import immutable
from livevirt.admission.review import Review, Rules
from livevirt.admission.vm_disks import wrong
from livevirt.api.field_error import FieldError
from livevirt.api.request import Object


class DataVolumeRules(Rules):
    """What a DataVolume must be."""

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with a new one, or that the spec of an old one changed."""
        if review.subresource:
            return []
        if review.old is not None:
            return immutable("spec", review.new["spec"], review.old["spec"])
        return list(source_errors("spec", review.new["spec"]))


def source_errors(at: str, spec: Object) -> Iterator[FieldError]:
    """Yield what keeps a DataVolume from being filled, or from having somewhere to be."""
    target = [key for key in ("pvc", "storage") if spec.get(key) is not None]
    if not target:
        yield wrong(f"{at}.pvc", "Missing Data volume PVC or Storage")
    elif len(target) > 1:
        message = "Duplicate storage definition, both target storage and target pvc defined"
        yield wrong(f"{at}.storage", message)
    claim = spec.get(target[0]) if target else {}
    populated = (claim or {}).get("dataSource") or (claim or {}).get("dataSourceRef")
    source, reference = spec.get("source"), spec.get("sourceRef")
    if populated:
        if source is not None or reference is not None:
            yield wrong(at, "External population is incompatible with Source and SourceRef")
        return
    if (source is None) == (reference is None):
        message = "Data volume should have either Source, SourceRef, or be externally populated"
        yield wrong(f"{at}.source", message)
        return
    if source is not None:
        given = [key for key, value in source.items() if value is not None]
        if not given:
            yield wrong(f"{at}.source", "Missing dataVolume valid source")
        elif len(given) > 1:
            yield wrong(f"{at}.source", "Multiple dataVolume sources")
