"""What the connections of one broker share: the core, the clock, and carrying out what the core says."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from postroad.broker import Outbox
from postroad.protocols.stomp import render_messages, render_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Broker, Delivery
    from postroad.messages import Batch
    from postroad.messages.columns import Bytes
    from postroad.protocols.stomp import Rendered, Version
    from postroad.recording import Sampler

__all__ = ["Reader", "Station", "steady_clock", "wall_clock"]

log = logging.getLogger("postroad.server")


def wall_clock() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def steady_clock() -> int:
    """Milliseconds since some moment; never set back or forward, so good for heart-beats."""
    return time.monotonic_ns() // 1_000_000


class Reader(Protocol):
    """One connection, as the station sees it."""

    @property
    def version(self) -> Version:
        """The version of STOMP that its client speaks."""

    def prefix(self, subscription: int) -> tuple[bytes, int | None]:
        """How its MESSAGE frames begin for a subscription, and the number for the `ack` header, if it has one."""

    def write(self, data: Bytes) -> None:
        """Hand bytes to the socket."""

    def pause_reading(self) -> None:
        """Read no more for now."""

    def resume_reading(self) -> None:
        """Read again."""

    def refuse(self, reason: str) -> None:
        """Tell the client why, and close."""

    def broke(self, error: Exception) -> None:
        """Writing to it failed in a way that only a defect explains: close it."""


class Sender(Protocol):
    """The links to other brokers, as the station sees them."""

    def send(self, outbox: Outbox) -> None:
        """Send the control frames and parcels of an outbox, and dial or hang up as it says."""


class Safekeeping(Protocol):
    """The record, as whoever gives receipts sees it."""

    @property
    def trouble(self) -> str:
        """What keeps the record from being written; empty while all is well."""

    @property
    def waits(self) -> bool:
        """Whether receipts have to wait until the record is safe."""

    def when_safe(self, action: Callable[[bool], None]) -> None:
        """Call this with True once all that was recorded so far would survive a crash, with False if it would not."""


class Station:
    """The core and its connections.

    Args:
        core: decides everything.
        clock: the time in milliseconds since 1970, UTC.
        timer: milliseconds that only go forward.

    Attributes:
        when_queued: called after a batch while messages wait for subscribers.
        soon: has something called after everybody else had a turn; needed where the core works in turns.
    """

    def __init__(
        self, core: Broker, clock: Callable[[], int] = wall_clock, timer: Callable[[], int] = steady_clock
    ) -> None:
        self.core = core
        self.clock = clock
        self.timer = timer
        self.links: Sender | None = None
        self.sampler: Sampler | None = None
        self.tracking: Safekeeping | None = None
        self.when_queued: Callable[[], None] | None = None
        self.soon: Callable[[Callable[[], None]], object] | None = None
        self._readers: dict[int, Reader] = {}
        self._turn_is_due = False

    def join(self, session: int, reader: Reader) -> None:
        """A connection speaks for a session from now on."""
        self._readers[session] = reader

    def leave(self, session: int) -> None:
        """The connection of a session is gone."""
        self._readers.pop(session, None)

    def carry_out(self, outbox: Outbox) -> None:
        """Write, pause, resume and close as the core said. Each connection gets one write."""
        if outbox.deliveries:
            self._write(outbox.deliveries)
        if self.links is not None and outbox.concerns_links:
            self.links.send(outbox)
        for session in outbox.pauses:
            if reader := self._readers.get(session):
                reader.pause_reading()
        for session in outbox.resumes:
            if reader := self._readers.get(session):
                reader.resume_reading()
        for session, reason in outbox.closes:
            if reader := self._readers.get(session):
                reader.refuse(reason)
        if self.when_queued is not None and self.core.waiting.bytes:
            self.when_queued()
        if self.core.unfinished and self.soon is not None and not self._turn_is_due:
            self._turn_is_due = True
            self.soon(self._take_turn)

    def _take_turn(self) -> None:
        """Go on with what was too much work at once."""
        self._turn_is_due = False
        try:
            outbox = self.core.proceed(self.clock())
        except Exception as error:
            # A defect of ours, at work that nobody waits for: what it was at is lost, the rest goes on.
            log.error("internal error", exc_info=error)
            outbox = Outbox()
        self.carry_out(outbox)

    def finish(self) -> None:
        """Do all that waits for a turn, now: the broker stops."""
        while self.core.unfinished:
            self.carry_out(self.core.proceed(self.clock()))

    def _write(self, deliveries: list[Delivery]) -> None:
        if len(deliveries) == 1:
            self._write_one(deliveries[0])
            return
        pieces: dict[int, list[Bytes]] = {}
        rendering = _Rendering(deliveries, self._readers)
        for delivery in deliveries:
            session = delivery.subscription.session.number
            reader = self._readers.get(session)
            if reader is None:
                continue
            prefix, number = reader.prefix(delivery.subscription.number)
            rendered = rendering.of(delivery.batch, reader.version)
            pieces.setdefault(session, []).append(rendered.for_subscription(prefix, delivery.rows, number))
        for session, parts in pieces.items():
            # One joined buffer costs a third of the processor time of many small writes.
            if reader := self._readers.get(session):
                _hand(reader, parts[0] if len(parts) == 1 else np.concatenate(parts))

    def _write_one(self, delivery: Delivery) -> None:
        reader = self._readers.get(delivery.subscription.session.number)
        if reader is not None:
            prefix, number = reader.prefix(delivery.subscription.number)
            _hand(reader, render_messages(delivery.batch, delivery.rows, reader.version, prefix, number))


def _hand(reader: Reader, data: Bytes) -> None:
    try:
        reader.write(data)
    except Exception as error:
        # The publisher whose batch this is has done nothing wrong.
        reader.broke(error)


class _Rendering:
    """The part of MESSAGE frames that subscribers share, written once per batch and version."""

    def __init__(self, deliveries: list[Delivery], readers: dict[int, Reader]) -> None:
        self._deliveries = deliveries
        self._readers = readers
        self._rendered: dict[tuple[int, Version], Rendered] = {}

    def of(self, batch: Batch, version: Version) -> Rendered:
        """The batch's rows that any delivery of this version needs."""
        key = (id(batch), version)
        found = self._rendered.get(key)
        if found is None:
            found = self._rendered[key] = render_rows(batch, self._rows(batch, version), version)
        return found

    def _rows(self, batch: Batch, version: Version) -> np.ndarray:
        wanted = [
            delivery.rows
            for delivery in self._deliveries
            if delivery.batch is batch
            and (reader := self._readers.get(delivery.subscription.session.number)) is not None
            and reader.version is version
        ]
        if len(wanted) == 1 or any(len(rows) == len(batch) for rows in wanted):
            return max(wanted, key=len)
        mask = np.zeros(len(batch), np.bool_)
        for rows in wanted:
            mask[rows] = True
        return np.flatnonzero(mask)
