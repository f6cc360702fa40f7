"""Packets about queues on their way through the links: this broker takes its own and passes the others on.

A packet goes over the direct link to its broker if that is up, or else to the next hop that link state knows
(`Relay.next_hop`), whatever the strategy. A packet without a route is lost; both ends of a channel repeat what was not
confirmed. Brokers that disagree for a moment about the routes may send a packet in a circle: it never goes back over
the link it came from, and ends after `MAX_HOPS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from postroad.broker.channel_items import ChannelError
from postroad.broker.peers import passed_on, read_packet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from postroad.broker.core import Broker
    from postroad.broker.outbox import Outbox

__all__ = ["PacketLinks", "QueuePackets"]


class PacketLinks(Protocol):
    """What the links of a broker do for packets."""

    @property
    def up(self) -> Collection[int]:
        """The neighbours whose links are up."""

    def send_packet(self, number: int, data: bytes) -> None:
        """Send a packet to a neighbour; it may get lost."""

    def refused(self, number: int, reason: str) -> None:
        """Count what a neighbour sent and is not believed."""

    def carry(self, outbox: Outbox) -> None:
        """Do what the core says."""


class QueuePackets:
    """Passes packets on, to neighbours and to the core.

    Args:
        core: the broker.
        links: its links.
        brokers: the numbers of all brokers of the network; packets of other brokers are dropped.
        clock: the time in ms.
    """

    def __init__(self, core: Broker, links: PacketLinks, brokers: Collection[int], clock: Callable[[], int]) -> None:
        self._core = core
        self._links = links
        self._brokers = frozenset(brokers)
        self._clock = clock

    def next_hop(self, broker: int) -> int:
        """Return the neighbour for packets to a broker; 0 if there is no route now."""
        if broker in self._links.up:
            return broker
        return 0 if self._core.relay is None else self._core.relay.next_hop(broker)

    def send(self, packets: Iterable[tuple[int, bytes]]) -> None:
        """Send packets of this broker; those without a route are lost, and sent again later."""
        for target, data in packets:
            if hop := self.next_hop(target):
                self._links.send_packet(hop, data)

    def receive(self, data: bytes, neighbour: int) -> None:
        """Take a packet from a neighbour.

        Raises:
            ChannelError: the neighbour itself sent what no honest broker sends.
        """
        source, target, hops = read_packet(data)
        if source not in self._brokers or target not in self._brokers:
            self._links.refused(neighbour, f"a packet from broker {source} to {target}, which this network lacks")
        elif target != self._core.number:
            hop = self.next_hop(target)
            if hops and hop and hop != neighbour:
                self._links.send_packet(hop, passed_on(data))
        elif self._core.peers is not None:
            outbox, fault = self._core.peers.receive(data, self._clock())
            self._links.carry(outbox)
            if fault and source == neighbour:
                raise ChannelError(fault)
            if fault:
                # The neighbour has only passed it on, and is not to blame.
                self._links.refused(neighbour, fault)

    def tick(self) -> None:
        """Handle time-outs."""
        if self._core.peers is not None:
            self._links.carry(self._core.peers.tick(self._clock()))
