"""TLS contexts for the ports that clients connect to."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from postroad.server.config import ConfigError

if TYPE_CHECKING:
    from postroad.server.config import TlsConfig

__all__ = ["server_context"]


def server_context(config: TlsConfig | None) -> ssl.SSLContext | None:
    """The context that the settings describe: TLS 1.2 or newer, and client certificates if they name a CA.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    if config is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.certificate, config.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tls: certificate {config.certificate} with key {config.key}: {error}; "
            "both are PEM files, and the key belongs to the certificate and has no password"
        ) from error
    if config.client_ca is not None:
        try:
            context.load_verify_locations(config.client_ca)
        except (OSError, ValueError) as error:
            raise ConfigError(f"tls: client_ca {config.client_ca}: {error}; it is a PEM file") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> bytes:
    """Called for a key with a password; without this OpenSSL would ask for it at the terminal, and wait."""
    raise ValueError("the key has a password")
