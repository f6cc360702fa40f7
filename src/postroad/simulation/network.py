"""Many brokers in one process, in virtual time: the same cores and strategies that run live."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np

from postroad.broker import AckMode, Broker, OverflowPolicy, PublisherNumbers, Relay, SubscriptionNumbers
from postroad.broker.numbers import BLOCK, SUBSCRIPTION_BLOCK
from postroad.broker.queues import copied_out
from postroad.errors import PostroadError
from postroad.messages import Batch
from postroad.routing.frames import decode_frame, encode_frame
from postroad.simulation.events import Timeline
from postroad.simulation.links import Direction, LinkQuality
from postroad.topology import DEFAULT_COST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from postroad.broker import Limits, Outbox, Recorder, Sending, Session, Subscription
    from postroad.matching.encoding import Scheme
    from postroad.messages import Draft, MessageId, Untyped
    from postroad.routing.contract import Strategy
    from postroad.routing.frames import Frame
    from postroad.topology import Graph

    # Makes a broker's strategy: its number, the time, and which brokers want a row.
    MakeStrategy = Callable[[int, int], Strategy]

__all__ = ["ROW_BYTES", "SimulatedNetwork"]

# How often brokers look after what changed, in virtual ms.
TICK_MS = 50
# What a data frame costs beside its messages: the envelope of each, and a little for the frame.
ROW_BYTES = 48
_FRAME_BYTES = 48


class _Freeze:
    """A broker that does nothing: what came since then, and the neighbours that gave it up."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.lost: list[int] = []


