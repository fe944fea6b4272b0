"""Issues the certificates of a control plane: of its servers, and of its users."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = timedelta(days=365)  # training-operator renews what ends within 90 days
_CLOCK_SKEW = timedelta(minutes=5)
_RSA_BITS = 2048

_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate and of its key, in PEM."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority whose files stay in one folder."""

    def __init__(self, folder: Path, name: str = "kubernetes-ca", *, is_rsa: bool = False) -> None:
        """Make the authority's key, RSA or of an elliptic curve, and its certificate, also for the DNS name `name`."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._subject = _name(name, ())
        self._key: _Key = rsa.generate_private_key(65537, _RSA_BITS) if is_rsa else _curve_key()
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = _builder(self._subject, self._subject, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        self.files = self._write("ca", builder.sign(self._key, SHA256()), self._key)

    def issue(
        self, file: str, user: str, groups: Sequence[str] = (), addresses: Sequence[str] = ("127.0.0.1",)
    ) -> Certificate:
        """Issue a certificate of a user, or of a server at these addresses; `file`: the name of its files."""
        key = _curve_key()
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(_name(user, groups), self._subject, key.public_key())
        builder = builder.add_extension(uses, critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([_address(one) for one in addresses]), False)
        return self._write(file, builder.sign(self._key, SHA256()), key)

    def _write(self, file: str, certificate: x509.Certificate, key: _Key) -> Certificate:
        """Write a certificate and its key, which only this user may read."""
        files = Certificate(self.folder / f"{file}.crt", self.folder / f"{file}.key")
        files.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        files.key.touch(mode=0o600)
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
        return files


def _curve_key() -> ec.EllipticCurvePrivateKey:
    """Make a key of the curve P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def _builder(subject: x509.Name, issuer: x509.Name, key: _PublicKey) -> x509.CertificateBuilder:
    """Begin a certificate that is valid from now on."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFE)
    )


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    """Return the subject in which Kubernetes reads the groups (O) and the user (CN)."""
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _address(text: str) -> x509.GeneralName:
    """Return an IP address as one, and all else as a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
