"""From the plan of a network to the settings of each of its brokers."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from postroad.config.broker import BrokerConfig
from postroad.config.network import LinkTlsConfig, Member, Neighbouring, NetworkConfig
from postroad.topology import DEFAULT_COST, HIERARCHICAL, PlanError, Station

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.topology import BrokerPlan, Plan

__all__ = ["Credentials", "broker_config"]


class Credentials(NamedTuple):
    """The directory of a network's private keys and certificates: which file is what."""

    folder: str

    def key(self, number: int) -> str:
        """The private key with which a broker signs."""
        return str(PurePath(self.folder, f"broker-{number}.key"))

    def tls(self, number: int) -> LinkTlsConfig:
        """What a broker needs for TLS."""
        certificate, key = (str(PurePath(self.folder, f"broker-{number}.tls.{kind}")) for kind in ("pem", "key"))
        return LinkTlsConfig(certificate=certificate, key=key, ca=self.authority)

    @property
    def authority(self) -> str:
        """The certificate of who vouches for the brokers."""
        return str(PurePath(self.folder, "authority.pem"))

    @property
    def authority_key(self) -> str:
        """Its private key, which no broker needs."""
        return str(PurePath(self.folder, "authority.key"))


def broker_config(
    plan: Plan,
    number: int,
    data: Path | str,
    *,
    secret: str | None = None,
    admin_port: int | None = None,
    credentials: Path | None = None,
) -> BrokerConfig:
    """The settings of one broker of a plan.

    Args:
        plan: the network.
        number: which of its brokers.
        data: the directory for what must survive a restart; another one for each broker.
        secret: what all brokers share; needed unless all are on this machine.
        admin_port: the port for health, status and metrics; none without.
        credentials: the directory with private keys and certificates, for a plan that has them.

    Raises:
        PlanError: there is no such broker, or its private key is not known.
    """
    brokers = {broker.number: broker for broker in plan.brokers}
    broker = brokers.get(number)
    if broker is None:
        raise PlanError("brokers", f"there is no broker {number}")
    linked = plan.graph().neighbours(number)
    neighbours = [_neighbour(brokers[other], cost) for other, cost in linked.items()]
    station = Station()
    if plan.strategy in HIERARCHICAL:
        hierarchy = plan.hierarchy()
        station = hierarchy.stations[number]
        neighbours += [
            _neighbour(brokers[other], standby=True) for other in hierarchy.related(number) if other not in linked
        ]
    keyed = [one for one in plan.brokers if one.key is not None]
    if credentials is None and (keyed or plan.tls):
        raise PlanError("brokers", "the plan lists keys or certificates; say in which directory the private ones are")
    folder = Credentials("" if credentials is None else str(credentials.resolve()))
    network = NetworkConfig(
        name=plan.name,
        host=broker.host,
        port=broker.link_port,
        secret=secret,
        tls=folder.tls(number) if plan.tls else None,
        key=folder.key(number) if keyed else None,
        members=[Member(number=one.number, key=one.key or "") for one in keyed],
        strategy=plan.strategy,
        delivery=plan.delivery,
        settings=plan.settings,
        station=station,
        neighbours=neighbours,
        brokers=sorted(brokers),
        queue_homes=plan.queue_homes,
    )
    return BrokerConfig(
        number=number, host=broker.host, port=broker.port, admin_port=admin_port, data=str(data), network=network
    )


def _neighbour(broker: BrokerPlan, cost: int = DEFAULT_COST, *, standby: bool = False) -> Neighbouring:
    return Neighbouring(number=broker.number, host=broker.host, port=broker.link_port, cost=cost, standby=standby)
