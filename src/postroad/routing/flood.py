"""`Flood`: every message to every broker, over every link. The baseline the other strategies are measured against.

A broker that sees an id for the first time delivers it and sends it out on all other links; a copy of an id it has seen
ends there. That takes between one and two packets per link and message, whichever brokers want it.

A copy that a broken link gave back is sent out once more on all links. Brokers that have passed the first copy on pass
on one that is marked as sent again, once: beyond them may be a broker that joined since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages.columns import FLAGS, MAYBE_DUPLICATE
from postroad.routing.contract import NOTHING, Parcel, Reaction, Routed
from postroad.routing.destinations import Destinations
from postroad.routing.envelopes import arrived, entering, may_go_on, returned_rows, with_broadcast
from postroad.routing.seen_ids import DEFAULT_WINDOW, FIXED_SECRET, SeenIds

if TYPE_CHECKING:
    from postroad.messages import Batch
    from postroad.routing.contract import InterestChange
    from postroad.routing.control_frames import Frame
    from postroad.routing.destinations import Flags, Integers

__all__ = ["Flood"]

# A flood knows its links and nothing beyond; a path as long as the envelope can count.
_BROKERS = 128


class Flood:
    """One broker that floods. It sends no control frames."""

    def __init__(self, number: int, now: int, *, window: int = DEFAULT_WINDOW, secret: int = FIXED_SECRET) -> None:
        self.number = number
        self._links: set[int] = set()
        self._seen = SeenIds(window, secret)
        self._seen_again = SeenIds(window, secret)

    def publish(self, batch: Batch, wanted: Destinations, now: int) -> Routed:
        """Messages enter: out on all links."""
        batch = entering(batch, self.number, _BROKERS)
        rows = np.arange(len(batch), dtype=np.int64)
        self._seen.admit(batch.ids, rows, now)
        return self._spread(with_broadcast(batch, np.ones(len(batch), np.bool_), True), rows, rows, 0)

    def relay(self, batch: Batch, destinations: Destinations, link: int, now: int) -> Routed:
        """Messages arrived: out on all other links, if they are new here."""
        batch = arrived(batch)
        rows = np.arange(len(batch), dtype=np.int64)
        fresh, doubtful = self._seen.admit(batch.ids, rows, now)
        onward = fresh.copy()
        again = np.flatnonzero((batch.envelopes[:, FLAGS] & MAYBE_DUPLICATE) != 0)
        onward[again] = self._seen_again.admit(batch.ids, again, now).fresh
        routed = self._spread(batch, rows[fresh], rows[onward], link, duplicates=int(np.count_nonzero(~fresh)))
        return routed if doubtful is None else routed._replace(doubtful=rows[doubtful])

    def reroute(self, batch: Batch, destinations: Destinations, now: int, *, returned: bool) -> Routed:
        """Messages a link gave back: out on all links once more."""
        batch = returned_rows(batch)
        rows = np.arange(len(batch), dtype=np.int64)
        self._seen_again.admit(batch.ids, rows, now)
        return self._spread(batch, rows[:0], rows, 0)

    def control(self, frame: Frame, link: int, now: int) -> Reaction:
        """Nobody sends any."""
        return NOTHING

    def link_up(self, link: int, cost: int, now: int) -> Reaction:
        """One more link to flood."""
        self._links.add(link)
        return NOTHING

    def link_down(self, link: int, now: int) -> Reaction:
        """One less."""
        self._links.discard(link)
        return NOTHING

    def interest(self, change: InterestChange, now: int) -> Reaction:
        """Nobody needs to know."""
        return NOTHING

    def tick(self, now: int) -> Reaction:
        """Nothing grows old here."""
        return NOTHING

    def leave(self, now: int, returns: bool = False) -> Reaction:
        """Nobody needs to know."""
        return NOTHING

    @property
    def link_state(self) -> None:
        """None: brokers do not tell each other what they want."""
        return None

    @property
    def membership(self) -> int:
        """Nobody keeps count."""
        return 0

    def statistics(self) -> dict[str, int]:
        """Links and the window of ids."""
        return {"links": len(self._links), **self._seen.statistics()._asdict()}

    def _spread(self, batch: Batch, local: Integers, onward: Integers, source: int, duplicates: int = 0) -> Routed:
        able: Flags = may_go_on(batch)[onward]
        rows = onward[able]
        links = [link for link in sorted(self._links) if link != source]
        parcels = [Parcel(link, rows, Destinations.nowhere(len(rows))) for link in links if len(rows)]
        lost = onward[~able]
        exhausted = Parcel(0, lost, Destinations.nowhere(len(lost))) if len(lost) and links else None
        return Routed(batch, parcels, local, None, exhausted, duplicates)
