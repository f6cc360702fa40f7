"""A cursor: the stored rows that one durable subscription, queue or spool waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from postroad.store.places import NO_RUNS, RowSet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.store.places import Runs

__all__ = ["NO_CEILING", "Cursor", "Taken"]

# Beyond all places.
NO_CEILING = 2**63 - 1


class Taken(NamedTuple):
    """Rows that a cursor hands out, of one record and in order.

    Attributes:
        places: name the rows; whoever takes them settles them or gives them back.
        batch: where they are; several cursors share it.
        rows: which rows of the batch.
        tried: which of them were, or may have been, handed out before; None for none.
        stored: when they were stored, in ms.
    """

    places: NDArray[np.int64]
    batch: Batch
    rows: NDArray[np.int64]
    tried: NDArray[np.bool_] | None
    stored: int


class Cursor:
    """The rows of one subscription, queue or spool.

    A row is *waiting*, then *in flight*, then settled and forgotten; or it is given back, and waits again in its place.

    Attributes:
        number: never another cursor's, also after a restart.
        terms: what its owner keeps about it.
        durable: it survives a restart; one that does not costs no record but the rows themselves.
        attached: somebody takes rows from it.
        attached_at: the number of the record that says so; rows go out when that is safe.
        waiting: rows that are to be handed out.
        in_flight: rows that were handed out and are neither settled nor given back.
        tried: rows that were, or may have been, handed out before; a superset, cleaned when rows go out again.
        bytes: about how much it waits for or has in flight: rows count with the mean size of their record.
        ceiling: only rows below this place are handed out: rows that were stored before may still join it below.
    """

    __slots__ = (
        "attached",
        "attached_at",
        "bytes",
        "ceiling",
        "durable",
        "in_flight",
        "number",
        "terms",
        "tried",
        "waiting",
    )

    def __init__(
        self, number: int, terms: bytes, durable: bool, waiting: Runs = NO_RUNS, tried: Runs = NO_RUNS
    ) -> None:
        self.number = number
        self.terms = terms
        self.durable = durable
        self.attached = False
        self.attached_at = 0
        self.waiting = RowSet(waiting)
        self.in_flight = RowSet()
        self.tried = RowSet(tried)
        self.bytes = 0
        self.ceiling = NO_CEILING

    @property
    def rows(self) -> int:
        """How many rows it waits for or has in flight."""
        return self.waiting.count + self.in_flight.count
