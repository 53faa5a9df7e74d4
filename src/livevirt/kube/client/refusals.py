"""What an API server's refusal is about: the one place that reads the message of an API error.

A refusal is classified by its class, code, reason and causes. Some of a kube-apiserver differ by
wording only: a quota and a LimitRange answer 403 Forbidden without a cause, and so does a
node that is too small for a resize before Kubernetes 1.34. That wording is in Kubernetes' source,
and recorded from a real server in the tests of this module.
"""

from __future__ import annotations

import re
from enum import Enum

from livevirt.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from livevirt.kube.client.errors import Unreachable


class Refusal(Enum):
    """Why an API server did not do what it was asked for."""

    QUOTA = "a ResourceQuota is used up"
    LIMIT_RANGE = "a LimitRange does not allow the amount"
    NODE_CAPACITY = "the node is too small"
    CONFLICT = "the object has changed"
    ALREADY_EXISTS = "there is an object of that name"
    NOT_FOUND = "there is no such object"
    UNREACHABLE = "no server answers"
    OTHER = "something else"


_BY_CLASS: dict[type[ApiError], Refusal] = {
    Unreachable: Refusal.UNREACHABLE,
    NotFound: Refusal.NOT_FOUND,
    AlreadyExists: Refusal.ALREADY_EXISTS,
    Conflict: Refusal.CONFLICT,
}
_BY_CAUSE = {"NodeCapacity": Refusal.NODE_CAPACITY}
_BY_WORDING = [  # of what is Forbidden
    # plugin/pkg/admission/resourcequota
    (re.compile(r"\bexceeded quota: "), Refusal.QUOTA),
    # plugin/pkg/admission/limitranger
    (
        re.compile(
            r"\b(?:minimum|maximum) \S+ usage per (?:Container|Pod|PersistentVolumeClaim) is "
            r"|\bmax limit to request ratio per (?:Container|Pod) is "
        ),
        Refusal.LIMIT_RANGE,
    ),
    # plugin/pkg/admission/podresize
    (
        re.compile(r"\bnode didn't have enough (?:capacity|allocatable resources): "),
        Refusal.NODE_CAPACITY,
    ),
]


def classify(error: ApiError) -> Refusal:
    """Return what a refusal is about."""
    for cause, refusal in _BY_CAUSE.items():
        if cause in causes(error):
            return refusal
    for class_, refusal in _BY_CLASS.items():
        if isinstance(error, class_):
            return refusal
    if isinstance(error, Forbidden):
        for wording, refusal in _BY_WORDING:
            if wording.search(error.message):
                return refusal
    return Refusal.OTHER


def causes(error: ApiError) -> frozenset[str]:
    """Return the reasons of the causes that a refusal names."""
    listed = error.details.get("causes") or ()
    return frozenset(each["reason"] for each in listed if each.get("reason"))
