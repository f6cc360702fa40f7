"""Receipts of one client: given at once, or once what they confirm is safe; they say so where the record fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.protocols import stomp
from postroad.protocols.stomp.identifying import MESSAGE_ID_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.messages import Batch
    from postroad.protocols.stomp import Version
    from postroad.protocols.stomp.columns import Columns
    from postroad.sessions.dispatch import Dispatcher

__all__ = ["Receipts"]

# On a RECEIPT: "false" when the message was accepted while its record could not be written.
UNTRACKED = {"tracked": "false"}


class Receipts:
    """What a conversation confirms.

    Args:
        dispatcher: knows the record.
        send: hands bytes to the client.
    """

    def __init__(self, dispatcher: Dispatcher, send: Callable[[bytes | memoryview], None]) -> None:
        self._dispatcher = dispatcher
        self._send = send

    def messages(self, batch: Batch, receipts: Columns, version: Version) -> None:
        """Confirm the rows that ask for it: `receipts` says where in the buffer each row has the text, if it has."""
        if not (receipts[:, 0] >= 0).any():
            return
        record = self._dispatcher.record
        if record is not None and record.trouble:
            self._send(_untracked(batch, receipts, version))
            return
        confirmed = stomp.render_receipts(batch, np.ascontiguousarray(receipts), np.arange(len(batch)))
        if record is None or not record.waits:
            self._send(confirmed.data)
        else:
            self._when_safe(confirmed.tobytes(), _untracked(batch, receipts, version))

    def control(self, event: stomp.Event, receipt: bytes, headers: dict[str, str], version: Version) -> None:
        """Confirm a frame that is not a message."""
        untracked = {**headers, **UNTRACKED} if isinstance(event, stomp.Commit) else headers
        self._when_safe(
            stomp.receipt_frame(receipt, version, headers), stomp.receipt_frame(receipt, version, untracked)
        )

    def after_all(self, action: Callable[[], None]) -> None:
        """Do something once every receipt that waits is given."""
        record = self._dispatcher.record
        if record is not None and record.waits:
            record.when_safe(lambda _: action())
        else:
            action()

    def _when_safe(self, safe: bytes, unsafe: bytes) -> None:
        """Send a receipt once what it confirms is safe, or the other one if it will not be."""
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
