"""What the sessions of one broker share: the core, the clock, and the dispatch of its outboxes."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from postroad.broker import Outbox
from postroad.sessions.shared_bytes import SHARED_BATCH_BYTES, is_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroad.broker import Broker, Delivery, IdAdmission, Session
    from postroad.messages import Batch
    from postroad.messages.columns import Bytes
    from postroad.sessions.contract import (
        BatchTimer,
        ClientSession,
        OutboxSender,
        RecordSafety,
        Renderer,
        StoreSafety,
    )
    from postroad.sessions.shared_bytes import SharedBytes

__all__ = ["Dispatcher", "steady_clock", "wall_clock"]

log = logging.getLogger("postroad.server")

# Large messages whose renderings are kept until all who get them have had their turn. Each may have 16 MiB.
LARGE_RENDERINGS = 4


def wall_clock() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def steady_clock() -> int:
    """Milliseconds since an arbitrary moment; never set, so fit for heart-beats."""
    return time.monotonic_ns() // 1_000_000


class Dispatcher:
    """The core and the sessions of its clients.

    Args:
        core: decides everything.
        clock: the time in milliseconds since 1970, UTC.
        timer: milliseconds that only go forward.

    Attributes:
        when_queued: called after a batch while messages wait for subscribers.
        links: sends to other brokers; None outside a network.
        timing: counts messages and times some reads; None for none.
        record: what receipts wait for; None if nothing is recorded.
        store: what receipts wait for before that; None without a store.
        soon: schedules a call after all other connections had a turn; needed if the core works in turns.
        relieve: called between turns that follow each other at once: closes connections if clients hold too much.
    """

    def __init__(
        self, core: Broker, clock: Callable[[], int] = wall_clock, timer: Callable[[], int] = steady_clock
    ) -> None:
        self.core = core
        self.clock = clock
        self.timer = timer
        self.links: OutboxSender | None = None
        self.timing: BatchTimer | None = None
        self.record: RecordSafety | None = None
        self.store: StoreSafety | None = None
        self.when_queued: Callable[[], None] | None = None
        self.soon: Callable[[Callable[[], None]], object] | None = None
        self.relieve: Callable[[], None] | None = None
        self._sessions: dict[int, ClientSession] = {}
        self._turn_is_due = False
        self._unfinished: list[tuple[Session, Callable[[], None]]] = []
        # Outboxes that wait until the one before them is carried out.
        self._outboxes: deque[Outbox] = deque()
        self._carrying = False
        self._large = _LargeRenderings()

    def join(self, number: int, session: ClientSession) -> None:
        """Add a client's session under its number in the core."""
        self._sessions[number] = session

    def session(self, number: int) -> ClientSession | None:
        """Return the client's session of this number in the core."""
        return self._sessions.get(number)

    def leave(self, number: int) -> None:
        """Remove a session."""
        self._sessions.pop(number, None)

    def carry_out(self, outbox: Outbox) -> None:
        """Write, pause, resume and close as the outbox says. Each connection gets one write.

        Outboxes that result from that, because a link is full or a client is gone, are carried out after this one, not
        within it. All are done when this returns, unless the caller itself runs within `carry_out`.
        """
        if self._carrying:
            self._outboxes.append(outbox)
            return
        self._carrying = True
        try:
            if self._outboxes:
                # A defect ended an earlier call before it had carried out these.
                self._outboxes.append(outbox)
                outbox = self._outboxes.popleft()
            self._carry_out(outbox)
            while self._outboxes:
                self._carry_out(self._outboxes.popleft())
        finally:
            self._carrying = False

    def _carry_out(self, outbox: Outbox) -> None:
        if outbox.deliveries:
            self._write(outbox.deliveries)
        if self.links is not None and outbox.concerns_links:
            self.links.send(outbox)
        peers = self.core.peers
        if peers is not None and peers.has_packets and self.links is not None:
            self.links.send_packets(peers.take_packets(self.clock()))
        for number in outbox.pauses:
            if session := self._sessions.get(number):
                session.pause_reading()
        for number in outbox.resumes:
            if session := self._sessions.get(number):
                session.resume_reading()
        for number, reason in outbox.closes:
            if session := self._sessions.get(number):
                session.refuse(reason)
        if self.when_queued is not None and self.core.waiting.bytes:
            self.when_queued()
        if self._large and not self.core.matching.unfinished:
            # All who get these messages have had their turn.
            self._large.clear()
        if self.soon is not None and self.core.matching.unfinished:
            if not self._turn_is_due:
                self._turn_is_due = True
                self.soon(self._take_turn)
            if self.core.matching.is_overdue:
                if self.relieve is not None:
                    self.relieve()
                self._proceed()

    def publish(
        self, batch: Batch, source: Session, aliases: Sequence[tuple[int, str]] = (), queued: bool = False
    ) -> Outbox:
        """Publish a batch of a client; the core gives the ids.

        Args:
            batch: what the client sent.
            source: its session in the core.
            aliases: rows, and the ids that the client gave them.
            queued: whether some rows may be for queues.
        """
        now = self.clock()
        outbox = self.core.publications.receive(batch, source, now, queued)
        if aliases and self.record is not None:
            self.core.publications.note_aliases(batch, aliases, now)
        self.carry_out(outbox)
        if self.timing is not None:
            self.timing.count(batch, outbox)
        return outbox

    def publish_identified(
        self, batch: Batch, source: Session, together: bool = False, queued: bool = False
    ) -> tuple[Outbox, IdAdmission]:
        """Publish a batch of a client that gives its own ids; with `together`, all of it or nothing."""
        outbox, admission = self.core.receive_identified(batch, source, self.clock(), together, queued)
        self.carry_out(outbox)
        if self.timing is not None:
            self.timing.count(batch, outbox)
        return outbox, admission

    def _take_turn(self) -> None:
        """Continue work that was too much for one turn."""
        self._turn_is_due = False
        self._proceed()
        if self._unfinished:
            self._tell_finished()

    def _proceed(self) -> None:
        outbox = Outbox()
        try:
            self.core.proceed(self.clock(), outbox)
        except Exception as error:
            # A defect of ours, in work that no connection waits for: this piece of it is lost, the rest continues, and
            # what the turn had for clients before counts as delivered.
            log.error("internal error", exc_info=error)
        self.carry_out(outbox)

    def finish(self) -> None:
        """Do all work that waits for a turn now, because the broker stops."""
        while self.core.unfinished:
            self._proceed()
        self._tell_finished()

    def after_turns(self, session: Session, action: Callable[[], None]) -> None:
        """Call `action` once nothing that a session published waits for a turn."""
        self._unfinished.append((session, action))

    def has_turns(self, session: Session) -> bool:
        """Return whether something that a session published waits for a turn, or an action that comes after it."""
        return session.unfinished or any(each is session for each, _ in self._unfinished)

    def _tell_finished(self) -> None:
        waiting, self._unfinished = self._unfinished, []
        for session, action in waiting:
            if session.unfinished:
                self._unfinished.append((session, action))
                continue
            try:
                action()
            except Exception as error:
                # A defect in what one session waited for must not keep others waiting for ever. That one ends: what it
                # waits for next may be the receipt for what has failed.
                if client := self._sessions.get(session.number):
                    client.broke(error)
                else:
                    log.error("internal error", exc_info=error)

    def _write(self, deliveries: list[Delivery]) -> None:
        # A loop, because `any` would make a generator for each read.
        for delivery in deliveries:
            if delivery.batch.buffer.nbytes >= SHARED_BATCH_BYTES and is_shared(delivery.batch):
                self._write_large(deliveries)
                return
        if len(deliveries) == 1:
            delivery = deliveries[0]
            if session := self._sessions.get(delivery.subscription.session.number):
                _write_to(session, session.render(delivery, None))
            return
        pieces: dict[int, list[Bytes]] = {}
        shared = _SharedRenderings(deliveries, self._sessions)
        for delivery in deliveries:
            number = delivery.subscription.session.number
            session = self._sessions.get(number)
            if session is not None:
                prepared = shared.of(delivery.batch, session.renderer)
                pieces.setdefault(number, []).append(session.render(delivery, prepared))
        for number, parts in pieces.items():
            # One joined buffer costs a third of the processor time of many small writes.
            if session := self._sessions.get(number):
                _write_to(session, parts[0] if len(parts) == 1 else np.concatenate(parts))

    def _write_large(self, deliveries: list[Delivery]) -> None:
        """Write deliveries of which some are large: these in pieces that sessions share, one by one."""
        for delivery in deliveries:
            session = self._sessions.get(delivery.subscription.session.number)
            if session is None:
                continue
            if not is_shared(delivery.batch):
                _write_to(session, session.render(delivery, None))
                continue
            for piece in session.pieces(delivery, self._large.of(delivery.batch, session.renderer)):
                _write_to(session, piece.data, piece.shared)


