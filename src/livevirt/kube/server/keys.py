"""Keys in use: the server's own certificate authority, and the signatures of tokens (ES256).

Only this module needs `cryptography`, which is slow to import: import it where it is used.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from livevirt.kube.server.pki import Pki

# ---------------------------------------------------------------- certificates

_YEARS = 10
_CA_NAME = "livevirt-ca"


def create_missing(pki: Pki, addresses: tuple[str, ...], now: dt.datetime) -> None:
    """Create what is missing, and a new server certificate for addresses it does not cover."""
    folder = pki.folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key_path = folder / "ca.key"
    if not (pki.ca.exists() and ca_key_path.exists()):
        key = _new_key()
        _write(ca_key_path, _pem(key))
        _write(pki.ca, _root_certificate(key, now).public_bytes(serialization.Encoding.PEM))
    ca_key = serialization.load_pem_private_key(ca_key_path.read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    ca = _Authority(x509.load_pem_x509_certificate(pki.ca.read_bytes()), ca_key, now)
    if not pki.complete(addresses):
        names = [x509.DNSName("localhost"), x509.DNSName("kubernetes.default.svc")]
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        ca.issue(pki.server, "livevirt", usage, names=[*names, *map(_address, addresses)])
    if not pki.admin.exists():
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
        ca.issue(pki.admin, "kubernetes-admin", usage, groups=["system:masters"])
    if not pki.token_key.exists():
        _write(pki.token_key, _pem(_new_key()))
    _write(pki.names, "\n".join(addresses).encode())


def _address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _root_certificate(key: ec.EllipticCurvePrivateKey, now: dt.datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _CA_NAME)])
    return (
        _builder(name, name, key.public_key(), now)
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


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=365 * _YEARS))
    )


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    now: dt.datetime

    def issue(
        self,
        path: Path,
        common_name: str,
        usage: x509.ObjectIdentifier,
        *,
        groups: Sequence[str] = (),
        names: Sequence[x509.GeneralName] = (),
    ) -> None:
        """Write a certificate and its key to a file; `names` are those of a server."""
        key = _new_key()
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        parts.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            _builder(x509.Name(parts), self.certificate.subject, key.public_key(), self.now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(issuer, critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        _write(path, certificate.public_bytes(serialization.Encoding.PEM) + _pem(key))


def _write(path: Path, content: bytes) -> None:
    """Write a file only its owner can read, whole or not at all."""
    temporary = path.with_suffix(f"{path.suffix}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


# ---------------------------------------------------------------- signatures

_HALF = 32  # bytes of each of the two numbers


class Signer:
    """Signs and checks with a private key."""

    def __init__(self, key_path: Path) -> None:
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def sign(self, text: bytes) -> bytes:
        """Return the signature of a text."""
        r, s = decode_dss_signature(self._key.sign(text, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big")

    def signed(self, text: bytes, signature: bytes) -> bool:
        """Return whether a signature of a text is ours."""
        if len(signature) != 2 * _HALF:
            return False
        r, s = (int.from_bytes(half, "big") for half in (signature[:_HALF], signature[_HALF:]))
        try:
            key = self._key.public_key()
            key.verify(encode_dss_signature(r, s), text, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True
