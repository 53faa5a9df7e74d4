"""Certificates of a component: which ones are needed, decided from what there is and the time.

An authority of our own signs the serving certificate. Both are replaced when a third of their life
is left. A new authority is trusted first, by being part of the bundle that clients verify with, and
signs only after every client has had time to see that bundle; so no moment exists at which a
client does not trust the certificate it is shown.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from livevirt import x509
from livevirt.kube.objects.request import Object
from livevirt.x509 import Pair, Subject, Validity

_AUTHORITY_NAME = "livevirt-ca"
_LEFT = 1 / 3  # of its life: then a certificate is replaced


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long certificates are valid."""

    authority: timedelta = timedelta(days=365)
    serving: timedelta = timedelta(days=60)

    @property
    def settle(self) -> timedelta:
        """How long a new authority is only trusted before it signs."""
        return min(timedelta(minutes=2), self.authority / 20)


DEFAULT = Lifetimes()


@dataclass(frozen=True, slots=True)
class Material:
    """What the Secret of a component holds."""

    authority: Pair
    serving: Pair
    bundle: tuple[bytes, ...]  # trusted authorities, the newest last
    successor: Pair | None = field(default=None)  # an authority that is trusted and does not sign

    @property
    def trusted(self) -> bytes:
        """The bundle as one PEM."""
        return b"".join(self.bundle)


def renewed(
    material: Material | None,
    names: tuple[str, ...],
    now: datetime,
    lifetimes: Lifetimes = DEFAULT,
    *,
    published: bool = True,
) -> Material:
    """Return the certificates to use now, the same ones if none has to be replaced.

    `published` is whether every client is known to have the bundle of `material`.
    """
    if material is None or Validity.of(material.authority.certificate).end <= now:
        authority = x509.new_authority(_AUTHORITY_NAME, now, lifetimes.authority)
        serving = _served_by(authority, names, now, lifetimes)
        return Material(authority, serving, (authority.certificate,))
    material = _with_authorities(material, now, lifetimes, published)
    if _is_serving(material, names, now):
        return material
    return replace(material, serving=_served_by(material.authority, names, now, lifetimes))


def due(material: Material, now: datetime, lifetimes: Lifetimes) -> timedelta:
    """Return after how long certificates may have to be replaced."""
    moments = [_replacement(pair) for pair in (material.authority, material.serving)]
    if material.successor is not None:
        moments.append(_issued(material.successor) + lifetimes.settle)
    return max(min(moments) - now, timedelta())


def _with_authorities(
    material: Material, now: datetime, lifetimes: Lifetimes, published: bool
) -> Material:
    """Return the material with the authorities that are trusted and that signs now."""
    bundle = tuple(each for each in material.bundle if Validity.of(each).end > now)
    authority, successor = material.authority, material.successor
    if successor is not None and published and _issued(successor) + lifetimes.settle <= now:
        authority, successor = successor, None
    elif successor is None and _replacement(authority) <= now:
        successor = x509.new_authority(_AUTHORITY_NAME, now, lifetimes.authority)
        bundle = (*bundle, successor.certificate)
    return replace(material, authority=authority, successor=successor, bundle=bundle)


def _is_serving(material: Material, names: tuple[str, ...], now: datetime) -> bool:
    certificate = material.serving.certificate
    return (
        _replacement(material.serving) > now
        and set(names) <= set(x509.addresses(certificate))
        and x509.is_signed_by(certificate, material.authority.certificate)
    )


def _served_by(
    authority: Pair, names: tuple[str, ...], now: datetime, lifetimes: Lifetimes
) -> Pair:
    left = Validity.of(authority.certificate).end - now
    subject = Subject(names[0], x509.SERVER, addresses=names)
    return x509.issue(authority, subject, now, min(lifetimes.serving, left))


def _issued(pair: Pair) -> datetime:
    return Validity.of(pair.certificate).start + x509.SKEW


def _replacement(pair: Pair) -> datetime:
    """Return when a certificate is to be replaced."""
    end = Validity.of(pair.certificate).end
    return end - (end - _issued(pair)) * _LEFT


# ---------------------------------------------------------------- the Secret

_SERVING = ("tls.crt", "tls.key")
_AUTHORITY = ("authority.crt", "authority.key")
_SUCCESSOR = ("successor.crt", "successor.key")
_BUNDLE = "ca.crt"


def to_secret(material: Material, name: str, namespace: str, labels: dict[str, str]) -> Object:
    """Return the Secret that holds certificates."""
    content = {_BUNDLE: material.trusted}
    pairs = [(_SERVING, material.serving), (_AUTHORITY, material.authority)]
    if material.successor is not None:
        pairs.append((_SUCCESSOR, material.successor))
    for (certificate, key), pair in pairs:
        content |= {certificate: pair.certificate, key: pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
    }


def from_secret(secret: Object | None) -> Material | None:
    """Return the certificates in a Secret, None if some are missing or damaged."""
    data = (secret or {}).get("data") or {}
    try:
        content = {key: base64.b64decode(value, validate=True) for key, value in data.items()}
        found = Material(
            _pair(content, _AUTHORITY),
            _pair(content, _SERVING),
            tuple(x509.split(content[_BUNDLE])),
            _pair(content, _SUCCESSOR) if _SUCCESSOR[0] in content else None,
        )
        pairs = [each for each in (found.authority, found.serving, found.successor) if each]
        whole = all(pair.matches for pair in pairs)
    except (KeyError, ValueError):
        return None
    return found if whole and found.authority.certificate in found.bundle else None


def _pair(content: dict[str, bytes], names: tuple[str, str]) -> Pair:
    return Pair(content[names[0]], content[names[1]])
