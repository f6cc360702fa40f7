"""Many brokers in one process, in virtual time: the same cores and strategies that run live.

A broker's processor does one thing after the other and takes the time that `ServiceTimes` gives: what comes meanwhile
waits in its sockets. Without service times everything takes no time at all. Links take their own time (`links.py`).
Everything that happens follows from the arguments and the seed: two runs are equal to the byte.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np

from postroad.broker import AckMode, Broker, Outbox, OverflowPolicy, PublisherNumbers, Relay, SubscriptionNumbers
from postroad.broker.numbers import BLOCK, SUBSCRIPTION_BLOCK
from postroad.broker.queues import copied_out
from postroad.errors import PostroadError
from postroad.messages import Batch
from postroad.routing import decode_frame, encode_frame
from postroad.simulation.agreement import learn, said_of_itself
from postroad.simulation.events import MICROSECONDS, Timeline
from postroad.simulation.host import Host, Task
from postroad.simulation.links import Direction, LinkQuality
from postroad.topology import DEFAULT_COST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from postroad.broker import Limits, Recorder, Sending, Session, Subscription
    from postroad.matching.encoding import Scheme
    from postroad.messages import Draft, MessageId, Untyped
    from postroad.routing import Frame, Strategy
    from postroad.simulation.host import Observer
    from postroad.simulation.service import ServiceTimes
    from postroad.topology import Graph

    # Makes a broker's strategy: its number, the time, and which brokers want a row.
    MakeStrategy = Callable[[int, int], Strategy]

__all__ = ["ROW_BYTES", "SimulatedNetwork"]

# How often brokers look after what changed, in virtual ms.
TICK_MS = 50
# What a data frame costs beside its messages: the envelope of each, and a little for the frame.
ROW_BYTES = 48
_FRAME_BYTES = 48


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
        service: how long brokers work on what comes; None for no time at all.
        observer: is told of messages accepted and delivered, instead of `delivered` and `headers`.
        silent: the brokers begin without a word to each other, until `agree` tells all of them everything at once. For
            large networks under `drp`, whose first agreement costs more than most experiments.

    Attributes:
        delivered: subscription name -> the ids it was handed, in order.
        headers: subscription name -> (id, header lines) of those among them that have header lines.
        paused: brokers whose publisher has to wait.
        events: what brokers have handled: messages accepted, arrived, relayed and delivered, each at one broker, and
            control frames that arrived.
        last_learned: when a broker was done with the last control frame so far, in microseconds.
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
        self.delivered: dict[str, list[MessageId]] = defaultdict(list)
        self.headers: dict[str, list[tuple[MessageId, dict[str, Untyped]]]] = defaultdict(list)
        self.paused: set[int] = set()
        self.events = 0
        self.last_learned = 0
        self._strategy = strategy
        self._custody = custody
        self._limits = limits
        self._scheme = scheme
        self._order_wait = order_wait_ms
        self._recorder = recorder
        self._service = service
        self._observer = observer
        self._starts: dict[int, int] = defaultdict(int)
        self._hosts: dict[int, Host] = {}
        self._directions: dict[tuple[int, int], Direction] = {}
        self._wanted: dict[int, set[int]] = defaultdict(set)
        self._random = random
        self._quality = quality or LinkQuality()
        self._outboxes: deque[tuple[Host, Outbox]] = deque()
        self._carrying = False
        self._silent = silent
        for one, other in graph.links:
            self._lay(one, other)
        for number in graph.brokers:
            self.start(number)

    @property
    def now(self) -> int:
        """The virtual time in ms."""
        return self.timeline.now_ms

    @property
    def running(self) -> list[int]:
        """The brokers that run, in the order in which they started."""
        return list(self._hosts)

    def core(self, broker: int) -> Broker:
        """The core of a broker that runs."""
        return self._hosts[broker].core

    def relay(self, broker: int) -> Relay:
        """The relay of a broker that runs."""
        return self._hosts[broker].relay

    def host(self, broker: int) -> Host:
        """A broker that runs, with its processor."""
        return self._hosts[broker]

    def link(self, one: int, other: int) -> Direction:
        """What one broker sends another."""
        return self._directions[one, other]

    def links(self) -> dict[tuple[int, int], Direction]:
        """(from, to) -> what one broker sends the other, of all links there ever were."""
        return dict(self._directions)

    # --- clients ---------------------------------------------------------------------------------------------------

    def attach(self, broker: int) -> Session:
        """A further client of a broker."""
        return self._hosts[broker].core.attached("")

    def subscribe(
        self, broker: int, name: str, topic: str, selector: str = "", session: Session | None = None
    ) -> Subscription:
        """A subscriber at a broker; what it gets stands in `delivered[name]`."""
        host = self._hosts[broker]
        return host.core.subscribe(
            session or host.session, name, topic, selector, AckMode.AUTO, OverflowPolicy.DROP_OLDEST, self.now
        )

    def unsubscribe(self, broker: int, name: str, session: Session | None = None) -> None:
        """A subscriber leaves."""
        host = self._hosts[broker]
        self._carry_out(host, host.core.unsubscribe(session or host.session, name, self.now))

    def publish(self, broker: int, drafts: Iterable[Draft | tuple[object, ...]]) -> list[MessageId]:
        """Publish at a broker, now; answers the ids. A publisher that is `paused` should wait."""
        return self.publish_as(self._hosts[broker].session, broker, drafts)

    def publish_as(
        self, session: Session, broker: int, drafts: Iterable[Draft | tuple[object, ...]]
    ) -> list[MessageId]:
        """Publish from another session than the broker's usual one."""
        batch = Batch.build(drafts)
        host = self._hosts[broker]
        self.events += len(batch)
        self._carry_out(host, host.core.receive(batch, session, self.now))
        return [message.id for message in batch]

    def offer(self, broker: int, batch: Batch, client: int = 0) -> None:
        """A client writes messages to its socket, now. The broker reads them when its processor and its links let it.

        What is offered to a broker that does not run is lost, as is what it had not read when it crashed.
        """
        host = self._hosts.get(broker)
        if host is None:
            return
        offered = self.timeline.now

        def accept() -> Outbox:
            outbox = host.core.receive(batch, host.session, self.now)
            self.events += len(batch)
            if self._observer is not None:
                self._observer.accepted(broker, client, batch, offered)
            return outbox

        self._give(host, Task(accept, self._costs(host, batch), pausable=True))

    def offer_subscription(
        self, broker: int, name: str, topic: str, selector: str, answered: Callable[[int], None]
    ) -> None:
        """A client sends SUBSCRIBE, now; `answered` is told when, in microseconds, the broker has done its part."""
        host = self._hosts[broker]

        def subscribe() -> Outbox:
            self.subscribe(broker, name, topic, selector)
            answered(self.timeline.now + self._subscribe_cost(outbox))
            return outbox

        outbox = Outbox()
        self._give(host, Task(subscribe, self._subscribe_cost))

    def _subscribe_cost(self, _: Outbox) -> int:
        return 0 if self._service is None else self._service.subscribe_us

    def drained(self, broker: int) -> None:
        """The subscribers at a broker, told `congested`, read again: all that waits is handed out."""
        host = self._hosts[broker]
        self._carry_out(host, host.core.drained(host.session, self.now))
        while host.core.has_waiting(host.session):
            self._carry_out(host, host.core.drained(host.session, self.now))

    # --- what happens to the network -------------------------------------------------------------------------------

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        self.timeline.run_until(self.timeline.now + milliseconds * MICROSECONDS)

    def start(self, broker: int) -> None:
        """A broker starts, with no memory of what was before, and its links to running neighbours come up."""
        if broker in self._hosts:
            raise PostroadError(f"broker {broker} is running")
        run, self._starts[broker] = self._starts[broker], self._starts[broker] + 1
        recorder = None if self._recorder is None else self._recorder(broker)
        numbers = PublisherNumbers(lambda: 1 + run * BLOCK)
        subscriptions = SubscriptionNumbers(lambda: 1 + run * SUBSCRIPTION_BLOCK)
        core = Broker(broker, numbers, self._limits, recorder=recorder, subscription_numbers=subscriptions)
        relay = Relay(core, self._strategy(broker, self.now), self._scheme, self._order_wait)
        host = self._hosts[broker] = Host(core, relay)
        self._tick(host)
        for neighbour in self._neighbours(broker):
            if neighbour in self._hosts:
                self.join(broker, neighbour)

    def agree(self) -> None:
        """Every broker learns at once what all others say of their links and subscribers; links carry nothing for it.

        Only where strategies spread link state; the others have nothing to agree on.
        """
        self._silent = True
        for host in self._hosts.values():
            if host.relay.strategy.link_state is not None:
                self._carry_out(host, host.relay.tick(self.now))
        said = {broker: said_of_itself(host, self.now) for broker, host in self._hosts.items()}
        for host in self._hosts.values():
            learn(host, said, self.now, self._carry_out)
        self._silent = False

    def crash(self, broker: int) -> None:
        """A broker is gone at once, with its clients and all it held."""
        del self._hosts[broker]
        self.paused.discard(broker)
        for neighbour in self._neighbours(broker):
            self._directions[broker, neighbour].cut()
            if self._directions[neighbour, broker].up:
                self._lose(neighbour, broker)

    def freeze(self, broker: int, silence_ms: int) -> None:
        """A broker does nothing from now on; its neighbours take it for dead after so long a silence.

        What arrives before that waits in its sockets, and it will read that when it goes on.
        """
        host = self._hosts[broker]
        frozen = host.frozen = []

        def notice() -> None:
            if host.frozen is not frozen or self._hosts.get(broker) is not host:
                return
            for neighbour in self._neighbours(broker):
                if neighbour in self._hosts and self._directions[neighbour, broker].up:
                    host.given_up_by.append(neighbour)
                    self._lose(neighbour, broker)

        self.timeline.at(self.timeline.now + silence_ms * MICROSECONDS, notice)

    def thaw(self, broker: int) -> None:
        """A broker that was frozen goes on: its lost links are made again, and it reads what waited for it."""
        host = self._hosts[broker]
        waited, host.frozen = host.frozen or [], None
        lost, host.given_up_by = host.given_up_by, []
        for neighbour in lost:
            self._lose(broker, neighbour)
        for neighbour in lost:
            if neighbour in self._hosts:
                self.join(broker, neighbour)
        for task in waited:
            self._give(host, task)

    def join(self, one: int, other: int) -> None:
        """The link between two running brokers comes up."""
        for here, there in ((one, other), (other, one)):
            self._directions[here, there].raise_()
        for here, there in ((one, other), (other, one)):
            cost = self.graph.neighbours(here).get(there, DEFAULT_COST)
            host = self._hosts[here]
            self._carry_out(host, host.relay.link_up(there, cost, self.now))

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
            self._return(host, sending)
        self._look_for_room(here, there)

    def _return(self, host: Host, sending: Sending) -> None:
        consignment, link = sending.consignment, sending.link
        self._carry_out(host, host.relay.returned(sending.batch, sending.destinations, self.now, consignment, link))

    def _tick(self, host: Host) -> None:
        if self._hosts.get(host.core.number) is not host:
            return
        if host.frozen is None:
            self._carry_out(host, host.relay.tick(self.now))
            self._work(host)
        self.timeline.at(self.timeline.now + TICK_MS * MICROSECONDS, lambda: self._tick(host))

    def _work(self, host: Host) -> None:
        while host.relay.working:
            self._carry_out(host, host.relay.work(self.now))

    # --- the processor ---------------------------------------------------------------------------------------------

    def _costs(self, host: Host, batch: Batch) -> Callable[[Outbox], int]:
        service = self._service
        if service is None:
            return _nothing
        return lambda outbox: service.batch_us(len(batch), batch.buffer.nbytes, len(host.core.index), outbox)

    def _give(self, host: Host, task: Task) -> None:
        """Something has come to a broker: it reads it, now or when it can."""
        if self._hosts.get(host.core.number) is not host:
            return
        if host.frozen is not None:
            host.frozen.append(task)
            return
        host.tasks.append(task)
        self._serve(host)

    def _serve(self, host: Host) -> None:
        """Take up the next task; what follows from it happens when it is done."""
        while host.tasks and not host.busy:
            task = host.tasks.popleft()
            if task.pausable and host.paused:
                host.offered.append(task)
            elif self._service is None:
                self._carry_out(host, task.run())
            else:
                self._begin(host, task)

    def _begin(self, host: Host, task: Task) -> None:
        outbox = task.run()
        cost = task.cost(outbox)
        host.busy = True
        host.busy_us += cost

        def done() -> None:
            if self._hosts.get(host.core.number) is not host:
                return
            host.busy = False
            self._carry_out(host, outbox)
            self._serve(host)

        self.timeline.at(self.timeline.now + cost, done)

    def _resume(self, host: Host) -> None:
        """Publishers go on: what they offered meanwhile comes first."""
        waiting, host.offered = host.offered, deque()
        host.tasks.extendleft(reversed(waiting))
        if host.frozen is None:
            self._serve(host)

    # --- carrying out ----------------------------------------------------------------------------------------------

    def _carry_out(self, host: Host, outbox: Outbox) -> None:
        """Do what a core says; what follows from that, such as a full link, is done after it, as a live broker does."""
        self._outboxes.append((host, outbox))
        if self._carrying:
            return
        self._carrying = True
        try:
            while self._outboxes:
                self._carry_out_one(*self._outboxes.popleft())
        finally:
            self._carrying = False

    def _carry_out_one(self, host: Host, outbox: Outbox) -> None:
        broker = host.core.number
        if outbox.deliveries:
            self._deliver(broker, outbox)
        for link, frame in outbox.frames:
            self._send_frame(broker, link, frame)
        for sending in outbox.parcels:
            self._send(host, sending)
        for number in outbox.connects:
            self._connect(broker, number)
        for number in outbox.disconnects:
            self._disconnect(broker, number)
        if host.session.number in outbox.pauses:
            host.paused = True
            self.paused.add(broker)
        if host.session.number in outbox.resumes:
            host.paused = False
            self.paused.discard(broker)
            # Not now: a task may pause publishers again, which is noticed when its outbox is carried out.
            self.timeline.at(self.timeline.now, lambda: self._resume(host))
        self._settle(host)

    def _deliver(self, broker: int, outbox: Outbox) -> None:
        for delivery in outbox.deliveries:
            self.events += len(delivery.rows)
            if self._observer is not None:
                self._observer.delivered(
                    broker, delivery.subscription, delivery.batch, delivery.rows, self.timeline.now
                )
                continue
            key = delivery.subscription.key
            messages = [delivery.batch.message(row) for row in delivery.rows.tolist()]
            self.delivered[key] += [message.id for message in messages]
            self.headers[key] += [(message.id, message.headers) for message in messages if message.headers]

    def _send_frame(self, here: int, there: int, frame: Frame) -> None:
        direction = self._directions[here, there]
        if not direction.up or self._silent:
            return
        data = encode_frame(frame)
        direction.control_bytes += len(data)
        direction.control_frames += 1

        def arrive() -> None:
            host = self._hosts[there]

            def learn() -> Outbox:
                self.events += 1
                self.last_learned = self.timeline.now + self._control_cost(Outbox())
                outbox = host.relay.control(decode_frame(data), here, self.now)
                self._work(host)
                return outbox

            self._give(host, Task(learn, self._control_cost))

        direction.carry(len(data), arrive)

    def _control_cost(self, _: Outbox) -> int:
        return 0 if self._service is None else self._service.control_us

    def _send(self, host: Host, sending: Sending) -> None:
        here, there, relay = host.core.number, sending.link, host.relay
        direction = self._directions[here, there]
        # Over a real link only bytes travel: nothing of the sender's memory may be shared.
        batch = copied_out(sending.batch, sending.rows)
        carried = sending._replace(batch=batch, rows=np.arange(len(batch), dtype=np.int64))
        if not direction.up:
            self._return(host, carried)
            return
        size = batch.buffer.nbytes + ROW_BYTES * len(batch) + sending.destinations.sets.nbytes + _FRAME_BYTES
        number = direction.hold(carried, size)
        taken = number is not None
        relay.sent(carried, len(batch) * taken, int(taken), self.now)
        if sending.publisher and direction.crowded:
            direction.pauses = True
            self._carry_out(host, relay.link_full(there, sending.publisher))
        if number is None:
            return
        self.events += len(batch)
        direction.messages += len(batch)
        life = direction.life

        def arrive() -> None:
            receiver = self._hosts[there]

            def receive() -> Outbox:
                self.events += len(batch)
                consignment = receiver.relay.consignments.take(here, life, number) if self._custody else None
                outbox = receiver.relay.receive(batch, sending.destinations, here, self.now, consignment)
                if consignment is None and direction.life == life:
                    direction.confirm(number, lambda sent: self._let_go(here, sent))
                return outbox

            self._give(receiver, Task(receive, self._costs(receiver, batch)))

        direction.carry(size, arrive)

    def _settle(self, host: Host) -> None:
        """Tell neighbours that what they entrusted to a broker is done with."""
        broker = host.core.number
        if self._hosts.get(broker) is not host:
            return
        for consignment in host.relay.consignments.take_settled():
            sender = consignment.link
            direction = self._directions[sender, broker]
            if direction.life == consignment.epoch:
                direction.confirm(consignment.number, lambda sent, sender=sender: self._let_go(sender, sent))  # type: ignore[misc]

    def _let_go(self, here: int, sending: Sending) -> None:
        """The other end has confirmed a parcel."""
        if sending.consignment is not None:
            host = self._hosts[here]
            host.relay.settled([sending.consignment])
            self._settle(host)
        self._look_for_room(here, sending.link)

    def _look_for_room(self, here: int, there: int) -> None:
        direction = self._directions[here, there]
        if direction.pauses and direction.relaxed:
            direction.pauses = False
            host = self._hosts[here]
            self._carry_out(host, host.relay.link_free(there))


def _nothing(_: Outbox) -> int:
    return 0
