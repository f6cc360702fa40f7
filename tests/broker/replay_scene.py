"""A broker that retains topics, on a small simulated disk: who publishes, who replays, and what each of them got."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

from postroad.broker import (
    AckMode,
    Broker,
    Limits,
    Outbox,
    OverflowPolicy,
    PublisherNumbers,
    ReplayStart,
    is_retention,
)
from postroad.broker.numbers import SubscriptionNumbers
from postroad.matching import NO_BUDGET
from postroad.messages import Batch, MessageId
from postroad.selectors import Selector, TopicPattern
from postroad.store import (
    Log,
    RetainedTopic,
    SimulatedDisk,
    StoreSettings,
    StoreWriteError,
    carry_out,
    next_rows,
    recover,
)

if TYPE_CHECKING:
    from postroad.broker import Recorder, Session, Subscription
    from postroad.messages import Message

RETAINED = RetainedTopic(topic="a.>")


class ReplayScene:
    """A core with a small store that is driven by hand, and everything that was ever published to it."""

    def __init__(
        self, *retain: RetainedTopic, seed: int = 0, recorder: Recorder | None = None, **settings: Any
    ) -> None:
        self.random = random.Random(seed)
        self.recorder = recorder
        small: dict[str, Any] = {"segment_bytes": 4_096, "cache_bytes": 6_000, **settings}
        self.settings = StoreSettings(retain=list(retain or (RETAINED,)), **small)
        self.disk = SimulatedDisk()
        # How often the disk fails, and how much a turn of the replays may match.
        self.failures, self.budget = 0.0, NO_BUDGET
        self.now = 1_000
        self.sent: list[Message] = []
        self._blocks, self._numbers = itertools.count(1, 1_000), itertools.count(1, 1_000)
        self.got: dict[int, list[MessageId]] = {}
        # What no crash takes back: how much of what was sent, and what was acknowledged.
        self.safe_sent = 0
        self.acknowledged, self.settled_soon, self.settled = set[MessageId](), set[MessageId](), set[MessageId]()
        self.start()

    def start(self) -> None:
        """A new process, on what the disk has."""
        found = recover(self.disk.segments(), self.disk.read)
        self.log = Log(self.settings, found)
        numbers = SubscriptionNumbers(lambda: next(self._numbers))
        self.core = Broker(
            1,
            PublisherNumbers(lambda: next(self._blocks)),
            Limits(spool_memory_bytes=1, drain_messages=7, unacknowledged=20),
            recorder=self.recorder,
            subscription_numbers=numbers,
            in_turns=True,
        )
        assert self.core.open_store(self.log, found.recent, self.now) == []
        self.core.replays.budget = self.budget
        self.writer, self.reader = self.core.attached("writer"), self.core.attached("reader")

    def publish(self, count: int = 5, topic: str = "") -> None:
        self.now += self.random.randrange(3)
        topics = [topic or self.random.choice(["a.x", "a.y", "b"]) for _ in range(count)]
        batch = Batch.build([(each, {"n": self.random.randrange(4)}, (), b"." * 40) for each in topics])
        outbox = self.core.receive(batch, self.writer, self.now)
        if not outbox.unstorable:
            self.sent += [batch.message(row) for row in range(count)]
        self.note(outbox)

    def note(self, outbox: Outbox) -> None:
        for each in outbox.deliveries:
            got = self.got.setdefault(each.subscription.number, [])
            got += [each.batch.message(row).id for row in each.rows.tolist()]

    def turn(self) -> bool:
        """What a driver does in one turn of its loop; returns whether it read from the disk."""
        reads = self.log.take_reads()
        for read in reads:
            self.log.loaded(read, self.disk.read(read.segment, read.start, read.length))
        if self.random.random() < 0.7 and (commit := self.log.take_commit(self.now)) is not None:
            self.disk.failing = self.random.random() < self.failures
            try:
                carry_out(commit, self.disk)
            except StoreWriteError as error:
                self.log.failed(commit, str(error))
            else:
                self.log.committed(commit)
            self.disk.failing = False
        if self.is_safe:
            self.safe_sent, self.settled_soon = len(self.sent), set(self.acknowledged)
        self.note(self.core.stored(self.now))
        if self.core.unfinished:
            self.note(self.core.proceed(self.now))
        if not self.reader.congested and self.core.has_waiting(self.reader):
            self.note(self.core.drained(self.reader, self.now))
        return bool(reads)

    @property
    def is_safe(self) -> bool:
        return self.log.safe >= self.log.position and not self.log.has_work

    def turn_until_safe(self) -> None:
        while not self.is_safe:
            self.turn()
        self.turn()

    def crash(self) -> None:
        """The machine fails between two steps: what was not confirmed may be there or not."""
        self.disk = self.disk.crash(self.random)
        self.settled = set(self.settled_soon)
        self.disk.failing, self.got = False, {}
        self.start()
        left = {each for each in self.retained() if each not in {one.id for one in self.sent[: self.safe_sent]}}
        unsure = [each for each in self.sent[self.safe_sent :] if each.id in left]
        # Nobody retains what is published elsewhere, and nobody here wants it.
        self.sent = self.sent[: self.safe_sent] + unsure
        self.acknowledged = set(self.settled)

    def retained(self) -> set[MessageId]:
        """All that is retained on disk."""
        found = set[MessageId]()
        for cursor in [each for each in self.log.cursors.values() if is_retention(each.terms)]:
            position = 0
            while (rows := next_rows(cursor, position, 2**62)) is not None:
                stored = self.log.record(rows.number)
                while stored is None:
                    for read in self.log.take_reads():
                        self.log.loaded(read, self.disk.read(read.segment, read.start, read.length))
                    stored = self.log.record(rows.number)
                found |= {stored.batch.message(row).id for row in stored.rows_at(rows.rows).tolist()}
                position = int(rows.places[-1]) + 1
        return found

    def settle(self) -> None:
        """Turns until nothing is left to do."""
        quiet = 0
        while quiet < 20:
            before = sum(map(len, self.got.values()))
            moved = self.turn() or self.core.unfinished
            quiet = 0 if moved or sum(map(len, self.got.values())) > before else quiet + 1

    def wanted(self, subscription: Subscription, first: int = 0, since: int = 0) -> list[MessageId]:
        """The plain twin: what of all that was sent, from one on, a subscription wants."""
        selector = Selector.parse(subscription.selector) if subscription.selector else None
        pattern = TopicPattern.parse(subscription.topic)
        return [
            each.id
            for each in self.sent[first:]
            if pattern.matches(each.topic)
            and (selector is None or selector.matches(each.attributes))
            and each.id.time >= since
        ]

    def subscribe(self, start: ReplayStart | None, topic: str = "a.>", selector: str = "") -> Subscription:
        key = str(self.random.random())
        return self.core.subscribe(
            self.reader, key, topic, selector, AckMode.AUTO, OverflowPolicy.SPOOL, self.now, start
        )

    def durable(self, name: str, start: ReplayStart | None, session: Session | None = None) -> Subscription:
        durables = self.core.durables
        assert durables is not None
        return durables.subscribe(
            session or self.reader, name, ("c", name), "a.>", "n <> 2", AckMode.INDIVIDUAL, self.now, Outbox(), start
        )

    def acknowledge(self, subscription: Subscription, most: int) -> list[MessageId]:
        """The client acknowledges the first of what it has."""
        done = list(subscription.unacknowledged)[:most]
        for each in done:
            head, tail = divmod(each, 1 << 64)
            self.note(self.core.acknowledge(self.reader, subscription.key, head, tail, True, self.now))
        found = [MessageId.of(*divmod(each, 1 << 64)) for each in done]
        self.acknowledged.update(found)
        return found


def ids(scene: ReplayScene, subscription: Subscription) -> list[MessageId]:
    return scene.got.get(subscription.number, [])
