"""Many brokers in one process, in virtual time: the same cores and strategies that run live."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from postroad.broker import AckMode, Broker, OverflowPolicy, PublisherNumbers, Relay, SubscriptionNumbers
from postroad.broker.numbers import BLOCK, SUBSCRIPTION_BLOCK
from postroad.broker.queues import copied_out
from postroad.errors import PostroadError
from postroad.messages import Batch
from postroad.routing.frames import decode_frame, encode_frame
from postroad.simulation.events import Timeline
from postroad.simulation.links import Direction
from postroad.topology import DEFAULT_COST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from postroad.broker import Limits, Outbox, Sending, Session, Subscription
    from postroad.messages import Draft, MessageId
    from postroad.routing.contract import Interested, Strategy
    from postroad.routing.frames import Frame
    from postroad.topology import Graph

    # Makes a broker's strategy: its number, the time, and which brokers want a row.
    MakeStrategy = Callable[[int, int, Interested], Strategy]

__all__ = ["SimulatedNetwork"]

# How often brokers look after what changed, in virtual ms.
TICK_MS = 50
# What a data frame costs beside its messages: the envelope of each, and a little for the frame.
_ROW_BYTES = 48
_FRAME_BYTES = 48


class SimulatedNetwork:
    """Brokers joined as a graph says; publishers and subscribers at any of them.

    Args:
        graph: who is linked with whom.
        strategy: makes the strategy of each broker.
        random: draws delays; the same seed gives the same run.
        delay_ms: the least and most delay of a link.
        bytes_per_ms: the bandwidth of each link; 0 is without bound.
        limits: those of each broker.

    Attributes:
        delivered: subscription name -> the ids it was handed, in order.
    """

    def __init__(
        self,
        graph: Graph,
        strategy: MakeStrategy,
        random: Random,
        *,
        delay_ms: tuple[int, int] = (1, 20),
        bytes_per_ms: int = 0,
        limits: Limits | None = None,
    ) -> None:
        self.timeline = Timeline()
        self.graph = graph
        self.delivered: dict[str, list[MessageId]] = defaultdict(list)
        self._strategy = strategy
        self._limits = limits
        self._starts: dict[int, int] = defaultdict(int)
        self._cores: dict[int, Broker] = {}
        self._relays: dict[int, Relay] = {}
        self._sessions: dict[int, Session] = {}
        self._directions: dict[tuple[int, int], Direction] = {}
        self._wanted: dict[int, set[int]] = defaultdict(set)
        self._random = random
        self._delay_ms = delay_ms
        self._bytes_per_ms = bytes_per_ms
        for one, other in graph.links:
            self._lay(one, other)
        for number in graph.brokers:
            self.start(number)

    @property
    def now(self) -> int:
        """The virtual time in ms."""
        return self.timeline.now

    def core(self, broker: int) -> Broker:
        """The core of a broker that runs."""
        return self._cores[broker]

    def relay(self, broker: int) -> Relay:
        """The relay of a broker that runs."""
        return self._relays[broker]

    def link(self, one: int, other: int) -> Direction:
        """What one broker sends another."""
        return self._directions[one, other]

    # --- clients ---------------------------------------------------------------------------------------------------

    def subscribe(self, broker: int, name: str, topic: str, selector: str = "") -> Subscription:
        """A subscriber at a broker; what it gets stands in `delivered[name]`."""
        session = self._sessions[broker]
        return self._cores[broker].subscribe(
            session, name, topic, selector, AckMode.AUTO, OverflowPolicy.DROP_OLDEST, self.now
        )

    def unsubscribe(self, broker: int, name: str) -> None:
        """A subscriber leaves."""
        self._carry_out(broker, self._cores[broker].unsubscribe(self._sessions[broker], name, self.now))

    def publish(self, broker: int, drafts: Iterable[Draft | tuple[object, ...]]) -> list[MessageId]:
        """Publish at a broker, now; answers the ids."""
        batch = Batch.build(drafts)
        self._carry_out(broker, self._cores[broker].receive(batch, self._sessions[broker], self.now))
        return [message.id for message in batch]

    # --- what happens to the network -------------------------------------------------------------------------------

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        self.timeline.run_until(self.now + milliseconds)

    def start(self, broker: int) -> None:
        """A broker starts, with no memory of what was before, and its links to running neighbours come up."""
        if broker in self._cores:
            raise PostroadError(f"broker {broker} is running")
        run, self._starts[broker] = self._starts[broker], self._starts[broker] + 1
        numbers = PublisherNumbers(lambda: 1 + run * BLOCK)
        subscriptions = SubscriptionNumbers(lambda: 1 + run * SUBSCRIPTION_BLOCK)
        core = Broker(broker, numbers, self._limits, subscription_numbers=subscriptions)
        self._relays[broker] = Relay(core, lambda interested: self._strategy(broker, self.now, interested))
        self._cores[broker] = core
        self._sessions[broker] = core.attached("")
        self._tick(broker, core)
        for neighbour in self._neighbours(broker):
            if neighbour in self._cores:
                self.join(broker, neighbour)

    def crash(self, broker: int) -> None:
        """A broker is gone at once, with its clients and all it held."""
        del self._cores[broker], self._relays[broker], self._sessions[broker]
        for neighbour in self._neighbours(broker):
            self._directions[broker, neighbour].cut()
            if self._directions[neighbour, broker].up:
                self._lose(neighbour, broker)

    def join(self, one: int, other: int) -> None:
        """The link between two running brokers comes up."""
        for here, there in ((one, other), (other, one)):
            self._directions[here, there].raise_()
        for here, there in ((one, other), (other, one)):
            cost = self.graph.neighbours(here).get(there, DEFAULT_COST)
            self._carry_out(here, self._relays[here].link_up(there, cost, self.now))

    def cut(self, one: int, other: int) -> None:
        """The link between two brokers is gone; both notice."""
        for here, there in ((one, other), (other, one)):
            self._lose(here, there)

    def _lay(self, one: int, other: int) -> None:
        delay = self._random.randint(*self._delay_ms)
        for way in ((one, other), (other, one)):
            self._directions[way] = Direction(self.timeline, delay, self._bytes_per_ms)

    def _neighbours(self, broker: int) -> list[int]:
        return sorted({*self.graph.neighbours(broker), *self._wanted[broker]})

    def _connect(self, here: int, there: int) -> None:
        """A broker wants a link beyond those of the graph; it comes up as soon as both ends run."""
        if there in self._neighbours(here):
            return
        self._wanted[here].add(there)
        self._wanted[there].add(here)
        if (here, there) not in self._directions:
            self._lay(here, there)

        def come_up() -> None:
            wanted = there in self._wanted[here] and {here, there} <= self._cores.keys()
            if wanted and not self._directions[here, there].up:
                self.join(here, there)

        self.timeline.at(self.now + self._random.randint(*self._delay_ms), come_up)

    def _disconnect(self, here: int, there: int) -> None:
        if there in self._wanted[here]:
            self._wanted[here].discard(there)
            self._wanted[there].discard(here)
            if self._directions[here, there].up:
                self.cut(here, there)

    def _lose(self, here: int, there: int) -> None:
        unconfirmed = self._directions[here, there].cut()
        relay = self._relays[here]
        self._carry_out(here, relay.link_down(there, self.now))
        for sending in unconfirmed:
            self._carry_out(here, relay.returned(sending.batch, sending.destinations, self.now))

    def _tick(self, broker: int, core: Broker) -> None:
        if self._cores.get(broker) is not core:
            return
        self._carry_out(broker, self._relays[broker].tick(self.now))
        self.timeline.at(self.now + TICK_MS, lambda: self._tick(broker, core))

    # --- carrying out ----------------------------------------------------------------------------------------------

    def _carry_out(self, broker: int, outbox: Outbox) -> None:
        for delivery in outbox.deliveries:
            ids = self.delivered[delivery.subscription.key]
            ids += [delivery.batch.message(row).id for row in delivery.rows.tolist()]
        for link, frame in outbox.frames:
            self._send_frame(broker, link, frame)
        for sending in outbox.parcels:
            self._send(broker, sending)
        for number in outbox.connects:
            self._connect(broker, number)
        for number in outbox.disconnects:
            self._disconnect(broker, number)

    def _send_frame(self, here: int, there: int, frame: Frame) -> None:
        direction = self._directions[here, there]
        if not direction.up:
            return
        data = encode_frame(frame)
        direction.control_bytes += len(data)

        def arrive() -> None:
            self._carry_out(there, self._relays[there].control(decode_frame(data), here, self.now))

        direction.carry(len(data), arrive)

    def _send(self, here: int, sending: Sending) -> None:
        there = sending.link
        direction = self._directions[here, there]
        # Over a real link only bytes travel: nothing of the sender's memory may be shared.
        batch = copied_out(sending.batch, sending.rows)
        carried = sending._replace(batch=batch)
        if not direction.up:
            self._carry_out(here, self._relays[here].returned(batch, sending.destinations, self.now))
            return
        direction.unconfirmed.append(carried)
        direction.messages += len(batch)

        def arrive() -> None:
            outbox = self._relays[there].receive(batch, sending.destinations, here, self.now)
            direction.confirm()
            self._carry_out(there, outbox)

        size = batch.buffer.nbytes + _ROW_BYTES * len(batch) + sending.destinations.sets.nbytes + _FRAME_BYTES
        direction.carry(size, arrive)
