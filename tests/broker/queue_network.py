"""Brokers with queues on simulated disks, joined by wires that lose, repeat and reorder packets; and an oracle.

Everything follows from the seed. Clients know what they sent and what was confirmed, what they got and what they
acknowledged; whatever contradicts a promise is a fault.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

from postroad.broker import AckMode, ConsumerTerms, Limits, QueueSettings
from postroad.messages import Batch, Draft
from postroad.messages.columns import FLAGS, QUEUED
from postroad.store import PowerFailure, SimulatedDisk, StoreSettings, carry_out
from tests.broker.stored_core import NumberBlocks, stored_core

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Broker, Outbox, Recorder, Session, Subscription
    from postroad.broker.peers import Peers
    from postroad.store import Log

SETTINGS = QueueSettings(max_deliveries=100, redelivery_ms=10, max_redelivery_ms=50, prefetch=5)
STORE = StoreSettings(segment_bytes=8_192, cache_bytes=16_000)
QUEUE = "work"
# Of a disk with a capacity: room for two segments.
DISK_RESERVE = 16_000


class QueueClient:
    """A consumer: what it has, and how it asked for it."""

    def __init__(self, broker: int, session: Session, ack: AckMode) -> None:
        self.broker = broker
        self.session = session
        self.ack = ack
        self.held: dict[int, tuple[int, int]] = {}


class QueueBroker:
    """One broker of the network, in one of its lives."""

    def __init__(self, core: Broker, log: Log, disk: SimulatedDisk) -> None:
        self.core = core
        self.log = log
        self.disk = disk
        self.writer = core.attached("writer")
        # What was sent and is not confirmed: the number that the store has to reach, and the messages.
        self.sent: list[tuple[int, list[int]]] = []
        # The same for acknowledgements of durable subscribers.
        self.acknowledging: list[tuple[int, Any, int]] = []
        # The same for what durable subscribers want: how many changes are safe then.
        self.changing: list[tuple[int, Any, int]] = []

    @property
    def peers(self) -> Peers:
        assert self.core.peers is not None
        return self.core.peers


class QueueNetwork:
    """Some brokers; one of them, the first if nothing else is said, has the queue."""

    home = 1
    # The brokers that the plan has; empty if it is not known.
    listed: frozenset[int] = frozenset()

    def __init__(
        self,
        seed: int = 0,
        count: int = 3,
        settings: QueueSettings = SETTINGS,
        store: StoreSettings = STORE,
        recorder: Callable[[int], Recorder] | None = None,
        capacity: int | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.now = 1_000_000
        # How far the clock that only goes forward is behind the other one.
        self.behind = 0
        self.settings, self.store, self.recorder = settings, store, recorder
        self.numbers = NumberBlocks()
        self.bodies = itertools.count(1)
        # Bytes of each disk, without what a reserve keeps free; None for more than anybody fills.
        self.capacity = capacity
        self.disks = {
            number: SimulatedDisk() if capacity is None else SimulatedDisk(capacity + DISK_RESERVE)
            for number in range(1, count + 1)
        }
        self.brokers: dict[int, QueueBroker] = {}
        self.wires: list[tuple[int, int, bytes]] = []
        self.cut: set[frozenset[int]] = set()
        self.loss = 0.0
        self.clients: dict[int, QueueClient] = {}
        self.confirmed: set[int] = set()
        self.handed: set[int] = set()
        self.acknowledged: set[int] = set()
        self.settled: set[int] = set()
        self.faults: list[str] = []
        self.told: list[str] = []
        self.ids: dict[int, tuple[int, int]] = {}
        for number in self.disks:
            self.start(number)

    def start(self, number: int) -> None:
        recorder = None if self.recorder is None else self.recorder(number)
        disk = self.disks[number]
        self.now += 1
        core, log = stored_core(
            disk,
            self.numbers,
            self.now,
            number=number,
            store=self.store,
            queues=self.settings,
            limits=Limits(unacknowledged=50),
            recorder=recorder,
            home=lambda _: self.home,
            listed=self.listed,
        )
        core.timer = lambda: self.now + self.behind
        self.brokers[number] = QueueBroker(core, log, disk)

    def crash(self, number: int, power: bool = True) -> None:
        """A broker dies, with its clients and all that it had not written."""
        gone = self.brokers.pop(number)
        self.disks[number] = gone.disk.crash(self.random, power=power)
        self.clients = {key: each for key, each in self.clients.items() if each.broker != number}

    def stop(self, number: int) -> None:
        """A broker stops on purpose: its clients leave, and it writes all there is."""
        for client in [each for each in self.clients.values() if each.broker == number]:
            self.leave(client)
        gone = self.brokers.pop(number)
        gone.peers.stop(self.now)
        while (commit := gone.log.take_commit(self.now)) is not None:
            carry_out(commit, gone.disk)
            gone.log.committed(commit)
        assert gone.core.store is not None
        gone.core.store.given_up.proceed(self.now)
        self.disks[number] = gone.disk

    # --- clients -----------------------------------------------------------------------------------------------------

    def send(self, number: int, count: int = 1, size: int = 0) -> Outbox:
        broker = self.brokers[number]
        bodies = [next(self.bodies) for _ in range(count)]
        batch = Batch.build([Draft(QUEUE, {}, (), b"%d" % body + b" " * size) for body in bodies])
        batch.envelopes[:, FLAGS] |= QUEUED
        outbox = broker.core.receive(batch, broker.writer, self.now, queued=True)
        self.ids |= {body: (head, tail) for body, (head, tail) in zip(bodies, batch.ids.tolist(), strict=True)}
        self.carry_out(number, outbox)
        if not outbox.unstorable:
            broker.sent.append((broker.log.position, bodies))
        return outbox

    def consume(
        self, number: int, ack: AckMode = AckMode.INDIVIDUAL, prefetch: int = 5, selector: str = ""
    ) -> QueueClient:
        core = self.brokers[number].core
        session = core.attached("reader")
        assert core.queues is not None
        asked = ConsumerTerms(selector, ack, prefetch)
        subscription = core.queues.subscribe(session, "s", QUEUE, asked, self.now)
        client = self.clients[subscription.number] = QueueClient(number, session, ack)
        self.carry_out(number, core.offer(subscription, self.now))
        return client

    def answer(self, client: QueueClient, body: int, positive: bool = True) -> None:
        head, tail = client.held.pop(body)
        broker = self.brokers[client.broker]
        self.carry_out(client.broker, broker.core.acknowledge(client.session, "s", head, tail, positive, self.now))
        if not positive:
            return
        self.acknowledged.add(body)
        if client.session.confirmations is None:
            broker.sent.append((broker.log.position, [-body]))
        else:
            client.session.confirmations.when_done(lambda why: None if why else self.settled.add(body))

    def leave(self, client: QueueClient) -> None:
        self.clients = {key: each for key, each in self.clients.items() if each is not client}
        self.carry_out(client.broker, self.brokers[client.broker].core.detached(client.session, self.now))

    # --- what brokers do ---------------------------------------------------------------------------------------------

    def carry_out(self, number: int, outbox: Outbox) -> None:
        for delivery in outbox.deliveries:
            for row in delivery.rows.tolist():
                self._note(delivery.subscription, delivery.batch.message(row))
        for closed, reason in outbox.closes:
            self.told.append(reason)
            for client in [each for each in self.clients.values() if each.broker == number]:
                if client.session.number == closed:
                    self.leave(client)
        broker = self.brokers[number]
        if broker.peers.has_packets:
            self.transmit(number, broker.peers.take_packets(self.now))

    def transmit(self, number: int, packets: list[tuple[int, bytes]]) -> None:
        """Put packets of a broker on the wires."""
        self.wires += [(number, to, data) for to, data in packets]

    @property
    def is_busy(self) -> bool:
        """Whether something is under way."""
        return bool(self.wires)

    def _note(self, subscription: Subscription, message: Any) -> None:
        body, again = int(message.body), message.headers.get("redelivered") is not None
        if body in self.settled:
            self.faults.append(f"{body} came again, though its acknowledgement was confirmed")
        if body in self.handed and not again:
            self.faults.append(f"{body} came again, and is not marked")
        self.handed.add(body)
        client = self.clients.get(subscription.number)
        if client is not None and client.ack is not AckMode.AUTO:
            client.held[body] = (message.id.head, message.id.tail)

    def commit(self, number: int, fails: bool = False) -> None:
        """One commit, or a failure of the machine in the middle of it; then what there is to read."""
        broker = self.brokers[number]
        commit = broker.log.take_commit(self.now)
        if commit is not None:
            if fails:
                last = broker.disk.boundaries + self.random.randint(1, 8)
                broker.disk.boundary = lambda at: _fail(at, last)
            try:
                carry_out(commit, broker.disk)
            except PowerFailure:
                self.crash(number)
                return
            broker.disk.boundary = lambda _: None
            broker.log.committed(commit)
            self._note_room(broker)
        self.read(number)

    def _note_room(self, broker: QueueBroker) -> None:
        if self.capacity is not None:
            broker.log.room.disk = max(0, self.capacity - sum(broker.disk.segments().values()))

    def read(self, number: int) -> None:
        """What a broker does after a commit, or without one: it reads what it needs, and goes on."""
        broker = self.brokers[number]
        for read in broker.log.take_reads():
            broker.log.loaded(read, broker.disk.read(read.segment, read.start, read.length))
        self._confirm(broker)
        self.carry_out(number, broker.core.stored(self.now))

    def purge(self, number: int, reason: str = "purged by carla") -> int:
        """An operator gives up what waits at a broker for the queue of another one."""
        (queue,) = self.brokers[number].peers.outgoing.listed()
        return self.brokers[number].peers.outgoing.purge(queue, reason)

    def _confirm(self, broker: QueueBroker) -> None:
        safe = 2**62 if broker.log.position <= broker.log.safe else broker.log.safe
        while broker.sent and broker.sent[0][0] <= safe:
            for body in broker.sent.pop(0)[1]:
                if body > 0:
                    self.confirmed.add(body)
                else:
                    self.settled.add(-body)

    def pass_packet(self) -> None:
        """One packet arrives, of those under way; or it is lost, or comes twice."""
        if not self.wires:
            return
        at = self.random.randrange(min(len(self.wires), 4)) if self.loss else 0
        source, target, data = self.wires[at]
        if self.random.random() >= self.loss / 2:
            del self.wires[at]
        if frozenset((source, target)) in self.cut or target not in self.brokers:
            return
        if self.random.random() < self.loss:
            return
        outbox, fault = self.brokers[target].peers.receive(data, self.now)
        assert not fault
        self.carry_out(target, outbox)

    def tick(self, milliseconds: int = 100) -> None:
        self.now += milliseconds
        for number, broker in list(self.brokers.items()):
            self.carry_out(number, broker.peers.tick(self.now))
            self.carry_out(number, broker.core.redeliver(self.now))

    def settle(self, seconds: int = 30) -> None:
        """Let all that is under way come, and time pass."""
        for _ in range(10 * seconds):
            while self.is_busy:
                self.pass_packet()
            for number in list(self.brokers):
                self.commit(number)
            self.tick()


def _fail(at: int, last: int) -> None:
    if at >= last:
        raise PowerFailure


class NetworkMob(QueueNetwork):
    """What everybody who uses such a network at random does to its brokers, disks and wires."""

    # How much time passes at once.
    pauses = (10, 100, 1_000, 3_000)

    def _any(self) -> int:
        return self.random.choice(list(self.brokers)) if self.brokers else 0

    def _send(self) -> None:
        if number := self._any():
            self.send(number, self.random.randint(1, 3))

    def _commit(self) -> None:
        if number := self._any():
            self.commit(number, fails=self.random.random() < 0.03)

    def _pass_packet(self) -> None:
        self.pass_packet()

    def _tick(self) -> None:
        self.tick(self.random.choice(self.pauses))

    def _die(self) -> None:
        number = self._any()
        if number and self.random.random() < 0.4:
            self.crash(number, power=self.random.random() < 0.5)

    def _rise(self) -> None:
        for number in self.disks:
            if number not in self.brokers:
                self.start(number)
                return

    def _cut(self) -> None:
        if self.random.random() < 0.3 and len(self.disks) > 1:
            one, other = self.random.sample(sorted(self.disks), 2)
            self.cut.add(frozenset((one, other)))

    def _mend(self) -> None:
        self.cut.clear()

    def mend(self) -> None:
        """Mend and start everything, and let all that is under way come."""
        self.loss = 0.0
        self._mend()
        for number in self.disks:
            if number not in self.brokers:
                self.start(number)
        self.settle(30)


class QueueMob(NetworkMob):
    """Uses the queue at random."""

    def act(self) -> None:
        names = ["send"] * 4 + ["commit"] * 8 + ["pass_packet"] * 12 + ["tick"] * 3 + ["answer"] * 4
        names += ["refuse", "come", "leave", "die", "rise", "rise", "cut", "mend", "mend"]
        getattr(self, f"_{self.random.choice(names)}")()

    def _client(self) -> QueueClient | None:
        return self.random.choice(list(self.clients.values())) if self.clients else None

    def _answer(self) -> None:
        client = self._client()
        if client is not None and client.held:
            self.answer(client, self.random.choice(list(client.held)))

    def _refuse(self) -> None:
        client = self._client()
        if client is not None and client.held:
            self.answer(client, self.random.choice(list(client.held)), positive=False)

    def _come(self) -> None:
        number = self._any()
        if number and len(self.clients) < 4:
            self.consume(number, prefetch=self.random.randint(1, 5))

    def _leave(self) -> None:
        client = self._client()
        if client is not None:
            self.leave(client)

    def end(self) -> None:
        """Mend everything, and process all there is."""
        self.mend()
        number = self.random.choice(list(self.brokers))
        last = self.consume(number)
        for _ in range(200):
            self.settle(1)
            for client in list(self.clients.values()):
                for body in list(client.held):
                    self.answer(client, body)
            if last not in self.clients.values():
                last = self.consume(number)
        self.settle(5)
