"""The interest of one broker as it is advertised: without covered predicates, and as changes.

This is "advertise" of B-DRP: the OR of all local predicates, without conjunctions that another one covers, encoded. The
paper floods the whole list at each change. Here the first advertisement is whole, and what follows are changes; each is
made of rows that became or ceased to be covered by no other, not of subscriptions.

Several subscriptions may have one row, and several rows one vector. Both are counted (`CoveringSet`, `_vectors`), so
that the last one that leaves takes the row or the vector with it, and none before.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from postroad.errors import LimitError
from postroad.matching.cover import CoveringSet
from postroad.matching.encoding import EncodedPredicates, Scheme, conjunction_categories, encode_exact, to_bytes
from postroad.routing import Delta
from postroad.routing.control_frames import MAX_INTEREST_BYTES
from postroad.selectors import TopicPattern

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.matching.cover import Row
    from postroad.selectors import Selector
    from postroad.selectors.normal_form import Conjunction
    from postroad.topology import Settings

__all__ = ["AdvertisedInterest", "scheme_of"]

_EVERYTHING: tuple[Conjunction, ...] = ((),)
_ALL: list[Row] = [(">", ())]


def scheme_of(settings: Settings) -> Scheme | None:
    """Return how the brokers of a network encode what they want; None if they advertise it exactly."""
    if settings.interest == "exact":
        return None
    made = Scheme.paper if settings.categories == "paper" else Scheme.sharp
    return made(settings.vector_bits, settings.vector_hashes)


class AdvertisedInterest:
    """The interest of one broker, in the form in which it is advertised.

    Args:
        scheme: how predicates are encoded; None to advertise them exactly.
        most_bytes: an interest that takes more bytes than this is advertised as match-all: the broker gets too much,
            but no subscriber loses anything because of another one's subscriptions.
    """

    def __init__(self, scheme: Scheme | None = None, most_bytes: int = MAX_INTEREST_BYTES) -> None:
        self._scheme = scheme
        self._most_bytes = most_bytes
        self._too_many: int | None = None  # the number of rows that was too large to advertise
        self._rows = CoveringSet()
        self._vectors: Counter[tuple[int, ...]] = Counter()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, topic: str, selector: Selector | None) -> None:
        """Add a subscription."""
        for conjunction in _disjunction(selector):
            self._rows.add((topic, conjunction))

    def remove(self, topic: str, selector: Selector | None) -> None:
        """Remove a subscription."""
        for conjunction in _disjunction(selector):
            self._rows.remove((topic, conjunction))

    def take(self) -> Delta | None:
        """Return the change since the last call; None if there is none."""
        added, removed = self._rows.take()
        if not added and not removed:
            return None
        if self._scheme is None:
            return Delta(encode_exact(added) if added else b"", encode_exact(removed) if removed else b"")
        return self._encoded(self._scheme, added, removed)

    def _encoded(self, scheme: Scheme, added: list[Row], removed: list[Row]) -> Delta | None:
        """Return the same for vectors: several predicates may share one, which is advertised once."""
        change = Counter(_vectors(scheme, added))
        change.subtract(_vectors(scheme, removed))
        came: list[tuple[int, ...]] = []
        went: list[tuple[int, ...]] = []
        for vector, count in change.items():
            before = self._vectors[vector]
            self._vectors[vector] = before + count
            if before + count == 0:
                del self._vectors[vector]
            if (before > 0) != (before + count > 0):
                (went if before else came).append(vector)
        if not came and not went:
            return None
        parts = [to_bytes(EncodedPredicates(scheme, rows)) if rows else b"" for rows in (came, went)]
        return Delta(*parts)

    def whole(self) -> bytes:
        """Return the full interest, or match-all if it is too large to state. Changes of match-all do no harm."""
        # Half of that before trying again: it takes seconds to find out that it is still too much.
        if self._too_many is not None and 2 * len(self) > self._too_many:
            return self._said(_ALL)
        try:
            said = self._said(self._rows.rows())
        except LimitError:
            said = None
        if said is not None and len(said) <= self._most_bytes:
            self._too_many = None
            return said
        self._too_many = len(self)
        return self._said(_ALL)

    def _said(self, rows: Iterable[Row]) -> bytes:
        if self._scheme is None:
            return encode_exact(rows)
        return to_bytes(EncodedPredicates(self._scheme, _vectors(self._scheme, rows)))


def _vectors(scheme: Scheme, rows: Iterable[Row]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for topic, conjunction in rows:
        sets = conjunction_categories(conjunction, scheme, TopicPattern.parse(topic))
        found += EncodedPredicates.of_categories(scheme, sets).rows
    return found


def _disjunction(selector: Selector | None) -> tuple[Conjunction, ...]:
    return _EVERYTHING if selector is None else selector.disjunction
