"""What the durable subscriptions and retained topics of this broker want, as all other brokers have to know it.

A broker that accepts a message stores it for every broker whose standing interest it matches, and puts it there
(`remote_durables`). So the interest has to be known also while this broker is away: the others keep it in their stores.

Rule 1: when a channel opens, all of it is said; while it is open, changes.
Rule 2: it is said a part at a time, because taking up a part costs the others some milliseconds.
Rule 3: an interest that is too large to keep is said as match-all. This broker then gets too much, and misses nothing.
Rule 4: each change makes another *state*, whose number is larger than that of any state before, also of earlier
    processes. A state is said when it is safe here: what others accept under it finds the subscriptions that it names,
    whatever crashes in between.
Rule 5: others say which is the oldest state of what still waits for this broker. So it knows which former versions of a
    subscription may still be asked for (`former_versions`). It stores this, and before it says a state also to whom:
    for a broker that is away, one version is enough, however many processes this one has meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from postroad.broker.channel_items import StandingPart
from postroad.matching.cover import CoveringSet
from postroad.matching.encoding import encode_exact

if TYPE_CHECKING:
    from postroad.broker.channel_items import Informed
    from postroad.broker.core import Broker
    from postroad.broker.peers import Peers
    from postroad.matching.cover import Row
    from postroad.selectors import Selector
    from postroad.store import Cursor, Log

__all__ = ["MATCH_ALL", "MAX_STANDING_BYTES", "MAX_STANDING_ROWS", "StandingInterest", "StandingTerms", "is_standing"]

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


class StandingTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of the standing interest.

    Attributes:
        standing: the number of its last state.
        others: each broker that may have heard of a state: the oldest state of what waits there, and the last one that
            it may have heard of. None in a store of an earlier version: every broker may have heard of every state.
    """

    standing: int
    others: list[tuple[int, int, int]] | None = None


