"""A certificate authority of the tests' own, and the certificate of a host that only who trusts it believes."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

LIFE = timedelta(days=2)


@dataclass(frozen=True)
class Authority:
    """What is trusted (`certificate`), and what 127.0.0.1 shows (`chain`, with its key)."""

    certificate: Path
    chain: Path

    def server(self) -> ssl.SSLContext:
        """What the host serves with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain)
        return context


def found_authority(folder: Path, common_name: str = "an authority of our own") -> Authority:
    """A new one, its files in this folder."""
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    host_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    root = _certificate(root_name, root_name, root_key.public_key())
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    host = _certificate(host_name, root_name, key.public_key())
    host = host.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    authority = Authority(folder / "authority.pem", folder / "host.pem")
    authority.certificate.write_bytes(root.sign(root_key, SHA256()).public_bytes(Encoding.PEM))
    authority.chain.write_bytes(
        host.sign(root_key, SHA256()).public_bytes(Encoding.PEM)
        + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return authority


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
    return builder.not_valid_before(now - LIFE).not_valid_after(now + LIFE)
