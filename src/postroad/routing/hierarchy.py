"""`Hierarchical`: what the tree and the cluster share: places, attachment, and interest by topic.

Theory of operation:

1. A broker has one parent at a time: of those its station names, the first that it can reach when it needs one. It
   keeps that parent as long as the link lives, or until its planned parent, the first of them, has a way to the top
   again. Parents come before children in one order, so there is never a ring.
2. A child attaches with all that is wanted on its side; after that, only changes are sent. Whether a pattern goes over
   a link depends on what has been *sent* on that link, never on what has been received: the second subscriber to a
   topic may be beyond another link than the first.
3. A link that is lost keeps its interest for a while (`grace`). Messages for it are held in the meantime, and sent
   again when a broker has attached: its orphans are among those.
4. A broker that moves to its planned parent stays a child of the one before for the time of `grace`: until then both
   send it what it wants, the second copy ends at the window of ids, and the news of its interest has gone round the
   other way. What the parent before still sends goes down only, never up, so the two ways make no ring.
5. A message that goes again is marked. Marked messages travel everywhere they are wanted, past brokers that have seen
   them: one beyond may not have. Only their delivery is subject to the window of ids. There is no ring, so that ends.

The topologies and the routing of subscriptions and publications are those of Wihidum. That paper states the rule of
point 2 in two ways, of which "a broker that has received the topic before does not pass it on" loses deliveries. It
says nothing of unsubscribing, or of failures in a tree: points 3 to 5 are ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.routing.contract import NOTHING, Parcel, Reaction, Routed
from postroad.routing.control_frames import Attach, Detach, StepDown, Topics
from postroad.routing.destinations import Destinations
from postroad.routing.envelopes import arrived, entering, may_go_on, returned_rows
from postroad.routing.errors import RoutingError
from postroad.routing.link_state_records import MAX_AHEAD_MS
from postroad.routing.seen_ids import DEFAULT_WINDOW, FIXED_SECRET, SeenIds
from postroad.routing.topics import LOCAL, MAX_PATTERNS, TopicTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.messages import Batch
    from postroad.routing.contract import InterestChange, Matcher
    from postroad.routing.control_frames import Frame
    from postroad.routing.destinations import Flags, Integers
    from postroad.topology import Station

__all__ = ["DEFAULT_GRACE_MS", "DEFAULT_PATIENCE_MS", "Hierarchical"]

# Three heart-beats of a second until a link counts as dead at its other end too, and as much again to attach.
DEFAULT_GRACE_MS = 6_000
# How long to try one parent before the next.
DEFAULT_PATIENCE_MS = 2_000
# Paths go up and down once; the envelope's limit ends what a mistake in a plan might start.
_BROKERS = 128


class Hierarchical(ABC):
    """One broker in a tree or a cluster. The two differ in `_carries`, `_rows_for` and what a lost parent means."""

    def __init__(
        self,
        number: int,
        now: int,
        station: Station,
        matcher: Matcher,
        *,
        window: int = DEFAULT_WINDOW,
        secret: int = FIXED_SECRET,
        grace_ms: int = DEFAULT_GRACE_MS,
        patience_ms: int = DEFAULT_PATIENCE_MS,
    ) -> None:
        self.number = number
        self.parent: int | None = None
        self.children: set[int] = set()
        self.peers: set[int] = set()
        self._station = station
        self._parents = station.parents
        self._grace = grace_ms
        self._patience = patience_ms
        self._table = TopicTable(matcher)
        self._local: Counter[str] = Counter()
        self._sent: dict[int, set[str]] = {}  # link -> patterns that its other end knows from here
        self._up: set[int] = set()  # links that work, whether they are part of the hierarchy or not
        self._absent: dict[int, int] = {}  # lost link -> until when its interest is kept
        self._left: dict[int, int] = {}  # the parent before the planned one -> until when it still counts this child
        self._offers: set[int] = set()  # links to brokers that said they have a way to the top
        self._told_by_parent = False  # what is wanted on its side
        self._said_rooted = False
        self._orphan_since: int | None = now if self._parents else None
        self._holding = self._orphan_since is not None  # messages for a parent, until there is one or time is up
        self._attempt = 0
        self._attempted = now
        self._epoch = now
        self._seen = SeenIds(window, secret)

    # What the tree and the cluster decide for themselves.

    @abstractmethod
    def _carries(self, link: int, pattern: str) -> bool:
        """Whether a pattern is to be known at the other end of a link."""

    @abstractmethod
    def _rows_for(self, batch: Batch, arrival: int) -> dict[int, Integers]:
        """Link -> rows that go there, among the attached and the absent links; 0 for a parent there should be."""

    def _parent_lost(self, now: int) -> Reaction:
        """There is no parent any more."""
        return self._seek(now)

    def _takes_peer(self, frame: Attach, link: int, now: int) -> Reaction:
        """Another broker at the top presents itself."""
        raise RoutingError(f"broker {link} wants to be a peer of {self.number}, and there are none here")

    # Messages.

    def publish(self, batch: Batch, wanted: Destinations, now: int) -> Routed:
        """Messages enter: to the local subscribers, and where they are wanted."""
        batch = entering(batch, self.number, _BROKERS)
        rows = np.arange(len(batch), dtype=np.int64)
        self._seen.admit(batch.ids, rows, now)
        return self._send(batch, rows, 0)

    def relay(self, batch: Batch, destinations: Destinations, link: int, now: int) -> Routed:
        """Messages arrived over a link.

        Also over one that is not part of the hierarchy now: a neighbour that was cut off sends again what was not
        confirmed as soon as it is back, before it attaches. To drop that would lose it, since it counts as received.
        What comes by two ways is known by its id.
        """
        batch = arrived(batch)
        rows = np.arange(len(batch), dtype=np.int64)
        left = link in self._left
        fresh, doubtful = self._seen.admit(batch.ids, rows, now)
        routed = self._send(batch, rows[fresh], link, duplicates=int(np.count_nonzero(~fresh)), downwards=left)
        return routed if doubtful is None else routed._replace(doubtful=rows[doubtful])

    def reroute(self, batch: Batch, destinations: Destinations, now: int, *, returned: bool) -> Routed:
        """Messages that were held or given back go again, marked, wherever they are wanted."""
        return self._send(returned_rows(batch), np.empty(0, np.int64), 0)

    def _send(
        self, batch: Batch, local: Integers, arrival: int, duplicates: int = 0, *, downwards: bool = False
    ) -> Routed:
        able: Flags = may_go_on(batch)
        # Rows for an absent link, or for a parent that is looked for (0), wait until a broker attaches.
        there = self._links()
        parcels: list[Parcel] = []
        waiting: list[Integers] = []
        stuck: list[Integers] = []
        for link, rows in sorted(self._rows_for(batch, arrival).items()):
            if downwards and (link == 0 or link in self.peers or self._is_above(link)):
                continue
            going = rows[able[rows]]
            if len(going) < len(rows):
                stuck.append(rows[~able[rows]])
            if not len(going):
                continue
            if link in there:
                parcels.append(Parcel(link, going, Destinations.nowhere(len(going))))
            else:
                waiting.append(going)
        return Routed(batch, parcels, local, _joined(waiting), _joined(stuck), duplicates)

    # Links.

    def link_up(self, link: int, cost: int, now: int) -> Reaction:
        """A link works: attach over it if it leads to a parent that is needed."""
        reaction = self._raise(link)
        if self.parent is None and link in self._parents:
            reaction += self._attach(link, now)
        return reaction + self._say_rooted()

    def _raise(self, link: int) -> Reaction:
        reaction = self._say_rooted()
        self._up.add(link)
        rooted = self._said_rooted and not self._is_above(link)
        return reaction + Reaction([(link, Topics(rooted=True))]) if rooted else reaction

    def link_down(self, link: int, now: int) -> Reaction:
        """A link is gone: keep its interest for a while, and look for another parent if it was that."""
        self._up.discard(link)
        self._offers.discard(link)
        self._left.pop(link, None)
        return self._lose(link, now, self._grace) + self._say_rooted()

    def control(self, frame: Frame, link: int, now: int) -> Reaction:
        """A neighbour attaches, wants something else, or goes."""
        if link not in self._up:
            return NOTHING
        return self._take(frame, link, now) + self._say_rooted()

    def _take(self, frame: Frame, link: int, now: int) -> Reaction:
        if isinstance(frame, Attach | Topics):
            # Before anything is changed: a frame refused half-way would leave its first half applied.
            self._table.check(frame.patterns if isinstance(frame, Attach) else frame.added)
        if isinstance(frame, Attach | StepDown) and frame.epoch > now + MAX_AHEAD_MS:
            raise RoutingError(
                f"broker {link} claims a place since {frame.epoch:,}, more than a day ahead of the clock here "
                f"({now:,} ms)"
            )
        if isinstance(frame, Attach):
            return self._takes_peer(frame, link, now) if frame.as_peer else self._take_child(frame, link, now)
        if isinstance(frame, Topics):
            reaction = self._take_topics(frame, link)
            return reaction if frame.rooted is None else reaction + self._take_offer(link, frame.rooted, now)
        if isinstance(frame, Detach):
            return self._part(frame, link, now)
        if isinstance(frame, StepDown):
            return self._step_down(frame, link, now)
        raise RoutingError(f"broker {link} sent a {type(frame).__name__}, which trees and clusters do not know")

    def interest(self, change: InterestChange, now: int) -> Reaction:
        """Local subscriptions came and went."""
        count = self._local
        if len(count) + len(change.added) > MAX_PATTERNS:
            fresh = len({*count, *change.added})
            if fresh > MAX_PATTERNS:
                raise LimitError("the number of distinct topics subscribed to at one broker", fresh, MAX_PATTERNS)
        count.update(change.added)
        changed = self._table.add(LOCAL, change.added)
        for pattern in change.removed:
            if count[pattern] > 1:
                count[pattern] -= 1
            elif pattern in count:
                del count[pattern]
                changed |= self._table.remove(LOCAL, [pattern])
        return self._tell(changed)

    def tick(self, now: int) -> Reaction:
        """Give up lost links whose time is over; try the next parent."""
        reaction = NOTHING
        over = [link for link, until in self._absent.items() if now >= until]
        for link in over:
            del self._absent[link]
            reaction += self._tell(self._table.replace(link, set()))
        if self._orphan_since is not None:
            if now - self._attempted >= self._patience:
                reaction += self._seek(now)
            if self._holding and self._orphan_since is not None and now - self._orphan_since >= self._grace:
                # This broker is the top of what is left, until a broker above answers.
                self._holding = False
                over.append(0)
        for link in [link for link, until in self._left.items() if now >= until]:
            del self._left[link]
            # Only a link that failures called for is closed.
            reaction += Reaction([(link, Detach())], disconnect=(link,))
        return reaction + Reaction(retry=bool(over)) + self._say_rooted()

    def leave(self, now: int, returns: bool = False) -> Reaction:
        """Tell the neighbours not to wait; one that returns says nothing, and is waited for as after a cut."""
        if returns:
            return NOTHING
        return Reaction([(link, Detach()) for link in sorted(self._links())])

    @property
    def link_state(self) -> None:
        """None: brokers do not tell each other what they want."""
        return None

    @property
    def membership(self) -> int:
        """Nobody keeps count."""
        return 0

    def statistics(self) -> dict[str, int]:
        """Neighbours by role, patterns, and the window of ids."""
        sizes = {
            "parent": self.parent or 0,
            "planned_parent": self._planned or 0,
            "children": len(self.children),
            "peers": len(self.peers),
            "absent": len(self._absent),
            "patterns": sum(1 for _ in self._table.all_patterns()),
        }
        return {**sizes, **self._seen.statistics()._asdict()}

    # Attachment.

    def _links(self) -> set[int]:
        """The links that are part of the hierarchy now."""
        above = set() if self.parent is None else {self.parent}
        return self.children | self.peers | above

    @property
    def _planned(self) -> int | None:
        """The parent that the plan gives this broker; None at the top."""
        return self._station.parents[0] if self._station.parents else None

    def _is_top(self) -> bool:
        return not self._parents

    def _knows_above(self) -> bool:
        """Whether this broker knows which messages to send up: before that, children would lose theirs here."""
        return self._told_by_parent

    def _say_rooted(self) -> Reaction:
        """Tell those who may come to be below whether this broker has a way to the top, if that changed."""
        rooted = self._is_top() or (self.parent in self._offers and self._knows_above())
        if rooted == self._said_rooted:
            return NOTHING
        self._said_rooted = rooted
        below = [link for link in sorted(self._up) if link not in self.peers and not self._is_above(link)]
        return Reaction([(link, Topics(rooted=rooted)) for link in below])

    def _take_offer(self, link: int, rooted: bool, now: int) -> Reaction:
        """A broker above has a way to the top, or has lost it: return to it if it is the planned parent."""
        if not self._is_above(link):
            return NOTHING
        if not rooted:
            self._offers.discard(link)
            return NOTHING
        self._offers.add(link)
        if self.parent in (None, link) or link != self._planned:
            return NOTHING
        return self._move(link, now)

    def _move(self, planned: int, now: int) -> Reaction:
        """Leave a parent for the planned one: at once with what goes up, after `grace` with what comes down."""
        before = self.parent
        assert before is not None
        self._absent[before] = now
        self._sent.pop(before, None)
        reaction = self._attach(planned, now)
        self._left[before] = now + self._grace
        return reaction

    def _attach(self, parent: int, now: int) -> Reaction:
        """Take a parent. Until it says what is wanted on its side, that is what was wanted beyond the one before."""
        self.parent = parent
        self._told_by_parent = False
        self._left.pop(parent, None)
        self.children.discard(parent)
        self.peers.discard(parent)
        self._sent.pop(parent, None)
        self._orphan_since = None
        self._holding = False
        self._attempt = 0
        beyond: set[str] = set()
        changed: set[str] = set()
        for link in [parent, *(link for link in self._absent if link in self._parents)]:
            self._absent.pop(link, None)
            beyond |= self._table.patterns(link)
            changed |= self._table.replace(link, set())
        reaction = self._tell(changed | self._table.replace(parent, beyond))
        wanted = self._wanted_over(parent)
        self._sent[parent] = wanted
        attach = Attach(self._epoch, False, self.number, tuple(sorted(wanted)))
        return reaction + Reaction([(parent, attach)], retry=True)

    def _take_child(self, frame: Attach, link: int, now: int) -> Reaction:
        if self._is_above(link):
            raise RoutingError(f"broker {link} attaches to {self.number}, but the plan has it above")
        self.peers.discard(link)
        self.children.add(link)
        self._sent.pop(link, None)
        return self._welcome(frame, link) + self._answer(link)

    def _is_above(self, link: int) -> bool:
        return link == self.parent or link in self._parents

    def _welcome(self, frame: Attach, link: int) -> Reaction:
        """Take over what a child or peer wants; messages held may be for it."""
        self._absent.pop(link, None)
        return self._tell(self._table.replace(link, set(frame.patterns))) + Reaction(retry=True)

    def _answer(self, link: int) -> Reaction:
        """Tell a new child all that is wanted on this side."""
        self._sent[link] = self._wanted_over(link)
        return Reaction([(link, Topics(tuple(sorted(self._sent[link])), whole=True))])

    def _lose(self, link: int, now: int, grace: int) -> Reaction:
        if link not in self._links():
            return NOTHING
        self.children.discard(link)
        self.peers.discard(link)
        self._sent.pop(link, None)
        reaction = NOTHING
        if grace:
            self._absent[link] = now + grace
        else:
            reaction = self._tell(self._table.replace(link, set()))
        if link == self.parent:
            self.parent = None
            self._orphan_since = now
            self._holding = True
            reaction += self._parent_lost(now)
        return reaction

    def _part(self, frame: Detach, link: int, now: int) -> Reaction:
        """A neighbour goes on purpose: there is nothing to wait for."""
        return self._lose(link, now, 0)

    def _seek(self, now: int) -> Reaction:
        """Attach to the best parent within reach; if there is none, ask for a link to the next one."""
        self._attempted = now
        for parent in self._parents:
            if parent in self._up:
                return self._attach(parent, now)
        if not self._parents:
            return NOTHING
        self._attempt = (self._attempt + 1) % len(self._parents)
        return Reaction(connect=(self._parents[self._attempt],))

    def _step_down(self, frame: StepDown, link: int, now: int) -> Reaction:
        raise RoutingError(f"broker {link} tells {self.number} to step down from a place it does not have")

    # Interest.

    def _take_topics(self, frame: Topics, link: int) -> Reaction:
        if link not in self._links():
            return NOTHING
        if frame.whole:
            self._told_by_parent |= link == self.parent
            changed = self._table.replace(link, set(frame.added))
        else:
            changed = self._table.remove(link, frame.removed) | self._table.add(link, frame.added)
        return self._tell(changed) + Reaction(retry=bool(self._absent))

    def _wanted_over(self, link: int) -> set[str]:
        return {pattern for pattern in self._table.all_patterns() if self._carries(link, pattern)}

    def _tell(self, patterns: Iterable[str]) -> Reaction:
        """Tell each neighbour what changed for it: what was not sent before, or need not have been any more."""
        changed = sorted(patterns)
        frames: list[tuple[int, Frame]] = []
        for link, sent in sorted(self._sent.items()):
            added = tuple(one for one in changed if one not in sent and self._carries(link, one))
            removed = tuple(one for one in changed if one in sent and not self._carries(link, one))
            if added or removed:
                sent.update(added)
                sent.difference_update(removed)
                frames.append((link, Topics(added, removed)))
        return Reaction(frames)


def _joined(groups: list[Integers]) -> Parcel | None:
    if not groups:
        return None
    rows = np.unique(np.concatenate(groups))
    return Parcel(0, rows, Destinations.nowhere(len(rows)))