class StandingInterest:
    """The standing interest of a broker.

    Args:
        core: the broker.
        log: its store.
        peers: the channels to other brokers.
        epoch: when this process began, in ms. No state that it says has a smaller number. So what waits elsewhere for a
            broker that comes back with an older store, or with none, is older than what changes from now on.

    Attributes:
        number: of the last state.
        waits_less: others have less for this broker than when this was last looked at; who looks resets it.
    """

    def __init__(self, core: Broker, log: Log, peers: Peers, epoch: int) -> None:
        self._core = core
        self._log = log
        self._peers = peers
        # Rows and bytes of each subscription, by its number.
        self._wanted: dict[int, tuple[list[Row], int]] = {}
        self._rows = CoveringSet()
        self._bytes = 0
        # The rows may have changed; a subscription wants something else, even if all together want the same.
        self._changed = self._must_say = False
        # What was said last, and the number of that state.
        self._said: dict[Row, None] = {}
        self._is_all = False
        self.number = epoch
        self._cursor: Cursor | None = None
        # Parts that wait to be said to brokers whose channel is open, each with the number that makes its state safe.
        self._parts: dict[int, deque[tuple[int, StandingPart]]] = {}
        # The state that each broker has stored.
        self._informed: dict[int, int] = {}
        # The last state that is said, or will be said, to each broker; it is stored before that.
        self._begun: dict[int, int] = {}
        # The same as an earlier process left it, and for brokers that it does not name.
        self._earlier: dict[int, int] = {}
        self._began = epoch
        # The last state of which this process has said something to each broker.
        self._sent: dict[int, int] = {}
        # The brokers that were said something in this tick.
        self._served: set[int] = set()
        # The oldest state of what waits at each broker, as far as it has said so.
        self._oldest: dict[int, int] = {}
        # Brokers may have left the list.
        self.waits_less = True
        # The first and the last state of what may come from other brokers; None if that has to be found out.
        self._expected: set[tuple[int, int]] | None = None
        # Since when brokers that can be reached do not know what is wanted.
        self._late_since: dict[int, int] = {}

    def restore(self, named: int) -> None:
        """Continue after what an earlier process has stored.

        Args:
            named: the largest number of a state that a subscription names; 0 for none.
        """
        self._cursor = next((each for each in self._log.cursors.values() if is_standing(each.terms)), None)
        if self._cursor is None:
            self.number = self._began = max(self.number, named)
            return
        terms = msgspec.msgpack.decode(self._cursor.terms, type=StandingTerms)
        self.number = self._began = max(self.number, terms.standing, named)
        if terms.others is not None:
            self._began = -1
            self._oldest = {each: oldest for each, oldest, _ in terms.others}
            self._begun = {each: heard for each, _, heard in terms.others}
            self._earlier = dict(self._begun)
        if terms.standing < self.number:
            # This number is said, too.
            self._store()

    def change(self) -> int:
        """Return the number of the next state, in which what changes now counts; the next tick says it."""
        self._changed = self._must_say = True
        return self.number + 1

    def may_come(self, since: int, until: int) -> bool:
        """Return whether something may still come that was accepted under a state from one to before another."""
        if self._expected is None:
            # Most brokers are in the same state.
            self._expected = {
                (self._oldest.get(each, 0), self._begun.get(each, self._began)) for each in self._others()
            }
        return any(oldest < until and newest >= since for oldest, newest in self._expected)

    def is_known(self, since: int, until: int) -> bool:
        """Return the same without states that were said to a broker and that it has not stored, as far as is known."""
        return any(
            self._oldest.get(each, 0) < until and self._informed.get(each, self._heard_earlier(each)) >= since
            for each in self._others()
        )

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
        late = self.number + self._changed
        return [each for each in sorted(self._others()) if self._informed.get(each, -1) < late]

    def _heard_earlier(self, peer: int) -> int:
        """Return the last state that a broker may have heard from an earlier process."""
        return self._earlier.get(peer, self._began)

    def _others(self) -> frozenset[int]:
        return self._core.homes.brokers - {self._core.number}

    def opened(self, peer: int) -> None:
        """Say all of it to a broker whose channel has opened."""
        self._say_changes()
        if self._begun.get(peer) != self.number:
            self._begun[peer], self._expected = self.number, None
            if self._cursor is not None:
                self._store()
        self._parts[peer] = deque(self._whole())

    def lost(self, peer: int) -> None:
        """Handle the loss of the channel to a broker."""
        if self._parts.pop(peer, None):
            # What waited was never said.
            self._begun[peer], self._expected = self._sent.get(peer, self._heard_earlier(peer)), None
            self.waits_less = True

    def informed(self, peer: int, item: Informed) -> None:
        """Note that a broker has stored a state, and how old what waits there is."""
        # A broker that says more than it can know is believed as far as it can.
        known = min(item.number, self._sent.get(peer, -1))
        self._informed[peer] = max(known, self._informed.get(peer, -1))
        oldest = max(0, min(item.oldest, known))
        if oldest != self._oldest.get(peer, 0):
            self._oldest[peer], self._expected = oldest, None
            self.waits_less = True

    def tick(self, now: int) -> None:
        """Say what has changed, and more of what was begun."""
        if self._changed:
            self._say_changes()
        if self._said:
            for each in self._others():
                self._peers.want(each, now)
        self._served.clear()
        self.proceed()
        time, relay = self._peers.time(now), self._core.relay
        reached = [each for each in self.uninformed if relay is not None and relay.next_hop(each)]
        self._late_since = {each: self._late_since.get(each, time) for each in reached}

    def proceed(self) -> None:
        """Say more of what was begun, as far as it is safe: the store has written something."""
        safe = 2**62 if self._log.position <= self._log.safe else self._log.safe
        for peer, parts in self._parts.items():
            # One part in a tick, so that the clients of that broker have their turns in between.
            if parts and parts[0][0] <= safe and peer not in self._served:
                part = parts.popleft()[1]
                self._served.add(peer)
                self._sent[peer] = part.number
                self._peers.send(peer, part)

    def late(self, now: int) -> list[int]:
        """Return the brokers that can be reached and should have stored by now what is wanted here."""
        time = self._peers.time(now)
        return [each for each, since in self._late_since.items() if time - since >= LATE_MS]

    def _say_changes(self) -> None:
        """Let all brokers whose channel is open know what has changed since the last state."""
        if not self._changed:
            return
        must_say, self._changed, self._must_say = self._must_say, False, False
        added, removed = self._take_changes()
        if not added and not removed and not must_say:
            return
        self.number += 1
        self._begun |= dict.fromkeys(self._parts, self.number)
        self._expected = None
        self._store()
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

    def _store(self) -> None:
        # Also what brokers have heard that are not listed for now.
        heard = {each: self._heard_earlier(each) for each in self._others()} | self._begun
        others = [(each, self._oldest.get(each, 0), state) for each, state in heard.items() if state >= 0]
        terms = msgspec.msgpack.encode(StandingTerms(standing=self.number, others=others))
        if self._cursor is None:
            self._cursor = self._log.open_cursor(self._core.take_subscription_number(), terms)
        else:
            self._log.change_cursor(self._cursor, terms)

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

    def _whole(self) -> list[tuple[int, StandingPart]]:
        return self._numbered([(each, b"") for each in _encoded(list(self._said))], is_whole=True)

    def _numbered(self, said: list[tuple[bytes, bytes]], is_whole: bool) -> list[tuple[int, StandingPart]]:
        said = said or [(b"", b"")]
        last, position = len(said) - 1, self._log.position
        return [
            (position, StandingPart(self.number, is_whole, at == 0, at == last, added, removed))
            for at, (added, removed) in enumerate(said)
        ]


def is_standing(terms: bytes) -> bool:
    """Return whether the terms of a cursor are those of the standing interest."""
    try:
        msgspec.msgpack.decode(terms, type=StandingTerms)
    except msgspec.DecodeError:
        return False
    return True


def _encoded(rows: list[Row]) -> list[bytes]:
    """Return rows in parts."""
    parts = []
    for first in range(0, len(rows), PART_ROWS):
        parts += _cut(rows[first : first + PART_ROWS])
    return parts


def _cut(rows: list[Row]) -> list[bytes]:
    part, half = encode_exact(rows), len(rows) // 2
    return [part] if len(part) <= PART_BYTES or not half else _cut(rows[:half]) + _cut(rows[half:])
