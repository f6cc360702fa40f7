"""Checksums of Parquet files: of the footer, of each row group, and of the whole file.

A file has a checksum for each page, each row group, and the whole. Large parts are summed once: the checksum of a row
group follows from those of its pages, and that of the file from those of its row groups. The CRC-32 of two parts
together is a function of the CRC-32 of each and the length of the second; zlib has it as `crc32_combine`, Python not.
"""

from __future__ import annotations

import zlib
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from postroad.trail.errors import TrailDamageError
from postroad.trail.thrift import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FileSums",
    "Layout",
    "continued",
    "file_sums",
    "footer_bytes",
    "footer_checksum",
    "layout_of",
    "row_group_spans",
    "row_group_sums",
]

_MAGIC = b"PAR1"
_TAIL = 8  # the length of the footer, and the magic

# From this size on, known checksums are combined: that takes some 35 us, in which zlib sums up 250 KB.
LARGE_PART = 1 << 18
# The polynomial of CRC-32, and 1. The highest bit of such a number is the coefficient of x ** 0.
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
# parquet.thrift, PageHeader: the size of a page as it is in the file, and the checksum of that.
_PAGE_SIZE, _PAGE_SUM = 3, 4


class Layout(NamedTuple):
    """Where the parts of a file are.

    Attributes:
        groups: where each row group begins and ends; there is nothing between them, nor before the footer.
        summed: where those columns of row groups begin and end that are large and whose pages have right checksums.
    """

    groups: Sequence[tuple[int, int]]
    summed: Sequence[tuple[int, int]] = ()


class FileSums(NamedTuple):
    """The checksums of one file."""

    footer: int
    groups: Sequence[int]
    whole: int


def layout_of(metadata: Any, end: int) -> Layout:
    """The layout of a file that this process has just written with Arrow, which has summed every page.

    Args:
        metadata: what the footer says.
        end: where the footer begins.
    """
    starts, summed = [], []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        # Arrow writes the columns of a row group in order, without anything between them.
        starts.append(_column_start(group.column(0)))
        if group.total_byte_size < LARGE_PART:
            continue
        for column in map(group.column, range(group.num_columns)):
            size = column.total_compressed_size
            if size >= LARGE_PART:
                start = _column_start(column)
                summed.append((start, start + size))
    return Layout(list(pairwise([*starts, end])), summed)


def file_sums(data: memoryview, layout: Layout, path: object) -> FileSums:
    """The checksums of a file.

    Args:
        data: the file.
        layout: where its parts are.
        path: of the file, for the error.

    Raises:
        TrailDamageError: this is not a whole Parquet file.
    """
    # A view of a buffer of pyarrow has signed bytes.
    data = data.cast("B")
    footer = footer_checksum(data, path)
    begin = layout.groups[0][0] if layout.groups else len(data) - footer_bytes(data)
    whole, groups = zlib.crc32(data[:begin]), []
    for start, end in layout.groups:
        groups.append(_group_sum(data, start, end, layout.summed))
        whole = continued(whole, data[start:end], groups[-1])
    return FileSums(footer, groups, continued(whole, data[-footer_bytes(data) :], footer))


def _group_sum(data: memoryview, start: int, end: int, summed: Sequence[tuple[int, int]]) -> int:
    found = 0
    for first, last in summed:
        if start <= first and last <= end:
            found = _pages_sum(data[:last], first, zlib.crc32(data[start:first], found))
            start = last
    return zlib.crc32(data[start:end], found)


def _pages_sum(data: memoryview, at: int, found: int) -> int:
    """Continue a CRC-32 over pages up to the end of the bytes, by the checksums in their headers."""
    while at < len(data):
        header, begin = decode(data, at)
        end = begin + header[_PAGE_SIZE]
        # The checksum of a page does not include the header.
        found = zlib.crc32(data[at:begin], found)
        found = continued(found, data[begin:end], header[_PAGE_SUM] & 0xFFFFFFFF)
        at = end
    return found


def continued(crc: int, data: memoryview, own: int) -> int:
    """The CRC-32 of some bytes and then `data`.

    Args:
        crc: that of the bytes before.
        data: what follows; not looked at if it is large.
        own: the CRC-32 of `data` alone.
    """
    if len(data) < LARGE_PART:
        return zlib.crc32(data, crc)
    return _product(_power(len(data)), crc) ^ own


def _product(one: int, other: int) -> int:
    """The product of two polynomials over the field of two elements, modulo that of CRC-32."""
    found = 0
    while one:
        if one & _ONE:
            found ^= other
        one = one << 1 & 0xFFFFFFFF
        other = other >> 1 ^ _POLYNOMIAL if other & 1 else other >> 1
    return found


@lru_cache(maxsize=64)  # filters of one shape make pages of one size
def _power(size: int) -> int:
    """x ** (8 * size): what so many bytes multiply the checksum of those before them by."""
    found, place = _ONE, 0
    while size >> place:
        if size >> place & 1:
            found = _product(_square(place), found)
        place += 1
    return found


@cache
def _square(place: int) -> int:
    """x ** (8 * 2 ** place); one for each bit of a size."""
    return _product(_square(place - 1), _square(place - 1)) if place else _ONE >> 8


def footer_checksum(data: bytes | memoryview, path: object) -> int:
    """The CRC-32 of a file's footer, which Parquet itself does not guard (its pages it does).

    Args:
        data: the file, or its end from the footer on.
        path: of the file, for the error.

    Raises:
        TrailDamageError: this is not the end of a Parquet file.
    """
    if len(data) < _TAIL + len(_MAGIC) or bytes(data[-4:]) != _MAGIC:
        raise TrailDamageError(path, "not a whole Parquet file")
    length = int.from_bytes(data[-_TAIL:-4], "little")
    if length + _TAIL > len(data):
        raise TrailDamageError(path, "the footer is cut off")
    return zlib.crc32(data[-_TAIL - length :])


def footer_bytes(tail: bytes | memoryview) -> int:
    """How many bytes the footer of a file takes, with its length and the magic, by the end of the file."""
    return int.from_bytes(tail[-_TAIL:-4], "little") + _TAIL


def row_group_sums(data: memoryview) -> list[int]:
    """The CRC-32 of each row group of a file."""
    # Only the footer is taken: a buffer over all of a mapped file would outlive the mapping.
    footer = bytes(data[-footer_bytes(data) :])
    metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
    return [zlib.crc32(data[start:end]) for start, end in row_group_spans(metadata, len(data) - len(footer))]


def row_group_spans(metadata: Any, end: int) -> list[tuple[int, int]]:
    """Where the bytes of each row group begin and end, by the metadata of a file whose footer begins at `end`."""
    starts = [_start(metadata.row_group(index)) for index in range(metadata.num_row_groups)]
    return list(pairwise([*starts, end]))


def _start(group: Any) -> int:
    return min(_column_start(group.column(place)) for place in range(group.num_columns))


def _column_start(column: Any) -> int:
    start = column.data_page_offset
    return int(min(start, column.dictionary_page_offset) if column.has_dictionary_page else start)
