r"""The contracts of tracking: what the core reports to a recorder, and what the recorder seals.

The broker tells the truth as it happens: accepted when a batch has its ids, arrived and relayed at links, delivered
when rows are written to a socket, shed or dropped when they go no further. A recorder decides what to keep. It
seals what is ready as *jobs*. Taking them is cheap and belongs on the event loop; running one is heavy, needs nothing
that the recorder still changes, and belongs on a thread.

```
for job in recorder.due(now):            # on the loop, some times a second
    segments = job.make()                # on a thread
    ...                                  # store them, commit job.through
    recorder.release(job.number)         # on the loop again
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from postroad.messages import Batch, MessageId
    from postroad.messages.columns import Ids
    from postroad.tracking.chronicle import Chronicle
    from postroad.tracking.findings import Findings
    from postroad.tracking.segments import BatchCost, Segment

    Rows = NDArray[np.int32] | NDArray[np.int64]

__all__ = ["Job", "Recorder", "TrackingRecorder", "TrackingStatistics", "event"]

Method = TypeVar("Method", bound="Callable[..., None]")


def event(number: int, negative: int = 0) -> Callable[[Method], Method]:
    """Mark a method of `Recorder` as an event.

    `journaled_recorder.py` derives from the method's parameters how a call is written to the journal and replayed.

    Args:
        number: names the event in journals, for ever.
        negative: names it where the parameter `positive` is false.
    """

    def marked(method: Method) -> Method:
        method.event = (number, negative)  # type: ignore[attr-defined]
        return method

    return marked


class Recorder(Protocol):
    """What the broker reports. Calls come in the order things happened, each with the broker's own time in ms.

    A batch belongs to the broker: a recorder copies what it keeps of it before the call returns.

    A new event is declared here, and kept in `chronicle.py` where all recorders keep it alike; journals and the
    recorder that keeps nothing (which takes over these methods) need no change.
    """

    @event(1)
    def accepted(self, batch: Batch, now: int) -> None:
        """The rows entered the network here, and have their ids."""
        return

    @event(2)
    def arrived(self, batch: Batch, link: int, now: int) -> None:
        """The rows came from a neighbour; after a fault perhaps not for the first time."""
        return

    @event(3)
    def relayed(self, batch: Batch, rows: Rows, link: int, now: int) -> None:
        """The rows were written to the link to a neighbour."""
        return

    @event(4)
    def queued(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        """The rows matched a subscription that cannot take them yet: they wait in its queue."""
        return

    @event(5)
    def delivered(self, batch: Batch, rows: Rows, subscription: int, now: int) -> None:
        """The rows were written to the socket of a subscription."""
        return

    @event(6, negative=7)
    def acknowledged(self, ids: Ids, subscription: int, positive: bool, now: int) -> None:
        """A subscription acknowledged messages (or refused them), given by their ids as batches have them."""
        return

    @event(8)
    def shed(self, batch: Batch, rows: Rows, subscription: int, reason: str, now: int) -> None:
        """The rows were dropped before they reached a subscription."""
        return

    @event(9)
    def dropped(self, batch: Batch, rows: Rows, link: int, reason: str, now: int) -> None:
        """The rows were dropped on their way to other brokers; `link` is 0 or less if no link was the cause.

        Some reasons end nothing (`tracking.reasons`): the rows went another way, or wait for one.
        """
        return

    @event(15)
    def aliased(self, alias: str, head: int, tail: int, now: int) -> None:
        """A message that entered here has a foreign id."""
        return

    @event(10)
    def publishes(self, publisher: int, principal: str, now: int) -> None:
        """A session publishes under a new publisher number."""
        return

    @event(11)
    def subscribed(self, subscription: int, principal: str, topic: str, selector: str, now: int) -> None:
        """A subscription begins; its number is never used for another."""
        return

    @event(12)
    def unsubscribed(self, subscription: int, now: int) -> None:
        """A subscription ends."""
        return

    @event(13)
    def linked(self, link: int, cost: int, now: int) -> None:
        """A link to a neighbour works."""
        return

    @event(14)
    def unlinked(self, link: int, now: int) -> None:
        """A link to a neighbour is gone."""
        return


class Job(NamedTuple):
    """Work that turns a part of the record into what is stored.

    Attributes:
        number: of the job at its recorder, rising by one.
        make: the work, once and on any thread; it shares nothing that changes with the recorder.
        through: all that was reported up to this time (the broker's clock, ms, included) is in this job or
            in earlier ones. It never falls from one job to the next.
        is_part: later jobs say how far the record is complete; this one only adds rows to it.
    """

    number: int
    make: Callable[[], list[Segment]]
    through: int
    is_part: bool = False


class TrackingStatistics(NamedTuple):
    """What a recorder holds and did.

    Attributes:
        recorded: elementary records (accepted, arrived, relayed, delivered, ...) so far.
        open_histories: histories (or blocks) that take records now.
        open_entries: records in them.
        held_bytes: memory of all that is open, or passed to the writer and not released.
        jobs: jobs passed to the writer so far.
        pending_jobs: those not released.
        singles: records of late ids and of ids out of tolerance so far.
        early_seals: how often the memory budget sealed before time or size did.
    """

    recorded: int
    open_histories: int
    open_entries: int
    held_bytes: int
    jobs: int
    pending_jobs: int
    singles: int
    early_seals: int


class TrackingRecorder(Recorder, Protocol):
    """A recorder that keeps something. Nothing here blocks or reads a clock; all calls come from one thread."""

    def timed(self, cost: BatchCost, now: int) -> None:
        """What a sampled batch cost."""

    @property
    def chronicle(self) -> Chronicle:
        """What it keeps exactly, as every recorder does: who was there, what went no further."""

    def due(self, now: int, force: bool = False) -> list[Job]:
        """What is ready to be stored; with `force`, all there is. Jobs are to be stored in this order."""

    def release(self, number: int) -> None:
        """The job's segments are stored (or given up): the recorder forgets what they were made of."""

    def findings(self, identity: MessageId, now: int) -> Findings:
        """What is known about an id from all that is open, or passed to the writer and not released."""

    def statistics(self) -> TrackingStatistics:
        """What it holds and did."""
