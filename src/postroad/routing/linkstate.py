"""`LinkState`: every broker tells all others its links and its subscribers' interest; each computes its own ways.

Theory of operation:

1. A record is made by one broker only, about itself. Its number (epoch, sequence) rises, and the newest wins. The
   epoch is the broker's start time, so a restart that counts from 0 wins over the life before. A broker that finds a
   newer record of itself than it made (its clock went back between two lives) goes on from that number.
2. Flooding: a record that is new here goes to every neighbour but the one it came from.
3. A neighbour that comes up gets a digest of what is held here, and answers with what it knows better. Digests are
   repeated at each refresh, so that whatever went wrong is put right then.
4. A record carries its age, and dies at `lifetime` wherever it is: no copy can keep another alive.
5. A link counts when both its ends name it, at the higher of the two costs. So all who hold the same records see the
   same undirected graph, and one end that is cut off is enough to stop using a link.

Interest travels apart from links, in records of its own: it is large and changes at other times. Said once as a whole,
its changes follow one by one, numbered; all brokers keep the whole and the changes, until those are as large as a whole
and the broker says a new one. Who finds that a change is missing asks the neighbour that sent the next.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.routing.contract import NOTHING, Delta, Reaction
from postroad.routing.errors import RoutingError
from postroad.routing.frames import (
    MAX_INTEREST_BYTES,
    MAX_NEIGHBOURS,
    Digest,
    Frame,
    Interest,
    InterestDelta,
    LinkRecord,
)
from postroad.topology import LARGEST_BROKER, routes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from postroad.topology import Routes

__all__ = ["DEFAULT_LIFETIME_MS", "DEFAULT_REFRESH_MS", "MAX_CHANGES", "MIN_CHANGES_BYTES", "LinkState"]

# A refresh of a thousand brokers is then some 33 small frames a second on each link.
DEFAULT_REFRESH_MS = 30_000
# Three refreshes may be lost, and there is time for the fourth to arrive.
DEFAULT_LIFETIME_MS = 100_000

# Changes of an interest that are kept beside the whole, in number and in bytes; or as many bytes as the whole has. Then
# the whole is said again, so that nobody keeps more than twice what there is, and a newcomer gets no more than that.
MAX_CHANGES = 4_096
MIN_CHANGES_BYTES = 4_096

_NEVER = (-1, -1)


class _Held(NamedTuple):
    record: LinkRecord
    born: int  # by the local clock


class _Said:
    """What a broker said it wants: the whole, and what has changed since."""

    __slots__ = ("base", "changes", "size")

    def __init__(self, base: Interest) -> None:
        self.base = base
        self.changes: list[InterestDelta] = []
        self.size = 0

    @property
    def newest(self) -> tuple[int, int]:
        """Its number."""
        return self.base.epoch, self.base.version + len(self.changes)

    def append(self, change: InterestDelta) -> None:
        """The next change."""
        self.changes.append(change)
        self.size += len(change.added) + len(change.removed)

    def has_room(self, size: int) -> bool:
        """Whether another change of so many bytes is kept beside the whole."""
        return len(self.changes) < MAX_CHANGES and self.size + size <= max(MIN_CHANGES_BYTES, len(self.base.summary))

    def holds(self, frame: Interest | InterestDelta) -> bool:
        """Whether just this was said."""
        if isinstance(frame, Interest):
            return frame == self.base
        place = frame.version - self.base.version - 1
        return 0 <= place < len(self.changes) and self.changes[place] == frame

    def after(self, number: tuple[int, int]) -> list[Interest | InterestDelta]:
        """What somebody lacks who has this number."""
        if number[0] == self.base.epoch and number[1] >= self.base.version:
            return [*self.changes[number[1] - self.base.version :]]
        return [self.base, *self.changes]


class LinkState:
    """One broker's knowledge of the network. Methods return what to send, and what changed."""

    def __init__(
        self,
        number: int,
        now: int,
        *,
        refresh_ms: int = DEFAULT_REFRESH_MS,
        lifetime_ms: int = DEFAULT_LIFETIME_MS,
    ) -> None:
        if not 1 <= number <= LARGEST_BROKER:
            raise RoutingError(f"a broker's number is between 1 and {LARGEST_BROKER:,}, not {number}")
        if lifetime_ms <= refresh_ms:
            raise RoutingError(f"records that live {lifetime_ms} ms die between refreshes every {refresh_ms} ms")
        self.number = number
        self._started = now
        self._refresh = refresh_ms
        self._lifetime = lifetime_ms
        self._neighbours: dict[int, int] = {}
        self._records: dict[int, _Held] = {}
        self._interests: dict[int, _Said] = {}
        self._asked: set[tuple[int, int]] = set()  # (broker, link): a change is missing, and the link was asked for it
        self._whole: Callable[[], bytes] | None = None
        self._routes: Routes | None = None
        self._membership: int | None = None
        self._left = False
        self._own = LinkRecord(number, now, 0, 0, ())
        self._issued = now
        self._interests[number] = _Said(Interest(number, now, 0, b""))

    # What is known.

    @property
    def routes(self) -> Routes:
        """The ways to all brokers that can be reached."""
        if self._routes is None:
            self._routes = routes(self.number, self.graph())
        return self._routes

    @property
    def membership(self) -> int:
        """A 32-bit number for the set of brokers within reach: equal wherever the same brokers are known."""
        if self._membership is None:
            distances = self.routes.distances
            members = np.flatnonzero(distances >= 0).astype("<u4")
            self._membership = zlib.crc32(members.tobytes())
        return self._membership

    @property
    def neighbours(self) -> dict[int, int]:
        """The links that are up here, whether or not their other end has said so: broker -> cost."""
        return self._neighbours

    @property
    def epoch(self) -> int:
        """When this broker's present life began, as the others see it."""
        return self._own.epoch

    def known(self) -> list[int]:
        """All brokers there is a record of, and this one."""
        return sorted({self.number, *self._records})

    def interest_of(self, broker: int) -> bytes | None:
        """What a broker said it wants when it last said it as a whole."""
        held = self._interests.get(broker)
        return None if held is None else held.base.summary

    def graph(self) -> dict[int, dict[int, int]]:
        """Broker -> neighbour -> cost, of the links that both ends name."""
        said = {broker: dict(held.record.neighbours) for broker, held in self._records.items()}
        said[self.number] = dict(self._neighbours)
        return {
            one: {
                other: max(cost, said[other][one])
                for other, cost in around.items()
                if other in said and one in said[other]
            }
            for one, around in said.items()
        }

    def named(self) -> dict[int, frozenset[int]]:
        """Broker -> the neighbours that it names, or that name it: also around a broker that has just died."""
        said = {broker: {other for other, _ in held.record.neighbours} for broker, held in self._records.items()}
        said[self.number] = set(self._neighbours)
        for broker, around in list(said.items()):
            for other in list(around):
                said.setdefault(other, set()).add(broker)
        return {broker: frozenset(around) for broker, around in said.items()}

    # What happens.

    def neighbour_up(self, neighbour: int, cost: int, now: int) -> Reaction:
        """A link came up, or has a new cost."""
        if neighbour == self.number or not 1 <= neighbour <= LARGEST_BROKER:
            raise RoutingError(f"broker {self.number} cannot be linked to broker {neighbour}")
        if len(self._neighbours) >= MAX_NEIGHBOURS and neighbour not in self._neighbours:
            raise RoutingError(f"broker {self.number} has {MAX_NEIGHBOURS:,} links already (MAX_NEIGHBOURS)")
        self._neighbours[neighbour] = cost
        self._changed()
        return self._issue(now) + Reaction([(neighbour, self._digest())], retry=True)

    def neighbour_down(self, neighbour: int, now: int) -> Reaction:
        """A link is gone."""
        if self._neighbours.pop(neighbour, None) is None:
            return NOTHING
        self._asked = {(broker, link) for broker, link in self._asked if link != neighbour}
        self._changed()
        return self._issue(now) + Reaction(retry=True)

    def set_interest(self, summary: bytes, now: int) -> Reaction:
        """This broker's subscribers want this now, as a whole."""
        if len(summary) > MAX_INTEREST_BYTES:
            raise RoutingError(f"an interest of {len(summary):,} bytes is over {MAX_INTEREST_BYTES:,}; summarise it")
        held = self._interests[self.number]
        if held.base.summary == summary and not held.changes:
            return NOTHING
        epoch, version = held.newest
        self._interests[self.number] = _Said(Interest(self.number, max(self.epoch, epoch), version + 1, summary))
        return self._to(self._neighbours, self._interests[self.number].base)

    def change_interest(self, change: Delta, whole: Callable[[], bytes], now: int) -> Reaction:
        """This broker's subscribers want something more or less; `whole` gives all of it."""
        self._whole = whole
        held = self._interests[self.number]
        epoch, version = held.newest
        if epoch < self.epoch or not held.has_room(len(change.added) + len(change.removed)):
            return self.set_interest(whole(), now)
        held.append(InterestDelta(self.number, epoch, held.base.version, version + 1, *change))
        return self._to(self._neighbours, held.changes[-1])

    def receive(self, frame: LinkRecord | Interest | InterestDelta | Digest, link: int, now: int) -> Reaction:
        """A neighbour sent a record or a digest."""
        if link not in self._neighbours:
            return NOTHING
        if isinstance(frame, Digest):
            return self._answer(frame, link, now)
        if frame.broker == self.number:
            return self._reclaim(frame, now)
        if isinstance(frame, Interest):
            return self._take_interest(frame, link)
        if isinstance(frame, InterestDelta):
            return self._take_delta(frame, link)
        return self._take_links(frame, link, now)

    def tick(self, now: int) -> Reaction:
        """Refresh what is due, and forget what is too old."""
        reaction = self._forget(now)
        if now - self._issued >= self._refresh:
            digest = self._digest()
            reaction += self._issue(now) + self._to(self._neighbours, digest)
        return reaction

    def leave(self, now: int) -> Reaction:
        """This broker goes on purpose: the others need not wait for its records to grow old."""
        self._left = True
        return self._issue(now)

    # Inside.

    def _issue(self, now: int) -> Reaction:
        """A new record of the own links, to all neighbours."""
        neighbours = () if self._left else tuple(sorted(self._neighbours.items()))
        self._own = LinkRecord(self.number, self._own.epoch, self._own.sequence + 1, 0, neighbours, self._left)
        self._issued = now
        return self._to(self._neighbours, self._own)

    def _reclaim(self, frame: LinkRecord | Interest | InterestDelta, now: int) -> Reaction:
        """An earlier life of this broker is newer than this one: count on from there.

        From the start time at least: of the numbers that the earlier life gave out, this may not be the last, and a
        record with the same number as an unknown one would be refused where that one is held.
        """
        if isinstance(frame, LinkRecord):
            if (frame.epoch, frame.sequence) <= (self._own.epoch, self._own.sequence):
                return NOTHING
            self._own = LinkRecord(self.number, frame.epoch, max(frame.sequence, self._started), 0, ())
            return self._issue(now) + self._issue_interest(frame.epoch, 0)
        if self._interests[self.number].holds(frame):
            return NOTHING
        return self._issue_interest(frame.epoch, frame.version)

    def _issue_interest(self, epoch: int, version: int) -> Reaction:
        """What is wanted here, under a number above the given one, to all neighbours; nothing if it already is."""
        held = self._interests[self.number]
        if (epoch, version) < held.newest:
            return NOTHING
        summary = held.base.summary if self._whole is None else self._whole()
        self._interests[self.number] = _Said(Interest(self.number, epoch, max(version, self._started) + 1, summary))
        return self._to(self._neighbours, self._interests[self.number].base)

    def _take_links(self, record: LinkRecord, link: int, now: int) -> Reaction:
        held = self._records.get(record.broker)
        if record.age > self._lifetime:
            return NOTHING
        if held is not None and (record.epoch, record.sequence) <= (held.record.epoch, held.record.sequence):
            return NOTHING
        self._records[record.broker] = _Held(record, now - record.age)
        changed = held is None or held.record.neighbours != record.neighbours
        if changed:
            self._changed()
        others = [neighbour for neighbour in self._neighbours if neighbour != link]
        return self._to(others, record) + Reaction(interests=self._outlived(record), retry=changed)

    def _outlived(self, record: LinkRecord) -> list[tuple[int, bytes | Delta | None]]:
        """Forget an interest that belongs to an earlier life than the record's, or to a broker that left."""
        interest = self._interests.get(record.broker)
        if interest is None or (interest.base.epoch >= record.epoch and not record.left):
            return []
        del self._interests[record.broker]
        return [(record.broker, None)]

    def _take_interest(self, interest: Interest, link: int) -> Reaction:
        held = self._interests.get(interest.broker)
        if held is not None and (interest.epoch, interest.version) <= held.newest:
            return NOTHING
        if not self._is_current(interest):
            return NOTHING
        self._interests[interest.broker] = _Said(interest)
        return self._pass_on(interest, link) + Reaction(interests=[(interest.broker, interest.summary)])

    def _take_delta(self, change: InterestDelta, link: int) -> Reaction:
        held = self._interests.get(change.broker)
        if held is not None and (change.epoch, change.version) <= held.newest:
            return NOTHING
        if not self._is_current(change):
            return NOTHING
        if (
            held is None
            or (held.base.epoch, held.base.version) != (change.epoch, change.base)
            or change.version != held.newest[1] + 1
        ):
            return self._ask(change.broker, link)
        held.append(change)
        delta = Delta(change.added, change.removed)
        return self._pass_on(change, link) + Reaction(interests=[(change.broker, delta)])

    def _is_current(self, frame: Interest | InterestDelta) -> bool:
        """Links come before interest on every way; what belongs to nobody known would never be forgotten."""
        links = self._records.get(frame.broker)
        return links is not None and not links.record.left and frame.epoch >= links.record.epoch

    def _pass_on(self, frame: Interest | InterestDelta, link: int) -> Reaction:
        self._asked = {(broker, asked) for broker, asked in self._asked if broker != frame.broker}
        return self._to([neighbour for neighbour in self._neighbours if neighbour != link], frame)

    def _ask(self, broker: int, link: int) -> Reaction:
        """A change is missing: the neighbour that has the next one has it too. Once is enough, links lose nothing."""
        if (broker, link) in self._asked:
            return NOTHING
        self._asked.add((broker, link))
        return Reaction([(link, Digest((self._line(broker),), partial=True))])

    def _forget(self, now: int) -> Reaction:
        old = [broker for broker, held in self._records.items() if now - held.born > self._lifetime]
        interests: list[tuple[int, bytes | Delta | None]] = []
        for broker in old:
            del self._records[broker]
            if self._interests.pop(broker, None) is not None:
                interests.append((broker, None))
        if old:
            self._changed()
        return Reaction(interests=interests, retry=bool(old))

    def _digest(self) -> Digest:
        return Digest(tuple(self._line(broker) for broker in (self.number, *self._records)))

    def _line(self, broker: int) -> tuple[int, int, int, int, int]:
        record = self._own if broker == self.number else self._records[broker].record
        said = self._interests.get(broker)
        return (broker, record.epoch, record.sequence, *((0, 0) if said is None else said.newest))

    def _answer(self, digest: Digest, link: int, now: int) -> Reaction:
        """Everything held here that the digest lacks or has older; links before interests."""
        links_there = {line[0]: (line[1], line[2]) for line in digest.held}
        interests_there = {line[0]: (line[3], line[4]) for line in digest.held}
        held = [_Held(self._own, now), *self._records.values()]
        frames: list[Frame] = [
            _aged(one, now)
            for one in held
            if (one.record.epoch, one.record.sequence) > links_there.get(one.record.broker, _NEVER)
            and (one.record.broker in links_there or not digest.partial)
        ]
        for broker, said in self._interests.items():
            there = interests_there.get(broker, _NEVER)
            if said.newest > there and (broker in interests_there or not digest.partial):
                frames += said.after(there)
        return Reaction([(link, frame) for frame in frames])

    def _changed(self) -> None:
        self._routes = None
        self._membership = None

    def _to(self, links: Iterable[int], frame: Frame) -> Reaction:
        return Reaction([(link, frame) for link in links])


def _aged(held: _Held, now: int) -> LinkRecord:
    one = held.record
    return LinkRecord(one.broker, one.epoch, one.sequence, max(0, now - held.born), one.neighbours, one.left)
