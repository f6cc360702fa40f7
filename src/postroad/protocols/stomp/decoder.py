"""`StompDecoder`: decodes the bytes of a client into one batch and a few events per read.

Python code runs once per read and once per control frame; a kernel writes the messages as rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.messages import Batch
from postroad.messages.columns import ENVELOPE_COLUMNS, SPAN_COLUMNS
from postroad.messages.limits import MAX_BATCH_BYTES
from postroad.protocols.stomp import columns as c
from postroad.protocols.stomp import faults
from postroad.protocols.stomp.controls import Refused, event_of, receipt_of
from postroad.protocols.stomp.events import Connect, ProtocolError
from postroad.protocols.stomp.limits import MAX_FRAME_BYTES, StompLimits
from postroad.protocols.stomp.scanner import scan
from postroad.protocols.stomp.states import State, next_state, refusal
from postroad.protocols.stomp.versions import Version

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from postroad.messages.columns import Bytes
    from postroad.protocols.stomp.columns import Columns
    from postroad.protocols.stomp.events import Event

__all__ = ["MAX_READ_BYTES", "MAX_SHOWN_BYTES", "Received", "StompDecoder", "decode_frames"]

# How much of a frame an error shows: its command and first headers, not a whole body.
MAX_SHOWN_BYTES = 512

# Offsets in a batch are signed 32-bit integers, escapes may double the size of lines, and an unfinished frame may
# precede the read. Reads of sockets are less than a thousandth of this.
MAX_READ_BYTES = MAX_BATCH_BYTES // 2 - MAX_FRAME_BYTES

# Control frames are rare; a read with more of them is scanned in several steps.
_CONTROLS_PER_SCAN = 32

# How much of control frames one call decodes if it may leave the rest for the next one: bytes of headers, plus for each
# frame the bytes that cost as much as a frame does. That is some 300 frames, or 8 with the largest number of headers,
# and 10 ms. A read of 256 KiB has room for 12,000.
_CONTROL_BUDGET = 24 * 1024
_CONTROL_FRAME_COST = 64

# No SEND is shorter: this bounds the rows of a read.
_SHORTEST_SEND = len(b"SEND\ndestination:/topic/a\n\n\0")

# A read usually begins in the middle of a frame. Only this much of it is appended to the kept beginning of that frame
# and scanned there: enough for the end of a frame of a few KiB, and little compared with a read of a busy connection.
_BRIDGE_BYTES = 4 * 1024

# A smaller array is not worth a copy, which would free the rest of its memory.
_SMALL_BYTES = 2048

_NO_EXTRAS: Columns = np.empty((0, c.EXTRA_COLUMNS), dtype=np.int32)
_PASSCODE = re.compile(rb"^(passcode:)[^\n]*", re.MULTILINE)


class Received:
    """The result of one read.

    Attributes:
        batch: the messages, in order; None if there are none. Ids are zero, priority and expiry are set.
        events: the control frames, in order; each says how many rows are before it.
        line_ends: line ends between frames; each is a heart-beat.
        asks_receipts: whether any row may ask for a receipt.
        has_message_ids: the same for `message-id` headers.
        has_queues: the same for rows whose destination is a queue; their envelopes say so.
    """

    __slots__ = ("_extras", "asks_receipts", "batch", "events", "has_message_ids", "has_queues", "line_ends")

    def __init__(
        self,
        batch: Batch | None,
        extras: Columns,
        events: list[Event],
        line_ends: int,
        asks_receipts: bool = False,
        has_message_ids: bool = False,
        has_queues: bool = False,
    ) -> None:
        self.batch = batch
        self.has_queues = has_queues
        self.asks_receipts = asks_receipts
        self.has_message_ids = has_message_ids
        # At least as many rows as the batch has. Slicing arrays is noticeable with small reads and most clients never
        # need these columns, so they are sliced on demand.
        self._extras = extras
        self.events = events
        self.line_ends = line_ends

    @property
    def receipts(self) -> Columns:
        """int32[n, 2]: for each row, start and end of the receipt id in the batch's buffer; -1 if it asks for none.

        The bytes are as they were on the wire.
        """
        return self._column(c.RECEIPT)

    @property
    def message_ids(self) -> Columns:
        """int32[n, 2]: the same for a `message-id` header that the sender gave."""
        return self._column(c.MESSAGE_ID)

    def part(self, first: int, last: int) -> Received:
        """Return some of its rows, without the events."""
        assert self.batch is not None
        rows, extras = self.batch.take(np.arange(first, last)), self._extras[first:last]
        return Received(rows, extras, [], 0, self.asks_receipts, self.has_message_ids, self.has_queues)

    def _column(self, first: int) -> Columns:
        return _cut(self._extras, 0 if self.batch is None else len(self.batch))[:, first : first + 2]  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<Received {0 if self.batch is None else len(self.batch):,} messages, events {self.events!r}>"


class _Rows:
    """The columns that a scan fills, allocated for the largest number of rows that its bytes can have."""

    __slots__ = ("envelopes", "extras", "out", "spans")

    def __init__(self, size: int, version: Version | None) -> None:
        most = size // _SHORTEST_SEND + 1
        # Messages keep header lines escaped as in 1.2; lines of earlier versions grow when they are escaped.
        self.out = np.empty(size if version is Version.V1_2 else 2 * size, dtype=np.uint8)
        self.spans = np.empty((most, SPAN_COLUMNS), dtype=np.int32)
        self.envelopes = np.empty((most, ENVELOPE_COLUMNS), dtype=np.int64)
        self.extras = np.empty((most, c.EXTRA_COLUMNS), dtype=np.int32)

    def batch(self, count: int, filled: int) -> Batch | None:
        if not count:
            return None
        ids = np.zeros((count, 2), dtype=np.uint64)
        return Batch(_cut(self.out, filled), _cut(self.spans, count), ids, _cut(self.envelopes, count))


def _cut(array: Any, count: int) -> Any:
    """Return the first rows of an array; a copy if a view would keep much unused memory alive."""
    if 2 * count < len(array) and array.nbytes > _SMALL_BYTES:
        return array[:count].copy()
    return array[:count]


class StompDecoder:
    """Decodes one client's bytes.

    After a `ProtocolError` it is closed and ignores all further input: send the ERROR and close the connection. It
    keeps an unfinished frame, but never more of it than the limits allow, which are small until CONNECT
    (`StompLimits.before_connect`).

    Args:
        limits: of frames, once the client is connected; None for those of the message format.
        in_parts: whether one call may leave a part of many control frames for the next; then `has_more` is true.

    Attributes:
        state: of the connection.
        version: the version agreed on; None before CONNECT.
        limits: of frames, once the client is connected.
        has_more: whether complete frames may be left: get them with `receive(b"")`.
    """

    __slots__ = (
        "_awaited",
        "_budget",
        "_controls",
        "_frame",
        "_in_parts",
        "_needed",
        "_rest",
        "_scan",
        "_settings",
        "has_more",
        "limits",
        "state",
        "version",
    )

    def __init__(self, limits: StompLimits | None = None, *, in_parts: bool = False) -> None:
        self.limits = limits or StompLimits()
        self.has_more = False
        self._in_parts = in_parts
        self._budget = _CONTROL_BUDGET
        self.state = State.START
        self.version: Version | None = None
        self._rest = bytearray()
        self._needed = 0
        self._awaited = c.NOTHING
        self._settings = np.zeros(c.SETTINGS, dtype=np.int64)
        self._settings[c.MODE] = c.UNESCAPED
        self._hold_to(self.limits.before_connect())
        self._scan = np.zeros(c.STATE, dtype=np.int64)
        self._frame = np.zeros(c.FRAME, dtype=np.int64)
        self._controls = np.zeros((_CONTROLS_PER_SCAN, c.CONTROL_COLUMNS), dtype=np.int32)

    @classmethod
    def _committing(cls, version: Version, limits: StompLimits | None) -> StompDecoder:
        """Return a decoder in the middle of a connection that decodes a SEND in a transaction like any other."""
        decoder = cls(limits)
        decoder.version = version
        decoder._settings[c.MODE] = int(version)
        decoder._settings[c.TAKES_TRANSACTIONS] = 1
        decoder._move(State.CONNECTED)
        return decoder

    def _hold_to(self, limits: StompLimits) -> None:
        self._settings[c.COMMAND_LIMIT] = limits.command_bytes
        self._settings[c.HEADER_LIMIT] = limits.header_bytes
        self._settings[c.COUNT_LIMIT] = limits.headers
        self._settings[c.BODY_LIMIT] = limits.body_bytes

    @property
    def pending(self) -> int:
        """Bytes kept of an unfinished frame."""
        return len(self._rest)

    def forget(self) -> None:
        """Close, and drop an unfinished frame."""
        self._rest = bytearray()
        self.has_more = False
        self._move(State.CLOSED)

    def receive(self, data: bytes | bytearray | memoryview) -> Received:
        """Decode what a socket read. What has to be kept of the data is copied."""
        if len(data) > MAX_READ_BYTES:
            raise LimitError("one read", len(data), MAX_READ_BYTES, "bytes; read less at a time")
        if not (data or self.has_more) or self.state is State.CLOSED:
            return Received(None, _NO_EXTRAS, [], 0)
        if not self._rest:
            return self._read(data, b"")
        if not self._is_worth_a_scan(data):
            self._rest += data
            return Received(None, _NO_EXTRAS, [], 0)
        rest, self._rest = self._rest, bytearray()
        return self._read(data, rest)

    def _is_worth_a_scan(self, data: bytes | bytearray | memoryview) -> bool:
        """Whether a scan could get further into the unfinished frame than the last one did.

        Without this, a large frame in many small reads would be scanned from its start at every read.
        """
        if len(self._rest) + len(data) >= self._needed:
            return True
        # A NUL ends the frame, or is a fault.
        found = bytes(data)
        return self._awaited != c.NOTHING and (self._awaited in found or 0 in found)

    def _read(self, data: bytes | bytearray | memoryview, rest: bytes | bytearray) -> Received:
        """Decode the unfinished frame of the last read, and the data after it."""
        state = self._scan
        state[:] = 0
        self.has_more, self._budget = False, _CONTROL_BUDGET
        events: list[Event] = []
        size = len(rest) + len(data)
        rows = _Rows(size if self.version else 0, self.version)
        array = np.frombuffer(data, dtype=np.uint8)
        if rest:
            joined = np.frombuffer(rest + data[:_BRIDGE_BYTES], dtype=np.uint8)
            rows = self._scan_through(joined, rows, size, events)
            if self.state is State.CLOSED or len(data) <= _BRIDGE_BYTES:
                array = joined
            elif self.has_more:
                array = np.frombuffer(rest + data, dtype=np.uint8)
            elif state[c.AT] < len(rest):
                # The first frame is longer than the bridge. No frame was finished, so starting again loses nothing.
                state[:] = 0
                array = np.frombuffer(rest + data, dtype=np.uint8)
                rows = self._scan_through(array, rows, size, events)
            else:
                state[c.AT] -= len(rest)
                state[c.LAST], state[c.LAST_END] = 0, 0
                rows = self._scan_through(array, rows, size, events)
        else:
            rows = self._scan_through(array, rows, size, events)
        at, filled, count, _, line_ends, _, _, _, needed, awaited, receipts, named, _, _, queues = state.tolist()
        if self.state is not State.CLOSED and at < len(array):
            self._rest = bytearray(array[at:])
            self._needed, self._awaited = (0, c.NOTHING) if self.has_more else (needed, awaited)
        return Received(rows.batch(count, filled), rows.extras, events, line_ends, receipts > 0, named > 0, queues > 0)

    def _scan_through(self, array: Bytes, rows: _Rows, size: int, events: list[Event]) -> _Rows:
        """Scan an array to its end or to a fault; return the rows, which CONNECT replaces by larger ones.

        Args:
            array: the bytes; the state says where in them to begin.
            rows: where to write.
            size: bytes in all, here and in the arrays that will be scanned next.
            events: where to add control frames.
        """
        state = self._scan
        while True:
            state[c.CONTROLS] = 0
            status = scan(
                array,
                self._settings,
                state,
                self._frame,
                rows.out,
                rows.spans,
                rows.envelopes,
                rows.extras,
                self._controls,
            )
            if state[c.CONTROLS]:
                connected = self.version is not None
                self._act(array, events)
                if self.version and not connected:
                    rows = _Rows(size, self.version)
                if self.has_more:
                    return rows
            if status == c.FAULTY and self.state is not State.CLOSED:
                self._fault(array, events)
            if status != c.PAUSED or self.state is State.CLOSED:
                return rows

    def _act(self, array: Bytes, events: list[Event]) -> None:
        """Turn the control frames of a scan into events, up to the first that is refused or over a call's limit."""
        for command, start, headers, headers_end, end, row in self._controls[: self._scan[c.CONTROLS]].tolist():
            lines = array[headers:headers_end].tobytes()
            following = next_state(self.state, command)
            try:
                if following is None:
                    raise Refused(refusal(self.state, command))
                frame = array[start:end].tobytes() if command == c.SEND else b""
                event = event_of(command, lines, frame, row, self.version)
            except Refused as error:
                text = f"{c.COMMANDS[command].decode()}: {error}" if following else str(error)
                self._close(text, array[start:headers_end], lines, row, events, error.versions)
                self._scan[c.ROWS] = row
                return
            events.append(event)
            self._move(following)
            if isinstance(event, Connect):
                self.version = event.version
                self._settings[c.MODE] = int(event.version)
            self._budget -= headers_end - headers + _CONTROL_FRAME_COST
            if self._in_parts and self._budget <= 0 and end < len(array):
                # As if the kernel had stopped here: the next call scans again what is after this frame.
                self._scan[c.AT], self._scan[c.ROWS] = end, row
                self.has_more = True
                return

    def _move(self, state: State) -> None:
        self.state = state
        self._settings[c.TAKES_SENDS] = state is State.CONNECTED
        if state is State.CONNECTED:
            self._hold_to(self.limits)

    def _fault(self, array: Bytes, events: list[Event]) -> None:
        """Report what the kernel found."""
        fault, start, reached = (int(self._scan[slot]) for slot in (c.FAULT, c.START, c.REACHED))
        is_first = self.version is None
        text = faults.text_of(fault, self.limits.before_connect() if is_first else self.limits, is_first)
        shown, lines = array[start:reached], b""
        if fault > faults.COMMAND_UNKNOWN:
            text = f"{c.COMMANDS[self._frame[c.F_COMMAND]].decode()}: {text}"
            lines = array[int(self._frame[c.F_HEADERS]) : reached].tobytes()
        self._close(text, shown, lines, int(self._scan[c.ROWS]), events)

    def _close(
        self, text: str, shown: Bytes, lines: bytes, row: int, events: list[Event], versions: str | None = None
    ) -> None:
        frame = _PASSCODE.sub(rb"\1...", shown.tobytes())[:MAX_SHOWN_BYTES]
        receipt = receipt_of(lines, self.version)
        events.append(ProtocolError(row=row, receipt=receipt, text=text, frame=frame, versions=versions))
        self._move(State.CLOSED)


def decode_frames(frames: Sequence[bytes], version: Version, limits: StompLimits | None = None) -> Received:
    """Decode the frames of `TransactionSend` events as one batch, when their transaction is committed.

    The decoder that made these events has checked them, so this cannot fail.
    """
    return StompDecoder._committing(version, limits).receive(b"".join(frames))
