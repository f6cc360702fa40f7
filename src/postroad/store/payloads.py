"""What is in a record: rows with the cursors they matched, settled rows, cursors, checkpoints.

```
batch:   rows u32, matches u32, bytes of metadata u32, number it stands for (MOVED) u64, time it was stored i64 (ms)
         envelopes        40 bytes each, as on links (formats.md): the ids are in them
         lengths          u32 each, of the encoded messages
         row numbers      u32 each; in MOVED alone: which rows of the batch these are
         matches          cursor u32, form u32, bytes u32, then the rows in that form: all of them (0 bytes),
                          runs (start u32, size u32), or a bitmap (least bit first)
         metadata, encoded messages, end to end
settled: cursor u32, runs u32, then starts i64 and sizes u32 of the runs; again until the end
adopted: as settled: rows of earlier batches that wait for cursors too
tried:   cursor u32, n u32, then as for settled: rows of the cursor that came back more than n times
others:  MessagePack
```
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from postroad.errors import PostroadError
from postroad.messages import decode_batch, decode_envelopes, encode_batch, encode_envelopes, encode_metadata
from postroad.messages.columns import METADATA
from postroad.messages.envelope import ENVELOPE_BYTES
from postroad.messages.id_columns import TIME_SHIFT
from postroad.messages.message_prefix import PREFIX_BYTES
from postroad.store.errors import DamageError
from postroad.store.row_sets import MAX_NUMBER, MAX_RECORD_ROWS, ROW_BITS, Runs, runs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from postroad.messages import Batch

    Rows = NDArray[np.int64]

__all__ = [
    "CheckpointState",
    "CursorChange",
    "CursorState",
    "EncodedRows",
    "Match",
    "StoredRows",
    "Transfer",
    "rows_of_payload",
    "rows_payload",
    "settled_payload",
    "stored_bytes",
]

_BATCH = struct.Struct("<IIIQq")
_MATCH = struct.Struct("<III")
_SETTLED = struct.Struct("<II")
_CURSOR = struct.Struct("<I")
# Spans, ids and envelopes of a row in a batch.
_COLUMN_BYTES = 40 + 16 + 40
_ALL, _RUNS, _BITMAP = 0, 1, 2


class Match(NamedTuple):
    """The rows of a record that matched a cursor, in order."""

    cursor: int
    rows: Rows


class EncodedRows:
    """Rows of a batch as they are stored. Their columns are kept as they are until the record is made."""

    __slots__ = ("count", "envelopes", "lengths", "messages", "metadata", "size")

    def __init__(self, batch: Batch) -> None:
        self.count = len(batch)
        self.envelopes = encode_envelopes(batch)
        self.messages, self.lengths = encode_batch(batch)
        has_metadata = bool((batch.spans[:, METADATA] != batch.spans[:, METADATA + 1]).any())
        self.metadata = encode_metadata(batch)[0] if has_metadata else np.empty(0, np.uint8)
        self.size = self.messages.nbytes + self.metadata.nbytes + self.count * (ENVELOPE_BYTES + 4)


def stored_bytes(batch: Batch, rows: Rows | None = None) -> int:
    """Return how many bytes rows of a batch take (`EncodedRows.size`), without encoding them; all rows by default."""
    spans = batch.spans if rows is None else batch.spans[rows]
    # A buffer has less than 2**31 bytes, but rows may share parts of it, so the sum needs 64 bits.
    parts = int((spans[:, 1::2] - spans[:, ::2]).sum(dtype=np.int64))
    return parts + len(spans) * (PREFIX_BYTES + ENVELOPE_BYTES + 4)


def batch_payload(
    parts: Sequence[EncodedRows],
    matches: Sequence[Match],
    stored: int,
    origin: int = 0,
    numbers: Rows | None = None,
) -> bytes:
    """Return rows that were appended one after the other as one payload."""
    count = sum(part.count for part in parts)
    metadata = [part.metadata for part in parts]
    head = _BATCH.pack(count, len(matches), sum(map(len, metadata)), origin, stored)
    pieces: list[Any] = [head]
    pieces += [part.envelopes for part in parts]
    pieces += [part.lengths.astype("<u4", copy=False).view(np.uint8) for part in parts]
    if numbers is not None:
        pieces.append(numbers.astype("<u4").tobytes())
    for match in matches:
        form, data = _encoded_rows(match.rows, count)
        pieces += [_MATCH.pack(match.cursor, form, len(data)), data]
    pieces += metadata
    pieces += [part.messages for part in parts]
    return b"".join(pieces)


def _encoded_rows(rows: Rows, count: int) -> tuple[int, bytes]:
    if len(rows) == count:
        return _ALL, b""
    starts, ends = runs_of(rows)
    if 8 * len(starts) <= (count + 7) // 8:
        return _RUNS, np.stack([starts, ends - starts], axis=1).astype("<u4").tobytes()
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return _BITMAP, np.packbits(mask, bitorder="little").tobytes()


def _decoded_rows(form: int, data: memoryview, count: int) -> Rows:
    if form == _ALL:
        return np.arange(count, dtype=np.int64)
    if form == _RUNS:
        pairs = np.frombuffer(data, "<u4").astype(np.int64).reshape(-1, 2)
        runs = Runs(pairs[:, 0], pairs[:, 0] + pairs[:, 1])
        # Checked before the rows are listed: an unchecked 32-bit size could take all memory.
        if not runs.is_sound or (len(pairs) and runs.ends[-1] > count):
            raise DamageError(f"rows that a record of {count} does not have")
        rows = runs.places()
    elif form == _BITMAP:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        rows = np.flatnonzero(bits)
    else:
        raise DamageError(f"rows in the unknown form {form}; a newer version has written this")
    if len(rows) and rows[-1] >= count:
        raise DamageError(f"row {int(rows[-1])} of a record of {count}")
    return rows


class StoredRows:
    """A record with rows, as read from disk.

    Attributes:
        count: how many rows it has.
        matches: which cursors they matched.
        stored: when it was stored, in ms.
        origin: the number of the record it stands for; 0 if it stands for itself.
        numbers: which rows of that record these are; None for all.

    Raises:
        DamageError: the bytes are not what `batch_payload` writes.
    """

    __slots__ = ("_batch", "_messages", "_metadata", "_payload", "count", "matches", "numbers", "origin", "stored")

    def __init__(self, payload: bytes | memoryview) -> None:
        self._payload = memoryview(payload)
        self._batch: Batch | None = None
        try:
            self._parse()
        except (struct.error, ValueError) as error:
            raise DamageError(f"a record of rows does not hold what it says: {error}") from error

    def _parse(self) -> None:
        payload = self._payload
        self.count, matches, self._metadata, self.origin, self.stored = _BATCH.unpack_from(payload, 0)
        if self.count > min(MAX_RECORD_ROWS, len(payload)) or self.origin >= MAX_NUMBER:
            raise ValueError("it has more rows than bytes, or stands for a record that cannot be")
        at = _BATCH.size + self.count * (ENVELOPE_BYTES + 4)
        self.numbers: Rows | None = None
        if self.origin:
            self.numbers = np.frombuffer(payload, "<u4", self.count, at).astype(np.int64)
            if (np.diff(self.numbers) <= 0).any() or (self.count and self.numbers[-1] >= MAX_RECORD_ROWS):
                raise ValueError("its row numbers do not rise")
            at += 4 * self.count
        self.matches: list[Match] = []
        for _ in range(matches):
            cursor, form, size = _MATCH.unpack_from(payload, at)
            at += _MATCH.size
            if at + size > len(payload):
                raise ValueError("its matches extend beyond its end")
            rows = _decoded_rows(form, payload[at : at + size], self.count)
            self.matches.append(Match(cursor, rows if self.numbers is None else self.numbers[rows]))
            at += size
        self._messages = at

    @property
    def batch(self) -> Batch:
        """Return the rows; the same batch at every call, so that its rendering can be shared.

        Raises:
            DamageError: the bytes are not messages.
        """
        if self._batch is None:
            count, start = self.count, _BATCH.size
            try:
                data = np.frombuffer(self._payload, np.uint8)
                ids, envelopes, sizes = decode_envelopes(data, count, start)
                lengths = np.frombuffer(self._payload, "<u4", count, start + count * ENVELOPE_BYTES).astype(np.int32)
                metadata = (self._messages, sizes) if self._metadata else None
                first = self._messages + self._metadata
                self._batch = decode_batch(data, lengths, start=first, ids=ids, envelopes=envelopes, metadata=metadata)
            except (PostroadError, ValueError) as error:
                raise DamageError(f"a record of rows does not hold messages: {error}") from error
        return self._batch

    def rows_at(self, rows: Rows) -> Rows:
        """Return where rows of the record it stands for are in the batch."""
        return rows if self.numbers is None else np.searchsorted(self.numbers, rows)

    @property
    def nbytes(self) -> int:
        """Return what it takes in memory: the payload, and the columns of the batch once it is made."""
        return len(self._payload) + _COLUMN_BYTES * int(self.count)


def stored_ids(payload: memoryview) -> NDArray[np.uint64]:
    """Return uint64[n, 2]: the ids in a payload of rows, as batches have them; nothing else of it is examined.

    Raises:
        DamageError: it is too short for its rows.
    """
    try:
        count, *_ = _BATCH.unpack_from(payload, 0)
        envelopes = np.frombuffer(payload, np.uint8, count * ENVELOPE_BYTES, _BATCH.size).reshape(count, ENVELOPE_BYTES)
    except (struct.error, ValueError) as error:
        raise DamageError(f"a record of rows does not hold what it says: {error}") from error
    # The envelope begins with the id, in network order.
    return np.ascontiguousarray(envelopes[:, :16]).view(">u8").astype(np.uint64)


def latest_time(payload: bytes | memoryview) -> int:
    """Return the latest time (ms) of the ids in a payload of rows; nothing else of it is examined.

    Raises:
        DamageError: it is too short for its rows.
    """
    try:
        count, *_ = _BATCH.unpack_from(payload, 0)
        # The second word of each id, whose highest bits are the time; an envelope begins with its id.
        tails = np.ndarray((count,), ">u8", payload, _BATCH.size + 8, (ENVELOPE_BYTES,))
    except (struct.error, ValueError, TypeError) as error:
        raise DamageError(f"a record of rows does not hold what it says: {error}") from error
    return int(tails.max(initial=0)) >> int(TIME_SHIFT)


def settled_payload(settled: Sequence[tuple[int, Runs]]) -> bytes:
    """Return a payload of rows that cursors have settled."""
    pieces = []
    for cursor, runs in settled:
        pieces.append(_SETTLED.pack(cursor, len(runs.starts)))
        pieces.append(runs.starts.astype("<i8").tobytes())
        pieces.append((runs.ends - runs.starts).astype("<u4").tobytes())
    return b"".join(pieces)


def settled_in(payload: memoryview) -> Iterator[tuple[int, Runs]]:
    """Yield the cursors and rows of a payload.

    Raises:
        DamageError: the bytes are not what `settled_payload` writes.
    """
    at = 0
    try:
        while at < len(payload):
            cursor, count = _SETTLED.unpack_from(payload, at)
            at += _SETTLED.size
            starts = np.frombuffer(payload, "<i8", count, at).astype(np.int64)
            sizes = np.frombuffer(payload, "<u4", count, at + 8 * count).astype(np.int64)
            at += 12 * count
            runs = Runs(starts, starts + sizes)
            if not runs.is_sound:
                raise ValueError("its runs overlap")
            yield cursor, runs
    except (struct.error, ValueError) as error:
        raise DamageError(f"a record of settled rows does not hold what it says: {error}") from error


def tried_payload(cursor: int, raised: Sequence[Runs]) -> bytes:
    """Return a payload of rows of a cursor that returned: at n, those that did more than n times."""
    return _CURSOR.pack(cursor) + settled_payload(list(enumerate(raised)))


def tried_in(payload: memoryview) -> tuple[int, list[tuple[int, Runs]]]:
    """Return the cursor of a payload, and the rows that returned more than n times, for some n.

    Raises:
        DamageError: the bytes are not what `tried_payload` writes.
    """
    if len(payload) < _CURSOR.size:
        raise DamageError("a record of tried rows is too short for its cursor")
    return _CURSOR.unpack_from(payload, 0)[0], list(settled_in(payload[_CURSOR.size :]))


class Transfer(msgspec.Struct, frozen=True, array_like=True):
    """Rows that wait for another cursor from now on.

    Attributes:
        cursor: for which they waited before.
        to: for which they wait now.
        rows: starts and ends of their runs.
        note: a text that is kept with them there.
    """

    cursor: int
    to: int
    rows: tuple[bytes, bytes]
    note: bytes = b""


class CursorChange(msgspec.Struct, frozen=True, array_like=True):
    """A cursor begins, changes or ends.

    Attributes:
        cursor: its number.
        terms: what its owner wants to know about it later; None if it ends.
        attached: whether somebody takes rows from it from now on.
        tried: starts and ends of the runs of rows that were given out and returned.
        opens: it begins. A change of a cursor that recovery does not know is about one that had already ended when the
            checkpoint before it was made.
    """

    cursor: int
    terms: bytes | None
    attached: bool = False
    tried: tuple[bytes, bytes] = (b"", b"")
    opens: bool = False


class CursorState(msgspec.Struct, frozen=True, array_like=True):
    """A cursor in a checkpoint.

    Attributes:
        live: the rows that it waits for or has given out.
        tries, notes: as `Cursor` has them.
    """

    cursor: int
    terms: bytes
    attached: bool
    live: tuple[bytes, bytes]
    tried: tuple[bytes, bytes]
    tries: list[tuple[bytes, bytes]] = []
    notes: list[tuple[bytes, tuple[bytes, bytes]]] = []


class CheckpointState(msgspec.Struct, frozen=True, array_like=True):
    """All that recovery needs of what came before.

    Attributes:
        through: every record up to this number that has live rows is in `records`.
        records: number, number in the header, segment, start, length, rows and time stored of each, as int64 columns.
        cursors: all of them.
        latest: the latest time of the ids in each record, int64; empty in checkpoints of earlier versions.
    """

    through: int
    records: bytes
    cursors: list[CursorState]
    latest: bytes = b""


def packed(runs: Runs) -> tuple[bytes, bytes]:
    """Return runs as two strings of bytes."""
    return runs.starts.astype("<i8").tobytes(), runs.ends.astype("<i8").tobytes()


def unpacked(data: tuple[bytes, bytes]) -> Runs:
    """Return the runs that `packed` was given.

    Raises:
        DamageError: the two do not belong together.
    """
    try:
        runs = Runs(*(np.frombuffer(each, "<i8").astype(np.int64) for each in data))
    except ValueError as error:
        raise DamageError(f"runs of half a number: {error}") from error
    if len(runs.starts) != len(runs.ends) or not runs.is_sound:
        raise DamageError("runs that overlap, or more starts than ends")
    return runs


def place_of(number: int, rows: Rows) -> Rows:
    """Return the places of rows of a record."""
    return rows + (number << ROW_BITS)


def rows_payload(batch: Batch) -> bytes:
    """Return rows as they travel to another broker: a separate record that no cursor has matched."""
    return batch_payload([EncodedRows(batch)], [], 0)


def rows_of_payload(payload: bytes) -> Batch:
    """Return the rows in such bytes.

    Raises:
        DamageError: the bytes are not rows.
    """
    found = StoredRows(payload)
    if found.matches or found.origin:
        raise DamageError("rows from another broker that claim to be a record of this one's store")
    return found.batch
