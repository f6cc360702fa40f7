"""The record of a running broker: its recorder, the trail it writes, and the answers it gives about messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from postroad.config import ConfigError
from postroad.errors import PostroadError
from postroad.messages import MessageId, check_alias
from postroad.recording.disk import DiskThread, hanging, is_done
from postroad.recording.journal import JournalWriter
from postroad.recording.last_run import LastRun
from postroad.recording.lock import DirectoryLock, LockedError
from postroad.recording.recorders import make_recorder
from postroad.recording.recovery import recover
from postroad.recording.shipment import Shipment
from postroad.recording.trail_answers import trail_root
from postroad.recording.writer import RecordWriter
from postroad.tracking import LEFT_OUT, Answer, Gap, TrackingError, merged
from postroad.tracking.journaled_recorder import Journaled
from postroad.tracking.reasons import LATE_MS
from postroad.trail import (
    DAY_MS,
    DEFAULT_GRACE_MS,
    DEFAULT_SKEW_MS,
    DEFAULT_TOLERANCE_MS,
    Backlog,
    GapReason,
    Journal,
    Trail,
    TrailError,
    TrailWriter,
    expire,
    lock_path,
    sweep,
    sweep_leftovers,
)
from postroad.trail.coverage import FOREVER, GIVEN_UP
from postroad.trail.locations import location
from postroad.trail.shipper import Shipper

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.config import BrokerConfig
    from postroad.tracking import Findings, TrackingRecorder

__all__ = ["LiveRecord", "make_record"]

log = logging.getLogger("postroad.tracking")

# What a recorder holds at the moment; the other counts only rise.
_HELD = {name: f"{name}_now" for name in ("open_histories", "open_entries", "held_bytes", "pending_jobs")}

# How long a search for a foreign id may take. Such an id does not contain a time, so all files with aliases are opened:
# some milliseconds each. `postroad trace --trail` searches without this limit.
ALIAS_SECONDS = 10.0
# Searches that may wait for their turn.
MOST_SEARCHES = 8

# How often the journal is trimmed to what the trail does not have.
UPKEEP_SECONDS = 10.0
# How often old files are looked for: this reads the whole manifest.
EXPIRE_SECONDS = 300.0
# A question about a message waits for the disk no longer, and is answered from memory: reading takes milliseconds, but
# waiting for a large part of the record to be written takes some seconds.
READ_SECONDS = 20.0

Read = TypeVar("Read")
_TRAIL_HELD = (
    "is written to by another broker of the same number ({owner}): both would claim the same part of the record. Stop "
    "that one, or give this one a number of its own (--number) or another trail (tracking.trail)"
)


class LiveRecord:
    """The record of one broker, while it runs.

    Args:
        recorder: takes what the core reports.
        root: the trail.
        broker: this broker.
        clock: the broker's time in ms.
        backlog_bytes: what may wait for a slow or failing disk.
        journal: takes what is reported before receipts are given; None without a journal.
        recover: adds what a crash left in the journal to the trail.
        retention: days and bytes to keep at most, 0 for no bound; None keeps all.
        last_run: the file that names the last run of this broker; None for no file.
        skew_ms: how far the time of an id may be from this broker's clock.
        shipment: ships what is written; None if it stays here.
        keep_local_ms: local copies may have been dropped of messages older than this; None where all stay.
        ages: the time by which records are too old (`age_clock.py`); the clock without.

    Attributes:
        recorder: holds what was reported until it is sealed.
        journal: writes what was reported before receipts are given; None without a journal.
        writer: writes what is sealed to the trail, on a thread of its own.
        searches: searches of the trail for an alias that are under way.
    """

    def __init__(
        self,
        recorder: TrackingRecorder,
        root: Path,
        broker: int,
        clock: Callable[[], int],
        backlog_bytes: int,
        journal: Journal | None = None,
        recover: Callable[[], int] | None = None,
        retention: tuple[int, int] | None = None,
        last_run: Path | None = None,
        skew_ms: int = DEFAULT_SKEW_MS,
        shipment: Shipment | None = None,
        keep_local_ms: int | None = None,
        ages: Callable[[], int] | None = None,
    ) -> None:
        self.recorder = recorder
        self._skew_ms = skew_ms
        self._shipment = shipment
        self._keep_local_ms = keep_local_ms
        self._root = root
        self._broker = broker
        self._clock = clock
        self._ages = ages or clock
        self._lock = DirectoryLock(lock_path(root, broker), broker, f"{root} {_TRAIL_HELD}")
        self._last_run = LastRun(last_run)
        self._backlog = Backlog(self._open_writer, backlog_bytes, self._claim)
        self.journal = journaled = None if journal is None else JournalWriter(journal, clock)
        self.writer = RecordWriter(
            recorder,
            self._backlog,
            clock,
            None if journaled is None else journaled.kept,
            2 * backlog_bytes,
            int if journaled is None else lambda: journaled.journal.position,
        )
        self._recover = recover
        self._retention = retention
        # A separate thread: searches do not delay writing.
        self._searching = DiskThread("postroad-aliases")
        self.searches = 0
        self._expires_at = 0
        self._upkeep: asyncio.Task[None] | None = None

    @property
    def waits(self) -> bool:
        """Whether all receipts have to wait until the record is safe: with a journal."""
        return self.journal is not None

    def when_safe(self, action: Callable[[bool], None], *, in_trail: bool = False) -> None:
        """Call this with True once all that was recorded so far would survive a crash, with False if it would not.

        Without a journal, and with `in_trail`, that is when it is in the trail, which is written soon.
        """
        if self.journal is not None and not in_trail:
            self.journal.when_safe(action)
        else:
            self.writer.when_written(action)

    async def start(self) -> None:
        """Add what a crash left in the journal to the trail, and begin to write.

        Raises:
            LockedError: another broker writes to this trail under the same number.
        """
        # A disk that takes nothing does not keep the broker from starting: the lock is tried again with each commit.
        with contextlib.suppress(OSError):
            await self.writer.in_thread(self._lock.claim)
        recovered = self._recover is not None and await self.writer.in_thread(self._recovered)
        await self.writer.start()
        if self.journal is not None:
            if recovered:
                self.journal.journal.forget_earlier()
            self.journal.start()
        self._upkeep = asyncio.create_task(self._keep_up())
        if self._shipment is not None:
            self._shipment.start()
        self._searching.do(self._sweep_leftovers)

    async def tell(self, admin: str, persist_seconds: float) -> None:
        """Let readers of the trail know where this broker can be asked, and how often it writes (`lock_owner.py`)."""
        await self.writer.in_thread(lambda: self._lock.tell(admin, persist_seconds))

    def _open_writer(self, now: int) -> TrailWriter:
        writer = TrailWriter(self._root, self._broker, now, earlier=self._last_run.read())
        self._last_run.keep(writer.run)
        return writer

    def _claim(self) -> None:
        """Make sure that no other broker writes under this number, also after the trail was moved or replaced."""
        try:
            self._lock.claim()
        except LockedError as error:
            raise TrailError(str(error)) from error

    def _sweep_leftovers(self) -> None:
        """Delete the files that a crash left half done; on a thread where nothing waits for it."""
        run = self._backlog.run
        try:
            gone = 0 if run is None else sweep_leftovers(self._root, self._broker, run.number)
        except (PostroadError, OSError) as error:
            log.warning("leftovers of a crash not looked for", extra={"reason": str(error)})
            return
        if gone:
            log.info("deleted what a crash left unfinished", extra={"files": gone})

    def _recovered(self) -> bool:
        assert self._recover is not None
        try:
            entries = self._recover()
        except (PostroadError, OSError) as error:
            log.error("journal not recovered; it is kept for the next start", extra={"reason": str(error)})
            return False
        if entries:
            log.warning("recovered from the journal", extra={"entries": entries})
        return True

    async def stop(self, is_whole: bool = True) -> None:
        """Write all there is; unless that is the whole record, readers take this run for one that crashed."""
        if self._upkeep is not None:
            self._upkeep.cancel()
        await self.writer.stop(is_whole)
        if self.journal is not None:
            await self.journal.stop()
        if self._shipment is not None:
            await self._shipment.stop()
        self._lock.release()
        self._searching.end()

    @property
    def trouble(self) -> str:
        """What keeps the record from being written; empty while all is well."""
        journal = "" if self.journal is None else self.journal.trouble
        return self.writer.trouble or (f"journal: {journal}" if journal else "")

    @property
    def ship_trouble(self) -> str:
        """What keeps the record from being shipped; empty while all is well, or where it is not to be shipped.

        The record itself is as safe as before, and receipts say so.
        """
        return "" if self._shipment is None else self._shipment.trouble

    async def _keep_up(self) -> None:
        """Called periodically: delete journal that the trail has, and trail beyond its retention."""
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            try:
                # Another run has begun where the trail was moved under this one.
                await self.writer.in_thread(lambda: self._last_run.keep(self._backlog.run))
                if self.journal is not None:
                    await self.journal.release()
                if self._retention is not None and self._clock() >= self._expires_at:
                    self._expires_at = self._clock() + int(EXPIRE_SECONDS * 1_000)
                    await self.writer.in_thread(self.expire)
            except (PostroadError, OSError) as error:
                log.warning("trail not tidied", extra={"reason": str(error)})

    def expire(self) -> None:
        """Delete records that are older, or more, than the settings let stay; blocks, so it runs on a thread."""
        assert self._retention is not None
        days, size = self._retention
        now = self._clock()
        # What the clock has jumped ahead makes nothing older.
        behind = max(0, now - self._ages())
        expired = expire(self._root, self._broker, now, days * DAY_MS + behind if days else None, size or None)
        if expired.files:
            log.info("old records deleted", extra={"files": expired.files, "bytes": expired.bytes})
        sweep(self._root, self._broker, now, DEFAULT_GRACE_MS + behind)

    def statistics(self) -> dict[str, Any]:
        """Counts of the recorder and of the writing."""
        held = {_HELD.get(name, name): count for name, count in self.recorder.statistics()._asdict().items()}
        held["aliases_left_out"] = self.recorder.chronicle.aliases_left_out
        counts = held | self._backlog.statistics()._asdict()
        counts["degraded_now"] = bool(self.trouble)
        if self.journal is not None:
            journal = self.journal.journal.statistics()
            counts |= {f"journal_{name}": count for name, count in journal._asdict().items()}
        if self._shipment is not None:
            counts |= self._shipment.statistics()
        return counts

    async def answer(self, message: MessageId) -> Answer:
        """All that this broker knows about a message, written or not."""
        # The open record first: what is written in the meantime is then seen twice, and never missed.
        now, released_through = self._clock(), self.writer.released_through
        open_now = self.recorder.findings(message, now)
        named = self.recorder.chronicle.named(_subscriptions_in(open_now))
        publisher = self.recorder.chronicle.publisher(message.publisher) if message.broker == self._broker else None
        in_memory = Answer(open_now, publisher, named)
        gap = Gap(message.time, message.time + 1, hanging(READ_SECONDS))
        unread = in_memory._replace(findings=open_now._replace(gaps=(*open_now.gaps, gap)))
        # A store may take long to respond; a question to it must not delay writing.
        is_far = self._keep_local_ms is not None and message.time < now - self._keep_local_ms
        return await self._read(lambda: self._answered(message, in_memory, now, released_through), unread, is_far)

    async def aliased(self, alias: str) -> tuple[list[MessageId], list[str]]:
        """The messages with a foreign id that entered here, or are written on this broker's trail; oldest first.

        Where there are none, also why there may be some anyway.

        Raises:
            AliasError: such a foreign id is never recorded.
            TrailError: the trail cannot be read, or not in the time there is.
        """
        check_alias(alias)
        in_memory = [MessageId.of(head, tail) for head, tail in self.recorder.chronicle.ids_of(alias)]
        if self.searches >= MOST_SEARCHES:
            raise TrailError(f"{MOST_SEARCHES} search for aliases already; ask again in a moment")
        self.searches += 1
        search = self._searching.do(lambda: self._aliased_on_disk(alias))
        search.add_done_callback(self._searched)
        if not await is_done(search, ALIAS_SECONDS):
            raise TrailError(
                f"{self._root} could not be searched for {alias!r} within {ALIAS_SECONDS:g} seconds; "
                "read it with: postroad trace --trail"
            )
        written, hidden = search.result()
        if self.recorder.chronicle.ids_of(LEFT_OUT):
            hidden = [*hidden, f"broker {self._broker}: {GapReason.LEFT_OUT}"]
        found = sorted({*written, *in_memory}, key=lambda one: (one.time, bytes(one)))
        return found, [] if found else hidden

    async def _read(self, work: Callable[[], Read], unread: Read, is_far: bool = False) -> Read:
        """Read something from the disk, or from a store that is far; where it does not answer, `unread`."""
        if is_far:
            reading = asyncio.ensure_future(self._searching.do(work))
        else:
            reading = asyncio.ensure_future(self.writer.in_thread(work))
        if await is_done(reading, READ_SECONDS):
            return reading.result()
        reading.cancel()
        log.warning("trail not read", extra={"reason": hanging(READ_SECONDS)})
        return unread

    def _aliased_on_disk(self, alias: str) -> tuple[list[MessageId], list[str]]:
        if not self._root.is_dir():
            return [], [f"{self._root} is not there"]
        try:
            trail = Trail(self._root)
            found = trail.aliased(alias)
            # What this broker has not written yet was looked at.
            mine = f"broker {self._broker}: {GapReason.NOT_YET_WRITTEN}"
            return found, [] if found else [reason for reason in trail.may_hide() if reason != mine]
        except OSError as error:
            raise TrailError(f"{self._root} cannot be read: {error}") from error

    def _searched(self, search: asyncio.Future[tuple[list[MessageId], list[str]]]) -> None:
        self.searches -= 1
        # Nobody may wait any longer for what went wrong.
        search.exception()

    def _answered(self, message: MessageId, in_memory: Answer, now: int, released_through: int) -> Answer:
        """What the recorder says together with what is written; on the thread that writes."""
        skew = self._skew_ms
        since, until = message.time - skew, message.time + DEFAULT_TOLERANCE_MS + skew
        holes = [Gap(hole.since, hole.until, hole.reason) for hole in self._backlog.holes]
        findings, publisher = in_memory.findings, in_memory.publisher
        named = {one.number: one for one in in_memory.subscriptions}
        try:
            trail = Trail(self._root)
            holes += self._gone(trail)
            run = self._backlog.run
            # What the recorder has released it can tell nothing of: where the trail lacks it, it was given up.
            if run is not None and run.through < released_through:
                holes.append(Gap(run.through, released_through + 1, GIVEN_UP))
            living = None if run is None else msgspec.structs.replace(run, through=max(now, run.through))
            written = trail.findings(self._broker, message, skew=skew, living=living)
            findings = merged(findings, written)
            # A name is written long before its messages.
            unknown = _subscriptions_in(findings) - named.keys()
            named |= {one.number: one for one in trail.named_subscriptions(self._broker, unknown, since, until)}
            if publisher is None and message.broker == self._broker and findings.accepted is not None:
                publisher = trail.publisher(self._broker, message.publisher)
        except (TrailError, OSError) as error:
            holes.append(Gap(message.time, message.time + 1, f"the trail cannot be read: {error}"))
        hiding = {gap for gap in holes if gap.since < until and gap.until > since}
        for gap in findings.gaps:
            hiding |= {gap} if gap.since < now else set(_to_come(gap, findings, message, now + skew))
        known = tuple(named[number] for number in sorted(named))
        ends = tuple(gap for gap in findings.ends if gap.since < now) + _under_way(findings, message, now)
        return Answer(findings._replace(gaps=tuple(sorted(hiding)), ends=ends), publisher, known)

    def _gone(self, trail: Trail) -> list[Gap]:
        """What is missing in a trail that was moved, deleted or replaced, and no commit has noticed yet."""
        run = self._backlog.run
        if run is None or any(
            (one.number, one.since) == (run.number, run.since) and one.through >= run.through
            for one in trail.pinned(self._broker).runs
        ):
            return []
        return [Gap(0, run.through + 1, GapReason.GONE)]


def _subscriptions_in(findings: Findings) -> set[int]:
    numbers = {hit.number for hits in (findings.delivered, findings.queued) for hit in hits}
    return numbers | {drop.subscription for drop in findings.dropped if drop.subscription}


def _to_come(gap: Gap, findings: Findings, message: MessageId, latest: int) -> list[Gap]:
    """What the times after now may bring, given that the recorder was asked about all before.

    No id that was given so far has a time after `latest`.
    """
    if message.time > latest:
        # No message has this id yet, but one may get it.
        return [gap]
    if message.broker == findings.broker or findings.arrived is not None:
        return []
    return [gap._replace(reason=GapReason.ON_ITS_WAY)]


def _under_way(findings: Findings, message: MessageId, now: int) -> tuple[Gap, ...]:
    """Why a broker that got a message from here after it had waited may not have it yet.

    Its own record would be complete for the time around the id.
    """
    if not findings.relayed_to or not findings.waited or findings.waits:
        return ()
    if findings.accepted is None and not findings.dropped:
        # It came from another broker, where it may have waited for hours, and nothing says when it went on from here.
        return (Gap(now, FOREVER, GapReason.SENT_LATELY),)
    # When it went on at last; a delivery from a queue is recorded with its time only after a longer wait than this.
    latest = max([message.time + LATE_MS, *(drop.at for drop in findings.dropped)])
    return (Gap(now, FOREVER, GapReason.SENT_LATELY),) if now < latest + DEFAULT_TOLERANCE_MS + DEFAULT_SKEW_MS else ()


def make_record(
    config: BrokerConfig, clock: Callable[[], int], ages: Callable[[], int] | None = None
) -> LiveRecord | None:
    """The record that the settings ask for; None for none.

    Raises:
        ConfigError: settings contradict each other.
    """
    settings = config.tracking
    try:
        recorder = make_recorder(config, clock())
    except TrackingError as error:
        raise ConfigError(f"tracking: {error}") from error
    if recorder is None:
        return None
    root = trail_root(config)
    keep_local_ms = settings.keep_local_days * DAY_MS if settings.ship and settings.keep_local_days else None
    journal = Journal(root, config.number) if settings.journal else None
    return LiveRecord(
        recorder if journal is None else Journaled(recorder, journal.append),
        root,
        config.number,
        clock,
        settings.memory_bytes,
        journal=journal,
        recover=None if journal is None else lambda: recover(root, config.number, lambda now: _fresh(config, now)),
        retention=(settings.keep_days, settings.keep_bytes) if settings.keep_days or settings.keep_bytes else None,
        last_run=Path(config.data) / f"last-run-{config.number}.json",
        # The clock of the broker or client that gave the id, against that of this broker.
        skew_ms=settings.broker_skew_ms + settings.skew_tolerance_ms,
        shipment=_shipment(config, root, ages or clock, keep_local_ms),
        keep_local_ms=keep_local_ms,
        ages=ages,
    )


def _shipment(config: BrokerConfig, root: Path, clock: Callable[[], int], keep_local_ms: int | None) -> Shipment | None:
    settings = config.tracking
    if settings.ship is None:
        return None
    try:
        to = location(settings.ship)
    except TrailError as error:
        raise ConfigError(f"tracking.ship: {error}") from error
    if isinstance(to, Path) and to.absolute() == root.absolute():
        raise ConfigError(f"tracking.ship: {to} is the trail itself; name another place")
    return Shipment(Shipper(root, config.number, to, settings.ship_bytes_per_second, keep_local_ms), clock)


def _fresh(config: BrokerConfig, now: int) -> TrackingRecorder:
    recorder = make_recorder(config, now)
    assert recorder is not None
    return recorder
