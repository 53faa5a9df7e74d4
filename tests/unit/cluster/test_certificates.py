"""Certificates are replaced in time, and every client trusts the one that is served."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest

from livevirt import x509
from livevirt.cluster import certificates
from livevirt.cluster.certificates import Lifetimes, Material, renewed

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
NAMES = ("livevirt-webhook.kubevirt.svc", "127.0.0.1")
YEAR = Lifetimes(timedelta(days=360), timedelta(days=60))
DAY = timedelta(days=1)


def trusts(bundle: bytes, material: Material) -> bool:
    """Return whether a client with a bundle trusts the serving certificate."""
    return any(x509.is_signed_by(material.serving.certificate, each) for each in x509.split(bundle))


def test_given_nothing_then_an_authority_signs_a_certificate_for_every_name() -> None:
    made = renewed(None, NAMES, NOON, YEAR)
    assert set(x509.addresses(made.serving.certificate)) == set(NAMES)
    assert made.bundle == (made.authority.certificate,)
    assert trusts(made.trusted, made)
    ssl.create_default_context(cadata=made.trusted.decode())


def test_given_certificates_with_most_of_their_life_left_then_nothing_changes() -> None:
    made = renewed(None, NAMES, NOON, YEAR)
    assert renewed(made, NAMES, NOON + 39 * DAY, YEAR) == made
    assert certificates.due(made, NOON, YEAR) == 40 * DAY


def test_given_a_third_of_its_life_left_then_the_serving_certificate_is_replaced() -> None:
    made = renewed(None, NAMES, NOON, YEAR)
    later = renewed(made, NAMES, NOON + 41 * DAY, YEAR)
    assert later.serving != made.serving
    assert (later.authority, later.bundle) == (made.authority, made.bundle)


def test_given_a_new_name_then_the_serving_certificate_is_replaced() -> None:
    made = renewed(None, NAMES, NOON, YEAR)
    assert renewed(made, NAMES[:1], NOON, YEAR) == made
    moved = renewed(made, (*NAMES, "10.0.0.7"), NOON, YEAR)
    assert "10.0.0.7" in x509.addresses(moved.serving.certificate)


def test_given_an_old_authority_then_its_successor_is_trusted_before_it_signs() -> None:
    made = renewed(renewed(None, NAMES, NOON, YEAR), NAMES, NOON + 239 * DAY, YEAR)
    then = NOON + 241 * DAY
    announced = renewed(made, NAMES, then, YEAR)
    assert announced.successor is not None
    assert announced.bundle == (made.authority.certificate, announced.successor.certificate)
    assert trusts(made.trusted, announced)  # clients that have not seen the new bundle yet

    assert renewed(announced, NAMES, then + YEAR.settle / 2, YEAR) == announced
    unseen = renewed(announced, NAMES, then + DAY, YEAR, published=False)
    assert unseen == announced

    signing = renewed(announced, NAMES, then + YEAR.settle, YEAR)
    assert signing.authority == announced.successor
    assert signing.successor is None
    assert trusts(announced.trusted, signing)
    assert not trusts(made.trusted, signing)


def test_given_expired_authorities_then_they_are_no_longer_trusted() -> None:
    material = renewed(None, NAMES, NOON, YEAR)
    for day in range(0, 3 * 360, 1):
        now = NOON + day * DAY
        clients = material.trusted
        material = renewed(material, NAMES, now, YEAR)
        assert trusts(clients, material), f"on day {day}"
        assert len(material.bundle) <= 3
        for pair in (material.authority, material.serving):
            assert x509.Validity.of(pair.certificate).end > now + DAY
        assert x509.Validity.of(material.bundle[0]).end > now


def test_given_everything_has_expired_then_it_starts_over() -> None:
    made = renewed(None, NAMES, NOON, YEAR)
    again = renewed(made, NAMES, NOON + 400 * DAY, YEAR)
    assert again.authority != made.authority
    assert trusts(again.trusted, again)


def test_the_secret_holds_everything() -> None:
    made = renewed(renewed(None, NAMES, NOON, YEAR), NAMES, NOON + 241 * DAY, YEAR)
    assert made.successor is not None
    secret = certificates.to_secret(made, "certificates", "kubevirt", {})
    assert secret["type"] == "kubernetes.io/tls"
    assert certificates.from_secret(secret) == made


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "authority.key", "ca.crt"])
@pytest.mark.parametrize("damage", ["missing", "not base64", "not a certificate"])
def test_given_a_damaged_secret_then_it_holds_nothing(key: str, damage: str) -> None:
    secret = certificates.to_secret(renewed(None, NAMES, NOON, YEAR), "c", "kubevirt", {})
    if damage == "missing":
        del secret["data"][key]
    else:
        secret["data"][key] = "?" if damage == "not base64" else "aGVsbG8="
    assert certificates.from_secret(secret) is None
