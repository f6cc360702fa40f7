"""A broker with queues on a simulated disk, in virtual time: who sends, who consumes, and what each consumer got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from postroad.broker import AckMode, ConsumerTerms
from postroad.messages import Batch, Draft
from postroad.messages.columns import FLAGS, QUEUED
from postroad.store import SimulatedDisk
from tests.broker.stored_core import NumberBlocks, stored_core
from tests.store.oracle import commit_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroad.broker import Limits, Outbox, QueueSettings, Recorder, Session, Subscription
    from postroad.broker.named_queues import NamedQueue
    from postroad.security import Policy
    from postroad.store import StoreSettings


class Got(NamedTuple):
    """A message that a consumer got: the key of its subscription, the body, its JMSXDeliveryCount, its id."""

    key: str
    body: str
    delivery: str | None
    id: tuple[int, int]


class QueueScene:
    """One broker, one writer, and any number of consumers."""

    def __init__(
        self,
        settings: QueueSettings | None = None,
        store: StoreSettings | None = None,
        limits: Limits | None = None,
        in_turns: bool = True,
        policy: Policy | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.disk = SimulatedDisk()
        self.now = 1_000_000
        self._numbers = NumberBlocks()
        self._made: dict[str, Any] = {
            "queues": settings,
            "store": store,
            "limits": limits,
            "in_turns": in_turns,
            "policy": policy,
            "recorder": recorder,
            "forces": True,
        }
        self.restart()
        self.got: list[Got] = []
        self.deliveries = 0
        # What each turn took that looked for rows.
        self.searched: list[int] = []

    def restart(self) -> None:
        """Another process takes up what is on disk."""
        self.core, self.log = stored_core(self.disk, self._numbers, self.now, **self._made)
        self.writer = self.core.attached("writer")

    def queue(self, name: str = "work") -> NamedQueue:
        assert self.core.queues is not None
        found = self.core.queues.find(name)
        assert found is not None
        return found

    def send(
        self,
        bodies: Sequence[str],
        queue: str = "work",
        source: Session | None = None,
        headers: Sequence[tuple[str, str]] = (),
        each: Callable[[int], list[tuple[str, str]]] | None = None,
        expiry: int = 0,
        settles: bool = True,
    ) -> Outbox:
        """Send messages in one batch, with the same headers, or those of `each` number."""
        told = [tuple(headers) if each is None else tuple(each(number)) for number in range(len(bodies))]
        batch = Batch.build(
            [Draft(queue, {}, lines, body.encode(), expiry=expiry) for body, lines in zip(bodies, told, strict=True)]
        )
        batch.envelopes[:, FLAGS] |= QUEUED
        outbox = self.core.receive(batch, source or self.writer, self.now, queued=True)
        self.note(outbox)
        if settles:
            self.settle()
        return outbox

    def subscribe(
        self,
        session: Session,
        key: str,
        ack: AckMode = AckMode.INDIVIDUAL,
        prefetch: int | None = None,
        selector: str = "",
        exclusive: bool = False,
        queue: str = "work",
    ) -> Subscription:
        assert self.core.queues is not None
        asked = ConsumerTerms(selector, ack, prefetch, exclusive)
        return self.core.queues.subscribe(session, key, queue, asked, self.now)

    def consume(self, *args: Any, **named: Any) -> Subscription:
        """Subscribe, and get what waits."""
        subscription = self.subscribe(*args, **named)
        self.note(self.core.offer(subscription, self.now))
        self.settle()
        return subscription

    def answer(self, session: Session, got: Got, positive: bool = True, requeues: bool = True) -> None:
        self.note(self.core.acknowledge(session, got.key, *got.id, positive, self.now, requeues))

    def later(self, ms: int) -> None:
        self.now += ms
        self.note(self.core.redeliver(self.now))
        self.settle()

    def note(self, outbox: Outbox) -> None:
        if outbox.searched:
            self.searched.append(outbox.searched)
        self.deliveries += len(outbox.deliveries)
        for delivery in outbox.deliveries:
            for row in delivery.rows.tolist():
                message = delivery.batch.message(row)
                count = message.attributes.get("JMSXDeliveryCount")
                said = None if count is None else str(count)
                id_ = (message.id.head, message.id.tail)
                self.got.append(Got(delivery.subscription.key, message.body.decode(), said, id_))

    def settle(self) -> None:
        """Until nothing moves: what is to be written is written, what is to be read is read."""
        for _ in range(1_000):
            moved = bool(commit_all(self.log, self.disk, self.now))
            for read in self.log.take_reads():
                self.log.loaded(read, self.disk.read(read.segment, read.start, read.length))
                moved = True
            self.note(self.core.stored(self.now))
            while self.core.unfinished:
                self.note(self.core.proceed(self.now))
            if not moved:
                return
        raise AssertionError("the store never comes to rest")

    def take(self) -> list[Got]:
        """What consumers got since the last call."""
        taken, self.got = self.got, []
        return taken
