"""What the durable subscriptions and retained topics of this broker want, as all other brokers have to know it.

A broker that accepts a message stores it for every broker whose standing interest it matches, and puts it there
(`remote_durables`). So the interest has to be known also while this broker is away: the others keep it in their stores.

Rule 1: when a channel opens, all of it is said; while it is open, changes.
Rule 2: it is said a part at a time, because taking up a part costs the others some milliseconds.
Rule 3: an interest that is too large to keep is said as match-all. This broker then gets too much, and misses nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from postroad.broker.channel_items import StandingPart
from postroad.matching.cover import CoveringSet
from postroad.matching.encoding import encode_exact

if TYPE_CHECKING:
    from postroad.broker.core import Broker
    from postroad.broker.peers import Peers
    from postroad.matching.cover import Row
    from postroad.selectors import Selector

__all__ = ["MATCH_ALL", "MAX_STANDING_BYTES", "MAX_STANDING_ROWS", "StandingInterest"]

# Conjunctions that others keep for this broker, in the terms of a cursor, which every checkpoint of their stores
# repeats: about a megabyte. Twice as many as a broker has durable subscriptions.
MAX_STANDING_ROWS = 20_000
# The same in bytes: some 100 for each of them.
MAX_STANDING_BYTES = 2 * 1024 * 1024
# Rows of a part: they take about 4 ms to enter into an index.
PART_ROWS = 64
# Bytes of a part, unless it has one row only; the longest row takes some 200 KB. Receivers take eight times as much.
PART_BYTES = 256 * 1024
# Parts that wait to be said, beside twice those of all that is wanted: some seconds of changes.
MAX_PARTS = 64
# A broker that can be reached and has not stored what is wanted here for so long is a reason to worry, in ms.
LATE_MS = 10_000

MATCH_ALL: Row = (">", ())


class StandingInterest:
    """The standing interest of a broker.

    Args:
        core: the broker.
        peers: the channels to other brokers.
    """

    def __init__(self, core: Broker, peers: Peers) -> None:
        self._core = core
        self._peers = peers
        # Rows and bytes of each subscription, by its number.
        self._wanted: dict[int, tuple[list[Row], int]] = {}
        self._rows = CoveringSet()
        self._bytes = 0
        self._changed = False
        # What was said last, and the number of that state.
        self._said: dict[Row, None] = {}
        self._is_all = False
        self._number = 0
        # Parts that wait to be said to brokers whose channel is open.
        self._parts: dict[int, deque[StandingPart]] = {}
        # The state that each broker has stored.
        self._informed: dict[int, int] = {}
        # Since when brokers that can be reached do not know what is wanted.
        self._late_since: dict[int, int] = {}

    def add(self, number: int, topic: str, selector: Selector | None) -> None:
        """Add what a subscription wants; the next tick says it."""
        rows = [(topic, each) for each in (((),) if selector is None else selector.disjunction)]
        # Each row repeats the texts that it needs: together they can be far longer than the selector.
        size = sum(len(encode_exact([row])) for row in rows)
        self._wanted[number] = rows, size
        for row in rows:
            self._rows.add(row)
        self._bytes += size
        self._changed = True

    def remove(self, number: int) -> None:
        """Remove what a subscription wanted."""
        rows, size = self._wanted.pop(number)
        for row in rows:
            self._rows.remove(row)
        self._bytes -= size
        self._changed = True

    @property
    def uninformed(self) -> list[int]:
        """Return the brokers that do not know yet what is wanted here: what they accept may be missed."""
        if not self._said and not self._wanted:
            return []
        late = self._number + self._changed
        return [each for each in sorted(self._others()) if self._informed.get(each, -1) < late]

    def _others(self) -> frozenset[int]:
        return self._core.homes.brokers - {self._core.number}

    def opened(self, peer: int) -> None:
        """Say all of it to a broker whose channel has opened."""
        self._say_changes()
        self._parts[peer] = deque(self._whole())

    def lost(self, peer: int) -> None:
        """Handle the loss of the channel to a broker."""
        self._parts.pop(peer, None)

    def informed(self, peer: int, number: int) -> None:
        """Note that a broker has stored a state."""
        self._informed[peer] = max(number, self._informed.get(peer, -1))

    def tick(self, now: int) -> None:
        """Say what has changed, and more of what was begun."""
        if self._changed:
            self._say_changes()
        if self._said:
            for each in self._others():
                self._peers.want(each, now)
        for peer, parts in self._parts.items():
            if parts:
                # One in a tick, so that the clients of that broker have their turns in between.
                self._peers.send(peer, parts.popleft())
        time, relay = self._peers.time(now), self._core.relay
        reached = [each for each in self.uninformed if relay is not None and relay.next_hop(each)]
        self._late_since = {each: self._late_since.get(each, time) for each in reached}

    def late(self, now: int) -> list[int]:
        """Return the brokers that can be reached and should have stored by now what is wanted here."""
        time = self._peers.time(now)
        return [each for each, since in self._late_since.items() if time - since >= LATE_MS]

    def _say_changes(self) -> None:
        """Let all brokers whose channel is open know what has changed since the last state."""
        if not self._changed:
            return
        self._changed = False
        added, removed = self._take_changes()
        if not added and not removed:
            return
        self._number += 1
        # Additions first: a message that somebody wants before and after the change is never missed.
        wanted, unwanted = _encoded(added), _encoded(removed)
        said = [(each, b"") for each in wanted] + [(b"", each) for each in unwanted]
        if wanted and unwanted:
            # One part has both, so that a small change is one.
            said[len(wanted) - 1 : len(wanted) + 1] = [(wanted[-1], unwanted[0])]
        parts, most = self._numbered(said, is_whole=False), MAX_PARTS + 2 * len(self._said) // PART_ROWS
        for peer, waiting in self._parts.items():
            waiting.extend(parts)
            if len(waiting) > most:
                # Clients change their minds faster than that can be said: say what is wanted by now.
                self._parts[peer] = deque(self._whole())

    def _take_changes(self) -> tuple[list[Row], list[Row]]:
        """Return which rows are wanted now, and which are not any more."""
        added, removed = self._rows.take()
        is_all = len(self._rows) > MAX_STANDING_ROWS or self._bytes > MAX_STANDING_BYTES
        if is_all or self._is_all:
            before, self._is_all = self._said, is_all
            self._said = {MATCH_ALL: None} if is_all else dict.fromkeys(self._rows.rows())
            return [row for row in self._said if row not in before], [row for row in before if row not in self._said]
        for row in removed:
            del self._said[row]
        self._said.update(dict.fromkeys(added))
        return added, removed

    def _whole(self) -> list[StandingPart]:
        return self._numbered([(each, b"") for each in _encoded(list(self._said))], is_whole=True)

    def _numbered(self, said: list[tuple[bytes, bytes]], is_whole: bool) -> list[StandingPart]:
        said = said or [(b"", b"")]
        last = len(said) - 1
        return [
            StandingPart(self._number, is_whole, at == 0, at == last, added, removed)
            for at, (added, removed) in enumerate(said)
        ]


def _encoded(rows: list[Row]) -> list[bytes]:
    """Return rows in parts."""
    parts = []
    for first in range(0, len(rows), PART_ROWS):
        parts += _cut(rows[first : first + PART_ROWS])
    return parts


def _cut(rows: list[Row]) -> list[bytes]:
    part, half = encode_exact(rows), len(rows) // 2
    return [part] if len(part) <= PART_BYTES or not half else _cut(rows[:half]) + _cut(rows[half:])
