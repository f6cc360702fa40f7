"""Checksums that are combined from those of parts are the checksums of the bytes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.trail import DAY_MS, TrailDamageError, TrailWriter, describe_file
from postroad.trail.file_checksums import LARGE_PART, continued, file_sums, footer_bytes, layout_of
from postroad.trail.file_reader import Reads, TrailFile
from postroad.trail.thrift import Long, Struct, decode, encode
from tests.trail.samples import NOON, a_filter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from postroad.trail import FileEntry


@pytest.mark.parametrize("size", [0, 1, LARGE_PART - 1, LARGE_PART, LARGE_PART + 1, 3 * LARGE_PART + 77])
@pytest.mark.parametrize("before", [b"", b"\0", b"bytes before"])
def test_checksum_continues_over_a_part_whose_own_is_known(before: bytes, size: int) -> None:
    part = noise(size)
    assert continued(zlib.crc32(before), memoryview(part), zlib.crc32(part)) == zlib.crc32(before + part)


def noise(size: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def written(root: Path, contents: Sequence[bytes]) -> FileEntry:
    """The entry of a file of filters with these bytes, half of their bits ones."""
    filters = [
        a_filter(time_from=NOON + number)._replace(data=data, bits=8 * len(data), ones=4 * len(data))
        for number, data in enumerate(contents)
    ]
    entries = TrailWriter(root, 1, NOON).write(filters, NOON + 100)
    return next(entry for entry in entries if entry.table == "filters")


@pytest.mark.parametrize(
    "contents",
    [
        [noise(5 << 20)],
        [noise(3 << 20), noise(1 << 20, 2), b"small", noise(2 << 20, 3)],
        [noise(LARGE_PART // 2, seed) for seed in range(200)],
        [b"", noise(100)],
    ],
    ids=["one large filter", "large and small ones", "several row groups", "a small file"],
)
def test_entry_of_a_written_file_has_the_checksums_of_its_bytes(tmp_path: Path, contents: list[bytes]) -> None:
    entry = written(tmp_path, contents)
    assert entry == describe_file(tmp_path, entry.path, "filters", NOON // DAY_MS)
    assert entry.crc == zlib.crc32((tmp_path / entry.path).read_bytes())


def test_entry_of_a_large_compressed_file_has_the_checksums_of_its_bytes(tmp_path: Path) -> None:
    sparse = np.where(np.random.default_rng(1).random(8 << 20) < 0.05, 1, 0).astype(np.uint8).tobytes()
    segment = a_filter()._replace(data=sparse, bits=8 * len(sparse), ones=sum(sparse))
    entry = next(one for one in TrailWriter(tmp_path, 1, NOON).write([segment], NOON + 100) if one.table == "filters")
    assert LARGE_PART < entry.size < len(sparse) // 2
    assert entry == describe_file(tmp_path, entry.path, "filters", NOON // DAY_MS)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_reader_refuses_a_large_file_in_which_one_byte_has_changed(tmp_path: Path, share: float) -> None:
    entry = written(tmp_path, [noise(3 << 20), noise(2 << 20, 2)])
    path = tmp_path / entry.path
    data = bytearray(path.read_bytes())
    data[int(share * len(data))] ^= 1
    path.write_bytes(data)
    file = TrailFile(tmp_path, entry, 1, Reads())
    with pytest.raises(TrailDamageError, match="not what was written"):
        file.verify()
    with pytest.raises(TrailDamageError, match="not the one that was written"):
        file.read(["data"])


def structure(steps: Sequence[tuple[int, object]]) -> Struct:
    """Fields whose numbers rise by these steps."""
    numbers = np.cumsum([step for step, _ in steps]).tolist()
    return Struct((number, value) for number, (_, value) in zip(numbers, steps, strict=True))


values = st.recursive(
    st.integers(-(2**31), 2**31 - 1) | st.integers(-(2**63), 2**63 - 1).map(Long) | st.binary(max_size=300),
    lambda inner: st.lists(st.tuples(st.integers(1, 14), inner), max_size=4).map(structure),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.integers(1, 14), values), max_size=5).map(structure), st.binary(max_size=3))
def test_decoder_of_thrift_returns_what_was_encoded(struct: Struct, before: bytes) -> None:
    data = before + encode(struct)
    assert decode(data + b"more", len(before)) == (plain(struct), len(data))


def plain(value: object) -> object:
    return {number: plain(one) for number, one in value} if isinstance(value, Struct) else value


def test_file_in_memory_of_arrow_has_the_checksums_of_its_bytes() -> None:
    """A view of an Arrow buffer has signed bytes; a page of more than 127 bytes has some of them in its header."""
    contents = np.random.default_rng(1).bytes(LARGE_PART + 1)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"bits": [contents]}), sink, compression="none", write_page_checksum=True)
    data = memoryview(sink.getvalue())
    end = len(data) - footer_bytes(data)
    found = file_sums(data, layout_of(pq.read_metadata(pa.BufferReader(bytes(data))), end), "here")
    assert found.whole == zlib.crc32(bytes(data))
    assert found.groups == [zlib.crc32(bytes(data[4:end]))]
