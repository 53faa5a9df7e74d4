"""`spec.instancetype` and `spec.preference`: what a VM names, and whether the names stay in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds as virt_kinds

REJECT, IGNORE = "Reject", "Ignore"


@dataclass(frozen=True, slots=True, eq=False)
class Role:
    """Instance type or preference: the two are found in the same way under other names."""

    field: str  # of the VM's spec
    noun: str
    matcher: str
    namespaced: Kind
    cluster: Kind
    not_found: str  # reason of the VM's Failure condition
    reference: str  # the field of the VM's status that names what is in use
    spellings: Mapping[str, Kind]  # of both kinds, in lower case

    @property
    def path(self) -> str:
        """Where the matcher is in the VM."""
        return f"spec.{self.field}"

    def kind(self, text: str) -> Kind | None:
        """Return the kind a matcher's `kind` names, any spelling, empty for the cluster's."""
        return self.spellings.get(text.lower()) if text else self.cluster


def _spellings(*kinds: Kind) -> dict[str, Kind]:
    return {name: kind for kind in kinds for name in (kind.singular, kind.plural)}


INSTANCETYPE = Role(
    "instancetype", "instance type", "InstancetypeMatcher", virt_kinds.INSTANCETYPE,
    virt_kinds.CLUSTER_INSTANCETYPE, "FailedFindInstancetype", "instancetypeRef",
    _spellings(virt_kinds.INSTANCETYPE, virt_kinds.CLUSTER_INSTANCETYPE),
)  # fmt: skip
PREFERENCE = Role(
    "preference", "preference", "PreferenceMatcher", virt_kinds.PREFERENCE,
    virt_kinds.CLUSTER_PREFERENCE, "FailedFindPreference", "preferenceRef",
    _spellings(virt_kinds.PREFERENCE, virt_kinds.CLUSTER_PREFERENCE),
)  # fmt: skip
ROLES = (INSTANCETYPE, PREFERENCE)


def matcher_errors(vm: Object) -> list[FieldError]:
    """List what is wrong with the matchers of a VM, before anything is looked up."""
    found: list[FieldError] = []
    for role in ROLES:
        matcher = vm["spec"].get(role.field)
        if matcher is not None:
            found += _errors(role, matcher)
    return found


def _errors(role: Role, matcher: Object) -> Iterator[FieldError]:
    at, infer = role.path, matcher.get("inferFromVolume")
    if not matcher.get("name") and not infer:
        message = f"Either Name or InferFromVolume should be provided within the {role.matcher}"
        yield FieldError(at, "FieldValueNotFound", message)
    if infer:
        for field in ("name", "kind"):
            if matcher.get(field):
                message = (
                    f"{field.capitalize()} already set, should be cleared before setting"
                    " inferFromVolume"
                )
                yield FieldError(f"{at}.{field}", "FieldValueNotSupported", message)
    elif role.kind(matcher.get("kind") or "") is None:
        message = f"got unexpected kind in {role.matcher}: {matcher['kind'].lower()}"
        yield FieldError(f"{at}.kind", "FieldValueInvalid", message)
    policy = matcher.get("inferFromVolumeFailurePolicy")
    if policy is not None and policy not in (REJECT, IGNORE):
        message = f"Invalid value '{policy}' for InferFromVolumeFailurePolicy"
        yield FieldError(f"{at}.inferFromVolumeFailurePolicy", "FieldValueInvalid", message)


REFERENCE, EXPAND, EXPAND_ALL = "reference", "expand", "expandAll"
POLICIES = (REFERENCE, EXPAND, EXPAND_ALL)


def reference_policy(kubevirt: Object | None) -> str:
    """Return the policy of the cluster."""
    settings = ((kubevirt or {}).get("spec") or {}).get("configuration") or {}
    return str((settings.get("instancetype") or {}).get("referencePolicy") or REFERENCE)


def to_be_rewritten(vm: Object, policy: str) -> bool:
    """Return whether a VM is to lose its matchers: by `expand` only one that holds no revision."""
    if policy == REFERENCE or not any(vm["spec"].get(role.field) for role in ROLES):
        return False
    status = status_of(vm)
    held = any((status.get(role.reference) or {}).get("controllerRevisionRef") for role in ROLES)
    return policy == EXPAND_ALL or not held


T = TypeVar("T")


Fetch = Callable[[Kind, str, str], Awaitable[Object | None]]


class Lookup(Protocol):
    """What a decision may look up. Instance types come in the stored version."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, never to be changed, or None if there is none."""


class _Unread(Exception):
    def __init__(self, key: tuple[Kind, str, str]) -> None:
        self.key = key


class _Read:
    """Holds the objects at hand or fetched; raises for each other one that is read."""

    def __init__(self, at_hand: Lookup | None) -> None:
        self.known: dict[tuple[Kind, str, str], Object | None] = {}
        self._at_hand = at_hand

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        key = (kind, name, namespace if kind.namespaced else "")
        if key in self.known:
            return self.known[key]
        found = self._at_hand.get(*key) if self._at_hand is not None else None
        if found is None:
            raise _Unread(key)
        return found


async def decide(decision: Callable[[Lookup], T], fetch: Fetch, at_hand: Lookup | None = None) -> T:
    """Return what a pure decision comes to, fetching what it looks up and is not at hand.

    The decision is made again after each missing object, so it must only depend on them. They
    are few, and a decision costs less than the fetch.
    """
    read = _Read(at_hand)
    while True:
        try:
            return decision(read)
        except _Unread as missing:
            read.known[missing.key] = await fetch(*missing.key)
