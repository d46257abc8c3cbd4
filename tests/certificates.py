"""Certificates for tests, made anew: an authority, servers, clients, and ones that must not be accepted."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A certificate and its key as PEM files; `both` holds them in one, as Kafka wants them."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """An authority of its own in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basics = x509.BasicConstraints(ca=True, path_length=0)
        built = self._builder(self._name, self._key.public_key(), 30).add_extension(basics, critical=True)
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        built = built.add_extension(usage, critical=True)
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, hosts: tuple[str, ...] = LOOPBACK, days: int = 30, password: str = "") -> Pair:
        """A certificate for these hosts; of the past with negative `days`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        built = self._builder(subject, key.public_key(), days).add_extension(names, critical=False)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = built.add_extension(signer, critical=False).sign(self._key, hashes.SHA256())
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        locked = serialization.BestAvailableEncryption(password.encode()) if password else None
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked or serialization.NoEncryption()
        )
        pair = Pair(
            certificate=self._folder / f"{name}.pem", key=self._folder / f"{name}.key",
            both=self._folder / f"{name}.both.pem",
        )  # fmt: skip
        for path, data in ((pair.certificate, pem), (pair.key, private), (pair.both, private + pem)):
            path.touch(mode=0o600)
            path.write_bytes(data)
        return pair

    def _builder(self, subject: x509.Name, public: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        begin, end = (now - timedelta(days=1), now + timedelta(days=days)) if days > 0 else (
            now + timedelta(days=days - 1), now + timedelta(days=days))  # fmt: skip
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
