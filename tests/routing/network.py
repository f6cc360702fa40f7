"""A network in memory with virtual time: strategies joined by links that delay, keep order, and can be cut.

A link delivers in order in each direction; between links, anything may overtake anything. What was sent on a link and
not acknowledged when the link breaks is given back to the sender, whether it arrived or not.
"""

from __future__ import annotations

import heapq
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from postroad.messages import Batch, Draft, MessageId
from postroad.routing import (
    Cluster,
    Delta,
    Destinations,
    Drp,
    Flood,
    InterestChange,
    Reaction,
    Routed,
    Strategy,
    Tree,
    decode_frame,
    encode_frame,
)
from postroad.selectors import TopicPattern
from postroad.topology import Graph, Hierarchy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TICK_MS = 1_000
FIRST_MOMENT = 1_000_000


def matcher(pattern: str) -> Callable[[str], bool]:
    return TopicPattern.parse(pattern).matches


@dataclass
class Node:
    """One broker: its strategy, its subscriptions, and what it got."""

    number: int
    strategy: Strategy
    patterns: list[str] = field(default_factory=list)
    others: dict[int, list[str]] = field(default_factory=dict)
    delivered: Counter[int] = field(default_factory=Counter)
    held: list[tuple[Batch, Destinations]] = field(default_factory=list)
    duplicates: int = 0
    exhausted: int = 0

    def wants(self, topic: str) -> bool:
        return any(matcher(pattern)(topic) for pattern in self.patterns)

    def interested(self, batch: Batch) -> Destinations:
        return Destinations.of(
            [
                [number for number, wanted in self.others.items() if any(matcher(one)(message.topic) for one in wanted)]
                for message in batch
            ]
        )


