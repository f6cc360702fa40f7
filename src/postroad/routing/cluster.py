"""`Cluster`: interest by topic goes up to the top only; so every message goes up too, and down where it is wanted.

Subscribing costs one message per level, however large the network; publishing costs the way to the top, interest or
not. Controllers at the top tell each other what is wanted below them, and send each other only that; what comes from
a peer goes to no other peer.

When a controller fails, its secondary takes its place: the other members attach to it, and it attaches to the failed
controller's parents. The secondary of a controller at the top presents itself to the peers with an epoch. A place has
one holder, the one with the newest epoch; an earlier holder is asked to step down and becomes a child of the new one.
A controller that was only cut off comes back with its old epoch, and steps down; one that was started again has a newer
epoch, and takes its place back.

Units, controllers and secondaries are those of Wihidum, and so is the upward way of every message. The epochs are ours:
the paper leaves open how a controller that was only slow learns that it has been replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.routing.contract import NOTHING, Reaction
from postroad.routing.control_frames import Attach, Detach, StepDown
from postroad.routing.hierarchy import Hierarchical
from postroad.routing.topics import LOCAL

if TYPE_CHECKING:
    from postroad.messages import Batch
    from postroad.routing.contract import Matcher
    from postroad.routing.destinations import Integers
    from postroad.topology import Station

__all__ = ["Cluster"]


class Cluster(Hierarchical):
    """One broker of a cluster."""

    def __init__(self, number: int, now: int, station: Station, matcher: Matcher, **settings: int) -> None:
        super().__init__(number, now, station, matcher, **settings)
        # The place at the top that this broker holds: its own, or that of the controller it replaces.
        self.place = None if station.parents else number
        self._claims: dict[int, tuple[int, int]] = {}  # peer -> the place it holds, since when
        self._were_peers: set[int] = set()
        self._holders: set[int] = set()  # brokers that were said to hold the place of a peer

    def link_up(self, link: int, cost: int, now: int) -> Reaction:
        """A link works: attach to a parent, or present oneself to a peer."""
        if self.place is None:
            return super().link_up(link, cost, now)
        reaction = self._raise(link)
        if link in self._station.peers or link == self._station.deputises_for or link in self._holders:
            reaction += self._present(link)
        return reaction

    def tick(self, now: int) -> Reaction:
        """As any broker's; and a deputy whose controller never came takes its place."""
        late = self._orphan_since is not None and now - self._orphan_since >= self._grace
        reaction = super().tick(now)
        if late and self._orphan_since is not None and self._may_lead():
            reaction += self._take_over(now)
        return reaction

    # Topics and messages.

    def _carries(self, link: int, pattern: str) -> bool:
        """Upwards and to peers, what is wanted here or below; never downwards."""
        if link in self.children:
            return False
        return any(owner == LOCAL or self._is_below(owner) for owner in self._table.owners(pattern))

    def _is_below(self, owner: int) -> bool:
        return owner in self.children or (owner in self._absent and owner not in self._were_peers)

    def _rows_for(self, batch: Batch, arrival: int) -> dict[int, Integers]:
        """Children and, unless a peer sent them, peers that want some; and the parent always."""
        wanted = self._table.wanted(batch)
        from_peer = arrival in self.peers
        found = {
            link: wanted.rows(link)
            for link in wanted.by_owner
            if link not in (LOCAL, arrival) and (self._is_below(link) or not from_peer)
        }
        if self.parent is not None and arrival != self.parent:
            found[self.parent] = np.arange(len(batch), dtype=np.int64)
        elif self._holding:
            found[0] = np.arange(len(batch), dtype=np.int64)
        return found

    # Places at the top.

    def _is_top(self) -> bool:
        return self.place is not None

    def _knows_above(self) -> bool:
        """All messages go up."""
        return True

    def _may_lead(self) -> bool:
        return self._station.deputises_for is not None or not self._station.parents

    def _parent_lost(self, now: int) -> Reaction:
        """A deputy takes over, and so does a controller that had stepped down; other brokers look for a parent."""
        return self._take_over(now) if self._may_lead() else self._seek(now)

    def _take_over(self, now: int) -> Reaction:
        self.place = self._station.deputises_for or self.number
        self._epoch = max(now, self._epoch + 1)
        self._orphan_since = None
        self._holding = False
        peers = self._station.peers
        reaction = Reaction(connect=tuple(peer for peer in peers if peer not in self._up), retry=True)
        for peer in peers:
            if peer in self._up:
                reaction += self._present(peer)
        return reaction

    def _present(self, link: int) -> Reaction:
        """Tell another broker at the top which place is held here, and what is wanted below."""
        if self.place is None:
            return NOTHING
        self.peers.add(link)
        self._were_peers.add(link)
        self._sent[link] = self._wanted_over(link)
        return Reaction([(link, Attach(self._epoch, True, self.place, tuple(sorted(self._sent[link]))))])

    def _takes_peer(self, frame: Attach, link: int, now: int) -> Reaction:
        if self.place is None:
            # This broker has stepped down. Its parent knows that, or will by the time this could be answered.
            return NOTHING if link == self.parent else Reaction([(link, Detach(self._parents[0]))])
        # Two brokers claim one place: the newer epoch has it, in whichever order the claims arrive. First the case that
        # one of the two is this broker; then that both are peers, of which whoever knows both tells the older.
        if frame.instead_of == self.place:
            if frame.epoch > self._epoch:
                return self._step_down(StepDown(frame.epoch, link), link, now)
            return Reaction([(link, StepDown(self._epoch, self.number))]) + self._lose(link, now, 0)
        reaction = NOTHING
        for other, (place, epoch) in sorted(self._claims.items()):
            if place == frame.instead_of and other != link:
                if epoch > frame.epoch:
                    return Reaction([(link, StepDown(epoch, other))]) + self._lose(link, now, 0)
                reaction += Reaction([(other, StepDown(frame.epoch, link))]) + self._lose(other, now, 0)
        self._claims[link] = (frame.instead_of, frame.epoch)
        self.peers.add(link)
        self._were_peers.add(link)
        reaction += self._welcome(frame, link)
        return reaction if link in self._sent else reaction + self._present(link)

    def _step_down(self, frame: StepDown, link: int, now: int) -> Reaction:
        """Give up the place, and become a child of its new holder."""
        if self.place is None or frame.epoch <= self._epoch:
            return NOTHING
        self.place = None
        reaction = NOTHING
        for peer in sorted(self.peers):
            reaction += Reaction([(peer, Detach(frame.holder))]) if peer != frame.holder else NOTHING
            reaction += self._lose(peer, now, 0)
        if frame.holder not in self._parents:
            self._parents = (frame.holder,)
        self._orphan_since = now
        self._holding = True
        return reaction + self._seek(now)

    def _part(self, frame: Detach, link: int, now: int) -> Reaction:
        """Attach to the holder of a place whose peer stepped down."""
        reaction = super()._part(frame, link, now)
        holder = frame.holder
        if self.place is None or holder is None or holder == self.number or holder in self._links():
            return reaction
        self._holders.add(holder)
        return reaction + (self._present(holder) if holder in self._up else Reaction(connect=(holder,)))

    def _take_child(self, frame: Attach, link: int, now: int) -> Reaction:
        reaction = NOTHING
        if self.place is None and self._is_above(link):
            if link == self._station.deputises_for:
                # It has stepped down for an earlier life of this broker, which holds no place now. It may have taken
                # the Attach of this life before that: only another one tells it that the place is free.
                return self._attach(link, now)
            if self._may_lead() and link not in self._station.parents:
                # Who held the place here was started again and knows nothing of it: the place is free.
                reaction = self._lose(link, now, 0) if link == self.parent else self._take_over(now)
        self._claims.pop(link, None)
        self._were_peers.discard(link)
        return reaction + super()._take_child(frame, link, now)

    def _answer(self, link: int) -> Reaction:
        """Children get no news."""
        self._sent[link] = set()
        return NOTHING

    def _is_above(self, link: int) -> bool:
        return self.place is None and super()._is_above(link)

    def _lose(self, link: int, now: int, grace: int) -> Reaction:
        self._claims.pop(link, None)
        return super()._lose(link, now, grace)
