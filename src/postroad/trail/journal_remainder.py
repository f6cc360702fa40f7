"""What a journal has beyond the trail: replayed to recorders, run by run.

A journal ends where its broker died. The broker marks the end of a turn of its event loop whenever it forces entries to
disk, so that what was forced to disk has whole turns: a message whose arrival is there has all that was done with it in
that turn. What follows the last mark was under way to the disk, no receipt was given for it, and it is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from postroad.tracking.journaled_recorder import JournalEntryError, retell, segment_begun, told_at, turn_end
from postroad.trail.coverage import LAPSED, SET_BACK_MS, Hole, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from postroad.tracking import TrackingRecorder
    from postroad.trail.journal import SegmentEntries

__all__ = ["Remainder", "remainders"]


class Remainder:
    """What the journal adds to the record of one run.

    Attributes:
        run: as the manifest has it; of a process that could not begin its run, a number below 0 and when it began.
        recorder: has the entries.
        through: with it, the record is complete through this time, except for the holes.
        holes: times for which it is not.
        replayed: how many entries.
    """

    def __init__(self, run: Run, recorder: TrackingRecorder) -> None:
        self.run = run
        self.recorder = recorder
        self.through = run.through
        self.holes: list[Hole] = []
        self.replayed = 0

    def tell(self, entry: bytes, at: int, lapsed: bool) -> None:
        """An entry; `lapsed` says that others are missing before it."""
        retell(entry, self.recorder)
        if lapsed:
            self.holes.append(Hole(min(self.through, at), at + 1, LAPSED))
        self.replayed += 1

    @property
    def extended(self) -> Run:
        """The run, as far as the record goes with this."""
        return msgspec.structs.replace(self.run, through=max(self.through, self.run.through))


def remainders(
    segments: Iterable[SegmentEntries],
    runs: Iterable[Run],
    holes: Iterable[Hole],
    fresh: Callable[[int], TrackingRecorder],
    warnings: list[str],
) -> Iterator[Remainder]:
    """What the journal has of times that the trail has no complete record of, one run after the other.

    Args:
        segments: of the journal, in order.
        runs: of the broker, as the manifest has them.
        holes: times in them for which the record is not complete.
        fresh: makes a recorder that begins at a time.
        warnings: takes what cannot be read, and is left out.
    """
    work = _Retelling(list(runs), tuple(holes), fresh, warnings)
    for segment in segments:
        yield from work.segment(segment)
    yield from work.done()


class _Retelling:
    """Tells entries to recorders, one for each run that lacks some."""

    def __init__(
        self,
        runs: list[Run],
        holes: tuple[Hole, ...],
        fresh: Callable[[int], TrackingRecorder],
        warnings: list[str],
    ) -> None:
        self._runs, self._holes, self._fresh, self._warnings = runs, holes, fresh, warnings
        self._part: Remainder | None = None
        self._finished: list[Remainder] = []
        self._lapsed = False
        self._reached = 0  # the time of the last entry so far

    def segment(self, segment: SegmentEntries) -> Iterator[Remainder]:
        """Tell what a segment has; returns the parts that are finished by then."""
        turn: list[bytes | None] = []
        marked = False
        for entry in segment.entries:
            before = None if entry is None else segment_begun(entry)
            if before is not None:
                self._follows(before)
                continue
            ended = None if entry is None else turn_end(entry)
            if ended is None:
                turn.append(entry)
                continue
            self._tell_all(turn)
            self._whole_before(ended)
            turn, marked = [], True
        if turn and (not marked or not segment.is_torn):
            # Of an earlier version, or damaged: a turn may be cut off here.
            self._tell_all(turn, is_cut=True)
        self._lapsed = self._lapsed or segment.is_torn
        finished, self._finished = self._finished, []
        yield from finished

    def done(self) -> Iterator[Remainder]:
        """The last part."""
        if self._part is not None:
            yield self._part
            self._part = None

    def _follows(self, before: int) -> None:
        """A segment begins: the entries before it, up to a time, are in the trail or were in the segments so far."""
        if self._reached < before and not any(run.since <= before <= run.through for run in self._runs):
            self._lapsed = True

    def _tell_all(self, entries: list[bytes | None], is_cut: bool = False) -> None:
        for entry in entries:
            if entry is None:
                self._lapsed = True
                continue
            try:
                self._tell(entry, is_cut)
            except JournalEntryError as error:
                self._warnings.append(str(error))
                self._lapsed = True

    def _tell(self, entry: bytes, is_cut: bool) -> None:
        at = told_at(entry)
        self._reached = max(self._reached, at)
        if self._is_covered(at):
            self._lapsed = False
            return
        part = self._part_of(at)
        part.tell(entry, at, self._lapsed)
        part.through = max(part.through, at)
        if is_cut:
            part.holes.append(Hole(at, at + 1, LAPSED))
        self._lapsed = False

    def _whole_before(self, now: int) -> None:
        """All that was reported before this time is in the journal."""
        if not self._is_covered(now - 1):
            part = self._part_of(now - 1)
            if self._lapsed:
                part.holes.append(Hole(min(part.through, now), now, LAPSED))
                self._lapsed = False
            # More may have been reported in this same millisecond.
            part.through = max(part.run.through, now - 1)

    def _is_covered(self, at: int) -> bool:
        """Whether the trail surely has what was reported at a time.

        In the first moment of a run its coverage says so before anything is written; and a clock may be set back a
        little without notice. A second report does no harm.
        """
        covered = any(run.since < at <= run.through - SET_BACK_MS for run in self._runs)
        return covered and not any(hole.since <= at < hole.until for hole in self._holes)

    def _part_of(self, at: int) -> Remainder:
        run = max((one for one in self._runs if one.since <= at), key=lambda one: one.since, default=None)
        if run is not None and run.closed and at > run.through:
            # Of a later process, which could not begin its run.
            run = None
        if run is None:
            run = Run(-1 - len(self._runs), at, at)
            self._runs.append(run)
        if self._part is None or self._part.run.number != run.number:
            if self._part is not None:
                self._finished.append(self._part)
            self._part = Remainder(run, self._fresh(min(at, run.through)))
        return self._part
