from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.errors import PostroadError
from postroad.filters import hash_bytes
from postroad.lab.bdrp import BdrpWorkload
from postroad.matching.encoding import ANY_TOPIC, EncodingError, decode_exact, decode_exact_in_steps, encode_exact
from postroad.matching.encoding.bitstream import ByteReader, varint, zigzag
from postroad.matching.encoding.exact_form import STEP
from postroad.selectors import Selector
from postroad.selectors.constraints import Conjunction, Operator
from tests.matching.encoding.strategies import patterns, selectors

Row = tuple[str, Conjunction]


def rows_of(subscriptions: list[tuple[Selector, str]]) -> list[Row]:
    return [(pattern, conjunction) for selector, pattern in subscriptions for conjunction in selector.disjunction]


row_lists = st.lists(st.tuples(selectors, st.just(ANY_TOPIC) | patterns().map(str)), max_size=4).map(rows_of)


def plain(row: Row) -> tuple[str, tuple[tuple[str, int, str], ...]]:
    """A row as texts: trees do not compare, and 5 must not pass for 5.0."""
    pattern, conjunction = row
    return pattern, tuple(
        (name, int(operator), str(operand) if operator == Operator.TEST else repr(operand))
        for name, operator, operand in conjunction
    )


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<Q", hash_bytes(body))


@settings(max_examples=200)
@given(row_lists)
def test_rows_survive_their_bytes(rows: list[Row]) -> None:
    decoded = decode_exact(encode_exact(rows))
    assert sorted(map(plain, decoded)) == sorted(set(map(plain, rows)))


def names(count: int) -> list[str]:
    return [f"{first}{second}" for first in _LETTERS for second in _LETTERS][:count]


# Names of one letter may come from any script, so that two make thousands of short ones.
_LETTERS = [chr(ord("一") + number) for number in range(64)]
_WIDE = " OR ".join(f"a{i} = {i}" for i in range(70))


def compared(leaves: list[str]) -> str:
    while len(leaves) > 1:
        pairs = zip(leaves[::2], leaves[1::2], strict=True)
        leaves = [f"({left}) = ({right})" for left, right in pairs]
    return leaves[0]


# What clients may subscribe with, at the limits of the language.
EXTREME = {
    "escapes": "p LIKE '" + "\\" * 1_000 + "!_%' ESCAPE '!'",
    "escapes in a wide or": f"p LIKE '{chr(92) * 600}!_%' ESCAPE '!' OR {_WIDE}",
    "long wide or": " OR ".join(f"(a{i} = '{'x' * 34}' AND b{i} = '{'y' * 18}')" for i in range(400)),
    "deep and, compared with FALSE": f"({_WIDE.replace('OR', 'AND')} AND {'NOT ' * 63}y) = FALSE",
    "many between": " AND ".join(f"{name}1 BETWEEN {name}2 AND {name}3" for name in names(1_024)),
    "many names compared": compared([f"{name} = {name[::-1]}" for name in names(2_048)]),
}


@pytest.mark.parametrize("text", EXTREME.values(), ids=EXTREME)
def test_neighbour_reads_whatever_selector_a_client_may_have(text: str) -> None:
    rows = rows_of([(Selector.parse(text), ANY_TOPIC)])
    assert sorted(map(plain, decode_exact(encode_exact(rows)))) == sorted(set(map(plain, rows)))


@given(row_lists)
def test_equal_rows_have_equal_bytes(rows: list[Row]) -> None:
    assert encode_exact([*rows[::-1], *rows]) == encode_exact(rows)


def accepts_or_refuses(data: bytes) -> None:
    with contextlib.suppress(PostroadError):
        assert encode_exact(decode_exact(data)) == data


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_decoder_takes_or_refuses_any_bytes(data: bytes) -> None:
    accepts_or_refuses(data)
    accepts_or_refuses(sealed(b"\x01" + data))


@settings(max_examples=300)
@given(row_lists, st.data())
def test_decoder_takes_or_refuses_changed_bytes(rows: list[Row], data: st.DataObject) -> None:
    body = bytearray(encode_exact(rows)[:-8])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    accepts_or_refuses(sealed(bytes(body)))
    accepts_or_refuses(sealed(bytes(body[: data.draw(st.integers(0, len(body)))])))


# A row of so many bits that it is compared field by field.
LONG_ROW = rows_of([(Selector.parse(" AND ".join(f"n{i} = {i}" for i in range(300))), ANY_TOPIC)])


def test_long_row_survives_its_bytes() -> None:
    (row,) = LONG_ROW
    assert len(row[1]) == 300
    assert [plain(each) for each in decode_exact(encode_exact(LONG_ROW))] == [plain(row)]


@settings(max_examples=60)
@given(st.integers(0, 7), st.floats(0.5, 1, exclude_max=True))
def test_decoder_takes_or_refuses_a_long_row_with_a_changed_bit(bit: int, share: float) -> None:
    body = bytearray(encode_exact(LONG_ROW)[:-8])
    body[int(share * len(body))] ^= 1 << bit
    accepts_or_refuses(sealed(bytes(body)))


