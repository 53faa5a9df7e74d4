"""Keys and certificates in memory: a certificate authority and what it issues.

It needs `cryptography`, which is slow to import: import this module where it is used.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SKEW = dt.timedelta(hours=1)  # certificates are valid that long before they are issued
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def matches(self) -> bool:
        """Whether the key is the one of the certificate; both must be readable."""
        certificate = x509.load_pem_x509_certificate(self.certificate)
        return certificate.public_key() == _loaded(self.key).public_key()


@dataclass(frozen=True, slots=True)
class Validity:
    """From when until when a certificate is valid."""

    start: dt.datetime
    end: dt.datetime

    @classmethod
    def of(cls, certificate: bytes) -> Validity:
        """Return the validity of the first certificate in a PEM."""
        found = x509.load_pem_x509_certificate(certificate)
        return cls(found.not_valid_before_utc, found.not_valid_after_utc)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a certificate is issued to, and what for."""

    common_name: str
    usage: x509.ObjectIdentifier
    groups: Sequence[str] = ()
    addresses: Sequence[str] = ()  # DNS names and IP addresses of a server


def new_key() -> bytes:
    """Return a new private key."""
    return _key_pem(ec.generate_private_key(ec.SECP256R1()))


def new_authority(common_name: str, now: dt.datetime, lifetime: dt.timedelta) -> Pair:
    """Return a self-signed certificate authority with a new key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _builder(name, name, key.public_key(), Validity(now - SKEW, now + lifetime))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False,
                encipher_only=False, decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def issue(authority: Pair, subject: Subject, now: dt.datetime, lifetime: dt.timedelta) -> Pair:
    """Return a certificate signed by an authority, with a new key."""
    signer, key = _loaded(authority.key), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.certificate).subject
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in subject.groups]
    parts.append(x509.NameAttribute(NameOID.COMMON_NAME, subject.common_name))
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    validity = Validity(now - SKEW, now + lifetime)
    builder = (
        _builder(x509.Name(parts), issuer, key.public_key(), validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([subject.usage]), critical=False)
        .add_extension(identifier, critical=False)
    )
    if subject.addresses:
        names = x509.SubjectAlternativeName([_general_name(each) for each in subject.addresses])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def addresses(certificate: bytes) -> tuple[str, ...]:
    """Return the DNS names and IP addresses that the first certificate in a PEM covers."""
    found = x509.load_pem_x509_certificate(certificate)
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(each.value) for each in names)


def is_signed_by(certificate: bytes, authority: bytes) -> bool:
    """Return whether an authority has signed the first certificate in a PEM."""
    signed, signer = (x509.load_pem_x509_certificate(each) for each in (certificate, authority))
    try:
        signed.verify_directly_issued_by(signer)
    except Exception:  # of several unrelated types, by what differs
        return False
    return True


def split(bundle: bytes) -> list[bytes]:
    """Return the certificates in a PEM one by one."""
    return [
        each.public_bytes(serialization.Encoding.PEM)
        for each in (x509.load_pem_x509_certificates(bundle) if bundle.strip() else [])
    ]


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, validity: Validity
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.start)
        .not_valid_after(validity.end)
    )


def _loaded(key: bytes) -> ec.EllipticCurvePrivateKey:
    found = serialization.load_pem_private_key(key, None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not an elliptic curve key")
    return found


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
