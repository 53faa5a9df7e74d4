"""Which half of an object a door writes: the main one leaves `status` alone, `status` the rest."""

from __future__ import annotations

import copy

from livevirt.admission.review import Review
from livevirt.api.request import Object


def keep_other_half(review: Review) -> None:
    """Put back, in an update, what its door may not write."""
    if review.old is None or review.verb != "update":
        return
    if review.subresource == "status":
        stay(review.new, review.old, "spec")
    elif not review.subresource:
        stay(review.new, review.old, "status")


def stay(new: Object, old: Object, key: str) -> None:
    """Make `key` of an object what it was."""
    if key in old:
        new[key] = copy.deepcopy(old[key])
    else:
        new.pop(key, None)