def test_decoder_refuses_a_changed_byte_by_the_checksum() -> None:
    data = bytearray(encode_exact(rows_of([(Selector.parse("a = 1"), ANY_TOPIC)])))
    for at in range(1, len(data)):
        data[at] ^= 1
        with pytest.raises(EncodingError, match="checksum"):
            decode_exact(bytes(data))
        data[at] ^= 1


def test_workload_takes_about_twenty_bits_a_constraint_beside_its_dictionaries() -> None:
    texts = BdrpWorkload(3).predicates(4_000, 1, 1).texts()
    few, many = (
        len(encode_exact(rows_of([(Selector.parse(text), ANY_TOPIC) for text in texts[:count]])))
        for count in (2_000, 4_000)
    )
    assert 15 < 8 * (many - few) / 2_000 < 30


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("02", "version 2"),
        ("01", "needs 1 bytes, 0 are left"),
        ("01 ff", "needs 1 bytes"),
        ("01 05", "5 entries do not fit"),
        ("01 01 01 ff 00 00 00 00 00 00 00", "a name is not UTF-8"),
        ("01 01 00 00 00 00 00 00 00 00", "name is empty"),
        ("01 00 00 00 01 01 2e 00 00 00 00", "topic pattern 0"),
        ("01 00 00 00 00 02 feffffffffffffffff01 01 00 00", "beyond 64 bits"),
        ("01 00 00 00 00 00 01 000000000000f07f 00 00", "not finite"),
        ("01 00 00 00 00 00 00 ffffff7f 00", "number of advertised conjunctions"),
        ("01 00 00 00 00 00 00 00 11", "constraint counts of 17 bits"),
        ("01 00 00 00 00 00 00 01 00", "topic pattern 0 of 0"),
        ("01 00 00 00 01 01 3e 00 00 c0843d 00", "1,000,000 rows do not fit in 0 bytes"),
        ("01 00 00 00 01 01 3e 00 00 02 00", "2 rows do not fit in 0 bytes"),
        ("01 00 00 00 01 01 3e 00 00 8100 00", "longer than necessary"),
        ("01 00 00 00 01 01 3e 00 00 01 00 00", "not canonical"),
        ("01 00 00 00 02 01 3e 01 3e 00 00 00 00", "topic pattern 1: not canonical"),
        ("01 00 00 00 00 02 00 00 00 00 00", "integer 1: not canonical"),
        ("01 00 00 00 00 00 00 00 01", "not canonical"),
    ],
)
def test_decoder_names_what_is_wrong(body: str, text: str) -> None:
    with pytest.raises(PostroadError, match=text):
        decode_exact(sealed(bytes.fromhex(body)))


def row_body(names: list[str], texts: list[str], pieces: list[str], integers: str, bits: int, size: int) -> bytes:
    """An advertisement with one row on any topic with one constraint."""
    parts = [b"\x01"]
    for entries in (names, texts, pieces, [ANY_TOPIC]):
        parts.append(varint(len(entries)))
        parts += [varint(len(entry.encode())) + entry.encode() for entry in entries]
    parts += [bytes.fromhex(integers), b"\x00", b"\x01\x01", (1 | bits << 1).to_bytes(size, "little")]
    return sealed(b"".join(parts))


@pytest.mark.parametrize(
    ("operator", "entries", "operand", "text"),
    [
        (Operator.PREFIX, [""], 0, "an empty prefix"),
        (Operator.IN_TEXT, ["x"], 1, "two or more"),
        (Operator.IN_TEXT, ["x", "y"], 2 | 0b01 << 16, "sorted and distinct"),
        # An index into a dictionary of one has no bits: 65,535 values would cost nothing to claim.
        (Operator.IN_TEXT, ["x"], 2**16 - 1, "65535 distinct texts of 1"),
        (Operator.LIKE, ["x_" * 1_500], 0, "a LIKE pattern of 3,000 characters"),
        (Operator.LIKE, ["\\a"], 1, "escapes what needs no escape"),
        (Operator.TEST, ["a ="], 0, "not a selector"),
        (Operator.RANGE, [], 3, "bound of unknown kind 3"),
        (Operator.RANGE, [], 0b0101, "a range from 7 to 7"),
    ],
)
def test_decoder_refuses_operands_that_no_selector_has(
    operator: Operator, entries: list[str], operand: int, text: str
) -> None:
    pieces = [] if operator == Operator.IN_TEXT else entries
    data = row_body(
        ["a"], entries if operator == Operator.IN_TEXT else [], pieces, "01 0e", operator - 1 | operand << 4, 8
    )
    with pytest.raises(EncodingError, match=text):
        decode_exact(data)


def test_long_advertisement_is_decoded_in_many_steps() -> None:
    rows = [(f"t.{number}", ()) for number in range(4 * STEP)]
    steps = decode_exact_in_steps(encode_exact(rows))
    # Four of patterns and four of rows.
    for _ in range(8):
        next(steps)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert sorted(done.value.value) == sorted(rows)


@given(st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1))
def test_variable_numbers_survive(number: int, signed: int) -> None:
    reader = ByteReader(data := varint(number) + varint(zigzag(signed)), len(data))
    assert (reader.number("n"), reader.signed("s")) == (number, signed)


def test_variable_number_of_many_bytes_is_refused() -> None:
    with pytest.raises(EncodingError, match="more than 10 bytes"):
        ByteReader(b"\xff" * 11, 11).number("a count")
