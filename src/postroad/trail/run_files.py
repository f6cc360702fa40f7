"""A Parquet file of passages that are runs, written run by run: nothing is done for a row.

A library that writes Parquet wants columns with a value for each row, and looks at each: at millions of messages a
second that is most of what keeping an exact record costs. But pages of a dictionary hold run lengths anyway. So these
few pages are made here; what is read is as any other file of the table, by any reader of Parquet.

Source: the Apache Parquet format (parquet.thrift and "File format"). Pages are of version 1, one for each column of a
row group, after a dictionary if there is one.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from postroad.trail.file_checksums import Layout
from postroad.trail.run_codec import rising, run_lengths
from postroad.trail.schemas import metadata, table_named
from postroad.trail.thrift import Long, Struct, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from postroad.tracking import PassageRuns, Shared
    from postroad.trail.runs import RunTable

    Ints = NDArray[np.int64]

__all__ = ["render_runs"]

_MAGIC = b"PAR1"
_WRITER = b"postroad version 1"
_FORMAT_VERSION = 2
# parquet.thrift: Type, FieldRepetitionType, Encoding, CompressionCodec, PageType.
_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
_REQUIRED, _OPTIONAL = 0, 1
_PLAIN, _RLE, _DELTA, _BY_DICTIONARY = 0, 3, 5, 8
_UNCOMPRESSED, _ZSTD = 0, 6
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_LEVEL_BITS = 1  # null or not
_SIGNED_32 = 1 << 31

_TYPES = {pa.int32(): _INT32, pa.int64(): _INT64, pa.binary(): _BYTE_ARRAY}


class _Column(NamedTuple):
    """A column as the schema has it; asking Arrow for each chunk would take longer than to make one."""

    name: str
    path: list[bytes]
    kind: int
    nullable: bool
    counted: bool


class _ColumnChunk(NamedTuple):
    """One column of one row group."""

    encoding: int
    codec: int
    dictionary: bytes | None  # a whole page, header included; so the next
    data: bytes
    unpacked: int  # bytes of both, with pages not compressed
    statistics: Struct | None = None


def render_runs(broker: int, table: RunTable) -> tuple[memoryview, Layout]:
    """The bytes of a file, and where its parts are."""
    layout = table_named("passages")
    schema = [
        _Column(field.name, [field.name.encode()], _TYPES[field.type], field.nullable, field.name in layout.statistics)
        for field in layout.schema
    ]
    out = bytearray(_MAGIC)
    groups, spans = [], []
    for runs in table.portions(layout.group_rows):
        rows = int(runs.counts.sum())
        columns = []
        begin = len(out)
        unpacked = 0
        for column in schema:
            chunk = _chunk(column, runs, rows)
            columns.append(_placed(column, chunk, rows, len(out)))
            out += chunk.dictionary or b""
            out += chunk.data
            unpacked += chunk.unpacked
        spans.append((begin, len(out)))
        groups.append(
            Struct(
                (
                    (1, columns),
                    (2, Long(unpacked)),
                    (3, Long(rows)),
                    (5, Long(begin)),
                    (6, Long(len(out) - begin)),
                )
            )
        )
    footer = encode(_footer(schema, table.num_rows, groups, metadata("passages", broker)))
    out += footer + len(footer).to_bytes(4, "little") + _MAGIC
    return memoryview(out), Layout(spans)


def _chunk(column: _Column, runs: PassageRuns, rows: int) -> _ColumnChunk:
    if column.name == "counter":
        return _rising(runs, rows)
    if not column.nullable:
        values: Ints = getattr(runs, column.name)
        if (values == values[0]).all():
            return _constant(int(values[0]), rows, column.counted)
        return _numbers(values, runs.counts, rows, column.counted)
    shared = runs.lists.get(column.name)
    return _nulls(rows) if shared is None else _lists(shared, runs.counts, rows)


# Most columns have one value in all of a file, or none: the same page for each row group.
@lru_cache(maxsize=64)
def _nulls(rows: int) -> _ColumnChunk:
    return _data_chunk(_levels(np.zeros(1, np.int64), np.array([rows])), _PLAIN, rows, None)


@lru_cache(maxsize=64)
def _constant(value: int, rows: int, counted: bool) -> _ColumnChunk:
    return _numbers(np.array([value]), np.array([rows]), rows, counted)


@lru_cache(maxsize=64)
def _one_list(packed: bytes, rows: int) -> _ColumnChunk:
    body = _levels(np.ones(1, np.int64), np.array([rows])) + _indices(np.zeros(1, np.int64), np.array([rows]), 1)
    return _data_chunk(body, _BY_DICTIONARY, rows, _dictionary_page(_entry(packed), 1))


def _numbers(values: Ints, counts: Ints, rows: int, counted: bool) -> _ColumnChunk:
    """A column of numbers, as a dictionary and how often each of them follows."""
    distinct, places = np.unique(values, return_inverse=True)
    dictionary = _dictionary_page(distinct.astype("<i8").tobytes(), len(distinct))
    least, most = (int(one).to_bytes(8, "little", signed=True) for one in (distinct[0], distinct[-1]))
    statistics = Struct(((3, Long(0)), (5, most), (6, least))) if counted else None
    body = _indices(places, counts, len(distinct))
    return _data_chunk(body, _BY_DICTIONARY, rows, dictionary)._replace(statistics=statistics)


def _lists(shared: Shared, counts: Ints, rows: int) -> _ColumnChunk:
    """A column of packed lists; the empty one is null."""
    used, places = np.unique(shared.which, return_inverse=True)
    offsets, numbers = shared.lists
    packed = [numbers[offsets[one] : offsets[one + 1]].astype(">u4").tobytes() for one in used]
    words = [one for one in packed if one]
    if not words:
        return _nulls(rows)
    if len(used) == 1:
        return _one_list(words[0], rows)
    filled = np.array([bool(one) for one in packed])
    renumbered, present = np.cumsum(filled) - 1, filled[places]
    entries = b"".join(map(_entry, words))
    body = _levels(present.astype(np.int64), counts)
    body += _indices(renumbered[places[present]], counts[present], len(words))
    return _data_chunk(body, _BY_DICTIONARY, rows, _dictionary_page(entries, len(words)))


def _entry(packed: bytes) -> bytes:
    """A value as a dictionary has it."""
    return len(packed).to_bytes(4, "little") + packed


def _rising(runs: PassageRuns, rows: int) -> _ColumnChunk:
    body = rising(runs.counter, runs.counts)
    packed = pa.compress(body, codec="zstd", asbytes=True)
    page = _page(_DATA_PAGE, len(body), packed, _data_header(rows, _DELTA))
    return _ColumnChunk(_DELTA, _ZSTD, None, page, len(page) - len(packed) + len(body))


def _levels(present: Ints, counts: Ints) -> bytes:
    """Which rows are not null."""
    packed = run_lengths(*_merged(present, counts), _LEVEL_BITS)
    return len(packed).to_bytes(4, "little") + packed


def _indices(places: Ints, counts: Ints, distinct: int) -> bytes:
    """Places in a dictionary, after the number of bits that each takes."""
    bits = max(1, (distinct - 1).bit_length())
    return bytes([bits]) + run_lengths(*_merged(places, counts), bits)


def _merged(values: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Runs of the same value that follow each other, as one."""
    begins = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return values[begins], np.add.reduceat(counts, begins)