class SimulatedNetwork:
    """Brokers joined as a graph says; publishers and subscribers at any of them.

    Args:
        graph: who is linked with whom.
        strategy: makes the strategy of each broker.
        random: draws delays; the same seed gives the same run.
        quality: how good the links are.
        custody: brokers keep what they send until it is settled, not only until it has come.
        limits: those of each broker.
        recorder: makes the recorder of each broker that starts, given its number.
        scheme: how brokers encode what they want; None when they say it exactly.
        order_wait_ms: how long messages wait for earlier ones of their publisher after ways have changed; 0 for not at
            all.

    Attributes:
        delivered: subscription name -> the ids it was handed, in order.
        headers: subscription name -> (id, header lines) of those among them that have header lines.
        paused: brokers whose publisher has to wait.
    """

    def __init__(
        self,
        graph: Graph,
        strategy: MakeStrategy,
        random: Random,
        *,
        quality: LinkQuality | None = None,
        custody: bool = False,
        limits: Limits | None = None,
        recorder: Callable[[int], Recorder] | None = None,
        scheme: Scheme | None = None,
        order_wait_ms: int = 0,
    ) -> None:
        self.timeline = Timeline()
        self.graph = graph
        self.delivered: dict[str, list[MessageId]] = defaultdict(list)
        self.headers: dict[str, list[tuple[MessageId, dict[str, Untyped]]]] = defaultdict(list)
        self.paused: set[int] = set()
        self._strategy = strategy
        self._custody = custody
        self._limits = limits
        self._scheme = scheme
        self._order_wait = order_wait_ms
        self._recorder = recorder
        self._starts: dict[int, int] = defaultdict(int)
        self._cores: dict[int, Broker] = {}
        self._relays: dict[int, Relay] = {}
        self._sessions: dict[int, Session] = {}
        self._directions: dict[tuple[int, int], Direction] = {}
        self._wanted: dict[int, set[int]] = defaultdict(set)
        self._frozen: dict[int, _Freeze] = {}
        self._random = random
        self._quality = quality or LinkQuality()
        self._outboxes: deque[tuple[int, Outbox]] = deque()
        self._carrying = False
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

    def links(self) -> dict[tuple[int, int], Direction]:
        """(from, to) -> what one broker sends the other, of all links there ever were."""
        return dict(self._directions)

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
        """Publish at a broker, now; answers the ids. A publisher that is `paused` should wait."""
        return self.publish_as(self._sessions[broker], broker, drafts)

    def publish_as(
        self, session: Session, broker: int, drafts: Iterable[Draft | tuple[object, ...]]
    ) -> list[MessageId]:
        """Publish from another session than the broker's usual one."""
        batch = Batch.build(drafts)
        self._carry_out(broker, self._cores[broker].receive(batch, session, self.now))
        return [message.id for message in batch]

    def drained(self, broker: int) -> None:
        """The subscribers at a broker, told `congested`, read again: all that waits is handed out."""
        core, session = self._cores[broker], self._sessions[broker]
        self._carry_out(broker, core.drained(session, self.now))
        while core.has_waiting(session):
            self._carry_out(broker, core.drained(session, self.now))

    # --- what happens to the network -------------------------------------------------------------------------------

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        self.timeline.run_until(self.now + milliseconds)

    def start(self, broker: int) -> None:
        """A broker starts, with no memory of what was before, and its links to running neighbours come up."""
        if broker in self._cores:
            raise PostroadError(f"broker {broker} is running")
        run, self._starts[broker] = self._starts[broker], self._starts[broker] + 1
        recorder = None if self._recorder is None else self._recorder(broker)
        numbers = PublisherNumbers(lambda: 1 + run * BLOCK)
        subscriptions = SubscriptionNumbers(lambda: 1 + run * SUBSCRIPTION_BLOCK)
        core = Broker(broker, numbers, self._limits, recorder=recorder, subscription_numbers=subscriptions)
        self._relays[broker] = Relay(core, self._strategy(broker, self.now), self._scheme, self._order_wait)
        self._cores[broker] = core
        self._sessions[broker] = core.attached("")
        self._tick(broker, core)
        for neighbour in self._neighbours(broker):
            if neighbour in self._cores:
                self.join(broker, neighbour)

    def crash(self, broker: int) -> None:
        """A broker is gone at once, with its clients and all it held."""
        del self._cores[broker], self._relays[broker], self._sessions[broker]
        self._frozen.pop(broker, None)
        self.paused.discard(broker)
        for neighbour in self._neighbours(broker):
            self._directions[broker, neighbour].cut()
            if self._directions[neighbour, broker].up:
                self._lose(neighbour, broker)

    def freeze(self, broker: int, silence_ms: int) -> None:
        """A broker does nothing from now on; its neighbours take it for dead after so long a silence.

        What arrives before that waits in its sockets, and it will read that when it goes on.
        """
        frozen = self._frozen[broker] = _Freeze()

        def notice() -> None:
            if self._frozen.get(broker) is not frozen:
                return
            for neighbour in self._neighbours(broker):
                if neighbour in self._cores and self._directions[neighbour, broker].up:
                    frozen.lost.append(neighbour)
                    self._lose(neighbour, broker)

        self.timeline.at(self.now + silence_ms, notice)

    def thaw(self, broker: int) -> None:
        """A broker that was frozen goes on: its lost links are made again, and it reads what waited for it."""
        frozen = self._frozen.pop(broker)
        for neighbour in frozen.lost:
            self._lose(broker, neighbour)
        for neighbour in frozen.lost:
            if neighbour in self._cores:
                self.join(broker, neighbour)
        for arrive in frozen.waiting:
            arrive()

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
        delay = self._random.randint(*self._quality.delay_ms)
        for way in ((one, other), (other, one)):
            self._directions[way] = Direction(self.timeline, delay, self._quality, self._random)

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

        self.timeline.at(self.now + self._random.randint(*self._quality.delay_ms), come_up)

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
            self._return(here, sending)
        self._look_for_room(here, there)

    def _return(self, here: int, sending: Sending) -> None:
        relay = self._relays[here]
        consignment, link = sending.consignment, sending.link
        self._carry_out(here, relay.returned(sending.batch, sending.destinations, self.now, consignment, link))

    def _tick(self, broker: int, core: Broker) -> None:
        if self._cores.get(broker) is not core:
            return
        if broker not in self._frozen:
            self._carry_out(broker, self._relays[broker].tick(self.now))
            self._work(broker)
        self.timeline.at(self.now + TICK_MS, lambda: self._tick(broker, core))

    def _work(self, broker: int) -> None:
        relay = self._relays[broker]
        while relay.working:
            self._carry_out(broker, relay.work(self.now))

    # --- carrying out ----------------------------------------------------------------------------------------------

    def _carry_out(self, broker: int, outbox: Outbox) -> None:
        """Do what a core says; what follows from that, such as a full link, is done after it, as a live broker does."""
        self._outboxes.append((broker, outbox))
        if self._carrying:
            return
        self._carrying = True
        try:
            while self._outboxes:
                self._carry_out_one(*self._outboxes.popleft())
        finally:
            self._carrying = False

    def _carry_out_one(self, broker: int, outbox: Outbox) -> None:
        for delivery in outbox.deliveries:
            key = delivery.subscription.key
            messages = [delivery.batch.message(row) for row in delivery.rows.tolist()]
            self.delivered[key] += [message.id for message in messages]
            self.headers[key] += [(message.id, message.headers) for message in messages if message.headers]
        for link, frame in outbox.frames:
            self._send_frame(broker, link, frame)
        for sending in outbox.parcels:
            self._send(broker, sending)
        for number in outbox.connects:
            self._connect(broker, number)
        for number in outbox.disconnects:
            self._disconnect(broker, number)
        usual = self._sessions[broker].number
        if usual in outbox.pauses:
            self.paused.add(broker)
        if usual in outbox.resumes:
            self.paused.discard(broker)
        self._settle(broker)

    def _send_frame(self, here: int, there: int, frame: Frame) -> None:
        direction = self._directions[here, there]
        if not direction.up:
            return
        data = encode_frame(frame)
        direction.control_bytes += len(data)

        def arrive() -> None:
            self._carry_out(there, self._relays[there].control(decode_frame(data), here, self.now))
            self._work(there)

        direction.carry(len(data), lambda: self._arrive(there, arrive))

    def _arrive(self, there: int, arrive: Callable[[], None]) -> None:
        """Something has come to a broker: it reads it, now or when it can."""
        frozen = self._frozen.get(there)
        if frozen is None:
            arrive()
        else:
            frozen.waiting.append(arrive)

    def _send(self, here: int, sending: Sending) -> None:
        there, relay = sending.link, self._relays[here]
        direction = self._directions[here, there]
        # Over a real link only bytes travel: nothing of the sender's memory may be shared.
        batch = copied_out(sending.batch, sending.rows)
        carried = sending._replace(batch=batch, rows=np.arange(len(batch), dtype=np.int64))
        if not direction.up:
            self._return(here, carried)
            return
        size = batch.buffer.nbytes + ROW_BYTES * len(batch) + sending.destinations.sets.nbytes + _FRAME_BYTES
        number = direction.hold(carried, size)
        taken = number is not None
        relay.sent(carried, len(batch) * taken, int(taken), self.now)
        if sending.publisher and direction.crowded:
            direction.pauses = True
            self._carry_out(here, relay.link_full(there, sending.publisher))
        if number is None:
            return
        direction.messages += len(batch)
        life = direction.life

        def arrive() -> None:
            receiver = self._relays[there]
            consignment = receiver.consignments.take(here, life, number) if self._custody else None
            outbox = receiver.receive(batch, sending.destinations, here, self.now, consignment)
            if consignment is None and direction.life == life:
                direction.confirm(number, lambda sent: self._let_go(here, sent))
            self._carry_out(there, outbox)

        direction.carry(size, lambda: self._arrive(there, arrive))

    def _settle(self, broker: int) -> None:
        """Tell neighbours that what they entrusted to a broker is done with."""
        relay = self._relays.get(broker)
        for consignment in [] if relay is None else relay.consignments.take_settled():
            sender = consignment.link
            direction = self._directions[sender, broker]
            if direction.life == consignment.epoch:
                direction.confirm(consignment.number, lambda sent, sender=sender: self._let_go(sender, sent))  # type: ignore[misc]

    def _let_go(self, here: int, sending: Sending) -> None:
        """The other end has confirmed a parcel."""
        if sending.consignment is not None:
            self._relays[here].settled([sending.consignment])
            self._settle(here)
        self._look_for_room(here, sending.link)

    def _look_for_room(self, here: int, there: int) -> None:
        direction = self._directions[here, there]
        if direction.pauses and direction.relaxed:
            direction.pauses = False
            self._carry_out(here, self._relays[here].link_free(there))
