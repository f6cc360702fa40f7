"""What the driver has to do after a call into the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.broker.consignments import Consignment
    from postroad.broker.sessions import Subscription
    from postroad.messages import Batch
    from postroad.routing import Destinations, Frame

__all__ = ["Delivery", "LinkRefusal", "Outbox", "Sending"]


class Delivery(NamedTuple):
    """Rows to write to the connection of a subscription's session, now and in this order."""

    subscription: Subscription
    batch: Batch
    rows: NDArray[np.int64]


class Sending(NamedTuple):
    """Rows to send over the link to a neighbour, with their destinations.

    Attributes:
        link: the neighbour.
        batch: where the rows are.
        rows: which ones.
        destinations: of each of them.
        publisher: the session that published them here; 0 for rows that arrived over a link.
        consignment: the one they arrived in, under custody; it is held once for this.
        returned: another link gave them back.
    """

    link: int
    batch: Batch
    rows: NDArray[np.int64]
    destinations: Destinations
    publisher: int = 0
    consignment: Consignment | None = None
    returned: bool = False


class LinkRefusal(NamedTuple):
    """Something that a neighbour sent was refused.

    Attributes:
        link: the neighbour.
        reason: what was wrong, in words.
        grave: an honest neighbour would not have sent it: close the link.
    """

    link: int
    reason: str
    grave: bool


class Outbox:
    """Filled by one call into the core; the driver carries it out before the next call.

    Attributes:
        deliveries: what to write, in order; several may go to one session.
        pauses: sessions to stop reading from, because a queue they publish to is full.
        resumes: sessions to read from again.
        stops: durable subscriptions that are over their limit; the core stops them before it returns the outbox.
        closes: sessions to close, each with the reason for its client.
        refused: how many rows of a received batch the policy refused.
        unstorable: why a received batch was refused as a whole: some of it has to be stored, and the store has no room
            now; empty if it was not refused.
        parcels: what to send over links to other brokers, in order.
        frames: control frames to send over links, in order; before the parcels.
        connects: brokers to keep a link with from now on, beyond those of the plan.
        disconnects: brokers whose extra link is no longer needed.
        refusals: what neighbours sent that is not believed.
        written: about how many bytes go to each session that gets many.
        given: about how many bytes go to all sessions and their queues together, counted once they may be very many.
        searched: about how many nanoseconds the search for rows of queues took.
    """

    __slots__ = (
        "_largest",
        "_measured",
        "_total",
        "closes",
        "connects",
        "deliveries",
        "disconnects",
        "frames",
        "given",
        "parcels",
        "pauses",
        "refusals",
        "refused",
        "resumes",
        "searched",
        "stops",
        "unstorable",
        "written",
    )

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.pauses: list[int] = []
        self.resumes: list[int] = []
        self.stops: list[Subscription] = []
        self.closes: list[tuple[int, str]] = []
        self.refused = self.searched = self.given = 0
        self.unstorable = ""
        self.written: dict[int, int] = {}
        self._measured: Batch | None = None
        self._largest = self._total = 0
        self.parcels: list[Sending] = []
        self.frames: list[tuple[int, Frame]] = []
        self.connects: list[int] = []
        self.disconnects: list[int] = []
        self.refusals: list[LinkRefusal] = []

    def size_of(self, subscription: Subscription, batch: Batch, count: int) -> int:
        """Return about how many bytes so many rows of a batch are for a subscription: each names it.

        It remembers the last batch.
        """
        if self._measured is not batch:
            self._measured = batch
            # Part by part: rows may share a topic, which lies before all of them.
            sizes = (batch.spans[:, 1::2] - batch.spans[:, ::2]).sum(axis=1)
            self._largest, self._total = int(sizes.max()), int(sizes.sum())
        return min(count * self._largest, self._total) + count * len(subscription.key)

    def count_given(self, first: int) -> None:
        """Count the bytes of the deliveries from one on, at most."""
        self.given += sum(delivery.batch.buffer.nbytes for delivery in self.deliveries[first:])

    def add(self, other: Outbox) -> None:
        """Append what another call has filled."""
        self.deliveries += other.deliveries
        self.pauses += other.pauses
        self.resumes += other.resumes
        self.closes += other.closes
        self.parcels += other.parcels
        self.frames += other.frames
        self.connects += other.connects
        self.disconnects += other.disconnects
        self.refusals += other.refusals
        self.searched += other.searched

    @property
    def concerns_links(self) -> bool:
        """Return whether there is anything to do besides clients' connections."""
        return bool(self.parcels or self.frames or self.connects or self.disconnects or self.refusals)

    def __bool__(self) -> bool:
        return bool(self.deliveries or self.pauses or self.resumes or self.closes or self.concerns_links)
