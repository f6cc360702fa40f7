"""From the plan of a network to the settings of each of its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.server.config import BrokerConfig
from postroad.server.network import Neighbouring, NetworkConfig, NetworkStrategy
from postroad.topology import DEFAULT_COST, PlanError, Station

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.topology import BrokerPlan, Plan

__all__ = ["broker_config"]


def broker_config(
    plan: Plan, number: int, data: Path | str, *, secret: str | None = None, admin_port: int | None = None
) -> BrokerConfig:
    """The settings of one broker of a plan.

    Args:
        plan: the network.
        number: which of its brokers.
        data: the directory for what must survive a restart; another one for each broker.
        secret: what all brokers share; needed unless all are on this machine.
        admin_port: the port for health, status and metrics; none without.

    Raises:
        PlanError: there is no such broker.
    """
    brokers = {broker.number: broker for broker in plan.brokers}
    broker = brokers.get(number)
    if broker is None:
        raise PlanError("brokers", f"there is no broker {number}")
    linked = plan.graph().neighbours(number)
    neighbours = [_neighbour(brokers[other], cost) for other, cost in linked.items()]
    station = Station()
    if plan.strategy in ("tree", "cluster"):
        hierarchy = plan.hierarchy()
        station = hierarchy.stations[number]
        neighbours += [
            _neighbour(brokers[other], standby=True) for other in hierarchy.related(number) if other not in linked
        ]
    network = NetworkConfig(
        name=plan.name,
        host=broker.host,
        port=broker.link_port,
        secret=secret,
        strategy=NetworkStrategy(plan.strategy),
        delivery=plan.delivery,
        settings=plan.settings,
        station=station,
        neighbours=neighbours,
    )
    return BrokerConfig(
        number=number, host=broker.host, port=broker.port, admin_port=admin_port, data=str(data), network=network
    )


def _neighbour(broker: BrokerPlan, cost: int = DEFAULT_COST, *, standby: bool = False) -> Neighbouring:
    return Neighbouring(number=broker.number, host=broker.host, port=broker.link_port, cost=cost, standby=standby)