def _data_chunk(body: bytes, encoding: int, rows: int, dictionary: bytes | None) -> _ColumnChunk:
    data = _page(_DATA_PAGE, len(body), body, _data_header(rows, encoding))
    return _ColumnChunk(encoding, _UNCOMPRESSED, dictionary, data, len(data) + len(dictionary or b""))


def _data_header(rows: int, encoding: int) -> tuple[int, Struct]:
    return 5, Struct(((1, rows), (2, encoding), (3, _RLE), (4, _RLE)))


def _dictionary_page(body: bytes, entries: int) -> bytes:
    return _page(_DICTIONARY_PAGE, len(body), body, (7, Struct(((1, entries), (2, _PLAIN)))))


def _page(kind: int, unpacked: int, body: bytes, own: tuple[int, Struct]) -> bytes:
    checksum = zlib.crc32(body)
    signed = checksum - 2 * _SIGNED_32 if checksum >= _SIGNED_32 else checksum
    return encode(Struct(((1, kind), (2, unpacked), (3, len(body)), (4, signed), own))) + body


def _placed(column: _Column, chunk: _ColumnChunk, rows: int, at: int) -> Struct:
    """A column of a row group, as the footer describes it."""
    ahead = len(chunk.dictionary or b"")
    encodings = [chunk.encoding, _RLE] + ([_PLAIN] if chunk.dictionary else [])
    described = Struct(
        (
            (1, column.kind),
            (2, encodings),
            (3, column.path),
            (4, chunk.codec),
            (5, Long(rows)),
            (6, Long(chunk.unpacked)),
            (7, Long(ahead + len(chunk.data))),
            (9, Long(at + ahead)),
            (11, Long(at) if chunk.dictionary else None),
            (12, chunk.statistics),
        )
    )
    return Struct(((2, Long(0)), (3, described)))


def _footer(schema: Sequence[_Column], rows: int, groups: Sequence[Struct], said: dict[bytes, bytes]) -> Struct:
    elements = [Struct(((3, _REQUIRED), (4, b"schema"), (5, len(schema))))]
    for column in schema:
        repetition = _OPTIONAL if column.nullable else _REQUIRED
        elements.append(Struct(((1, column.kind), (3, repetition), (4, column.path[0]))))
    # The order of statistics: by the type of each column.
    orders = [Struct(((1, Struct()),)) for _ in schema]
    return Struct(
        (
            (1, _FORMAT_VERSION),
            (2, elements),
            (3, Long(rows)),
            (4, list(groups)),
            (5, [Struct(((1, key), (2, value))) for key, value in said.items()]),
            (6, _WRITER),
            (7, orders),
        )
    )
