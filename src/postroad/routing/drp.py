"""`Drp`: content-based routing by dynamic receiver partitioning (Carzaniga, Hall and others), the default.

The entry broker determines once which brokers want a message; that set of destinations travels with it. Every broker on
the way splits the set by next hop and relays each part; none looks at the message before its destination. Destinations
are never copied. So as long as links neither lose messages nor give them back, no broker gets a message twice, whatever
happens to the routes: brokers may disagree about them, and a message may travel in circles until its hop limit ends
that.

A message for more than a share of all brokers is broadcast instead, without a set. Published reverse-path forwarding
accepts a broadcast only from the link that leads to its source, and relays it over all others; while routes change, two
brokers can each wait for the copy that the other refuses. Here the first copy counts, from whichever link, and the
window of ids drops the others: the number of packets is the same, and a change of routes loses none. A broadcast that
arrives just after a broker lost the link to a part of the network is held there for that part; had it arrived before,
the link would have given it back.

Where the steps of the published algorithm are:

    advertise      `interest`, and `link_state.py`, which spreads what it is given
    encode, match  not here: `publish` gets the result as `wanted`, and nobody matches again on the way
    publish        `publish`: the only place that decides on a broadcast; later brokers read the flag
    partition      `_split`, by `partition.py`: one AND for each distinct set and link
    receive        `relay`: a row with this broker's bit is delivered here; no link's mask has that bit, so it ends

The paper leaves failures and equal costs open. Ours: a hop limit; destinations out of reach are held, and split again
(`reroute`) as soon as routes change; of routes of equal cost all brokers take the one with the lowest neighbour, so
branches that have parted never meet again while brokers agree (`topology/paths.py` has the proof).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages.columns import BROADCAST, FLAGS
from postroad.messages.id_columns import TIME_SHIFT
from postroad.routing.contract import NOTHING, Parcel, Reaction, Routed
from postroad.routing.control_frames import Digest, Interest, InterestDelta, LinkRecord
from postroad.routing.destinations import Destinations, bits_of, fitted
from postroad.routing.envelopes import (
    all_may_go_on,
    any_broadcast,
    arrived,
    entering,
    may_go_on,
    returned_rows,
    with_broadcast,
)
from postroad.routing.errors import RoutingError
from postroad.routing.link_state import DEFAULT_LIFETIME_MS, DEFAULT_REFRESH_MS, LinkState
from postroad.routing.partition import OUT, counted, leads_beyond, part, partition, rows_for
from postroad.routing.seen_ids import DEFAULT_WINDOW, FIXED_SECRET, SeenIds, all_fresh
from postroad.topology import bit_words

if TYPE_CHECKING:
    from postroad.messages import Batch
    from postroad.routing.contract import InterestChange
    from postroad.routing.control_frames import Frame
    from postroad.routing.destinations import Flags, Integers, Words
    from postroad.routing.link_state_records import Seals
    from postroad.topology import Routes

    # Parcels, and whether a destination is out of reach.
    _Ways = tuple[list[Parcel], bool]

__all__ = ["DEFAULT_BROADCAST_THRESHOLD", "Drp"]

# The published algorithm leaves the value open. About here the sets of many small packets outweigh a few useless
# packets without sets.
DEFAULT_BROADCAST_THRESHOLD = 0.8

# Sets of single messages whose parcels are remembered: messages of a topic go to the same brokers again and again. A
# set of a thousand brokers with its parcels takes a kilobyte or so.
MAX_WAYS_REMEMBERED = 256

# A broadcast published within this time after a link broke may come from a broker that did not know about the break:
# the news travels for a second or two, and clocks differ. Later ones were published without the brokers beyond the
# break.
BREAK_UNKNOWN_MS = 5_000
# No message is under way for longer: each broker on its way holds it for 10 s at most.
BREAK_REMEMBERED_MS = 60_000


class Drp:
    """One broker that routes by destination sets.

    Args:
        number: this broker.
        now: when it starts, in ms: the epoch of its records.
        broadcast_threshold: the share of all brokers above which a message goes to all; 1 means never.
        window: ids remembered for each origin.
        secret: 64 random bits for the hash of the window, where ids are not trusted.
        seals: signs and checks records of link state; None if they are not signed.
    """

    def __init__(
        self,
        number: int,
        now: int,
        *,
        broadcast_threshold: float = DEFAULT_BROADCAST_THRESHOLD,
        window: int = DEFAULT_WINDOW,
        secret: int = FIXED_SECRET,
        refresh_ms: int = DEFAULT_REFRESH_MS,
        lifetime_ms: int = DEFAULT_LIFETIME_MS,
        seals: Seals | None = None,
    ) -> None:
        self.number = number
        self.link_state = LinkState(number, now, refresh_ms=refresh_ms, lifetime_ms=lifetime_ms, seals=seals)
        self._threshold = broadcast_threshold
        self._seen = SeenIds(window, secret)
        # Neighbours whose links broke, and when; kept as long as it matters to messages under way.
        self._broken: dict[int, int] = {}
        # By the set of a single message: where it goes, as long as the routes are these. Never written to again.
        self._ways: dict[bytes, _Ways] = {}
        self._ways_by: Routes | None = None

    def publish(self, batch: Batch, wanted: Destinations, now: int) -> Routed:
        """Route messages that enter here: split the brokers that want them by next hop."""
        routes = self.link_state.routes
        batch = entering(batch, self.number, routes.reached + 1)
        destinations = wanted.checked(len(batch))
        # By distinct set, as all work on destinations: a batch has few sets and many rows.
        everywhere = counted(destinations, routes.reachable) > self._threshold * (routes.reached + 1)
        rows = np.arange(len(batch), dtype=np.int64)
        broadcast = everywhere[destinations.lines]
        if broadcast.any():
            batch = with_broadcast(batch, broadcast, True)
            # So that a copy that comes back ends here.
            self._seen.admit(batch.ids, rows[broadcast], now)
        return self._send(batch, destinations, everywhere, rows)

    def relay(self, batch: Batch, destinations: Destinations, link: int, now: int) -> Routed:
        """Route messages that arrived: deliver those for this broker, split the rest."""
        batch = arrived(batch)
        destinations.checked(len(batch))
        here = rows_for(destinations, batch.envelopes, self.number)
        fresh, doubtful = self._seen.admit(batch.ids, here, now)
        local = here if all_fresh(fresh) else here[fresh]
        if any_broadcast(batch.envelopes):
            broadcast = (batch.envelopes[:, FLAGS] & BROADCAST) != 0
            destinations, everywhere = _with_broadcasts(destinations, broadcast, here[~fresh])
            if self._broken:
                destinations, everywhere = self._with_cut_off(destinations, everywhere, batch)
        else:
            everywhere = np.zeros(len(destinations.sets), np.bool_)
        routed = self._send(batch, destinations, everywhere, local, link, duplicates=len(here) - len(local))
        return routed if doubtful is None else routed._replace(doubtful=here[doubtful])

    def reroute(self, batch: Batch, destinations: Destinations, now: int, *, returned: bool) -> Routed:
        """Split again by the current routes, without matching again.

        A broadcast that a link gave back goes to every known broker by a set: brokers that had their copy would not
        relay another one, and for brokers that the break has cut off it can be held. One that was held has its set.
        """
        destinations.checked(len(batch))
        broadcast = np.asarray((batch.envelopes[:, FLAGS] & BROADCAST) != 0)
        if returned:
            batch = returned_rows(batch)
        if broadcast.any():
            batch = with_broadcast(batch, broadcast, False)
            without_set = broadcast & ~np.asarray(destinations.sets.any(axis=1))[destinations.lines]
            known = self.link_state.known()
            destinations = _for_all(destinations, without_set, bits_of(known, bit_words(known[-1])))
        everywhere = np.zeros(len(destinations.sets), np.bool_)
        return self._send(batch, destinations, everywhere, np.empty(0, np.int64))

    def control(self, frame: Frame, link: int, now: int) -> Reaction:
        """Take a record of link state from a neighbour."""
        if not isinstance(frame, LinkRecord | Interest | InterestDelta | Digest):
            raise RoutingError(f"broker {link} sent a {type(frame).__name__}, which `drp` does not know")
        return self.link_state.receive(frame, link, now)

    def link_up(self, link: int, cost: int, now: int) -> Reaction:
        """Tell the others."""
        self._broken.pop(link, None)
        return self.link_state.neighbour_up(link, cost, now)

    def link_down(self, link: int, now: int) -> Reaction:
        """Tell the others."""
        self._broken[link] = now
        return self.link_state.neighbour_down(link, now)

    def interest(self, change: InterestChange, now: int) -> Reaction:
        """Tell the others."""
        if change.delta is not None and change.whole is not None:
            return self.link_state.change_interest(change.delta, change.whole, now)
        return NOTHING if change.summary is None else self.link_state.set_interest(change.summary, now)

    def tick(self, now: int) -> Reaction:
        """Refresh and forget."""
        if self._broken:
            oldest = now - BREAK_REMEMBERED_MS
            self._broken = {link: at for link, at in self._broken.items() if at >= oldest}
        return self.link_state.tick(now)

    def leave(self, now: int, returns: bool = False) -> Reaction:
        """Tell the others."""
        return self.link_state.leave(now, returns)

    @property
    def membership(self) -> int:
        """A digest of the brokers that link state knows."""
        return self.link_state.membership

    def statistics(self) -> dict[str, int]:
        """Counts of reachable brokers, of links, and of the window of ids."""
        routes = self.link_state.routes
        sizes = {"reached": routes.reached, "links": len(routes.neighbours), "membership": self.link_state.membership}
        return {**sizes, **self._seen.statistics()._asdict()}

    def _with_cut_off(self, destinations: Destinations, everywhere: Flags, batch: Batch) -> tuple[Destinations, Flags]:
        """Add the known brokers that cannot be reached to broadcasts published before a break was known."""
        known = self.link_state.known()
        words = max(destinations.sets.shape[1], bit_words(known[-1]))
        cut_off = bits_of(known, words) & ~fitted(self.link_state.routes.reachable, words)
        cut_off &= ~bits_of([self.number], words)
        # `_with_broadcasts` has put the set of broadcasts last.
        going = destinations.lines == len(destinations.sets) - 1
        young = (batch.ids[:, 1] >> TIME_SHIFT).astype(np.int64) > max(self._broken.values()) + BREAK_UNKNOWN_MS
        rows = going & ~young
        if not rows.any() or not cut_off.any():
            return destinations, everywhere
        return _for_all(destinations, rows, cut_off), np.append(everywhere, True)

    def _send(
        self,
        batch: Batch,
        destinations: Destinations,
        everywhere: Flags,
        local: Integers,
        source: int = 0,
        duplicates: int = 0,
    ) -> Routed:
        """Put each destination of each row into a parcel, into `held`, or into `exhausted`, and into one of them only.

        Rows that may make no further hop are taken out first, by the line OUT; those with a destination out of reach
        are looked for among the others, so no row is held that could not be sent later.
        """
        routes = self.link_state.routes
        exhausted: Parcel | None = None
        held: Parcel | None = None
        if not all_may_go_on(batch.envelopes):
            able = may_go_on(batch)
            stuck = Destinations(destinations.sets, np.where(able, OUT, destinations.lines))
            exhausted = _parcel(stuck, self._others(destinations), everywhere)
            destinations = Destinations(destinations.sets, np.where(able, destinations.lines, OUT))
        parcels, beyond = self._split(destinations, everywhere, routes, source)
        if beyond:
            others = self._others(destinations)
            held = _parcel(destinations, others & ~fitted(routes.reachable, len(others)))
        return Routed(batch, parcels, local, held, exhausted, duplicates)

    def _split(self, destinations: Destinations, everywhere: Flags, routes: Routes, source: int) -> _Ways:
        """The parcels of rows, and whether any of their destinations is out of reach."""
        sets, lines = destinations
        if len(lines) != 1 or len(sets) != 1 or everywhere[0] or lines[0] == OUT:
            return self._split_anew(destinations, everywhere, routes, source)
        # A single message: the source matters only to what goes everywhere.
        if self._ways_by is not routes:
            self._ways_by, self._ways = routes, {}
        key = sets.tobytes()
        found = self._ways.get(key)
        if found is None:
            if len(self._ways) >= MAX_WAYS_REMEMBERED:
                self._ways.clear()
            found = self._ways[key] = self._split_anew(destinations, everywhere, routes, source)
        return found

    def _split_anew(self, destinations: Destinations, everywhere: Flags, routes: Routes, source: int) -> _Ways:
        place = int(routes.neighbours.searchsorted(source))
        skipped = place if place < len(routes.neighbours) and routes.neighbours[place] == source else OUT
        parcels = [
            Parcel(int(routes.neighbours[link]), rows, parts)
            for link, rows, parts in partition(destinations, routes.masks, everywhere, skipped)
        ]
        return parcels, leads_beyond(np.ascontiguousarray(destinations.sets), routes.reachable, self.number)

    def _others(self, destinations: Destinations) -> Words:
        """All brokers but this one, as wide as the sets."""
        return ~bits_of([self.number], destinations.sets.shape[1])


def _parcel(destinations: Destinations, mask: Words, everywhere: Flags | None = None) -> Parcel | None:
    rows, parts = part(destinations, mask, everywhere)
    return Parcel(0, rows, parts) if len(rows) else None


def _with_broadcasts(destinations: Destinations, broadcast: Flags, repeated: Integers) -> tuple[Destinations, Flags]:
    """Add a set that goes everywhere, and give it to the broadcast rows that are new here."""
    sets = np.concatenate([destinations.sets, np.zeros((1, destinations.sets.shape[1]), np.uint64)])
    everywhere = np.zeros(len(sets), np.bool_)
    everywhere[-1] = True
    lines = np.where(broadcast, len(sets) - 1, destinations.lines)
    # A repeated row with its own set still goes to its other destinations; only its delivery here would be a second.
    lines[repeated[broadcast[repeated]]] = OUT
    return Destinations(sets, lines), everywhere


def _for_all(destinations: Destinations, rows: Flags, known: Words) -> Destinations:
    words = max(destinations.sets.shape[1], len(known))
    sets = np.concatenate([fitted(destinations.sets, words), fitted(known, words)[np.newaxis]])
    return Destinations(sets, np.where(rows, len(sets) - 1, destinations.lines))
