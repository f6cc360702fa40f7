"""A slow and obvious twin of a queue, and a crowd that sends, consumes, refuses, leaves and crashes at random.

Each message is in one state: it waits, is out at a consumer, is delayed until a time, or is over. Whatever the core
delivers must be possible from that state, and when nothing moves any more, nothing may be left that could.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

from postroad.broker import AckMode, BrokerError, ConsumerTerms, Limits, Outbox, QueueSettings
from postroad.messages import Batch, Draft, Untyped
from postroad.messages.columns import FLAGS, QUEUED
from postroad.selectors import Selector
from postroad.store import SimulatedDisk, StoreSettings
from tests.broker.stored_core import NumberBlocks, stored_core
from tests.store.oracle import commit_all

if TYPE_CHECKING:
    from postroad.broker import Session, Subscription

SETTINGS = QueueSettings(max_deliveries=3, redelivery_ms=200, max_redelivery_ms=300, prefetch=4)
SELECTORS = ("", "n < 5", "n >= 5", "n IN ('1', '3', '5', '7')")
# Their buckets differ.
GROUPS = ("red", "green", "blue")
QUEUE = "work"


class Sent:
    """A message of the twin."""

    def __init__(self, number: int, n: int, group: str, expiry: int) -> None:
        self.number = number
        self.n = n
        self.group = group
        self.expiry = expiry
        self.state = "waiting"
        self.consumer = 0
        self.due = 0
        self.tries = 0
        self.handed = False


class Taker:
    """A consumer of the twin."""

    def __init__(self, session: Session, subscription: Subscription, asked: ConsumerTerms) -> None:
        self.session = session
        self.subscription = subscription
        self.asked = asked
        self.selector = Selector.parse(asked.selector) if asked.selector else None

    def wants(self, sent: Sent) -> bool:
        return self.selector is None or self.selector.matches({"n": Untyped(str(sent.n))})


class Crowd:
    """Uses one queue at random, in virtual time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk()
        self.now = 1_000_000
        self.sent: dict[int, Sent] = {}
        self.takers: dict[int, Taker] = {}
        self.numbers = NumberBlocks()
        self.keys = itertools.count(1)
        self.delivered = 0
        # The number of each message that was delivered, by its id.
        self.identity: dict[int, int] = {}
        self.open()

    def open(self) -> None:
        store = StoreSettings(segment_bytes=4096, cache_bytes=4_000)
        self.core, self.log = stored_core(
            self.disk, self.numbers, self.now, store=store, queues=SETTINGS, limits=Limits(unacknowledged=50)
        )
        self.writer = self.core.attached("writer")

    # --- what the crowd does -----------------------------------------------------------------------------------------

    def act(self) -> None:
        names = ["send"] * 5 + ["acknowledge"] * 6 + ["refuse"] * 3 + ["come"] * 3
        names += ["leave", "leave", "leave", "wait", "wait", "congest", "drain", "crash"]
        getattr(self, self.random.choice(names))()
        self.settle()
        self.check_nothing_is_left()

    def send(self) -> None:
        grouped = self.random.random() < 0.5
        drafts, made = [], []
        for _ in range(self.random.randrange(1, 6)):
            expiry = self.now + 500 if self.random.random() < 0.1 else 0
            sent = Sent(
                len(self.sent), self.random.randrange(10), self.random.choice(GROUPS) if grouped else "", expiry
            )
            headers = [("n", str(sent.n))] + ([("JMSXGroupID", sent.group)] if sent.group else [])
            drafts.append(Draft(QUEUE, {}, tuple(headers), str(sent.number).encode(), expiry=expiry))
            made.append(sent)
            self.sent[sent.number] = sent
        batch = Batch.build(drafts)
        batch.envelopes[:, FLAGS] |= QUEUED
        self.carry_out(self.core.receive(batch, self.writer, self.now, queued=True))

    def come(self) -> None:
        if len(self.takers) >= 6:
            return
        modes = [AckMode.INDIVIDUAL, AckMode.INDIVIDUAL, AckMode.CLIENT, AckMode.AUTO]
        asked = ConsumerTerms(
            self.random.choice(SELECTORS),
            self.random.choice(modes),
            self.random.choice([1, 2, 3, None]),
            self.random.random() < 0.15,
        )
        sessions = [each.session for each in self.takers.values()]
        shares = sessions and self.random.random() < 0.6
        session = self.random.choice(sessions) if shares else self.core.attached("reader")
        assert self.core.queues is not None
        key = str(next(self.keys))
        subscription = self.core.queues.subscribe(session, key, QUEUE, asked, self.now)
        self.takers[subscription.number] = Taker(session, subscription, asked)
        self.carry_out(self.core.offer(subscription, self.now))

    def leave(self) -> None:
        """One consumer leaves, or all of a session."""
        if not self.takers:
            return
        taker = self.random.choice(list(self.takers.values()))
        if self.random.random() < 0.5:
            self.go([taker])
            self.carry_out(self.core.unsubscribe(taker.session, taker.subscription.key, self.now))
        else:
            self.go([each for each in self.takers.values() if each.session is taker.session])
            self.carry_out(self.core.detached(taker.session, self.now))

    def go(self, takers: list[Taker]) -> None:
        for taker in takers:
            del self.takers[taker.subscription.number]
            for sent in self.out(taker):
                self.came_back(sent, refused=False)

    def answered(self) -> tuple[Taker, Sent] | None:
        pairs = [(taker, sent) for taker in self.takers.values() for sent in self.out(taker)]
        return self.random.choice(pairs) if pairs else None

    def acknowledge(self) -> None:
        if (found := self.answered()) is not None:
            self.answer(*found, positive=True)

    def refuse(self) -> None:
        if (found := self.answered()) is not None:
            self.answer(*found, positive=False, requeues=self.random.random() < 0.8)

    def answer(self, taker: Taker, sent: Sent, positive: bool, requeues: bool = True) -> None:
        places = taker.subscription.unacknowledged
        wanted = next(each for each in places if self.identity[each] == sent.number)
        covered = [sent]
        if taker.asked.ack_mode is AckMode.CLIENT:
            order = [self.sent[self.identity[each]] for each in places]
            covered = order[: order.index(sent) + 1]
        for each in covered:
            if positive:
                each.state = "done"
            else:
                self.came_back(each, refused=True, requeues=requeues)
        head, tail = divmod(wanted, 1 << 64)
        self.carry_out(
            self.core.acknowledge(taker.session, taker.subscription.key, head, tail, positive, self.now, requeues)
        )

    def came_back(self, sent: Sent, refused: bool, requeues: bool = True) -> None:
        sent.tries += 1
        times = sent.tries if refused else sent.tries - 1
        if sent.tries >= SETTINGS.max_deliveries or not requeues:
            sent.state = "dead"
        elif times < 1:
            sent.state = "waiting"
        else:
            delay = min(SETTINGS.redelivery_ms * 2 ** (times - 1), SETTINGS.max_redelivery_ms)
            sent.state, sent.due = "delayed", -(-(self.now + delay) // 100) * 100

    def wait(self) -> None:
        self.now += self.random.randrange(50, 300)
        self.wake()

    def wake(self) -> None:
        for sent in self.sent.values():
            if sent.state == "delayed" and sent.due <= self.now:
                sent.state = "waiting"
        self.carry_out(self.core.redeliver(self.now))

    def congest(self) -> None:
        if self.takers:
            self.core.congested(self.random.choice(list(self.takers.values())).session)

    def drain(self) -> None:
        for session in {each.session.number: each.session for each in self.takers.values()}.values():
            self.carry_out(self.core.drained(session, self.now))

    def crash(self) -> None:
        """The process dies: what was written survives, and what is out or delayed waits again."""
        if self.random.random() < 0.5:
            return
        self.settle()
        self.disk = self.disk.crash(self.random, power=False)
        self.takers = {}
        for sent in self.sent.values():
            if sent.state in ("out", "delayed"):
                sent.state = "waiting"
        self.open()

    # --- what the core does ------------------------------------------------------------------------------------------

    def carry_out(self, outbox: Outbox) -> None:
        for delivery in outbox.deliveries:
            for row in delivery.rows.tolist():
                message = delivery.batch.message(row)
                self.identity[message.id.head << 64 | message.id.tail] = int(message.body)
                self.check_delivery(delivery.subscription, self.sent[int(message.body)], message)
        assert not outbox.closes

    def settle(self) -> None:
        """Until nothing moves: what is to be written is written, what is to be read is read."""
        if self.random.random() < 0.3:
            # Something else was written before.
            self.carry_out(self.core.stored(self.now))
        for _ in range(1_000):
            done = commit_all(self.log, self.disk, self.now)
            reads = self.log.take_reads()
            for read in reads:
                self.log.loaded(read, self.disk.read(read.segment, read.start, read.length))
                self.carry_out(self.core.stored(self.now))
            self.carry_out(self.core.stored(self.now))
            if not done and not reads:
                return
        raise AssertionError("the store never comes to rest")

    # --- what must hold ----------------------------------------------------------------------------------------------

    def out(self, taker: Taker) -> list[Sent]:
        return [
            each for each in self.sent.values() if each.state == "out" and each.consumer == taker.subscription.number
        ]

    def room(self, taker: Taker) -> int:
        if taker.session.congested:
            return 0
        if taker.asked.ack_mode is AckMode.AUTO:
            return 1_000
        return (taker.asked.prefetch or SETTINGS.prefetch) - len(self.out(taker))

    def is_shut_out(self, taker: Taker) -> bool:
        exclusive = [each for each in self.takers.values() if each.asked.exclusive]
        return bool(exclusive) and exclusive[0] is not taker

    def may_go(self, sent: Sent, taker: Taker, expired_holds: bool = False) -> bool:
        """Whether its group lets a message go to a consumer; an expired one may hold it back."""
        if not sent.group:
            return True
        for other in self.sent.values():
            if other.group != sent.group or other is sent:
                continue
            if other.state == "out" and other.consumer != taker.subscription.number:
                return False
            if other.number < sent.number and (self.is_there(other) or (expired_holds and other.state == "waiting")):
                return False
        return True

    def is_there(self, sent: Sent) -> bool:
        return sent.state == "delayed" or (sent.state == "waiting" and not self.is_expired(sent))

    def is_expired(self, sent: Sent) -> bool:
        return bool(sent.expiry) and sent.expiry <= self.now

    def check_delivery(self, subscription: Subscription, sent: Sent, message: Any) -> None:
        self.delivered += 1
        taker = self.takers.get(subscription.number)
        if taker is None:
            # A consumer that comes is known when it is there.
            raise AssertionError("a message went to nobody")
        assert sent.state == "waiting", f"a message that is {sent.state} was delivered"
        assert not self.is_expired(sent)
        assert taker.wants(sent)
        assert self.room(taker) > 0
        assert not self.is_shut_out(taker)
        assert self.may_go(sent, taker), "a message overtook its group, or went to a second consumer"
        count = message.attributes.get("JMSXDeliveryCount")
        assert count == (str(sent.tries + 1) if sent.tries else None)
        assert message.attributes.get("redelivered") == "true" or not sent.handed
        sent.handed = True
        sent.state, sent.consumer = "out", subscription.number
        if taker.asked.ack_mode is AckMode.AUTO:
            sent.state = "done"

    def check_nothing_is_left(self) -> None:
        for taker in self.takers.values():
            if self.room(taker) <= 0 or self.is_shut_out(taker):
                continue
            for sent in self.sent.values():
                if sent.state == "waiting" and taker.wants(sent) and not self.is_expired(sent):
                    assert not self.may_go(sent, taker, expired_holds=True), f"{sent.number} could go to {taker.asked}"

    def end(self) -> None:
        """All that was not acknowledged comes to a last consumer, or is in the dead-letter queue."""
        while self.takers:
            self.leave()
        for _ in range(5):
            self.now += 400
            self.wake()
        session = self.core.attached("last")
        assert self.core.queues is not None
        left = [each for each in self.sent.values() if each.state == "waiting" and not self.is_expired(each)]
        asked = ConsumerTerms("", AckMode.AUTO)
        subscription = self.core.queues.subscribe(session, "k", QUEUE, asked, self.now)
        self.takers[subscription.number] = Taker(session, subscription, asked)
        self.carry_out(self.core.offer(subscription, self.now))
        self.settle()
        assert [each.number for each in left if each.state != "done"] == []
        dead = {each.number for each in self.sent.values() if each.state == "dead"}
        assert self.dead_letters(session) == dead

    def dead_letters(self, session: Session) -> set[int]:
        assert self.core.queues is not None
        subscription = self.core.queues.subscribe(session, "dead", f"DLQ.{QUEUE}", ConsumerTerms(), self.now)
        found = []
        outboxes = [self.core.offer(subscription, self.now)]
        for _ in range(20):
            commit_all(self.log, self.disk, self.now)
            for read in self.log.take_reads():
                self.log.loaded(read, self.disk.read(read.segment, read.start, read.length))
                outboxes.append(self.core.stored(self.now))
            outboxes.append(self.core.stored(self.now))
        for outbox in outboxes:
            for delivery in outbox.deliveries:
                for row in delivery.rows.tolist():
                    message = delivery.batch.message(row)
                    assert message.attributes["dead-letter-queue"] == QUEUE
                    assert message.attributes["dead-letter-reason"]
                    found.append(int(message.body))
        assert len(found) == len(set(found))
        return set(found)


__all__ = ["BrokerError", "Crowd"]
