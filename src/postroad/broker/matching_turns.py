"""Matches batches and passes them on, as far as one turn of the loop goes; the rest continues in later turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.broker.outbox import Outbox
from postroad.broker.row_groups import unmatched
from postroad.broker.turns import MAX_UNFINISHED_BYTES
from postroad.tracking.reasons import Detour

if TYPE_CHECKING:
    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.replays import Replays
    from postroad.broker.turns import Deferred, Turns, Work

__all__ = ["MatchingTurns"]


class MatchingTurns:
    """The work of a broker on incoming batches.

    Args:
        core: the broker.
        deliveries: delivers what sessions are owed.
        turns: what waits for its turn.
    """

    def __init__(self, core: Broker, deliveries: Deliveries, turns: Turns) -> None:
        self._core = core
        self._deliveries = deliveries
        self._turns = turns

    def take_up(self, work: Work, outbox: Outbox, now: int) -> None:
        """Match rows and pass them on, as far as one turn goes; the rest, and all that follows it, waits."""
        # Check an attribute first: with small reads, each call here is noticeable.
        waits = self._turns.messages and self._turns.has(work.origin)
        left, deferred = (len(work.batch), None) if waits else self._advance(work, outbox, now)
        if not left and deferred is None:
            return
        # Record at once: after a crash before their turn, these rows would seem to have arrived and matched nothing, or
        # only those who got them already.
        if left:
            done = len(work.batch) - left
            self._core.recorder.dropped(work.batch, np.arange(done, len(work.batch)), 0, Detour.DEFERRED, now)
            self._turns.push(work, done)
        if deferred is not None:
            self._core.recorder.dropped(deferred.batch, deferred.rows(), 0, Detour.DEFERRED, now)
            self._turns.defer(work, deferred)
        if work.source is not None:
            if not work.source.paused:
                outbox.pauses.append(work.source.number)
            work.source.unfinished = True

    @property
    def is_overdue(self) -> bool:
        """Return whether so much waits that the driver has to call `proceed` before anything else."""
        return self._turns.bytes > MAX_UNFINISHED_BYTES

    @property
    def unfinished(self) -> bool:
        """Return whether `proceed` has something to do."""
        replays, peers = self._core.replaying, self._core.peers
        return (
            bool(self._turns)
            or (replays is not None and bool(replays.runnable) and replays.is_ready)
            or (peers is not None and peers.receptions.has_unmatched)
        )

    def proceed(self, now: int, outbox: Outbox | None = None) -> Outbox:
        """Do one more turn of what was too much work before.

        Whatever is raised is a defect of ours. What the turn has for clients until then is in the outbox that was
        given, and has to be carried out: it counts as delivered.
        """
        outbox = Outbox() if outbox is None else outbox
        self._core.departures.proceed(outbox, now)
        self._deliveries.pay_owed(outbox, now, self._core.turn_budget)
        self._go_on(outbox, now)
        if self._core.peers is not None:
            self._core.peers.receptions.match(outbox, now)
        if self._core.replaying is not None:
            self._replay(self._core.replaying, outbox, now)
        return outbox

    def _replay(self, replays: Replays, outbox: Outbox, now: int) -> None:
        for subscription in replays.proceed(now):
            self._deliveries.go_on(subscription, outbox, now)
        for subscription, error in replays.failures:
            if subscription.session.number:
                reason = f"the history of the subscription {subscription.key!r} cannot be read: {error}"
                outbox.closes.append((subscription.session.number, reason))
        if replays.failures:
            raise replays.failures[0][1]

    def _go_on(self, outbox: Outbox, now: int) -> None:
        work = self._turns.pull()
        if work is None:
            return
        # Each part of a turn may give as much.
        outbox.given = 0
        left, deferred = self._advance(work, outbox, now)
        done = len(work.batch) - left
        self._record_resumed(work, done, deferred, now)
        if left:
            self._turns.push(work, done, first=True)
        if deferred is not None:
            self._turns.defer(work, deferred)
        if left or (deferred is not None and work.deferred is not None):
            return
        if work.consignment is not None:
            work.consignment.release()
        source = work.source
        if source is not None and not self._turns.has(work.origin):
            source.unfinished = False
            if not source.paused and self._core.session(source.number) is source:
                outbox.resumes.append(source.number)

    def _record_resumed(self, work: Work, done: int, deferred: Deferred | None, now: int) -> None:
        """Record which rows of a work wait no longer."""
        rows = np.arange(done)
        if deferred is not None:
            # Those that somebody gets later wait on.
            rows = rows[:0] if work.deferred is not None else np.setdiff1d(rows, deferred.rows(), assume_unique=True)
        self._core.recorder.dropped(work.batch, rows, 0, Detour.RESUMED, now)

    def _advance(self, work: Work, outbox: Outbox, now: int) -> tuple[int, Deferred | None]:
        """Match the first rows and pass them on; return how many are left, and whom the first go to in a later turn."""
        residents = self._core.residents
        if work.deferred is not None:
            left = residents.deliver_deferred(work.deferred, work.source, outbox, now, work.consignment)
            return 0, left
        core = self._core
        matched = offsets, slots = core.index.match(work.batch, core.turn_budget)
        rest = len(work.batch) - len(offsets) + 1
        part = work.part(0, len(offsets) - 1) if rest else work
        if part.source is None:
            assert core.relay is not None
            return rest, core.relay.deliver(part, matched, outbox, now)
        if core.relay is not None:
            return rest, core.relay.publish(part.batch, matched, part.source, outbox, now)
        core.matched_nobody += unmatched(core.wanted(offsets, slots))
        return rest, residents.deliver(part.batch, offsets, slots, part.source, outbox, now)
