"""Create a cluster's keys, certificates and kubeconfig files."""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=365)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Authority:
    """A certificate authority whose files are `NAME.crt` and `NAME.key` in a directory."""

    directory: Path
    name: str
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, directory: Path, name: str) -> Authority:
        """Create an authority and write its files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(f"livevirt-test-{name}")
        builder = _builder(subject, subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        usage = {name: False for name in _KEY_USAGES} | {"key_cert_sign": True, "crl_sign": True}
        builder = builder.add_extension(x509.KeyUsage(**usage), True)
        certificate = builder.sign(key, hashes.SHA256())
        _write_pair(directory / name, certificate, key)
        return cls(directory, name, certificate, key)

    def issue(
        self,
        file: str,
        common_name: str,
        organization: str | None = None,
        hosts: Iterable[str] = (),
    ) -> None:
        """Write a certificate for client and server use as `FILE.crt` and `FILE.key`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(common_name, organization)
        builder = _builder(subject, self.certificate.subject, key.public_key())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False)
        if names := [_general_name(host) for host in hosts]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        _write_pair(self.directory / file, builder.sign(self.key, hashes.SHA256()), key)


_KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def create_service_account_key(directory: Path) -> None:
    """Write the key pair that signs service account tokens as `sa.key` and `sa.pub`."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_private(directory / "sa.key", key)
    (directory / "sa.pub").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def write_kubeconfig(path: Path, server: str, directory: Path, user: str) -> None:
    """Write a kubeconfig that contains the certificates, so it can be copied anywhere.

    It is JSON, which is YAML too.
    """

    def encoded(file: str) -> str:
        return base64.b64encode((directory / file).read_bytes()).decode()

    cluster = {"server": server, "certificate-authority-data": encoded("ca.crt")}
    credentials = {
        "client-certificate-data": encoded(f"{user}.crt"),
        "client-key-data": encoded(f"{user}.key"),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "default", "context": {"cluster": "cluster", "user": user}}],
        "current-context": "default",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2) + "\n")


def _subject(common_name: str, organization: str | None = None) -> x509.Name:
    names = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        names.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(names)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_pair(path: Path, certificate: x509.Certificate, key: Key) -> None:
    path.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(path.with_suffix(".key"), key)


def _write_private(path: Path, key: Key) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
