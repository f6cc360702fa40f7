"""Certificates of a network: an authority of its own vouches for each broker's number and host."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from postroad.security.keys import KeyFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["Authority", "Certified", "broker_uri", "certified_number"]

# Long enough not to matter to a network's plans; brokers' certificates are renewed from the same authority.
AUTHORITY_DAYS = 3_650
BROKER_DAYS = 825
# A broker whose clock is slow must not refuse a certificate that was made a moment ago.
_BEFORE = timedelta(days=1)


class Certified(NamedTuple):
    """A certificate and its private key, as PEM files hold them."""

    certificate: bytes
    key: bytes


def broker_uri(network: str, number: int) -> str:
    """The name of a broker in its certificate."""
    return f"postroad://{quote(network, safe='')}/{number}"


def certified_number(certificate: Mapping[str, Any], network: str, numbers: Iterable[int]) -> int | None:
    """Which of these brokers a certificate is for, as `ssl.SSLSocket.getpeercert` gives it.

    Returns:
        None when it names no broker; 0 when it names another one, or one of another network.
    """
    named = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    named = [value for value in named if value.startswith("postroad:")]
    if not named:
        return None
    return next((number for number in numbers if named == [broker_uri(network, number)]), 0)


class Authority:
    """Who vouches for the brokers of one network.

    Args:
        certificate: its certificate, as a PEM file holds it.
        key: its private key, likewise.

    Raises:
        KeyFault: they are not, or are of another kind than those that are made here.
    """

    def __init__(self, certificate: bytes, key: bytes) -> None:
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            loaded = load_pem_private_key(key, None)
            self._certificate = x509.load_pem_x509_certificate(certificate)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise KeyFault(f"not the certificate of an authority and its key without a password: {error}") from None
        if not isinstance(loaded, EllipticCurvePrivateKey):
            raise KeyFault("not the key of an authority that was made here")
        self.certificate = certificate
        self.key = key
        self._key = loaded

    @classmethod
    def new(cls, network: str) -> Authority:
        """A new authority."""
        from cryptography import x509

        key = _new_key()
        builder = (
            _named(f"authority of {network}", AUTHORITY_DAYS)
            .issuer_name(_name(f"authority of {network}"))
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(*_signed(builder, key, key))

    def issue(self, network: str, number: int, host: str) -> Certified:
        """A certificate for a broker of the network, for the host on which its neighbours dial it."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = _new_key()
        names = [_host(host), x509.UniformResourceIdentifier(broker_uri(network, number))]
        builder = (
            _named(f"broker {number} of {network}", BROKER_DAYS)
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        return Certified(*_signed(builder, key, self._key))


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    # 64 characters are all that a common name may have; it is for people.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _named(subject: str, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signed(
    builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey, by: EllipticCurvePrivateKey
) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    certificate = builder.sign(by, SHA256()).public_bytes(Encoding.PEM)
    return certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