class Network:
    """Nodes, links, and an event queue."""

    def __init__(self, graph: Graph, make: Callable[[Node, int], Strategy], seed: int = 0, largest_delay: int = 20):
        self.now = FIRST_MOMENT
        self.graph = graph
        self.nodes: dict[int, Node] = {}
        self.up: dict[frozenset[int], int] = {}  # link -> its generation
        self.packets: Counter[tuple[int, int, int]] = Counter()  # (message, from, to)
        self.parcels = 0
        self.control_frames = 0
        self.lifetimes = count()
        self._make = make
        self._random = random.Random(seed)
        self._largest_delay = largest_delay
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._last_arrival: dict[tuple[int, int], int] = {}
        self.unacknowledged: dict[tuple[int, int], dict[int, tuple[Batch, Destinations]]] = {}
        self._messages = count(1)
        self.topics: dict[int, str] = {}
        for number in graph.brokers:
            self.start(number)
        for one, other in graph.links:
            self.join(one, other)

    # Brokers and links.

    def start(self, number: int, moment: int | None = None) -> Node:
        """A broker starts, with a clock that may be wrong."""
        node = Node(number, None)  # type: ignore[arg-type]
        node.strategy = self._make(node, self.now if moment is None else moment)
        self.nodes[number] = node
        return node

    def stop(self, number: int) -> None:
        """A broker dies: its links break, seen from the other side."""
        self.nodes.pop(number)
        for link in [link for link in self.up if number in link]:
            self.cut(*link)

    def join(self, one: int, other: int, cost: int | None = None) -> None:
        link = frozenset((one, other))
        if link in self.up or one not in self.nodes or other not in self.nodes:
            return
        self.up[link] = next(self.lifetimes)
        cost = cost or self.graph.links.get((min(link), max(link)), 10)
        for here, there in ((one, other), (other, one)):
            self.unacknowledged[here, there] = {}
            self.react(self.nodes[here], self.nodes[here].strategy.link_up(there, cost, self.now))

    def cut(self, one: int, other: int) -> None:
        """A link breaks; what was not acknowledged comes back to the sender."""
        if self.up.pop(frozenset((one, other)), None) is None:
            return
        for here, there in ((one, other), (other, one)):
            returned = self.unacknowledged.pop((here, there), {})
            self._last_arrival.pop((here, there), None)
            node = self.nodes.get(here)
            if node is None:
                continue
            self.react(node, node.strategy.link_down(there, self.now))
            for batch, destinations in returned.values():
                self._carry_out(node, node.strategy.reroute(batch, destinations, self.now, returned=True))

    # Subscriptions and messages.

    def subscribe(self, number: int, *patterns: str) -> None:
        self.nodes[number].patterns += patterns
        self._tell(number, InterestChange(added=patterns))

    def unsubscribe(self, number: int, pattern: str) -> None:
        self.nodes[number].patterns.remove(pattern)
        self._tell(number, InterestChange(removed=(pattern,)))

    def _tell(self, number: int, change: InterestChange) -> None:
        node = self.nodes[number]
        gone = [one for one in change.removed if one not in node.patterns]
        delta = Delta(json.dumps(change.added).encode(), json.dumps(gone).encode())
        change = change._replace(delta=delta, whole=lambda: json.dumps(sorted(set(node.patterns))).encode())
        self.react(node, node.strategy.interest(change, self.now))

    def publish(self, number: int, topics: Iterable[str]) -> list[int]:
        """Publish a batch at a broker; returns the numbers of the messages."""
        drafts, numbers = [], []
        for topic in topics:
            message = next(self._messages)
            numbers.append(message)
            self.topics[message] = topic
            drafts.append(Draft(topic, id=MessageId(7, number, self.now, message)))
        node = self.nodes[number]
        batch = Batch.build(drafts)
        self._carry_out(node, node.strategy.publish(batch, node.interested(batch), self.now))
        return numbers

    # Time.

    def run(self) -> None:
        """Until nothing is on its way."""
        while self.queue:
            self.step()

    def step(self) -> None:
        self.now, _, action = heapq.heappop(self.queue)
        action()

    def wait(self, ms: int) -> None:
        """Let time pass, with a tick each second, and what is on its way arrive."""
        end = self.now + ms
        while self.now < end:
            moment = min(end, self.now + TICK_MS)
            while self.queue and self.queue[0][0] <= moment:
                self.step()
            self.now = moment
            for node in list(self.nodes.values()):
                self.react(node, node.strategy.tick(self.now))
        self.run()

    # What strategies say.

    def react(self, node: Node, reaction: Reaction) -> None:
        for number, summary in reaction.interests:
            if summary is None:
                node.others.pop(number, None)
            elif isinstance(summary, Delta):
                wanted = {*node.others[number], *json.loads(summary.added)} - {*json.loads(summary.removed)}
                node.others[number] = sorted(wanted)
            else:
                node.others[number] = json.loads(summary or b"[]")
        for link, frame in reaction.frames:
            self.control_frames += 1
            data = encode_frame(frame)
            self._send(node.number, link, partial(self._control, node, link, data))
        for number in reaction.connect:
            self._later(self._delay(), partial(self.join, node.number, number))
        for number in reaction.disconnect:
            self._later(0, partial(self.cut, node.number, number))
        if reaction.retry and node.held:
            held, node.held = node.held, []
            for batch, destinations in held:
                self._carry_out(node, node.strategy.reroute(batch, destinations, self.now, returned=False))

    def _control(self, sender: Node, link: int, data: bytes) -> None:
        receiver = self.nodes[link]
        self.react(receiver, receiver.strategy.control(decode_frame(data), sender.number, self.now))

    def _carry_out(self, node: Node, routed: Routed) -> None:
        for row in routed.local.tolist():
            message = routed.batch.message(row)
            if node.wants(message.topic):
                node.delivered[message.id.counter] += 1
        node.duplicates += routed.duplicates
        if routed.exhausted is not None:
            node.exhausted += len(routed.exhausted.rows)
        if routed.held is not None:
            node.held.append((routed.batch.take(routed.held.rows), routed.held.destinations))
        for parcel in routed.parcels:
            self.parcels += 1
            self._send_data(node, parcel.link, routed.batch.take(parcel.rows), parcel.destinations)

    def _send_data(self, node: Node, link: int, batch: Batch, destinations: Destinations) -> None:
        for tail in batch.ids[:, 1].tolist():
            self.packets[tail & 0xFFFF, node.number, link] += 1
        waiting = self.unacknowledged[node.number, link]
        number = next(self._order)
        waiting[number] = (batch, destinations)

        def confirm() -> None:
            waiting.pop(number, None)

        def arrive() -> None:
            receiver = self.nodes[link]
            # The acknowledgement travels back; if the link breaks first, the sender cannot know.
            self._later(self._delay(), confirm)
            self._carry_out(receiver, receiver.strategy.relay(batch, destinations, node.number, self.now))

        self._send(node.number, link, arrive)

    def _send(self, here: int, there: int, action: Callable[[], None]) -> None:
        link = frozenset((here, there))
        generation = self.up[link]
        moment = max(self.now + self._delay(), self._last_arrival.get((here, there), 0))
        self._last_arrival[here, there] = moment

        def arrive() -> None:
            if self.up.get(link) == generation:
                action()

        heapq.heappush(self.queue, (moment, next(self._order), arrive))

    def _later(self, delay: int, action: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.now + delay, next(self._order), action))

    def _delay(self) -> int:
        return self._random.randint(1, self._largest_delay)

    # What should be.

    def wanted(self, message: int) -> set[int]:
        """The brokers that one big broker would deliver to."""
        return {number for number, node in self.nodes.items() if node.wants(self.topics[message])}

    def got(self, message: int) -> dict[int, int]:
        """Broker -> how often it delivered."""
        return {number: node.delivered[message] for number, node in self.nodes.items() if node.delivered[message]}

    def packets_of(self, message: int) -> dict[tuple[int, int], int]:
        """(from, to) -> packets of one message."""
        return {(one, other): sent for (which, one, other), sent in self.packets.items() if which == message}

    def live_graph(self) -> Graph:
        links = {(min(link), max(link)): self.graph.links.get((min(link), max(link)), 10) for link in self.up}
        return Graph(self.nodes, links)


def drp(graph: Graph, seed: int = 0, **settings: float) -> Network:
    return Network(graph, lambda node, now: Drp(node.number, now, **settings), seed)  # type: ignore[arg-type]


def flood(graph: Graph, seed: int = 0) -> Network:
    return Network(graph, lambda node, now: Flood(node.number, now), seed)


def tree(hierarchy: Hierarchy, seed: int = 0) -> Network:
    stations = hierarchy.stations
    return Network(hierarchy.graph(), lambda node, now: Tree(node.number, now, stations[node.number], matcher), seed)


def cluster(hierarchy: Hierarchy, seed: int = 0) -> Network:
    stations = hierarchy.stations
    return Network(hierarchy.graph(), lambda node, now: Cluster(node.number, now, stations[node.number], matcher), seed)
