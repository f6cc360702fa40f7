"""Under which states of a broker's standing interest the messages that wait for it were accepted.

The states of an interest are numbered (`standing_interest`). Rows of an outgoing queue lie in the order in which they
were accepted, so a *span* is the place where it begins and the states of the rows from there to the next span: the
oldest and the newest state that one of them may have been accepted under.

Invariants: spans begin at rising places, the first one at 0; a span begins where all rows before it had been appended,
so no row is in two. Their oldest states never fall, so that the first one has the oldest of all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.broker.channel_items import ANY_STATE
from postroad.store import NO_CEILING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

__all__ = ["MAX_SPANS", "AcceptedStates", "StateSpan"]

# Spans of one queue: they are stored with each new state, some 20 bytes each, beside an interest of up to two
# megabytes. A broker that takes nothing for a quarter of an hour, and says another state every second, reaches it.
MAX_SPANS = 1_024


class StateSpan(NamedTuple):
    """Rows from a place on.

    Attributes:
        start: the place.
        oldest: no row was accepted under an earlier state.
        newest: no row was accepted under a later state.
    """

    start: int
    oldest: int
    newest: int


class AcceptedStates:
    """The states under which the rows of one queue were accepted.

    Args:
        spans: as an earlier process left them; by default nothing is known.
        end: the place after all rows that it left. A crash may have lost rows before a span, and the spans not: what
            is accepted in their place belongs to the last one.
    """

    def __init__(self, spans: Iterable[tuple[int, int, int]] = (), end: int = NO_CEILING) -> None:
        left = {min(start, end): StateSpan(min(start, end), oldest, newest) for start, oldest, newest in spans}
        self._spans = list(left.values()) or [StateSpan(0, 0, ANY_STATE)]

    @property
    def spans(self) -> tuple[StateSpan, ...]:
        """Return them for the store."""
        return tuple(self._spans)

    @property
    def oldest(self) -> int:
        """Return the oldest state of a row that is there, or may still come."""
        return self._spans[0].oldest

    @property
    def newest(self) -> int:
        """Return the state under which rows are accepted now."""
        return self._spans[-1].newest

    def begin(self, place: int, state: int, there: tuple[int, int] | None) -> None:
        """Let all rows from a place on, which are all that follow, be accepted under a state.

        Args:
            place: no row before it is accepted from now on.
            state: the number of the state.
            there: the first and the last row that are there; None if none is.
        """
        self.end_before(None if there is None else there[0])
        if there is None:
            self._spans = [StateSpan(0, state, state)]
            return
        if there[1] < self._spans[-1].start:
            # Nothing was accepted under the state before.
            del self._spans[-1]
        if state < self.newest:
            # The broker has lost its store, and its clock is behind what it was. Perhaps it has lost what these states
            # were, too, so that rows of them belong to what it wants now.
            self._spans = [each._replace(oldest=min(each.oldest, state)) for each in self._spans]
        self._spans.append(StateSpan(place, state, state))
        if len(self._spans) > MAX_SPANS:
            # Rows of two spans count for the states of both: they come to all who wanted them under either.
            *earlier, last = self._spans
            self._spans = [*(_both(earlier[at : at + 2]) for at in range(0, len(earlier), 2)), last]

    def end_before(self, first: int | None) -> None:
        """Forget what is before the first row that is there; None if no row is."""
        if first is None:
            # Whatever comes is accepted under the last state.
            last = self._spans[-1]
            self._spans = [StateSpan(0, last.oldest if last.newest == ANY_STATE else last.newest, last.newest)]
            return
        if len(self._spans) == 1:
            return
        starts = [each.start for each in self._spans]
        gone = int(np.searchsorted(starts, first, "right")) - 1
        if gone > 0:
            self._spans = [self._spans[gone]._replace(start=0), *self._spans[gone + 1 :]]

    def divide(self, places: Rows) -> Iterator[tuple[slice, StateSpan]]:
        """Return the parts of ascending places that lie in one span, each with its span."""
        if len(self._spans) == 1:
            yield slice(0, len(places)), self._spans[0]
            return
        starts = np.array([each.start for each in self._spans])
        which = np.searchsorted(starts, places, "right") - 1
        bounds = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(places)]
        for first, end in pairwise(bounds):
            yield slice(first, end), self._spans[int(which[first])]


def _both(spans: list[StateSpan]) -> StateSpan:
    return StateSpan(spans[0].start, min(each.oldest for each in spans), max(each.newest for each in spans))
