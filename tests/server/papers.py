"""Certificates for tests of TLS."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import msgspec
import trustme

from postroad.config import LinkTlsConfig, TlsConfig
from postroad.topology import Plan, line
from tests.server.fleet import free_ports

if TYPE_CHECKING:
    from pathlib import Path


def plan_of_a_line(count: int = 2, name: str = "postroad") -> Plan:
    """Brokers on free ports of this machine, for which keys and certificates can be made."""
    plan = Plan.of(line(count), name)
    ports = iter(free_ports(2 * count))
    placed = tuple(msgspec.structs.replace(one, port=next(ports), link_port=next(ports)) for one in plan.brokers)
    return msgspec.structs.replace(plan, brokers=placed)


class Papers:
    """A certificate for 127.0.0.1 and who vouches for it, as files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.authority = trustme.CA()
        certificate = self.authority.issue_cert("127.0.0.1")
        self.certificate, self.key, self.ca = (folder / name for name in ("cert.pem", "key.pem", "ca.pem"))
        certificate.private_key_pem.write_to_path(self.key)
        for number, blob in enumerate(certificate.cert_chain_pems):
            blob.write_to_path(self.certificate, append=number > 0)
        self.authority.cert_pem.write_to_path(self.ca)

    def config(self, client_ca: Path | None = None) -> TlsConfig:
        ca = None if client_ca is None else str(client_ca)
        return TlsConfig(certificate=str(self.certificate), key=str(self.key), client_ca=ca)

    def for_links(self) -> LinkTlsConfig:
        return LinkTlsConfig(certificate=str(self.certificate), key=str(self.key), ca=str(self.ca))

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))
