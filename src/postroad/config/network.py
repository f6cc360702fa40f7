"""The settings of a broker that belongs to a network."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import msgspec

from postroad.errors import PostroadError
from postroad.topology import DEFAULT_COST, LARGEST_BROKER, Delivery, Settings, Station, StrategyName

__all__ = [
    "LinkTlsConfig",
    "Member",
    "Neighbouring",
    "NetworkConfig",
    "check_network",
    "is_distant",
    "is_loopback",
]


_LARGEST_PORT = 65_535


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


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A broker of the network.

    Attributes:
        number: its number.
        key: its public key (Ed25519), base64.
    """

    number: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BROKER)]
    key: str


class NetworkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A network of brokers.

    Attributes:
        name: brokers of another name are refused.
        host: the address to listen on for links.
        port: the port for links; 0 takes a free one.
        secret: what all brokers share.
        tls: certificates; links then speak TLS and nothing else. Needed unless all brokers are on this machine.
        key: a PEM file with this broker's private key (Ed25519). Needed unless all brokers are on this machine.
        members: all brokers of the network with their public keys; no other broker belongs to it.
        insecure_links_without_tls: do without `tls` to other machines: somebody on the network path can read and
            change everything.
        insecure_records_without_keys: do without `key` to other machines: every broker is believed whatever it says of
            any other.
        strategy: how messages find their way.
        delivery: what a crash may lose.
        settings: what all brokers of the network agree on.
        station: this broker's place (`tree`, `cluster`).
        neighbours: the brokers that this one is linked with, or may come to be.
        brokers: the numbers of all brokers, needed to tell which of them has a queue; those of `members` without.
        queue_homes: the broker that has a queue, by the queue's name; for others a hash of the name says it. The same
            at all brokers.
        join_seconds: how long a broker that starts waits for its links, and for what others want, before clients can
            connect; 0 does not wait. What a client publishes before reaches no subscriber elsewhere.
        admins: the admin endpoints of the brokers by their numbers, for the console: host:port, or https://host:port
            where they speak TLS; `postroad network up` fills them in.
        admins_ca: a PEM file: who vouches for the certificates of those endpoints; `tls.ca` without, or whom the system
            trusts.
    """

    name: str = "postroad"
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST_PORT)] = 0
    secret: str | None = None
    tls: LinkTlsConfig | None = None
    key: str | None = None
    members: list[Member] = []
    insecure_links_without_tls: bool = False
    insecure_records_without_keys: bool = False
    strategy: StrategyName = "drp"
    delivery: Delivery = "relay"
    settings: Settings = Settings()
    station: Station = Station()
    neighbours: list[Neighbouring] = []
    brokers: list[Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BROKER)]] = []
    queue_homes: dict[str, Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BROKER)]] = {}
    join_seconds: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = 0.0
    admins: dict[str, Annotated[str, msgspec.Meta(pattern=r":[0-9]{1,5}$")]] = {}
    admins_ca: str | None = None


def is_distant(config: NetworkConfig) -> str | None:
    """The first address of the network that is not this machine's own; None when all are."""
    hosts = (config.host, *(neighbour.host for neighbour in config.neighbours))
    return next((host for host in hosts if not is_loopback(host)), None)


def check_network(config: NetworkConfig, number: int = 0) -> None:
    """Links to other machines have TLS, and brokers there have keys, unless a setting says explicitly to do without.

    Raises:
        PostroadError: one of them is missing, or the keys do not fit the network.
    """
    _check_keys(config, number)
    host = is_distant(config)
    if host is None:
        return
    if config.tls is None and not config.insecure_links_without_tls:
        raise PostroadError(
            f"network: {host} is another machine, so links need TLS; set network.tls (`postroad network plan --tls` "
            "makes the certificates), or network.insecure_links_without_tls = true if the path between them is trusted"
        )
    if config.key is None and not config.insecure_records_without_keys:
        raise PostroadError(
            f"network: {host} is another machine, so brokers need keys; set network.key and network.members "
            "(`postroad network plan` makes them), or network.insecure_records_without_keys = true if every broker is "
            "trusted to speak for all others"
        )
    if config.secret is None and config.tls is None and config.key is None:
        raise PostroadError(
            f"network: {host} is another machine, so links need a secret; set network.secret, or network.tls, or "
            "network.key"
        )


def _check_keys(config: NetworkConfig, number: int) -> None:
    if (config.key is None) != (not config.members):
        raise PostroadError(
            "network: key and members go together: this broker's private key, and the public keys of all brokers"
        )
    listed = [member.number for member in config.members]
    if len(set(listed)) < len(listed):
        raise PostroadError("network.members: a broker is listed twice")
    needed = [*([number] if number else []), *(neighbour.number for neighbour in config.neighbours)]
    for one in needed if listed else ():
        if one not in listed:
            raise PostroadError(f"network.members: broker {one} is not listed, so no other broker would believe it")


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
