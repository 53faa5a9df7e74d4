"""Which of the volumes that are there already suits a claim best."""

from __future__ import annotations

from collections.abc import Iterable

from livevirt.kube.objects import storage
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.selector import label_selector


def best(claim: Object, volumes: Iterable[Object]) -> Object | None:
    """Return the smallest free volume that has all the claim asks for, the first by name."""
    suiting = [volume for volume in volumes if is_free(volume) and suits(claim, volume)]
    return min(suiting, key=lambda each: (capacity(each), each["metadata"]["name"]), default=None)


def is_free(volume: Object) -> bool:
    """Return whether nobody has or is promised the volume."""
    return (
        "claimRef" not in volume["spec"]
        and "deletionTimestamp" not in volume["metadata"]
        and (volume.get("status") or {}).get("phase") == "Available"
    )


def suits(claim: Object, volume: Object) -> bool:
    """Return whether the volume is what the claim asks for."""
    wanted, offered = claim["spec"], volume["spec"]
    labels = volume["metadata"].get("labels") or {}
    return (
        capacity(volume) >= storage.size(claim)
        and set(wanted.get("accessModes") or ()) <= set(offered.get("accessModes") or ())
        and storage.class_of(claim) == (offered.get("storageClassName") or "")
        and mode(claim) == mode(volume)
        and ("selector" not in wanted or label_selector(wanted["selector"]).matches(labels))
    )


def promised_to(volume: Object, claim: Object) -> bool:
    """Return whether the volume names the claim, by uid or, before it was bound, by name alone."""
    ref, meta = volume["spec"].get("claimRef"), claim["metadata"]
    if ref is None or (ref.get("namespace"), ref.get("name")) != (meta["namespace"], meta["name"]):
        return False
    return ref.get("uid") in (None, "", meta["uid"])


def held_by(volume: Object, claim: Object) -> bool:
    """Return whether the volume is this very claim's, and no namesake's."""
    ref = volume["spec"].get("claimRef") or {}
    return bool(ref.get("uid") == claim["metadata"]["uid"])


def capacity(volume: Object) -> Quantity:
    """Return how much a volume holds."""
    return parse((volume["spec"].get("capacity") or {}).get("storage", "0"))


def mode(obj: Object) -> str:
    """Return the volume mode of a claim or a volume."""
    return str(obj["spec"].get("volumeMode") or "Filesystem")
