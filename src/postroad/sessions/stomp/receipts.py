"""Receipts of one client: given at once, or once what they confirm is safe; they say so where the record fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.protocols import stomp
from postroad.protocols.stomp.id_headers import MESSAGE_ID_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Session
    from postroad.messages import Batch
    from postroad.protocols.stomp import Version
    from postroad.protocols.stomp.columns import Columns
    from postroad.sessions.dispatch import Dispatcher

__all__ = ["Receipts"]

# On a RECEIPT: "false" when the message was accepted while its record could not be written.
UNTRACKED = {"tracked": "false"}


class Receipts:
    """What a conversation confirms. Receipts are given in the order in which they were asked for.

    Args:
        dispatcher: knows the record and the store.
        send: hands bytes to the client.
        refuse: tells the client that what it waits for could not be stored, and closes.
    """

    def __init__(
        self, dispatcher: Dispatcher, send: Callable[[bytes | memoryview], None], refuse: Callable[[str], None]
    ) -> None:
        self._dispatcher = dispatcher
        self._send = send
        self._refuse = refuse
        self._mark = 0
        # How many wait for the store, or for what has to be stored.
        self._waiting = 0

    def begin(self) -> None:
        """What the client asks for from now on may have to be stored."""
        if self._dispatcher.store is not None:
            self._mark = self._dispatcher.store.mark

    def messages(
        self, batch: Batch, receipts: Columns, version: Version, source: Session, resent: bool = False
    ) -> None:
        """Confirm the rows that ask for it: `receipts` says where in the buffer each row has the text, if it has.

        Some may be `resent`, and stored before.
        """
        if not (receipts[:, 0] >= 0).any():
            return
        record = self._dispatcher.record
        waits = self._waits(source) or resent
        if record is not None and record.trouble:
            untracked = _untracked(batch, receipts, version)
            self._when_stored(lambda: self._send(untracked), waits, source)
            return
        confirmed = stomp.render_receipts(batch, np.ascontiguousarray(receipts), np.arange(len(batch)))
        if not waits and (record is None or not record.waits):
            self._send(confirmed.data)
        else:
            safe, unsafe = confirmed.tobytes(), _untracked(batch, receipts, version)
            self._when_stored(lambda: self._when_recorded(safe, unsafe), waits, source)

    def control(
        self, event: stomp.Event, receipt: bytes, headers: dict[str, str], version: Version, source: Session | None
    ) -> None:
        """Confirm a frame that is not a message."""
        untracked = {**headers, **UNTRACKED} if isinstance(event, stomp.Commit) else headers
        safe, unsafe = (stomp.receipt_frame(receipt, version, each) for each in (headers, untracked))
        self._when_stored(lambda: self._when_recorded(safe, unsafe), self._waits(source), source)

    def after_all(self, action: Callable[[], None], source: Session | None) -> None:
        """Do something once every receipt that waits is given."""
        self._when_stored(lambda: self._after_record(action), self._waits(source), source)

    def _after_record(self, action: Callable[[], None]) -> None:
        record = self._dispatcher.record
        if record is not None and record.waits:
            record.when_safe(lambda _: action())
        else:
            action()

    def _waits(self, source: Session | None) -> bool:
        """Whether something was stored, or may have to be, since `begin`; or others wait already."""
        store = self._dispatcher.store
        if store is None:
            return False
        return bool(self._waiting or store.mark != self._mark or (source is not None and source.unfinished))

    def _when_stored(self, action: Callable[[], None], waits: bool, source: Session | None) -> None:
        """Do something once all that was stored so far is safe."""
        store = self._dispatcher.store
        if store is None or not waits:
            action()
            return
        self._waiting += 1

        def stored(reason: str) -> None:
            self._waiting -= 1
            if reason:
                self._refuse(f"what was sent may not be stored: {reason}")
            else:
                action()

        if source is not None and source.unfinished:
            # It is not known yet who wants the rest of what was sent.
            self._dispatcher.after_turns(source, lambda: store.when_safe(stored))
        else:
            store.when_safe(stored)

    def _when_recorded(self, safe: bytes, unsafe: bytes) -> None:
        """Send a receipt once what it confirms is on record, or the other one if it will not be."""
        record = self._dispatcher.record
        if record is None or not record.waits:
            self._send(safe)
        else:
            record.when_safe(lambda is_safe: self._send(safe if is_safe else unsafe))


def _untracked(batch: Batch, receipts: Columns, version: Version) -> bytes:
    """Receipts that say: what was accepted may be missing on record, because the record cannot be written now."""
    frames = []
    for row in np.flatnonzero(receipts[:, 0] >= 0).tolist():
        receipt = batch.buffer[receipts[row, 0] : receipts[row, 1]].tobytes()
        headers = {MESSAGE_ID_HEADER: str(batch.message(row).id), **UNTRACKED}
        frames.append(stomp.receipt_frame(receipt, version, headers))
    return b"".join(frames)
