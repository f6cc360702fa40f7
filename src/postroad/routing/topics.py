"""Who wants which topics: patterns by owner, and the owners of each row of a batch.

An owner is a link, by the number of the broker at its end, or LOCAL. Topics are looked up once per distinct topic of a
batch; what was found for a topic is remembered until an interest changes that it depends on.

The table that groups equal topics is at most half full, and its places are masked. A topic is compared with at most
MAX_PROBES others: its hash is not a secret, and a publisher could choose a read full of topics that share one place.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.kernels import device, kernel
from postroad.messages.columns import BUFFER, TOPIC
from postroad.messages.fields import span_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from postroad.messages import Batch
    from postroad.messages.columns import Bytes, Spans
    from postroad.routing.contract import Matcher
    from postroad.routing.destinations import Flags, Integers

__all__ = ["EVERYTHING", "LOCAL", "MAX_PATTERNS", "MAX_WILDCARDS", "TopicTable", "Wanted"]

LOCAL = 0
EVERYTHING = ">"
# For one link. A link that wants more is taken to want everything: it gets too much, but it loses nothing.
MAX_PATTERNS = 100_000
# Of these with wildcards, for one link: each is tried on every topic that was not seen before, a microsecond each.
MAX_WILDCARDS = 4_096
# How often patterns with wildcards are tried on the topics of one batch: some 40 ms. Topics beyond go to every link
# with such patterns, which gets too much and loses nothing. A client can subscribe to any number of patterns, and
# publish a batch full of new topics.
MAX_TRIES = 20_000
# Cached results. A full cache is emptied: topics that are in use come back quickly.
_MAX_REMEMBERED = 65_536


class Wanted(NamedTuple):
    """Which owners want which rows.

    Attributes:
        topics: int64[rows]; the row's distinct topic.
        by_owner: owner -> bool[distinct topics]; owners that want none are left out.
    """

    topics: Integers
    by_owner: dict[int, Flags]

    def rows(self, owner: int) -> Integers:
        """The rows an owner wants, rising."""
        chosen = self.by_owner.get(owner)
        return np.empty(0, np.int64) if chosen is None else np.flatnonzero(chosen[self.topics])


class TopicTable:
    """Patterns by owner."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._patterns: dict[int, set[str]] = {}
        self._overflowed: set[int] = set()
        self._owners: dict[str, set[int]] = {}
        self._wildcards: dict[str, Callable[[str], bool]] = {}
        self._wild: Counter[int] = Counter()  # how many patterns of an owner have wildcards
        self._remembered: dict[bytes, frozenset[int]] = {}

    def check(self, patterns: Iterable[str]) -> None:
        """Read patterns that a neighbour sent, before anything is done with them.

        Raises:
            PostroadError: one of them is none.
        """
        for pattern in patterns:
            if pattern not in self._owners:
                self._matcher(pattern)

    def patterns(self, owner: int) -> set[str]:
        """What an owner wants; not to be changed."""
        return self._patterns.get(owner, set())

    def all_patterns(self) -> Iterable[str]:
        """What any link wants."""
        return self._owners.keys()

    def owners(self, pattern: str) -> set[int]:
        """Who asked for just this pattern; not to be changed."""
        return self._owners.get(pattern, set())

    def add(self, owner: int, patterns: Iterable[str]) -> set[str]:
        """An owner wants more. Returns the patterns whose owners changed."""
        fresh = set(patterns) - self.patterns(owner)
        if owner in self._overflowed:
            return set()
        if len(self.patterns(owner)) + len(fresh) > MAX_PATTERNS or self._too_wild(owner, fresh, self._wild[owner]):
            return self._overflow(owner)
        return self._enter(owner, fresh)

    def remove(self, owner: int, patterns: Iterable[str]) -> set[str]:
        """An owner wants less. Returns the patterns whose owners changed."""
        return set() if owner in self._overflowed else self._strike(owner, self.patterns(owner).intersection(patterns))

    def replace(self, owner: int, patterns: set[str]) -> set[str]:
        """An owner wants exactly this. Returns the patterns whose owners changed."""
        if len(patterns) > MAX_PATTERNS or self._too_wild(owner, patterns):
            return self._overflow(owner)
        self._overflowed.discard(owner)
        gone = self._strike(owner, self.patterns(owner) - patterns)
        return gone | self._enter(owner, patterns - self.patterns(owner))

    @staticmethod
    def _too_wild(owner: int, patterns: set[str], there: int = 0) -> bool:
        return owner != LOCAL and there + sum(map(_is_wildcard, patterns)) > MAX_WILDCARDS

    def _overflow(self, owner: int) -> set[str]:
        """Take an owner to want everything; its single patterns count no more, until they are replaced as a whole."""
        changed = self.replace(owner, {EVERYTHING})
        self._overflowed.add(owner)
        return changed

    def _enter(self, owner: int, patterns: set[str]) -> set[str]:
        for pattern in patterns:
            self._patterns.setdefault(owner, set()).add(pattern)
            self._wild[owner] += _is_wildcard(pattern)
            self._owners.setdefault(pattern, set()).add(owner)
            self._forget(pattern)
        return patterns

    def _strike(self, owner: int, patterns: set[str]) -> set[str]:
        for pattern in patterns:
            self._patterns[owner].discard(pattern)
            self._wild[owner] -= _is_wildcard(pattern)
            self._owners[pattern].discard(owner)
            self._forget(pattern)
            if not self._owners[pattern]:
                del self._owners[pattern]
                self._wildcards.pop(pattern, None)
        if not self.patterns(owner):
            self._patterns.pop(owner, None)
        return patterns

    def wanted(self, batch: Batch) -> Wanted:
        """Which owners want which rows of a batch."""
        topics, firsts = distinct_topics(batch)
        found: dict[int, Flags] = {}
        starts, ends = batch.spans[firsts, TOPIC].tolist(), batch.spans[firsts, TOPIC + 1].tolist()
        tries = MAX_TRIES
        for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
            topic = batch.buffer[start:end].tobytes()
            owners = self._remembered.get(topic)
            if owners is None:
                tries -= len(self._wildcards)
                owners = self._owners_of(topic) if tries >= 0 else self._possible_owners_of(topic)
            for owner in owners:
                if owner not in found:
                    found[owner] = np.zeros(len(firsts), np.bool_)
                found[owner][place] = True
        return Wanted(topics, found)

    def _owners_of(self, topic: bytes) -> frozenset[int]:
        text = topic.decode()
        parts = [self._owners.get(text, set())]
        parts += [self._owners[pattern] for pattern, fits in self._wildcards.items() if fits(text)]
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        known = self._remembered[topic] = frozenset().union(*parts)
        return known

    def _possible_owners_of(self, topic: bytes) -> frozenset[int]:
        """Those who want a topic for all that is known without trying patterns."""
        wild = (owner for owner, patterns in self._wild.items() if patterns)
        return frozenset(self._owners.get(topic.decode(), set())).union(wild)

    def _forget(self, pattern: str) -> None:
        """A pattern has other owners now: drop the cached results it is part of."""
        if _is_wildcard(pattern):
            if pattern not in self._wildcards:
                self._wildcards[pattern] = self._matcher(pattern)
            self._remembered.clear()
        else:
            self._remembered.pop(pattern.encode(), None)


