"""Packets about queues on links: this broker takes its own and relays the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker import ChannelError, passed_on, read_packet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from postroad.broker import Broker
    from postroad.server.links import Links

__all__ = ["QueuePackets"]


class QueuePackets:
    """Passes packets on, to neighbours and to the core.

    Args:
        core: the broker.
        links: its links.
        brokers: the numbers of all brokers of the network; packets of other brokers are dropped.
        clock: the time in ms.
    """

    def __init__(self, core: Broker, links: Links, brokers: Collection[int], clock: Callable[[], int]) -> None:
        self._core = core
        self._links = links
        self._brokers = frozenset(brokers)
        self._clock = clock

    def next_hop(self, broker: int) -> int:
        """Return the neighbour for packets to a broker; 0 if there is no route now."""
        if broker in self._links.up:
            return broker
        state = None if self._core.relay is None else self._core.relay.strategy.link_state
        hops = () if state is None else state.routes.first_hops
        return max(0, int(hops[broker])) if broker < len(hops) else 0

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
