"""`LinkState`: every broker tells all others its links and its subscribers' interest; each computes its own ways.

Theory of operation:

1. A record is made by one broker only, about itself. Its number (epoch, sequence) rises, and the newest wins. The
   epoch is the broker's start time, so a restart that counts from 0 wins over the life before. A broker that finds a
   newer record of itself than it made (its clock went back between two lives) continues from that number.
2. Flooding: a record that is new here goes to every neighbour but the one it came from.
3. A neighbour that comes up gets a digest of what is held here, and answers with what it knows better. Digests are
   repeated at each refresh, so that whatever went wrong is put right then.
4. A record carries its age, and dies at `lifetime` wherever it is: no copy can keep another alive.
5. A link counts when both its ends name it, at the higher of the two costs. So all who hold the same records see the
   same undirected graph, and one end that is cut off is enough to stop using a link.

6. Records are believed from the broker they speak of alone, where it has a key: they are signed, and a signature is
   checked once, before a record is stored or passed on. What is not newer than what is held is never checked.
7. Counters (epochs, sequences, versions) count milliseconds or changes since 1970, so none is ever far ahead of the
   clock here. One that is would be the newest for ever; it is refused.

Interest travels apart from links, in records of its own: it is large and changes at other times. Said once as a whole,
its changes follow one by one, numbered; all brokers keep the whole and the changes, until those are as large as a whole
and the broker says a new one. Who finds that a change is missing asks the neighbour that sent the next.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from postroad.routing.contract import NOTHING, Delta, Reaction
from postroad.routing.control_frames import (
    MAX_INTEREST_BYTES,
    MAX_NEIGHBOURS,
    Digest,
    Frame,
    Interest,
    InterestDelta,
    LinkRecord,
    signed_bytes,
)
from postroad.routing.errors import RoutingError
from postroad.routing.link_state_records import MAX_AHEAD_MS, HeldLinks, RecordVerdict, SaidInterest, aged, check_links
from postroad.topology import LARGEST_BROKER, routes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from postroad.routing.link_state_records import AnyRecord, Record, Seals
    from postroad.topology import Routes

__all__ = ["DEFAULT_LIFETIME_MS", "DEFAULT_REFRESH_MS", "MAX_NAMED_LINKS", "LinkState"]

# A refresh of a thousand brokers is then some 33 small frames a second on each link.
DEFAULT_REFRESH_MS = 30_000
# Three refreshes may be lost, and there is time for the fourth to arrive.
DEFAULT_LIFETIME_MS = 100_000
# Links that all brokers together may name: a thousand brokers with a thousand links each, some 100 MB.
MAX_NAMED_LINKS = 1_000_000

_NEVER = (-1, -1)


class LinkState:
    """One broker's knowledge of the network. Methods return what to send, and what changed."""

    def __init__(
        self,
        number: int,
        now: int,
        *,
        refresh_ms: int = DEFAULT_REFRESH_MS,
        lifetime_ms: int = DEFAULT_LIFETIME_MS,
        seals: Seals | None = None,
        links_only: bool = False,
    ) -> None:
        """
        Args:
            number: this broker.
            now: when it starts, in ms: the epoch of its records.
            refresh_ms: how often it says again what it said about its links.
            lifetime_ms: how long others' records are believed without that.
            seals: signs own records and checks others'; None where records are not signed.
            links_only: brokers say nothing of their interest; then there is none to set or to change.
        """
        if not 1 <= number <= LARGEST_BROKER:
            raise RoutingError(f"a broker's number is between 1 and {LARGEST_BROKER:,}, not {number}")
        if lifetime_ms <= refresh_ms:
            raise RoutingError(f"records that live {lifetime_ms} ms die between refreshes every {refresh_ms} ms")
        self.number = number
        self._started = now
        self._refresh = refresh_ms
        self._lifetime = lifetime_ms
        self._neighbours: dict[int, int] = {}
        self._records: dict[int, HeldLinks] = {}
        self._interests: dict[int, SaidInterest] = {}
        self._asked: set[tuple[int, int]] = set()  # (broker, link): a change is missing, and the link was asked for it
        self._whole: Callable[[], bytes] | None = None
        self._routes: Routes | None = None
        self._membership: int | None = None
        self._leaving = self._left = False
        self._digests: dict[int, tuple[tuple[int, int, int, int, int], ...]] = {}  # what neighbours said they hold
        self._seals = seals
        self._verified: Record | None = None
        self._named_links = 0
        self._forget_after: float = math.inf  # no record that is held grows too old before this time
        self._own = self._sealed(LinkRecord(number, now, 0, 0, ()))
        self._issued = now
        if not links_only:
            self._interests[number] = SaidInterest(self._sealed(Interest(number, now, 0, b"")))

    # What is known.

    @property
    def routes(self) -> Routes:
        """The ways to all brokers that can be reached."""
        if self._routes is None:
            self._routes = routes(self.number, self.graph())
        return self._routes

    def next_hop(self, broker: int) -> int:
        """The neighbour on the way to a broker; 0 if no way is known."""
        return max(0, self.routes.first_hop(broker))

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
        self._digests.pop(neighbour, None)
        self._changed()
        return self._issue(now) + Reaction([(neighbour, self._digest())], retry=True)

    def neighbour_down(self, neighbour: int, now: int) -> Reaction:
        """A link is gone."""
        if self._neighbours.pop(neighbour, None) is None:
            return NOTHING
        self._asked = {(broker, link) for broker, link in self._asked if link != neighbour}
        self._digests.pop(neighbour, None)
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
        whole = Interest(self.number, max(self.epoch, epoch), version + 1, summary)
        self._interests[self.number] = SaidInterest(self._sealed(whole))
        return self._to(self._neighbours, self._interests[self.number].base)

    def change_interest(self, change: Delta, whole: Callable[[], bytes], now: int) -> Reaction:
        """This broker's subscribers want something more or less; `whole` gives all of it."""
        self._whole = whole
        held = self._interests[self.number]
        epoch, version = held.newest
        # The first of a life is said as a whole: before a change of nothing, others would take it to want nothing.
        is_first = not held.base.summary and not held.changes
        if is_first or epoch < self.epoch or not held.has_room(len(change.added) + len(change.removed)):
            return self.set_interest(whole(), now)
        held.append(self._sealed(InterestDelta(self.number, epoch, held.base.version, version + 1, *change)))
        return self._to(self._neighbours, held.changes[-1])

    def receive(self, frame: Record | Digest, link: int, now: int) -> Reaction:
        """A neighbour sent a record or a digest.

        Raises:
            RoutingError: the neighbour lies, or passes on a lie.
        """
        if link not in self._neighbours:
            return NOTHING
        if isinstance(frame, Digest):
            return self._answer(frame, link, now)
        verdict = self.judge(frame, link, now)
        if verdict is not RecordVerdict.NEWS:
            return NOTHING if verdict is RecordVerdict.OLD else Reaction(refused=1)
        return self.take(frame, link, now)

    def take(self, frame: Record, link: int, now: int) -> Reaction:
        """Take over a record that was judged to be news: store it and pass it on."""
        if frame.broker == self.number:
            return self._reclaim(frame, now)
        if isinstance(frame, Interest):
            return self._take_interest(frame, link)
        if isinstance(frame, InterestDelta):
            return self._take_delta(frame, link)
        return self._take_links(frame, link, now)

    def judge(self, frame: Record, link: int, now: int) -> RecordVerdict:
        """Whether a record would be taken over. Nothing is changed.

        Raises:
            RoutingError: the neighbour lies, or passes on a lie. What an honest neighbour may not know better, it is
                not blamed for: the record is `REFUSED` then.
        """
        if not self._is_newer(frame):
            return RecordVerdict.OLD
        if isinstance(frame, LinkRecord):
            check_links(frame, link)
            if self._named_links + len(frame.neighbours) > MAX_NAMED_LINKS:
                return RecordVerdict.REFUSED
        counters = (frame.epoch, frame.sequence if isinstance(frame, LinkRecord) else frame.version)
        if max(counters) > now + MAX_AHEAD_MS:
            if frame.broker == link:
                raise RoutingError(
                    f"broker {link} counts from {max(counters):,}, more than a day ahead of the clock here "
                    f"({now:,} ms); set its clock right"
                )
            # Where the limit lies differs a little from clock to clock: who passes this on may be honest.
            return RecordVerdict.REFUSED
        return self._verdict_by_seal(frame, link)

    def _verdict_by_seal(self, frame: Record, link: int) -> RecordVerdict:
        seals = self._seals
        if seals is None or frame is self._verified:
            return RecordVerdict.NEWS
        if not seals.knows(frame.broker):
            # A neighbour that was given a newer list of brokers is honest.
            return RecordVerdict.REFUSED
        if not seals.verify(frame.broker, signed_bytes(frame), frame.signature):
            raise RoutingError(f"broker {link} sent a record of broker {frame.broker} that broker did not sign")
        self._verified = frame
        return RecordVerdict.NEWS

    def _is_newer(self, frame: Record) -> bool:
        """Whether a record is newer than what is held, and not of a life that is over."""
        if isinstance(frame, LinkRecord):
            number = frame.epoch, frame.sequence
            if frame.broker == self.number:
                return number > (self._own.epoch, self._own.sequence)
            held = self._records.get(frame.broker)
            return frame.age <= self._lifetime and (held is None or number > (held.record.epoch, held.record.sequence))
        said = self._interests.get(frame.broker)
        if frame.broker == self.number:
            return said is None or not (said.holds(frame) or (frame.epoch, frame.version) < said.newest)
        return (said is None or (frame.epoch, frame.version) > said.newest) and self._is_current(frame)

    def tick(self, now: int) -> Reaction:
        """Refresh what is due, and forget what is too old."""
        reaction = self._forget(now)
        if now - self._issued >= self._refresh:
            digest = self._digest()
            reaction += self._issue(now) + self._to(self._neighbours, digest)
        return reaction

    def leave(self, now: int, returns: bool = False) -> Reaction:
        """This broker goes on purpose: the others need not wait for its records to grow old.

        One that returns keeps its interest with the others, for as long as a record lives: they hold what it wants.
        """
        self._leaving, self._left = True, not returns
        return self._issue(now)

    @property
    def is_synchronised(self) -> bool:
        """Whether all that the neighbours said they hold, when their links came up, is held here too."""
        return all(
            link in self._digests and all(self._holds(line) for line in self._digests[link])
            for link in self._neighbours
        )

    # Inside.

    def _issue(self, now: int) -> Reaction:
        """A new record of the own links, to all neighbours."""
        neighbours = () if self._leaving else tuple(sorted(self._neighbours.items()))
        record = LinkRecord(self.number, self._own.epoch, self._own.sequence + 1, 0, neighbours, self._left)
        self._own = self._sealed(record)
        self._issued = now
        return self._to(self._neighbours, self._own)

    def _reclaim(self, frame: LinkRecord | Interest | InterestDelta, now: int) -> Reaction:
        """An earlier life of this broker is newer than this one: count on from there.

        From the start time at least: of the numbers that the earlier life gave out, this may not be the last, and a
        record with the same number as an unknown one would be refused where that one is held.
        """
        if isinstance(frame, LinkRecord):
            self._own = LinkRecord(self.number, frame.epoch, max(frame.sequence, self._started), 0, ())
            return self._issue(now) + self._issue_interest(frame.epoch, 0)
        return self._issue_interest(frame.epoch, frame.version)

    def _issue_interest(self, epoch: int, version: int) -> Reaction:
        """What is wanted here, under a number above the given one, to all neighbours; nothing if it already is."""
        held = self._interests.get(self.number)
        if held is None or (epoch, version) < held.newest:
            return NOTHING
        summary = held.base.summary if self._whole is None else self._whole()
        whole = Interest(self.number, epoch, max(version, self._started) + 1, summary)
        self._interests[self.number] = SaidInterest(self._sealed(whole))
        return self._to(self._neighbours, self._interests[self.number].base)

    def _take_links(self, record: LinkRecord, link: int, now: int) -> Reaction:
        held = self._records.get(record.broker)
        self._named_links += len(record.neighbours) - (0 if held is None else len(held.record.neighbours))
        self._records[record.broker] = HeldLinks(record, now - record.age)
        self._forget_after = min(self._forget_after, now - record.age + self._lifetime)
        changed = held is None or held.record.neighbours != record.neighbours
        if changed:
            self._changed()
        others = [neighbour for neighbour in self._neighbours if neighbour != link]
        return self._to(others, record) + Reaction(interests=self._outlived(record), retry=changed)

    def _outlived(self, record: LinkRecord) -> list[tuple[int, bytes | Delta | None]]:
        """Forget the interest of a broker that left.

        That of an earlier life counts until the present life has said its own, which every life does: durable
        subscriptions outlive their broker's process, and what is published in between must not miss them.
        """
        if not record.left or self._interests.pop(record.broker, None) is None:
            return []
        return [(record.broker, None)]

    def _holds(self, line: tuple[int, int, int, int, int]) -> bool:
        """Whether what a line of a digest names, or something newer, is held here."""
        broker, epoch, sequence, *interest = line
        if broker == self.number:
            return True
        held, said = self._records.get(broker), self._interests.get(broker)
        if held is None or (held.record.epoch, held.record.sequence) < (epoch, sequence):
            return False
        return held.record.left or tuple(interest) <= ((0, 0) if said is None else said.newest)

    def _take_interest(self, interest: Interest, link: int) -> Reaction:
        self._interests[interest.broker] = SaidInterest(interest)
        return self._pass_on(interest, link) + Reaction(interests=[(interest.broker, interest.summary)])

    def _take_delta(self, change: InterestDelta, link: int) -> Reaction:
        held = self._interests.get(change.broker)
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
        """On every path links arrive before interest; interest of an unknown broker would never be forgotten."""
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
        # Ticks come often, and a thousand records are much to look at each time.
        if now <= self._forget_after:
            return NOTHING
        old = [broker for broker, held in self._records.items() if now - held.born > self._lifetime]
        interests: list[tuple[int, bytes | Delta | None]] = []
        for broker in old:
            self._named_links -= len(self._records.pop(broker).record.neighbours)
            if self._interests.pop(broker, None) is not None:
                interests.append((broker, None))
        born = (held.born for held in self._records.values())
        self._forget_after = min(born, default=math.inf) + self._lifetime
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
        if not digest.partial:
            self._digests.setdefault(link, digest.held)
        links_there = {line[0]: (line[1], line[2]) for line in digest.held}
        interests_there = {line[0]: (line[3], line[4]) for line in digest.held}
        held = [HeldLinks(self._own, now), *self._records.values()]
        frames: list[Frame] = [
            aged(one, now)
            for one in held
            if (one.record.epoch, one.record.sequence) > links_there.get(one.record.broker, _NEVER)
            and (one.record.broker in links_there or not digest.partial)
        ]
        for broker, said in self._interests.items():
            there = interests_there.get(broker, _NEVER)
            if said.newest > there and (broker in interests_there or not digest.partial):
                frames += said.after(there)
        return Reaction([(link, frame) for frame in frames])

    def _sealed(self, record: AnyRecord) -> AnyRecord:
        """A record of this broker, with its signature."""
        if self._seals is None:
            return record
        return msgspec.structs.replace(record, signature=self._seals.sign(signed_bytes(record)))

    def _changed(self) -> None:
        self._routes = None
        self._membership = None

    def _to(self, links: Iterable[int], frame: Frame) -> Reaction:
        return Reaction([(link, frame) for link in links])
