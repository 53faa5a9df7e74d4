"""The body of a verb: the fields its options have, checked; whether it is only a dry run."""

from __future__ import annotations

from typing import NamedTuple

from livevirt.errors import BadRequest
from livevirt.kube.objects import field_error, structural
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import definitions
from livevirt.vm.subresources.call import Call


class Options(NamedTuple):
    """What a request asks for."""

    given: Object
    dry_run: bool
    warnings: tuple[str, ...] = ()  # of fields that nobody knows


def read(call: Call, kind: str) -> Options:
    """Return the options of a request, none if it has no body; raises BadRequest."""
    given, unknown = pruned(kind, call.options)
    return Options(given, dry_run(kind, given), unknown)


def pruned(kind: str, body: Object) -> tuple[Object, tuple[str, ...]]:
    """Return the fields that options of a kind have, and a warning for each of the others."""
    unknown: list[str] = []
    found = structural.prune(definitions()[f"kubevirt.{kind}"], body, unknown)
    return found, tuple(f'unknown field "{path}"' for path in unknown)


def dry_run(kind: str, given: Object) -> bool:
    """Check pruned options; return whether nothing may be changed."""
    if errors := structural.validate(definitions()[f"kubevirt.{kind}"], given):
        raise BadRequest(", ".join(map(str, errors)))
    wanted = given.get("dryRun") or []
    if strange := [each for each in wanted if each != "All"]:
        raise BadRequest(str(field_error.not_supported("dryRun", strange[0], ["All"])))
    return bool(wanted)


def grace(options: Options, field: str) -> int | None:
    """Return the seconds a guest is given to shut down, None if nothing is said of them."""
    value = options.given.get(field)
    if value is None:
        return None
    if not isinstance(value, int):
        raise BadRequest(f"{field} must be a whole number")
    if value < 0:
        raise BadRequest("gracePeriod has to be greater or equal to 0")
    return value
