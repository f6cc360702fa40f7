"""The store of a running broker: commits and reads on threads, informs those who wait, and survives failures."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from postroad.errors import PostroadError
from postroad.recording.disk import DiskThread, is_done
from postroad.server.disk_reserve import MAX_RESERVE_BYTES, DiskReserve, is_full
from postroad.store import FileDisk, Log, StoreReadError, carry_out, recover

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from postroad.broker import Broker, Outbox
    from postroad.recording import AgeClock
    from postroad.store import Disk, DiskCommit, Read, Recovered, StoreSettings

__all__ = ["StoreDriver"]

log = logging.getLogger("postroad.store")

# How often a disk that failed is tried again.
RETRY_SECONDS = 0.5
# How long a receipt waits for a disk that fails or does not respond. Then its client gets an ERROR: it knows that
# the message may be lost, and can send it again elsewhere.
GIVE_UP_SECONDS = 10.0
# How often to check limits by age.
LOOK_SECONDS = 1.0
# How long after the start neighbours may send again what an earlier process had stored: they hold it until there is a
# route, for seconds, or until their own links are back.
RESENT_SECONDS = 600.0
# How long a stopping broker tries to write the end of its store.
STOP_SECONDS = 10.0


class StoreDriver:
    """Drives the log of a broker.

    Args:
        folder: where the segments are.
        settings: how it keeps its promises.
        core: the broker.
        carry_out: carries out what the core says.
        clock: the time in ms.
        ages: the time by which messages are too old.

    Attributes:
        reserve: space that is kept free, for when the disk is full.
    """

    def __init__(
        self,
        folder: Path,
        settings: StoreSettings,
        core: Broker,
        carry_out: Callable[[Outbox], None],
        clock: Callable[[], int],
        ages: AgeClock,
    ) -> None:
        self.disk: Disk = FileDisk(folder)
        self.reserve = DiskReserve(folder, min(settings.segment_bytes, MAX_RESERVE_BYTES))
        self._settings = settings
        self._core = core
        self._carry_out = carry_out
        self._clock = clock
        self._ages = ages
        self._keeping: asyncio.Future[int] | None = None
        self.log: Log | None = None
        # Reads do not wait for a disk that is being forced.
        self._writing, self._reading = DiskThread("postroad-store"), DiskThread("postroad-store-reads")
        self._waiting: deque[tuple[int, Callable[[str], None]]] = deque()
        self._is_due = False
        self._retry: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        # The time in ms for which it is set.
        self._redelivery: asyncio.TimerHandle | None = None
        self._redelivery_due = 0
        self._failing_since: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self._reported = 0
        self._is_full = False

    # --- start and stop ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover what an earlier process left, and continue with it.

        Raises:
            StoreReadError: it cannot be read. Nothing was changed.
        """
        found = await asyncio.to_thread(self._recover)
        await asyncio.to_thread(self.reserve.make)
        self.log = Log(self._settings, found)
        for problem in self._core.open_store(self.log, found.recent, self._clock()):
            log.error("durable subscription not taken up", extra={"reason": problem})
        self._note_room(self.reserve.free_bytes())
        self._tell_recovery(found)
        loop = asyncio.get_running_loop()
        self._loop = loop
        self.log.on_work = self._work
        self._looking = asyncio.create_task(self._look())
        if found.segments:
            self._work()

    def _recover(self) -> Recovered:
        try:
            segments = self.disk.segments()
        except OSError as error:
            raise StoreReadError(
                f"the store cannot be listed ({error.strerror or error}), and was not changed: mend the disk, or the "
                f"owner and mode of {error.filename or 'the folder store'}, and start again"
            ) from error
        return recover(segments, self.disk.read, self.disk.sync)

    def _tell_recovery(self, found: Recovered) -> None:
        self._reported = len(found.notices)
        if found.segments:
            waiting = sum(each.live.size for each in found.cursors)
            fields = {"subscriptions": len(found.cursors), "messages": waiting, "segments": len(found.segments)}
            log.info("store recovered", extra=fields)
        for text in found.notices:
            if found.damaged or found.lost_rows or found.preserved:
                log.error("store damaged", extra={"what": text})
            else:
                log.warning("store cut", extra={"what": text})

    async def stop(self) -> None:
        """Write what is left, in the time that a disk may take."""
        if self.log is None:
            return
        self.log.on_work = None
        if self._looking is not None:
            self._looking.cancel()
        for handle in (self._retry, self._timer, self._redelivery):
            if handle is not None:
                handle.cancel()
        done = await is_done(asyncio.ensure_future(self._finish(self.log)), STOP_SECONDS)
        if not done:
            log.error("store not written", extra={"reason": self.log.trouble or "the disk does not answer"})
        self._writing.end()
        self._reading.end()
        if done and isinstance(self.disk, FileDisk):
            self.disk.close()

    async def _finish(self, store: Log) -> None:
        await self._discard_rest(store)
        while self._writing_now is not None:
            await asyncio.wait({self._writing_now})
            await asyncio.sleep(0)
        while not store.trouble and await self._commit_once(store):
            pass
        if self._core.store is not None:
            # Nothing else is to happen here: the record ends next.
            self._core.store.given_up.proceed(self._clock())
        self._answer()

    async def _commit_once(self, store: Log) -> bool:
        """Carry out one commit; return whether there was something to write."""
        commit = None if self._writing_now is not None else store.take_commit(2**62)
        if commit is None:
            await asyncio.sleep(0.001)
            return False
        try:
            await self._writing.do(lambda: carry_out(commit, self.disk))
        except PostroadError as error:
            store.failed(commit, str(error))
        else:
            store.committed(commit)
        return True

    async def _discard_rest(self, store: Log) -> None:
        """Read the spools of sessions that have ended, so that the record can say what happened to their rows."""
        stored = self._core.store
        while stored is not None and stored.discards and not store.trouble:
            self._core.stored(self._clock())
            reads = store.take_reads()
            if not reads and not stored.discards:
                break
            for read, data in await self._reading.do(lambda reads=reads: self._read(reads)):  # type: ignore[misc]
                store.loaded(read, data)
                self._core.stored(self._clock())
            if not reads:
                # What is not written yet cannot be delivered.
                await self._commit_once(store)

    _writing_now: asyncio.Future[int] | None = None

    # --- what others ask ---------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """Return why the disk takes nothing at the moment; empty while all is well."""
        if self.log is None or self._core.store is None:
            return ""
        if trouble := self.log.trouble or self._core.store.shortage:
            return trouble
        unstored = self._core.store.backlog.messages
        if not unstored:
            return ""
        most = self.log.settings.max_bytes
        return f"it is full (store.max_bytes is {most:,}), and {unstored:,} messages of neighbours wait for room"

    @property
    def leaves_unknown(self) -> bool:
        """Return whether messages were given up, and nobody knows yet whether the disk has that: it failed."""
        return self._core.store is not None and self._core.store.given_up.rows > 0

    @property
    def mark(self) -> int:
        """Return a number that changes whenever something was stored that a receipt has to wait for."""
        return 0 if self.log is None else self.log.touches

    def when_safe(self, action: Callable[[str], None]) -> None:
        """Call this with an empty text once all that was stored so far is safe, or with the reason why it is not."""
        store = self.log
        if store is None:
            action("")
            return
        self._waiting.append((store.position, action))
        self._answer()

    # --- writing -----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin the next commit and reads. By now, all that came in this turn of the loop is collected."""
        self._is_due = False
        store = self.log
        assert store is not None
        if reads := store.take_reads():
            self._reading.do(lambda: self._read(reads)).add_done_callback(self._have_read)
        if self._retry is None:
            commit = store.take_commit(self._clock())
            if commit is not None:
                self._writing_now = self._writing.do(lambda: self._write(commit))
                self._writing_now.add_done_callback(lambda done: self._have_written(commit, done))
            self._set_timer(store)
        if self._core.store is not None and self._core.store.discards:
            self._proceed()
        self._set_redelivery()

    def _write(self, commit: DiskCommit) -> int:
        carry_out(commit, self.disk)
        self.reserve.make()
        return self.reserve.free_bytes()

    def _note_room(self, left: int) -> None:
        """Note what the disk has left, on which depends who may still store something."""
        store = self._core.store
        if store is None:
            return
        store.log.room.disk = left
        if store.shortage and not self._is_full:
            self._is_full = True
            log.error("disk full", extra={"reason": store.shortage})
        elif self._is_full and self.reserve.is_made and store.log.room.is_disk_ample:
            self._is_full = False
            log.warning("disk has room again")

    def _have_written(self, commit: DiskCommit, done: asyncio.Future[int]) -> None:
        store = self.log
        assert store is not None
        self._writing_now = None
        error = done.exception()
        if error is None:
            if self._failing_since is not None:
                log.warning("store written again")
                self._failing_since = None
            store.committed(commit)
            self._note_room(done.result())
        else:
            self._have_failed(store, commit, error)
        self._answer()
        self._proceed()
        if store.has_work or error is None:
            self._work()

    def _have_failed(self, store: Log, commit: DiskCommit, error: BaseException) -> None:
        if self._failing_since is None:
            self._failing_since = self._loop.time()
            log.error("store not written", extra={"reason": str(error)})
        store.failed(commit, str(error))
        if is_full(error):
            self._note_room(0)
        if self.reserve.is_made and is_full(error):
            # The next commit, which waits for this on the same thread, finds room.
            self.reserve.is_made = False
            self._writing.do(self.reserve.release)
        self._retry = self._loop.call_later(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._answer()
        self._work()

    def _set_timer(self, store: Log) -> None:
        due = store.sync_due()
        if due is not None and self._timer is None:
            # No longer than the interval, whatever the clock says by then.
            delay = min(max(0, due - self._clock()), self._settings.interval_ms)
            self._timer = self._loop.call_later(delay / 1_000, self._sync)

    def _sync(self) -> None:
        self._timer = None
        self._work()

    def _answer(self) -> None:
        """Inform those whose rows are safe, or who have waited too long."""
        store = self.log
        assert store is not None
        safe = store.safe
        if store.position <= safe:
            # Everything is written, even if less had to be written than it seemed.
            safe = 2**62
        while self._waiting and self._waiting[0][0] <= safe:
            _tell(self._waiting.popleft()[1], "")
        since = self._failing_since
        if since is not None and self._loop.time() - since > GIVE_UP_SECONDS:
            waiting, self._waiting = self._waiting, deque()
            for _, action in waiting:
                _tell(action, store.trouble)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self, reads: list[Read]) -> list[tuple[Read, bytes | None]]:
        found: list[tuple[Read, bytes | None]] = []
        for read in reads:
            try:
                found.append((read, self.disk.read(read.segment, read.start, read.length)))
            except FileNotFoundError:
                # Somebody has deleted it; nothing brings it back.
                found.append((read, b""))
            except OSError:
                found.append((read, None))
        return found

    def _have_read(self, done: asyncio.Future[list[tuple[Read, bytes | None]]]) -> None:
        store = self.log
        assert store is not None
        found = done.result()
        for read, data in found:
            store.loaded(read, data)
            # One after the other: memory may not hold all of them at once.
            if data is not None:
                self._proceed()
        if any(data is None for _, data in found):
            self._loop.call_later(RETRY_SECONDS, self._proceed)
        for text in store.notices[self._reported :]:
            log.error("store damaged", extra={"what": text})
        self._reported = len(store.notices)

    def _proceed(self) -> None:
        try:
            self._carry_out(self._core.stored(self._clock()))
        except Exception:
            log.exception("internal error", extra={"where": "store"})

    def _set_redelivery(self) -> None:
        """Wake when the time of returned messages has come."""
        due = None if self._core.redeliveries is None else self._core.redeliveries.due()
        if due is None or (self._redelivery is not None and self._redelivery_due <= due):
            return
        if self._redelivery is not None:
            # For messages that are due later than others that returned since.
            self._redelivery.cancel()
        self._redelivery_due = due
        self._redelivery = self._loop.call_later(max(0, due - self._clock()) / 1_000, self._redeliver)

    def _redeliver(self) -> None:
        self._redelivery = None
        try:
            self._carry_out(self._core.redeliver(self._clock()))
        except Exception:
            log.exception("internal error", extra={"where": "store"})
        self._set_redelivery()

    async def _look(self) -> None:
        forget_at = self._loop.time() + RESENT_SECONDS
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._keeping is None or self._keeping.done():
                self._keeping = self._reading.do(self._keep)
                self._keeping.add_done_callback(self._have_kept)
            if not self.reserve.is_made and self._writing_now is None and self._retry is None:
                await self._writing.do(self.reserve.make)
            now = self._ages()
            if self._core.durables is not None:
                self._core.durables.expire(now)
            if self._core.queues is not None:
                self._core.queues.expire(now)
                self._core.retentions.trim(now)
            if self._core.store is not None and self._loop.time() > forget_at:
                self._core.store.forget()

    def _keep(self) -> int:
        self._ages.keep()
        return self.reserve.free_bytes()

    def _have_kept(self, done: asyncio.Future[int]) -> None:
        """Others may have taken room on the disk, or made some."""
        if self.log is None or done.cancelled() or done.exception() is not None:
            return
        was_tight = self.log.room.is_tight
        self._note_room(done.result())
        if was_tight:
            # What other brokers have put may wait for room.
            self._proceed()


def _tell(action: Callable[[str], None], reason: str) -> None:
    try:
        action(reason)
    except Exception:
        # A defect in one connection must not hold back the receipts of others.
        log.exception("internal error", extra={"where": "store"})
