"""Receipts of one client: sent at once, or once what they confirm is safe; a header says if the record failed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from postroad.protocols import stomp
from postroad.sessions.stomp.refusals import refusal_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Session
    from postroad.messages import Batch
    from postroad.protocols.stomp import Version
    from postroad.protocols.stomp.columns import Columns
    from postroad.sessions.contract import RecordSafety, Transport
    from postroad.sessions.dispatch import Dispatcher

__all__ = ["Receipts"]

# On a RECEIPT: "false" if the message was accepted while its record could not be written.
_UNTRACKED_LINE = b"tracked:false"
# About the memory of a receipt that waits, besides its bytes: the calls that will send it.
WAITING_BYTES = 512
# The end of the header lines of a RECEIPT, and of the frame.
_END = b"\n\n\0"


class Receipts:
    """The receipts of a conversation, sent in the order in which they were asked for.

    Args:
        dispatcher: knows the record and the store.
        send: sends bytes to the client.
        refuse: tells the client that its messages could not be stored, and closes.

    Attributes:
        held_bytes: the memory of receipts that wait for the store, for other brokers or for the record.
    """

    def __init__(
        self, dispatcher: Dispatcher, send: Callable[[bytes | memoryview], None], refuse: Callable[[str], None]
    ) -> None:
        self._dispatcher = dispatcher
        self._send = send
        self._refuse = refuse
        self._mark = 0
        self.held_bytes = 0
        # How many receipts wait for the store, or for rows that may still have to be stored.
        self._waiting = 0
        # Whether the next receipt waits for the record in any case; how many receipts wait for it, and how many of them
        # until it is in the trail: a journal is not read where the trail was shipped to, nor if it is large.
        self._is_far = False
        self._unrecorded = self._untrailed = 0

    def begin(self) -> None:
        """Remember where the store is: `_waits` compares with it."""
        if self._dispatcher.store is not None:
            self._mark = self._dispatcher.store.mark

    def wait_for_record(self) -> None:
        """Let the next receipt wait until what it confirms is on disk in the record, and the following ones with it."""
        self._is_far = True

    def messages(self, batch: Batch, receipts: Columns, source: Session, resent: bool = False) -> None:
        """Confirm the rows that ask for it: `receipts` says where in the buffer the receipt id of each row is, or -1.

        With `resent`, some rows may have been stored before.
        """
        if not (receipts[:, 0] >= 0).any():
            return
        record = self._dispatcher.record
        waits = self._waits(source) or resent
        confirmed = stomp.render_receipts(batch, np.ascontiguousarray(receipts), np.arange(len(batch)))
        if record is not None and record.trouble:
            untracked = _untracked(confirmed.tobytes())
            self._when_stored(lambda: self._send(untracked), waits, source, len(untracked))
        elif not waits and (record is None or not self._waits_for_record(record)):
            self._send(confirmed.data)
        else:
            safe = confirmed.tobytes()
            self._when_stored(lambda: self._when_recorded(safe, lambda: _untracked(safe)), waits, source, len(safe))

    def control(
        self, event: stomp.Event, receipt: bytes, headers: dict[str, str], version: Version, source: Session | None
    ) -> None:
        """Confirm a frame that is not a message."""
        safe = unsafe = stomp.receipt_frame(receipt, version, headers)
        if isinstance(event, stomp.Commit):
            unsafe = _untracked(safe)
        recorded = functools.partial(self._when_recorded, safe, lambda: unsafe)
        self._when_stored(recorded, self._waits(source), source, len(safe))

    def after_all(self, action: Callable[[], None], source: Session | None) -> None:
        """Call `action` once every waiting receipt is sent."""
        self._when_stored(lambda: self._after_record(action), self._waits(source), source)

    def finish(self, transport: Transport, version: Version, source: Session | None) -> None:
        """Write what waits straight to the connection of a session that has ended; close it after the last receipt."""
        if not (self._waiting or self._unrecorded):
            # Also if the disk hangs: most clients that end their sending side are gone.
            transport.close()
            return

        def refuse(reason: str) -> None:
            # Nothing follows an ERROR.
            self._send = self._refuse = _ignore
            transport.write(refusal_frame(reason, version))
            transport.close()

        self._send, self._refuse = transport.write, refuse
        self.after_all(transport.close, source)

    def _after_record(self, action: Callable[[], None]) -> None:
        record = self._dispatcher.record
        if record is not None and self._waits_for_record(record):
            record.when_safe(lambda _: action(), in_trail=self._needs_trail)
        else:
            action()

    def _waits(self, source: Session | None) -> bool:
        """Return whether something was stored, or may have to be, since `begin`; or other receipts wait already."""
        store = self._dispatcher.store
        if store is None:
            return False
        return bool(
            self._waiting
            or store.mark != self._mark
            or (source is not None and (source.unfinished or source.confirmations))
        )

    def _when_stored(self, action: Callable[[], None], waits: bool, source: Session | None, size: int = 0) -> None:
        """Call `action`, which holds so many bytes, once all that was stored so far is safe."""
        store = self._dispatcher.store
        if store is None or not waits:
            action()
            return
        self._waiting += 1
        self.held_bytes += size + WAITING_BYTES

        def stored(reason: str) -> None:
            self._waiting -= 1
            self.held_bytes -= size + WAITING_BYTES
            if reason:
                self._refuse(f"what was sent may not be stored: {reason}")
            else:
                action()

        def stored_here() -> None:
            if source is not None and source.unfinished:
                # Some of what was sent is not matched yet, so it may still have to be stored.
                self._dispatcher.after_turns(source, lambda: store.when_safe(stored))
            else:
                store.when_safe(stored)

        if source is not None and source.confirmations:
            # Another broker stores it. Only then ask for what this one has to store, so that receipts stay in order.
            source.confirmations.when_done(lambda why: stored(why) if why else stored_here())
        else:
            stored_here()

    def _when_recorded(self, safe: bytes, unsafe: Callable[[], bytes]) -> None:
        """Send `safe` once what it confirms is recorded, or `unsafe()` if it will not be."""
        record = self._dispatcher.record
        if record is None or not self._waits_for_record(record):
            self._send(safe)
            return
        in_trail, self._is_far = self._needs_trail, False
        self._unrecorded += 1
        self._untrailed += in_trail
        size = len(safe) + WAITING_BYTES
        self.held_bytes += size

        def recorded(is_safe: bool) -> None:
            self._unrecorded -= 1
            self._untrailed -= in_trail
            self.held_bytes -= size
            self._send(safe if is_safe else unsafe())

        record.when_safe(recorded, in_trail=in_trail)

    @property
    def _needs_trail(self) -> bool:
        """Whether the next receipt waits for the trail: it confirms a late id, or comes after one that does."""
        return self._is_far or self._untrailed > 0

    def _waits_for_record(self, record: RecordSafety) -> bool:
        """Return whether the next receipt waits for the record: all do, or it confirms an id far from its time."""
        return record.waits or self._is_far or self._unrecorded > 0


def _ignore(_: object) -> None:
    """Send nothing."""


def _untracked(receipts: bytes) -> bytes:
    """Add a header to receipts which says that the record of what they confirm could not be written.

    No header line holds a line end, so only the end of a frame is an empty line followed by a NUL.
    """
    return receipts.replace(_END, b"\n" + _UNTRACKED_LINE + _END)
