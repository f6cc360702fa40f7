"""`EncodedPredicates`: what one broker advertises, as bit vectors, one row per conjunction.

Rows are kept as sorted positions of their set bits, since few of the M bits are set.
The list is canonical: rows are distinct and in order, so equal content is equal and has equal bytes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.filters import positions
from postroad.matching.encoding.demands import conjunction_categories

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from postroad.matching.encoding.scheme import Scheme
    from postroad.selectors import Selector, TopicPattern

__all__ = ["MAX_ROWS", "EncodedPredicates"]

MAX_ROWS = 1_000_000  # what one broker may advertise; at 16 bytes a row the list is 16 MB on the wire


class EncodedPredicates:
    """A canonical list of rows under one scheme.

    Attributes:
        scheme: the parameters the rows were made with.
        rows: sorted positions of the set bits of each row; an empty row matches every message.
    """

    __slots__ = ("rows", "scheme")

    def __init__(self, scheme: Scheme, rows: Iterable[tuple[int, ...]] = ()) -> None:
        self.scheme = scheme
        self.rows: tuple[tuple[int, ...], ...] = tuple(sorted(set(rows)))
        self._check_size()

    @classmethod
    def canonical(cls, scheme: Scheme, rows: Iterable[tuple[int, ...]]) -> EncodedPredicates:
        """A list of rows that are known to be distinct and in order.

        Raises:
            LimitError: there are too many.
        """
        made = cls(scheme)
        made.rows = tuple(rows)
        made._check_size()
        return made

    def _check_size(self) -> None:
        if len(self.rows) > MAX_ROWS:
            raise LimitError("the number of encoded conjunctions", len(self.rows), MAX_ROWS, "cover some by others")

    @classmethod
    def encode(cls, scheme: Scheme, subscriptions: Iterable[tuple[Selector, TopicPattern | None]]) -> EncodedPredicates:
        """Encode the disjunction of all subscriptions: selectors, each with its topic pattern or None for any."""
        sets = {
            categories
            for selector, pattern in subscriptions
            for conjunction in selector.disjunction
            for categories in conjunction_categories(conjunction, scheme, pattern)
        }
        return cls.of_categories(scheme, sets)

    @classmethod
    def of_categories(cls, scheme: Scheme, sets: Iterable[Iterable[int]]) -> EncodedPredicates:
        """Encode category sets, one row each."""
        held = [list(categories) for categories in sets]
        words = np.array([word for categories in held for word in categories], np.uint64)
        places = positions(words, scheme.hashes, scheme.bits).reshape(-1).tolist()
        ends = np.cumsum([0, *(len(categories) * scheme.hashes for categories in held)]).tolist()
        return cls(scheme, (tuple(sorted(set(places[start:end]))) for start, end in pairwise(ends)))

    def flat(self) -> NDArray[np.int64]:
        """The positions of all rows end to end."""
        return np.array([place for row in self.rows for place in row], np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EncodedPredicates):
            return NotImplemented
        return self.scheme == other.scheme and self.rows == other.rows

    def __hash__(self) -> int:
        return hash((self.scheme, self.rows))

    def __repr__(self) -> str:
        return f"<EncodedPredicates of {len(self.rows):,} rows, {self.scheme}>"
