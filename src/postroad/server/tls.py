"""TLS contexts for the ports that clients connect to, and for links between brokers."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from postroad.config import ConfigError
from postroad.security import BrokerKeys, KeyFault

if TYPE_CHECKING:
    from postroad.config import LinkTlsConfig, NetworkConfig, TlsConfig

__all__ = ["LinkTls", "console_context", "link_keys", "link_tls", "server_context"]


def server_context(config: TlsConfig | None, section: str = "tls") -> ssl.SSLContext | None:
    """The context that the settings describe: TLS 1.2 or newer, and client certificates if they name a CA.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    if config is None:
        return None
    context = _context(ssl.Purpose.CLIENT_AUTH, section, config.certificate, config.key)
    if config.client_ca is not None:
        _believe(context, f"{section}: client_ca", config.client_ca)
    return context


class LinkTls(NamedTuple):
    """How links are wrapped: when this broker is dialled, when it dials, and the certificate it shows (DER)."""

    listening: ssl.SSLContext
    dialling: ssl.SSLContext
    certificate: bytes


def link_tls(config: LinkTlsConfig | None) -> LinkTls | None:
    """Contexts for links, where both ends show certificates that the network's own authority vouches for.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    if config is None:
        return None
    listening, dialling = (
        _context(purpose, "network.tls", config.certificate, config.key)
        for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH)
    )
    for context in (listening, dialling):
        _believe(context, "network.tls: ca", config.ca)
    # The file was read above; its first certificate is the broker's own.
    end = "-----END CERTIFICATE-----"
    text = Path(config.certificate).read_text("ascii")
    own = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN") : text.index(end)] + end)
    return LinkTls(listening, dialling, own)


def console_context(config: NetworkConfig | None, links: LinkTls | None) -> ssl.SSLContext | None:
    """How the console checks the certificates of other brokers' admin endpoints; None as the system does.

    By default the authority of the links vouches for admin endpoints too. Where links have certificates, the console
    shows this broker's: `admin_tls.client_ca` of the others may ask for one.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    if config is None or config.admins_ca is None:
        return None if links is None else links.dialling
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.tls is not None:
        context = _context(ssl.Purpose.SERVER_AUTH, "network.tls", config.tls.certificate, config.tls.key)
    _believe(context, "network: admins_ca", config.admins_ca)
    return context


def link_keys(config: NetworkConfig, number: int) -> BrokerKeys | None:
    """The private key of this broker and the public ones of all; None when the network has none.

    Raises:
        ConfigError: a key cannot be read, or is not that of the broker.
    """
    if config.key is None:
        return None
    try:
        private = Path(config.key).read_bytes()
        return BrokerKeys(config.name, number, private, {one.number: one.key for one in config.members})
    except OSError as error:
        raise ConfigError(f"network.key: {config.key} cannot be read ({error.strerror})") from error
    except KeyFault as error:
        raise ConfigError(f"network.key: {config.key}: {error}") from error


def _context(purpose: ssl.Purpose, what: str, certificate: str, key: str) -> ssl.SSLContext:
    # `create_default_context` would take the system's authorities for links as well.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if purpose is ssl.Purpose.CLIENT_AUTH else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{what}: certificate {certificate} with key {key}: {error}; "
            "both are PEM files, and the key belongs to the certificate and has no password"
        ) from error
    return context


def _believe(context: ssl.SSLContext, what: str, authorities: str) -> None:
    """Ask the other end for a certificate of these."""
    try:
        context.load_verify_locations(authorities)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what} {authorities}: {error}; it is a PEM file") from error
    context.verify_mode = ssl.CERT_REQUIRED


def _no_password() -> bytes:
    """Called for a key with a password; without this OpenSSL would ask for it at the terminal, and wait."""
    raise ValueError("the key has a password")