def _is_wildcard(pattern: str) -> bool:
    return "*" in pattern or ">" in pattern


def distinct_topics(batch: Batch) -> tuple[Integers, Integers]:
    """The distinct topic of each row, by a number, and the first row of each distinct topic.

    A topic may have two numbers, where too many others share its place in a table: that costs a look, and no answer.
    """
    topics = np.empty(len(batch), np.int64)
    firsts = np.empty(len(batch), np.int64)
    table = np.full(1 << (2 * len(batch)).bit_length(), -1, np.int64)
    count = _group(batch.buffer, np.ascontiguousarray(batch.spans), table, topics, firsts)
    return topics, firsts[:count]


# Topics of one read that may share a place before the rest of them are taken to be distinct. In a table that is half
# full more than a few do by chance once in billions of reads.
MAX_PROBES = 64


@device
def _same(buffer: Bytes, start: int, other: int, size: int) -> bool:
    for offset in range(size):
        if buffer[start + offset] != buffer[other + offset]:
            return False
    return True


@kernel(f"int64({BUFFER}, int32[:, ::1], int64[::1], int64[::1], int64[::1])", allocates=False)
def _group(buffer: Bytes, spans: Spans, table: Integers, topics: Integers, firsts: Integers) -> int:
    """Number the distinct topics in order of appearance; returns how many there are.

    Entries of `table` are -1 or the number of a topic, and `firsts` has the row of each. There are never more topics
    than rows, and the table has more than twice as many places, so a search meets a free one.
    """
    count = 0
    for row in range(len(spans)):
        start, end = span_at(spans, row, TOPIC)
        size = end - start
        value = np.uint64(size)
        for offset in range(size):
            value = (value ^ np.uint64(buffer[start + offset])) * np.uint64(0x100000001B3)
        value ^= value >> np.uint64(32)
        slot = np.int64(value & np.uint64(len(table) - 1))
        found, probes = -1, 0
        while table[slot] >= 0 and found < 0 and probes < MAX_PROBES:
            other, other_end = span_at(spans, firsts[table[slot]], TOPIC)
            if other_end - other == size and _same(buffer, start, other, size):
                found = table[slot]
            else:
                slot = (slot + 1) & (len(table) - 1)
                probes += 1
        if found < 0:
            found = count
            if table[slot] < 0:
                table[slot] = count
            firsts[count] = row
            count += 1
        topics[row] = found
    return count
