"""The settings of a broker that belongs to a network."""

from __future__ import annotations

import ipaddress
from enum import Enum
from typing import Annotated

import msgspec

from postroad.errors import PostroadError
from postroad.topology import DEFAULT_COST, LARGEST_BROKER, Delivery, Settings, Station

__all__ = ["LinkTlsConfig", "Neighbouring", "NetworkConfig", "NetworkStrategy", "check_network"]


_LARGEST_PORT = 65_535


class NetworkStrategy(Enum):
    """How messages find their way."""

    DRP = "drp"
    FLOOD = "flood"
    TREE = "tree"
    CLUSTER = "cluster"


class Neighbouring(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A broker at the other end of a link.

    Attributes:
        number: its number.
        host: where it listens for links.
        port: on which port.
        cost: the lower, the more the link is used.
        standby: the link is made only when another broker failed (`tree`, `cluster`).
    """

    number: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BROKER)]
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST_PORT)]
    cost: Annotated[int, msgspec.Meta(ge=1)] = DEFAULT_COST
    standby: bool = False


class LinkTlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """TLS for links; both ends show a certificate.

    Attributes:
        certificate: a PEM file: this broker's certificate for the host that neighbours dial, then those that vouch for
            it.
        key: a PEM file with the key of the certificate, without a password.
        ca: a PEM file: who vouches for the certificates of the network's brokers. Nobody else is believed.
    """

    certificate: str
    key: str
    ca: str


class NetworkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A network of brokers.

    Attributes:
        name: brokers of another name are refused.
        host: the address to listen on for links.
        port: the port for links; 0 takes a free one.
        secret: what all brokers share; needed, or certificates, unless all are on this machine.
        tls: certificates; links then speak TLS and nothing else.
        strategy: how messages find their way.
        delivery: what a crash may lose.
        settings: what all brokers of the network agree on.
        station: this broker's place (`tree`, `cluster`).
        neighbours: the brokers that this one is linked with, or may come to be.
    """

    name: str = "postroad"
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST_PORT)] = 0
    secret: str | None = None
    tls: LinkTlsConfig | None = None
    strategy: NetworkStrategy = NetworkStrategy.DRP
    delivery: Delivery = "relay"
    settings: Settings = Settings()
    station: Station = Station()
    neighbours: list[Neighbouring] = []


def check_network(config: NetworkConfig) -> None:
    """Nobody joins without a secret or a certificate, except on loopback.

    Raises:
        PostroadError: an address is not this machine's own, and there is neither.
    """
    if config.secret is not None or config.tls is not None:
        return
    for host in (config.host, *(neighbour.host for neighbour in config.neighbours)):
        if not _is_loopback(host):
            raise PostroadError(
                f"network: {host} is another machine, so links need a secret; set network.secret or network.tls"
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
