"""Many brokers in one process, in virtual time: the same cores and strategies that run live.

A broker's processor does one thing after the other and takes the time that `ServiceTimes` gives; what arrives meanwhile
waits in its sockets. Without service times everything is instantaneous. Links take their own time (`links.py`).
Everything that happens follows from the arguments and the seed: two runs are equal to the byte.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from postroad.broker import (
    AckMode,
    Broker,
    Limits,
    Outbox,
    OverflowPolicy,
    PublisherNumbers,
    Relay,
    SubscriptionNumbers,
)
from postroad.broker.numbers import BLOCK, SUBSCRIPTION_BLOCK
from postroad.errors import PostroadError
from postroad.messages import Batch
from postroad.simulation.agreement import exact_interests, learn, said_of_itself
from postroad.simulation.events import MICROSECONDS, Timeline
from postroad.simulation.host import Host, Task
from postroad.simulation.links import Direction, LinkQuality
from postroad.simulation.transport import ROW_BYTES, SimulatedTransport
from postroad.topology import DEFAULT_COST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from postroad.broker import Recorder, Session, Subscription
    from postroad.matching.encoding import Scheme
    from postroad.messages import Draft, MessageId
    from postroad.routing import Strategy
    from postroad.simulation.host import Observer
    from postroad.simulation.service import ServiceTimes
    from postroad.topology import Graph

    # Makes a broker's strategy: its number, the time, and which brokers want a row.
    MakeStrategy = Callable[[int, int], Strategy]

__all__ = ["ROW_BYTES", "SimulatedNetwork"]

# How often brokers check what changed, in virtual ms.
TICK_MS = 50


class SimulatedNetwork:
    """Brokers connected as a graph says; publishers and subscribers at any of them.

    Args:
        graph: who is linked with whom.
        strategy: makes the strategy of each broker.
        random: draws delays; the same seed gives the same run.
        quality: how good the links are.
        custody: brokers keep what they send until it is settled, not only until it has arrived.
        limits: of each broker.
        recorder: makes the recorder of each broker that starts, given its number.
        scheme: how brokers encode what they want; None if they advertise it exactly.
        order_wait_ms: how long messages wait for earlier ones of their publisher after routes have changed; 0 for no
            wait.
        service: how long brokers work on what arrives; None for no time at all.
        observer: gets messages accepted and delivered, instead of `delivered` and `headers`.
        silent: the brokers say nothing to each other until `agree` tells all of them everything at once. For large
            networks under `drp`, whose first agreement costs more than most experiments.

    Attributes:
        delivered: subscription name -> the ids it got, in order.
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
        service: ServiceTimes | None = None,
        observer: Observer | None = None,
        silent: bool = False,
    ) -> None:
        self.timeline = Timeline()
        self.graph = graph
        self._strategy = strategy
        self._limits = limits
        self._scheme = scheme
        self._order_wait = order_wait_ms
        self._recorder = recorder
        self._service = service
        self._observer = observer
        self._starts: dict[int, int] = defaultdict(int)
        self._wanted: dict[int, set[int]] = defaultdict(set)
        self._random = random
        self._quality = quality or LinkQuality()
        self._transport = SimulatedTransport(self.timeline, service, custody, observer, self._connect, self._disconnect)
        self._transport.silent = silent
        self._hosts, self._directions = self._transport.hosts, self._transport.directions
        self.delivered, self.headers = self._transport.delivered, self._transport.headers
        self.paused = self._transport.paused
        for one, other in graph.links:
            self._lay(one, other)
        for number in graph.brokers:
            self.start(number)

    @property
    def now(self) -> int:
        """Return the virtual time in ms."""
        return self.timeline.now_ms

    @property
    def events(self) -> int:
        """Count what brokers have handled: messages accepted, arrived, relayed and delivered; and control frames."""
        return self._transport.events

    @property
    def last_learned(self) -> int:
        """Return when a broker finished the last control frame so far, in microseconds."""
        return self._transport.last_learned

    @property
    def running(self) -> list[int]:
        """Return the running brokers, in the order in which they started."""
        return list(self._hosts)

    def core(self, broker: int) -> Broker:
        """Return the core of a running broker."""
        return self._hosts[broker].core

    def relay(self, broker: int) -> Relay:
        """Return the relay of a running broker."""
        return self._hosts[broker].relay

    def host(self, broker: int) -> Host:
        """Return a running broker, with its processor."""
        return self._hosts[broker]

    def link(self, one: int, other: int) -> Direction:
        """Return what one broker sends another."""
        return self._directions[one, other]

    def links(self) -> dict[tuple[int, int], Direction]:
        """Return (from, to) -> what one broker sends the other, of all links that ever existed."""
        return dict(self._directions)

    # --- clients ---------------------------------------------------------------------------------------------------

    def attach(self, broker: int) -> Session:
        """Add a further client of a broker."""
        return self._hosts[broker].core.attached("")

    def subscribe(
        self, broker: int, name: str, topic: str, selector: str = "", session: Session | None = None
    ) -> Subscription:
        """Add a subscriber at a broker; `delivered[name]` holds what it gets."""
        host = self._hosts[broker]
        return host.core.subscribe(
            session or host.session, name, topic, selector, AckMode.AUTO, OverflowPolicy.DROP_OLDEST, self.now
        )

    def unsubscribe(self, broker: int, name: str, session: Session | None = None) -> None:
        """Remove a subscriber."""
        host = self._hosts[broker]
        self._carry_out(host, host.core.unsubscribe(session or host.session, name, self.now))

    def publish(self, broker: int, drafts: Iterable[Draft | tuple[object, ...]]) -> list[MessageId]:
        """Publish at a broker, now; return the ids. A publisher that is `paused` should wait."""
        return self.publish_as(self._hosts[broker].session, broker, drafts)

    def publish_as(
        self, session: Session, broker: int, drafts: Iterable[Draft | tuple[object, ...]]
    ) -> list[MessageId]:
        """Publish from another session than the broker's usual one."""
        batch = Batch.build(drafts)
        host = self._hosts[broker]
        self._transport.events += len(batch)
        self._carry_out(host, host.core.receive(batch, session, self.now))
        return [message.id for message in batch]

    def offer(self, broker: int, batch: Batch, client: int = 0) -> None:
        """Let a client write messages to its socket, now. The broker reads them when its processor and its links allow.

        What is offered to a broker that does not run is lost, and so is what it had not read when it crashed.
        """
        host = self._hosts.get(broker)
        if host is None:
            return
        offered = self.timeline.now

        def accept() -> Outbox:
            outbox = host.core.receive(batch, host.session, self.now)
            self._transport.events += len(batch)
            if self._observer is not None:
                self._observer.accepted(broker, client, batch, offered)
            return outbox

        host.give(Task(accept, self._transport.batch_cost(host, batch), pausable=True))

    def offer_subscription(
        self, broker: int, name: str, topic: str, selector: str, answered: Callable[[int], None]
    ) -> None:
        """Let a client send SUBSCRIBE, now; `answered` gets the time, in microseconds, when the broker has done it."""
        host = self._hosts[broker]

        def subscribe() -> Outbox:
            self.subscribe(broker, name, topic, selector)
            answered(self.timeline.now + (0 if self._service is None else self._service.subscribe_us))
            return Outbox()

        host.give(Task(subscribe, self._transport.subscribe_cost()))

    def drained(self, broker: int) -> None:
        """Let congested subscribers at a broker read again: all that waits is delivered."""
        host = self._hosts[broker]
        self._carry_out(host, host.core.drained(host.session, self.now))
        while host.core.has_waiting(host.session):
            self._carry_out(host, host.core.drained(host.session, self.now))

    # --- what happens to the network -------------------------------------------------------------------------------

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        self.timeline.run_until(self.timeline.now + milliseconds * MICROSECONDS)

    def start(self, broker: int) -> None:
        """Start a broker without memory of its past, and bring up its links to running neighbours."""
        if broker in self._hosts:
            raise PostroadError(f"broker {broker} is running")
        run, self._starts[broker] = self._starts[broker], self._starts[broker] + 1
        recorder = None if self._recorder is None else self._recorder(broker)
        numbers = PublisherNumbers(lambda: 1 + run * BLOCK)
        subscriptions = SubscriptionNumbers(lambda: 1 + run * SUBSCRIPTION_BLOCK)
        core = Broker(broker, numbers, self._limits, recorder=recorder, subscription_numbers=subscriptions)
        relay = Relay(core, self._strategy(broker, self.now), self._scheme, self._order_wait)
        host = self._hosts[broker] = Host(core, relay, self.timeline, self._transport)
        self._keep_ticking(host)
        for neighbour in self._neighbours(broker):
            if neighbour in self._hosts:
                self.join(broker, neighbour)

    def agree(self) -> None:
        """Let every broker learn at once what all others say of their links and subscribers, without using links.

        Only for strategies that spread link state; the others have nothing to agree on.
        """
        self._transport.silent = True
        for host in self._hosts.values():
            if host.relay.strategy.link_state is not None:
                self._carry_out(host, host.relay.tick(self.now))
        said = {broker: said_of_itself(host, self.now) for broker, host in self._hosts.items()}
        # Encoded interests are cheap to take over; exact ones are not, and all brokers hold nearly the same.
        matching_ms = (self._limits or Limits()).matching_ms
        known = exact_interests(said, matching_ms) if self._scheme is None else None
        for host in self._hosts.values():
            learn(host, said, known, self.now, self._carry_out)
        self._transport.silent = False

    def crash(self, broker: int) -> None:
        """Remove a broker at once, with its clients and all it held."""
        self._hosts.pop(broker).running = False
        self.paused.discard(broker)
        for neighbour in self._neighbours(broker):
            self._directions[broker, neighbour].cut()
            if self._directions[neighbour, broker].up:
                self._lose(neighbour, broker)

    def freeze(self, broker: int, silence_ms: int) -> None:
        """Stop a broker without ending it; its neighbours consider it dead after this much silence.

        What arrives before that waits in its sockets, and it reads that when it continues.
        """
        host = self._hosts[broker]
        frozen = host.frozen = []

        def notice() -> None:
            if host.frozen is not frozen or not host.running:
                return
            for neighbour in self._neighbours(broker):
                if neighbour in self._hosts and self._directions[neighbour, broker].up:
                    host.given_up_by.append(neighbour)
                    self._lose(neighbour, broker)

        self.timeline.at(self.timeline.now + silence_ms * MICROSECONDS, notice)

    def thaw(self, broker: int) -> None:
        """Continue a frozen broker: its lost links are made again, and it reads what waited for it."""
        host = self._hosts[broker]
        waited, host.frozen = host.frozen or [], None
        lost, host.given_up_by = host.given_up_by, []
        for neighbour in lost:
            self._lose(broker, neighbour)
        for neighbour in lost:
            if neighbour in self._hosts:
                self.join(broker, neighbour)
        for task in waited:
            host.give(task)

    def join(self, one: int, other: int) -> None:
        """Bring up the link between two running brokers."""
        for here, there in ((one, other), (other, one)):
            self._directions[here, there].raise_()
        for here, there in ((one, other), (other, one)):
            cost = self.graph.neighbours(here).get(there, DEFAULT_COST)
            host = self._hosts[here]
            self._carry_out(host, host.relay.link_up(there, cost, self.now))

    def cut(self, one: int, other: int) -> None:
        """Cut the link between two brokers; both notice."""
        for here, there in ((one, other), (other, one)):
            self._lose(here, there)

    def _lay(self, one: int, other: int) -> None:
        delay = self._random.randint(*self._quality.delay_ms)
        for way in ((one, other), (other, one)):
            self._directions[way] = Direction(self.timeline, delay, self._quality, self._random)

    def _neighbours(self, broker: int) -> list[int]:
        return sorted({*self.graph.neighbours(broker), *self._wanted[broker]})

    def _connect(self, here: int, there: int) -> None:
        """Add a link beyond those of the graph; it comes up as soon as both ends run."""
        if there in self._neighbours(here):
            return
        self._wanted[here].add(there)
        self._wanted[there].add(here)
        if (here, there) not in self._directions:
            self._lay(here, there)

        def come_up() -> None:
            wanted = there in self._wanted[here] and {here, there} <= self._hosts.keys()
            if wanted and not self._directions[here, there].up:
                self.join(here, there)

        delay = self._random.randint(*self._quality.delay_ms)
        self.timeline.at(self.timeline.now + delay * MICROSECONDS, come_up)

    def _disconnect(self, here: int, there: int) -> None:
        if there in self._wanted[here]:
            self._wanted[here].discard(there)
            self._wanted[there].discard(here)
            if self._directions[here, there].up:
                self.cut(here, there)

    def _lose(self, here: int, there: int) -> None:
        unconfirmed = self._directions[here, there].cut()
        host = self._hosts[here]
        self._carry_out(host, host.relay.link_down(there, self.now))
        for sending in unconfirmed:
            self._transport.give_back(host, sending)
        self._transport.look_for_room(here, there)

    def _keep_ticking(self, host: Host) -> None:
        """Let a broker check what changed, now and regularly."""

        def tick() -> None:
            if not host.running:
                return
            if host.frozen is None:
                self._carry_out(host, host.relay.tick(self.now))
                self._transport.work(host)
            self.timeline.at(self.timeline.now + TICK_MS * MICROSECONDS, tick)

        tick()

    def _carry_out(self, host: Host, outbox: Outbox) -> None:
        self._transport.carry_out(host, outbox)
