"""Brokers with queues whose packets travel over links, hop by hop, as a routing strategy of the network finds the way.

Links keep order. One that breaks loses what is under way, and its two ends notice that one after the other, some time
later. Routes come from nothing but the control frames that brokers send each other over the same links.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from postroad.broker import QueuePackets, Relay, make_unicast, planned_strategy
from postroad.routing import decode_frame, encode_frame
from postroad.topology import Graph, Plan, cluster, tree
from postroad.topology.shapes import equal_costs
from tests.broker.queue_network import QueueMob, QueueNetwork

if TYPE_CHECKING:
    from postroad.broker import Outbox
    from postroad.topology import Hierarchy, StrategyName

CONTROL, PACKET = range(2)

# The shape for each strategy, and the broker that has the queue: one at the rim, so that packets need others.
_RING_WITH_ENDS = equal_costs(6, [(1, 2), (2, 3), (3, 4), (4, 5), (5, 2), (4, 6)])
SHAPES: dict[StrategyName, tuple[Graph | Hierarchy, int]] = {
    "drp": (_RING_WITH_ENDS, 1),
    "flood": (_RING_WITH_ENDS, 1),
    "tree": (tree(6, fan_out=2), 5),
    "cluster": (cluster(2, 2, 0, 0), 4),
}


class RoutedLinks:
    """The links of one broker."""

    def __init__(self, network: RoutedQueues, number: int) -> None:
        self._network = network
        self._number = number
        self.up: set[int] = set()
        self.refusals: list[str] = []

    def send_packet(self, number: int, data: bytes) -> None:
        self._network.put_on_link(self._number, number, PACKET, data)

    def refused(self, number: int, reason: str) -> None:
        self.refusals.append(f"{number}: {reason}")

    def carry(self, outbox: Outbox) -> None:
        self._network.carry_out(self._number, outbox)


class RoutedQueues(QueueNetwork):
    """A network of a plan."""

    def __init__(self, seed: int = 0, kind: StrategyName = "drp", **others: object) -> None:
        shape, self.home = SHAPES[kind]
        self.kind = kind
        self.plan = Plan.of(shape, "queues", strategy=kind)
        self.graph = self.plan.graph()
        self._make_strategy = planned_strategy(self.plan)
        self.links: dict[int, RoutedLinks] = {}
        self.packets: dict[int, QueuePackets] = {}
        # What is under way on each link that works, by its two ends.
        self.on_links: dict[tuple[int, int], deque[tuple[int, bytes]]] = {}
        # Ends of broken links that have not noticed it.
        self.unaware: set[tuple[int, int]] = set()
        self.severed: set[frozenset[int]] = set()
        self.passed_on = 0
        super().__init__(seed, len(self.graph.brokers), **others)  # type: ignore[arg-type]

    # --- brokers and links -------------------------------------------------------------------------------------------

    def start(self, number: int) -> None:
        self._notice_all(number)
        super().start(number)
        core = self.brokers[number].core
        unicast = make_unicast(self.kind, number, self.now)
        Relay(core, self._make_strategy(number, self.now), unicast=unicast)
        self.links[number] = RoutedLinks(self, number)
        self.packets[number] = QueuePackets(core, self.links[number], self.graph.brokers, lambda: self.now)
        for other in self.graph.neighbours(number):
            self.join(number, other)

    def crash(self, number: int, power: bool = True) -> None:
        super().crash(number, power)
        for other in sorted(self.links.pop(number).up):
            self._break(number, other)

    def join(self, one: int, other: int) -> None:
        """A link comes up, unless it is there, or cannot be."""
        link = frozenset((one, other))
        if link in self.severed or not link <= self.brokers.keys() or not link <= self.links.keys():
            return
        if (one, other) in self.on_links:
            return
        for here, there in ((one, other), (other, one)):
            self._notice(here, there)
            self.on_links[here, there] = deque()
        for here, there in ((one, other), (other, one)):
            self.links[here].up.add(there)
            relay = self.brokers[here].core.relay
            assert relay is not None
            self.carry_out(here, relay.link_up(there, self.graph.links.get((min(link), max(link)), 10), self.now))

    def sever(self, one: int, other: int) -> None:
        """A link breaks, and stays broken until it is mended."""
        self.severed.add(frozenset((one, other)))
        self._break(one, other)

    def mend_links(self) -> None:
        self.severed.clear()
        for one, other in self.graph.links:
            self.join(one, other)

    def _break(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            if self.on_links.pop((here, there), None) is not None and here in self.brokers:
                self.unaware.add((here, there))

    def _notice(self, here: int, there: int) -> None:
        """One end of a broken link learns of it."""
        if (here, there) not in self.unaware:
            return
        self.unaware.discard((here, there))
        if here in self.brokers and here in self.links and there in self.links[here].up:
            self.links[here].up.discard(there)
            relay = self.brokers[here].core.relay
            assert relay is not None
            self.carry_out(here, relay.link_down(there, self.now))

    def _notice_all(self, number: int = 0) -> None:
        for here, there in sorted(self.unaware):
            if not number or there == number or here == number:
                self._notice(here, there)

    # --- what is under way -------------------------------------------------------------------------------------------

    def put_on_link(self, here: int, there: int, kind: int, data: bytes) -> None:
        if (here, there) in self.on_links:
            self.on_links[here, there].append((kind, data))

    def transmit(self, number: int, packets: list[tuple[int, bytes]]) -> None:
        if number in self.packets:
            self.packets[number].send(packets)

    def carry_out(self, number: int, outbox: Outbox) -> None:
        for link, frame in outbox.frames:
            self.put_on_link(number, link, CONTROL, encode_frame(frame))
        super().carry_out(number, outbox)
        for other in outbox.connects:
            self.join(number, other)
        for other in outbox.disconnects:
            if (min(number, other), max(number, other)) not in self.graph.links:
                self._break(number, other)

    @property
    def is_busy(self) -> bool:
        return any(self.on_links.values())

    def pass_packet(self) -> None:
        """The next frame of some link arrives; a packet may be lost, control frames never."""
        loaded = sorted(ends for ends, frames in self.on_links.items() if frames)
        if not loaded:
            return
        here, there = self.random.choice(loaded)
        kind, data = self.on_links[here, there].popleft()
        if kind == PACKET and self.random.random() >= self.loss:
            before = sum(map(len, self.on_links.values()))
            self.packets[there].receive(data, here)
            self.passed_on += sum(map(len, self.on_links.values())) > before
        elif kind == CONTROL:
            relay = self.brokers[there].core.relay
            assert relay is not None
            self.carry_out(there, relay.control(decode_frame(data), here, self.now))

    def tick(self, milliseconds: int = 100) -> None:
        super().tick(milliseconds)
        for number, broker in list(self.brokers.items()):
            relay = broker.core.relay
            assert relay is not None
            self.carry_out(number, relay.tick(self.now))

    def settle(self, seconds: int = 30) -> None:
        self._notice_all()
        super().settle(seconds)


class RoutedMob(RoutedQueues, QueueMob):
    """Uses such a network at random, while links break and come back."""

    def act(self) -> None:
        if self.random.random() < 0.2:
            self._notice_some()
        super().act()

    def _notice_some(self) -> None:
        if self.unaware:
            self._notice(*self.random.choice(sorted(self.unaware)))

    def _cut(self) -> None:
        if self.random.random() < 0.5 and self.on_links:
            self.sever(*self.random.choice(sorted(self.on_links)))

    def _mend(self) -> None:
        self._notice_all()
        self.mend_links()
