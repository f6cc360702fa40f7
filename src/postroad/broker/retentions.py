"""Retained topics: messages to them are kept for a while after all subscribers have them, for replays.

A retained topic is a durable cursor without a consumer. It is in the index like a subscription, so it keeps what a
subscription to its pattern would have got, and the rows are in the log once for all.

Rule 1: a message that only retention wants matched no subscription. The record says that it is retained (`Detour`), so
    that readers know that somebody may get it later.
Rule 2: retention gives way. When the store or its disk is nearly full, the oldest retained rows go before any publisher
    is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.errors import BrokerError
from postroad.broker.sessions import AckMode, OverflowPolicy, Session, Subscription
from postroad.errors import PostroadError
from postroad.matching.cover import pattern_covers
from postroad.selectors import TopicPattern
from postroad.store import TIGHT_BYTES, Runs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.broker.core import Broker
    from postroad.broker.stored_queues import StoredQueues
    from postroad.store import Cursor, RetainedTopic

__all__ = ["MAX_RETAINED_RUNS", "Retentions", "is_retention", "retained_topic"]

# The prefix of the terms of a retention; those of other cursors are MessagePack, which never begins like this.
_MARK = b"retain\0"
# Rows of one commit are a run. Each takes 16 bytes here, some 60 in the catalogue, and as much again in checkpoints.
# Beyond it the oldest go, an eighth at once.
MAX_RETAINED_RUNS = 1_000_000
# How much is deleted at once when there is too much.
_SHARE = 8


def is_retention(terms: bytes) -> bool:
    """Return whether these are the terms of a retained topic."""
    return terms.startswith(_MARK)


def retained_topic(terms: bytes) -> str:
    """Return the pattern of a retained topic."""
    return terms.removeprefix(_MARK).decode("utf-8", "replace")


class RetainedCursor:
    """One retained topic."""

    __slots__ = ("cursor", "rule", "subscription")

    def __init__(self, rule: RetainedTopic, cursor: Cursor, subscription: Subscription) -> None:
        self.rule = rule
        self.cursor = cursor
        self.subscription = subscription


class Retentions:
    """The retained topics of a broker.

    Args:
        core: the broker.
        stored: its store.

    Attributes:
        topics: what is retained.
        cut: messages that went before their time, because there were too many commits or the store was nearly full.
    """

    def __init__(self, core: Broker, stored: StoredQueues) -> None:
        self._core = core
        self._stored = stored
        self.topics: list[RetainedCursor] = []
        self.cut = 0

    def restore(self, now: int) -> list[str]:
        """Restore what the settings retain, and end what they do not retain any more; return problems in words."""
        log, problems = self._stored.log, []
        found = {retained_topic(each.terms): each for each in log.cursors.values() if is_retention(each.terms)}
        for rule in log.settings.retain:
            try:
                self._retain(rule, found.pop(rule.topic, None), now)
            except PostroadError as error:
                problems.append(f"the topic {rule.topic!r} is not retained: {error}")
        for cursor in found.values():
            log.end_cursor(cursor)
        return problems

    def _retain(self, rule: RetainedTopic, cursor: Cursor | None, now: int) -> None:
        pattern = TopicPattern.parse(rule.topic)
        number = self._core.take_subscription_number() if cursor is None else cursor.number
        session = Session(0, "")
        session.congested = True
        subscription = Subscription(number, session, rule.topic, rule.topic, AckMode.AUTO, OverflowPolicy.SPOOL)
        subscription.stores = subscription.retains = True
        self._core.residents.enter(subscription, None, pattern, now)
        if cursor is None:
            cursor = self._stored.log.open_cursor(number, _MARK + rule.topic.encode())
        subscription.cursor = cursor
        self.topics.append(RetainedCursor(rule, cursor, subscription))

    def covering(self, topic: str) -> str:
        """Return the retained pattern that has all that a pattern wants.

        Raises:
            BrokerError: some of it is not retained, so a replay would silently miss messages.
        """
        for each in self.topics:
            if pattern_covers(each.rule.topic, topic):
                return each.rule.topic
        known = ", ".join(each.rule.topic for each in self.topics) or "none"
        raise BrokerError(
            f"{topic!r} cannot be replayed: no retained topic has all of it (retained are: {known}); "
            "set [[store.retain]], or subscribe without from and after"
        )

    def cursor_of(self, topic: str) -> Cursor | None:
        """Return what is kept of a retained pattern; None if it is not retained any more."""
        return next((each.cursor for each in self.topics if each.rule.topic == topic), None)

    def slots(self) -> set[int]:
        """Return their slots in the index."""
        return {each.subscription.slot for each in self.topics}

    def left_out(self, offsets: NDArray[np.int64], slots: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the offsets of a match without their slots."""
        others = ~np.isin(slots, list(self.slots()))
        return np.concatenate(([0], np.cumsum(others)))[offsets]

    @property
    def rows(self) -> int:
        """Return how many messages are retained; one that two patterns retain counts twice."""
        return sum(each.cursor.waiting.count for each in self.topics)

    def trim(self, now: int) -> None:
        """Delete rows that are older than they have to be, or more than there may be."""
        log = self._stored.log
        nearly_full = log.size > log.settings.max_bytes * (_SHARE - 1) // _SHARE
        for each in self.topics:
            cursor, rule = each.cursor, each.rule
            if rule.age_ms and cursor.waiting.count:
                old = log.older_than(cursor, now - rule.age_ms)
                log.release(cursor, cursor.waiting.front(old, 2**62))
            while rule.bytes and cursor.bytes > rule.bytes and cursor.waiting.count:
                excess = 1 - rule.bytes / cursor.bytes
                self._release(cursor, 1 + int(excess * cursor.waiting.count))
            # By runs, not by rows: the first ones may hold most of the rows.
            excess = len(cursor.waiting.runs.starts) - MAX_RETAINED_RUNS
            if excess > 0:
                starts, ends = cursor.waiting.runs
                oldest = slice(0, min(len(starts), excess + MAX_RETAINED_RUNS // _SHARE))
                self._cut(cursor, Runs(starts[oldest].copy(), ends[oldest].copy()))
            if (nearly_full or log.room.lack_on_disk(TIGHT_BYTES)) and cursor.waiting.count:
                self._cut(cursor, cursor.waiting.front(1 + cursor.waiting.count // _SHARE, 2**62))

    def _cut(self, cursor: Cursor, runs: Runs) -> None:
        self.cut += runs.size
        self._stored.log.release(cursor, runs)

    def _release(self, cursor: Cursor, rows: int) -> None:
        self._stored.log.release(cursor, cursor.waiting.front(rows, 2**62))
