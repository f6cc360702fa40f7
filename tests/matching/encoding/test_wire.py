from __future__ import annotations

import contextlib
import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.errors import PostroadError
from postroad.filters import hash_bytes
from postroad.matching.encoding import EncodedPredicates, EncodingError, Scheme, from_bytes, to_bytes
from postroad.selectors import Selector
from tests.matching.encoding.strategies import schemes

if TYPE_CHECKING:
    from random import Random


@st.composite
def predicate_lists(draw: st.DrawFn) -> EncodedPredicates:
    scheme = draw(schemes)
    row = st.sets(st.integers(0, scheme.bits - 1), max_size=6).map(lambda places: tuple(sorted(places)))
    return EncodedPredicates(scheme, draw(st.lists(row, max_size=5)))


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<Q", hash_bytes(body))


@given(predicate_lists())
def test_list_survives_its_bytes(predicates: EncodedPredicates) -> None:
    assert from_bytes(to_bytes(predicates)) == predicates


@given(predicate_lists(), st.randoms(use_true_random=False))
def test_equal_content_has_equal_bytes(predicates: EncodedPredicates, random: Random) -> None:
    rows = list(predicates.rows) * 2
    random.shuffle(rows)
    assert to_bytes(EncodedPredicates(predicates.scheme, rows)) == to_bytes(predicates)


@given(predicate_lists(), predicate_lists())
def test_different_content_has_different_bytes(one: EncodedPredicates, other: EncodedPredicates) -> None:
    assert (to_bytes(one) == to_bytes(other)) == (one == other)
    assert hash(one) == hash(other) or one != other


def accepts_or_refuses(data: bytes) -> None:
    """Accept only the canonical bytes of what is read; otherwise raise an error of the house, never another."""
    with contextlib.suppress(PostroadError):
        assert to_bytes(from_bytes(data)) == data


@settings(max_examples=200)
@given(st.binary(max_size=80))
def test_decoder_takes_or_refuses_any_bytes(data: bytes) -> None:
    accepts_or_refuses(data)
    accepts_or_refuses(sealed(b"\x01" + data))


@settings(max_examples=300)
@given(predicate_lists(), st.data())
def test_decoder_takes_or_refuses_changed_bytes(predicates: EncodedPredicates, data: st.DataObject) -> None:
    body = bytearray(to_bytes(predicates)[:-8])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    accepts_or_refuses(sealed(bytes(body)))
    end = data.draw(st.integers(0, len(body)))
    accepts_or_refuses(sealed(bytes(body[:end])))
    accepts_or_refuses(sealed(bytes(body) + data.draw(st.binary(max_size=9))))


@given(predicate_lists(), st.data())
def test_decoder_refuses_a_changed_byte_by_the_checksum(predicates: EncodedPredicates, data: st.DataObject) -> None:
    whole = bytearray(to_bytes(predicates))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PostroadError):
        from_bytes(bytes(whole))


SCHEME = Scheme(64, 2, (5.0,), topics=True)
LIST = EncodedPredicates(SCHEME, [(), (1, 2), (1, 63)])
# version, flags, k, gram, M, thresholds, count width, reserved, rows, positions, ladder, counts 0 2 2, positions.
HEADER = "01 01 02 00 40000000 0100 02 00 03000000 04000000"
BODY = HEADER + "0000000000001440" + "28" + "8110fc"


def test_bytes_are_those_of_the_format() -> None:
    assert to_bytes(LIST) == sealed(bytes.fromhex(BODY))


def changed(at: int, value: str) -> bytes:
    body = bytearray(bytes.fromhex(BODY))
    new = bytes.fromhex(value)
    body[at : at + len(new)] = new
    return sealed(bytes(body))


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (0, "02", "offset 0: version 2"),
        (1, "05", "offset 1: unknown flags 0x05"),
        (2, "00", "0 bits per category"),
        (3, "01", "grams of 1 bytes"),
        (4, "41", "a vector of 65 bits"),
        (8, "ff", "offset 20: 255 thresholds do not fit"),
        (10, "08", "offset 10: counts of 8 bits"),
        (11, "01", "offset 11: the reserved byte is 1"),
        (12, "ffffffff", "the number of encoded conjunctions is 4,294,967,295"),
        (16, "05", "3 rows with 5 positions need"),
        (20, "000000000000f87f", "threshold 0 is nan"),
        (28, "18", "offset 28: the rows count 3 positions, the header 4"),
        (28, "68", "offset 28: not canonical"),
        (28, "22", "offset 28: not canonical"),
        (29, "4110", "not canonical"),
    ],
)
def test_decoder_names_the_place_of_a_fault(at: int, value: str, text: str) -> None:
    with pytest.raises(PostroadError, match=text):
        from_bytes(changed(at, value))


def test_decoder_refuses_many_rows_without_positions_at_once() -> None:
    body = bytes.fromhex("01 01 02 00 40000000 0000 00 00 40420f00 00000000")
    with pytest.raises(EncodingError, match="1000000 rows without positions"):
        from_bytes(sealed(body))


def test_decoder_refuses_a_position_beyond_the_vector() -> None:
    narrow = bytearray(to_bytes(EncodedPredicates(Scheme(192, 1), [(191,)]))[:-8])
    narrow[-1] = 255
    with pytest.raises(EncodingError, match="position 255 in vectors of 192 bits"):
        from_bytes(sealed(bytes(narrow)))


@pytest.mark.parametrize("length", range(0, 28))
def test_decoder_refuses_truncated_bytes(length: int) -> None:
    with pytest.raises(EncodingError):
        from_bytes(to_bytes(LIST)[:length])


def test_rows_of_subscriptions_ascend() -> None:
    selectors = [Selector.parse(f"a = {number} AND b LIKE 'x{number}%'") for number in range(50)]
    predicates = EncodedPredicates.encode(Scheme.sharp(), [(selector, None) for selector in selectors])
    assert all(one < other for one, other in pairwise(predicates.rows))
    assert len(predicates) == 50
    assert "50 rows" in repr(predicates)