def _write_to(session: ClientSession, data: Bytes, shared: SharedBytes | None = None) -> None:
    try:
        session.write(data, shared)
    except Exception as error:
        # The publisher of the batch is not at fault: only the receiving session ends.
        session.broke(error)


class _SharedRenderings:
    """What sessions with the same renderer share of a batch, prepared once for all of them."""

    def __init__(self, deliveries: list[Delivery], sessions: dict[int, ClientSession]) -> None:
        self._deliveries = deliveries
        self._sessions = sessions
        # Batches and renderers outlive this object, so no other object can get their ids.
        self._prepared: dict[tuple[int, int], object] = {}

    def of(self, batch: Batch, renderer: Renderer) -> object:
        """Return what the renderer makes of the rows that any of its sessions needs."""
        key = (id(batch), id(renderer))
        found = self._prepared.get(key)
        if found is None:
            found = self._prepared[key] = renderer.prepare(batch, self._rows(batch, renderer))
        return found

    def _rows(self, batch: Batch, renderer: Renderer) -> np.ndarray:
        wanted = [
            delivery.rows
            for delivery in self._deliveries
            if delivery.batch is batch
            and (session := self._sessions.get(delivery.subscription.session.number)) is not None
            and session.renderer is renderer
        ]
        if len(wanted) == 1 or any(len(rows) == len(batch) for rows in wanted):
            return max(wanted, key=len)
        mask = np.zeros(len(batch), np.bool_)
        for rows in wanted:
            mask[rows] = True
        return np.flatnonzero(mask)


class _LargeRenderings:
    """Renderings of large messages, kept from turn to turn: a message for many sessions takes many turns."""

    def __init__(self) -> None:
        # With their batches, so that no other object can get their ids.
        self._kept: dict[tuple[int, int], tuple[Batch, object]] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def of(self, batch: Batch, renderer: Renderer) -> object:
        """Return what the renderer makes of all rows."""
        key = (id(batch), id(renderer))
        if key not in self._kept:
            if len(self._kept) >= LARGE_RENDERINGS:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (batch, renderer.prepare(batch, np.arange(len(batch))))
        return self._kept[key][1]

    def clear(self) -> None:
        """Forget all: nothing more is to be written of these batches."""
        self._kept.clear()
