"""Exact advertisements: conjunctions themselves, dictionary-coded and bit-packed.

Names, texts, pieces of texts, topic patterns and numbers go into sorted dictionaries. A constraint is then an operator
(4 bits) and indices of just enough bits: about 24 bits in a long list of the B-DRP workload, where a bit vector that
selects well takes 14 bytes or more.

    version u8 (1)
    names, texts, pieces, patterns: how many, then each as length and UTF-8     (counts and lengths: variable numbers)
    integers: how many, the first zigzag, then differences; floats: how many, then f64 each
    rows: how many, width of a constraint count u8
    the bits of all rows: pattern, number of constraints, then per constraint operator, name, operand
    XXH64 of all bytes before, u64

Rows are distinct and ordered by (length, value) of their bits; every dictionary holds what rows use and nothing else.
So there is one byte string for each set of rows, and a decoder refuses every other.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any

from postroad.errors import LimitError
from postroad.filters import hash_bytes
from postroad.matching.encoding.bitstream import BitReader, ByteReader, index_width, varint, zigzag
from postroad.matching.encoding.errors import EncodingError
from postroad.matching.encoding.operands import Entry, fields, read_operand
from postroad.selectors import TopicError, TopicPattern
from postroad.selectors.constraints import Constraint, Operator
from postroad.selectors.limits import MAX_SELECTOR_LENGTH

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from postroad.matching.encoding.operands import Field
    from postroad.selectors.constraints import Conjunction

    Row = tuple[str, Conjunction]

__all__ = ["ANY_TOPIC", "MAX_EXACT_ROWS", "decode_exact", "decode_exact_in_steps", "encode_exact"]

VERSION = 1
ANY_TOPIC = ">"
MAX_EXACT_ROWS = 1_000_000  # as many as an encoded list may have
# Entries and rows that are decoded in one step: some 2 ms.
STEP = 128
_NOT_CANONICAL = "not canonical: rows and dictionary entries ascend without repeats, and all are used"

_CHECKSUM = struct.Struct("<Q")
_FLOAT = struct.Struct("<d")
_OPERATOR_BITS = 4
# Constraints of one conjunction: up to 8,191. A BETWEEN of three attributes has five, in 21 characters or more, and
# there are MAX_TERMS of them at most; comparisons of comparisons have one for each attribute, of five characters or
# more. So MAX_SELECTOR_LENGTH lets a selector have fewer than 7,500.
_MAX_COUNT_WIDTH = 13
_LONG_ROW = 4_096  # bits: a longer row is compared field by field, since integers that grow are quadratic
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_TEXT_DICTIONARIES = (Entry.NAME, Entry.TEXT, Entry.PIECE, Entry.PATTERN)

# The entries of each dictionary, in order. Numbers are ordered by type first, since 5 and 5.0 are two entries.
_Dictionaries = dict[Entry, list[Any]]


def encode_exact(rows: Iterable[Row]) -> bytes:
    """The canonical bytes of conjunctions, each with the text of its topic pattern (`ANY_TOPIC` for all topics)."""
    held = list(rows)
    if len(held) > MAX_EXACT_ROWS:
        raise LimitError("the number of advertised conjunctions", len(held), MAX_EXACT_ROWS)
    dictionaries = _collected(held)
    count_width = max((len(conjunction) for _, conjunction in held), default=0).bit_length()
    places = {kind: {_key(entry): at for at, entry in enumerate(entries)} for kind, entries in dictionaries.items()}
    packed = sorted({_packed(_row_fields(row, count_width), places) for row in held})
    parts = [bytes((VERSION,)), *_dictionary_bytes(dictionaries), varint(len(packed)), bytes((count_width,))]
    body = b"".join(parts) + _joined(packed)
    return body + _CHECKSUM.pack(hash_bytes(body))


def decode_exact(data: bytes) -> tuple[Row, ...]:
    """The rows of an exact advertisement, in the order of their bits.

    Raises:
        EncodingError: the bytes are not the canonical form of any advertisement; the text says where.
        LimitError: there are too many rows.
    """
    steps = decode_exact_in_steps(data)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            rows: tuple[Row, ...] = done.value
            return rows


def decode_exact_in_steps(data: bytes) -> Generator[None, None, tuple[Row, ...]]:
    """As `decode_exact`, a few hundred entries or rows at a time, so that a long advertisement delays no other work.

    Canonical bytes are recognised without encoding them again: dictionaries ascend, every entry is used, each row is
    packed again and compared with the bits it was read from, and rows ascend.
    """
    end = len(data) - _CHECKSUM.size
    if end < 1:
        raise EncodingError(f"{len(data)} bytes of an exact advertisement: too short for version and checksum")
    if data[0] != VERSION:
        raise EncodingError(f"offset 0: version {data[0]} of exact advertisements; this decoder knows {VERSION}")
    if _CHECKSUM.unpack_from(data, end)[0] != hash_bytes(data[:end]):
        raise EncodingError(f"offset {end}: the checksum does not fit the bytes before it")
    reader = ByteReader(data, end)
    reader.take(1, "the version")
    dictionaries = yield from _read_dictionaries(reader)
    count = reader.number("the number of rows")
    if count > MAX_EXACT_ROWS:
        raise LimitError("the number of advertised conjunctions", count, MAX_EXACT_ROWS)
    count_width = reader.take(1, "the width of a constraint count")[0]
    if count_width > _MAX_COUNT_WIDTH:
        raise EncodingError(f"offset {reader.at - 1}: constraint counts of {count_width} bits")
    # Rows are distinct, so at most one of them has no bits: a count is bounded by the bytes it came in, before any row
    # is made.
    if count > 1 + 8 * (end - reader.at):
        raise EncodingError(f"offset {reader.at}: {count:,} rows do not fit in {end - reader.at:,} bytes")
    source = _RowSource(BitReader(data[reader.at : end], reader.at), dictionaries)
    rows: list[Row] = []
    places = {kind: {_key(entry): at for at, entry in enumerate(entries)} for kind, entries in dictionaries.items()}
    before = (-1, 0)
    for number in range(count):
        if number % STEP == STEP - 1:
            yield
        row = source.row(count_width)
        bits = source.taken()
        again = _row_fields(row, count_width)
        if bits <= before or not (source.was(again, places) if bits[0] > _LONG_ROW else _packed(again, places) == bits):
            raise EncodingError(f"row {number}: {_NOT_CANONICAL}")
        before = bits
        rows.append(row)
    width = max((len(conjunction) for _, conjunction in rows), default=0).bit_length()
    if width != count_width or not source.is_used_up():
        raise EncodingError(_NOT_CANONICAL)
    return tuple(rows)


def _row_fields(row: Row, count_width: int) -> Iterator[Field]:
    pattern, conjunction = row
    yield Entry.PATTERN, pattern
    yield count_width, len(conjunction)
    for constraint in conjunction:
        yield _OPERATOR_BITS, constraint.operator - 1
        yield from fields(constraint)


def _collected(rows: Iterable[Row]) -> _Dictionaries:
    """The dictionaries of everything that the rows mention."""
    found: dict[Entry, dict[Any, Any]] = {kind: {} for kind in Entry}
    for row in rows:
        for kind, value in _row_fields(row, 0):
            if isinstance(kind, Entry):
                found[kind][_key(value)] = value
    return {kind: [entries[key] for key in sorted(entries)] for kind, entries in found.items()}


def _key(value: Any) -> Any:
    """What orders and tells apart the entries of a dictionary."""
    if isinstance(value, str):
        return value
    return (isinstance(value, float), value, str(value))


def _packed(row: Iterable[Field], places: dict[Entry, dict[Any, int]]) -> tuple[int, int]:
    """The bits of a row: (how many, their value). No row has those of one with an entry that is in no dictionary."""
    size = bits = 0
    for kind, value in row:
        if isinstance(kind, Entry):
            width, value = index_width(len(places[kind])), places[kind].get(_key(value), -1)
            if value < 0:
                return -1, 0
        else:
            width = kind
        bits |= value << size
        size += width
    return size, bits


def _joined(packed: list[tuple[int, int]]) -> bytes:
    """The bits of all rows end to end. Row by row into one integer would be quadratic; whole bytes leave at once."""
    out = bytearray()
    size = bits = 0
    for width, row in packed:
        bits |= row << size
        size += width
        out += (bits & ((1 << size // 8 * 8) - 1)).to_bytes(size // 8, "little")
        bits >>= size // 8 * 8
        size %= 8
    return bytes(out + bits.to_bytes(1, "little")) if size else bytes(out)


def _dictionary_bytes(dictionaries: _Dictionaries) -> Iterator[bytes]:
    for kind in _TEXT_DICTIONARIES:
        yield varint(len(dictionaries[kind]))
        for text in dictionaries[kind]:
            raw = text.encode()
            yield varint(len(raw)) + raw
    integers = [number for number in dictionaries[Entry.NUMBER] if not isinstance(number, float)]
    floats = dictionaries[Entry.NUMBER][len(integers) :]
    yield varint(len(integers))
    if integers:
        yield varint(zigzag(integers[0]))
        yield from (varint(after - before) for before, after in pairwise(integers))
    yield varint(len(floats))
    yield from map(_FLOAT.pack, floats)


def _read_dictionaries(reader: ByteReader) -> Generator[None, None, _Dictionaries]:
    found: _Dictionaries = {}
    for kind in _TEXT_DICTIONARIES:
        texts: list[str] = []
        for number in range(_bounded(reader.number(f"the number of {kind.value}s"), reader)):
            if number % STEP == STEP - 1:
                yield
            text = reader.text(f"a {kind.value}")
            if texts and texts[-1] >= text:
                raise EncodingError(f"{kind.value} {number}: {_NOT_CANONICAL}")
            if len(text) > MAX_SELECTOR_LENGTH:
                raise LimitError(f"a {kind.value} of an advertisement", len(text), MAX_SELECTOR_LENGTH, "characters")
            if kind is Entry.PATTERN:
                _check_pattern(number, text)
            texts.append(text)
        found[kind] = texts
    integers = yield from _read_integers(reader)
    found[Entry.NUMBER] = [*integers, *(yield from _read_floats(reader))]
    if "" in found[Entry.NAME]:
        raise EncodingError("an attribute's name is empty")
    return found


def _check_pattern(number: int, text: str) -> None:
    try:
        TopicPattern.parse(text)
    except TopicError as error:
        raise EncodingError(f"topic pattern {number}: {error}") from None


def _bounded(count: int, reader: ByteReader) -> int:
    """A count of things of a byte or more each; one that cannot fit is refused before anything is made."""
    if count > reader.end - reader.at:
        raise EncodingError(f"offset {reader.at}: {count} entries do not fit in {reader.end - reader.at} bytes")
    return count


def _read_integers(reader: ByteReader) -> Generator[None, None, list[int]]:
    count = _bounded(reader.number("the number of integers"), reader)
    if not count:
        return []
    integers = [reader.signed("an integer")]
    for number in range(1, count):
        if number % STEP == STEP - 1:
            yield
        step = reader.number("a difference of integers")
        if not step:
            raise EncodingError(f"integer {number}: {_NOT_CANONICAL}")
        integers.append(integers[-1] + step)
    if integers[0] < _SMALLEST or integers[-1] > _LARGEST:
        raise EncodingError(f"offset {reader.at}: an integer beyond 64 bits")
    return integers


def _read_floats(reader: ByteReader) -> Generator[None, None, list[float]]:
    floats: list[float] = []
    for number in range(_bounded(reader.number("the number of floats"), reader)):
        if number % STEP == STEP - 1:
            yield
        value = _FLOAT.unpack(reader.take(_FLOAT.size, "a float"))[0]
        if not isfinite(value):
            raise EncodingError(f"offset {reader.at}: a float that is not finite")
        if floats and _key(floats[-1]) >= _key(value):
            raise EncodingError(f"float {number}: {_NOT_CANONICAL}")
        floats.append(value)
    return floats


class _RowSource:
    """Reads rows, and remembers which entries of the dictionaries they use."""

    def __init__(self, reader: BitReader, dictionaries: _Dictionaries) -> None:
        self._reader = reader
        self._dictionaries = dictionaries
        self._used = {kind: bytearray(len(entries)) for kind, entries in dictionaries.items()}
        self._start = 0

    def row(self, count_width: int) -> Row:
        """The next row."""
        self._start = self._reader.at
        pattern = self.entry(Entry.PATTERN)
        return pattern, tuple(self._constraint() for _ in range(self.bits(count_width)))

    def _constraint(self) -> Constraint:
        operator = self.operator()
        name = "" if operator == Operator.TEST else self.entry(Entry.NAME)
        return Constraint(name, operator, read_operand(operator, self))

    def taken(self) -> tuple[int, int]:
        """The bits of the last row: (how many, their value)."""
        size = self._reader.at - self._start
        return size, self._reader.peek(self._start, size)

    def was(self, row: Iterable[Field], places: dict[Entry, dict[Any, int]]) -> bool:
        """Whether the last row was written in just these fields, told field by field."""
        at, peek = self._start, self._reader.peek
        for kind, value in row:
            if isinstance(kind, Entry):
                width, value = index_width(len(places[kind])), places[kind].get(_key(value), -1)
            else:
                width = kind
            if peek(at, width) != value:
                return False
            at += width
        return at == self._reader.at

    def is_used_up(self) -> bool:
        """Whether every entry of the dictionaries was used, and nothing but zeros to a whole byte is left."""
        return all(0 not in used for used in self._used.values()) and self._reader.ends_here()

    def bits(self, width: int) -> int:
        """The next plain number of this width."""
        return self._reader.take(width, "a row")

    def count(self, width: int, kind: Entry) -> int:
        """The next number of distinct entries of a dictionary; more than the dictionary has are refused at once."""
        count = self.bits(width)
        if count > len(self._dictionaries[kind]):
            raise EncodingError(
                f"{self._reader.place()}: {count} distinct {kind.value}s of {len(self._dictionaries[kind])}"
            )
        return count

    def entry(self, kind: Entry) -> Any:
        """Read the next entry of a dictionary."""
        entries = self._dictionaries[kind]
        index = self._reader.take(index_width(len(entries)), "a row")
        if index >= len(entries):
            raise EncodingError(f"{self._reader.place()}: {kind.value} {index} of {len(entries)}")
        self._used[kind][index] = 1
        return entries[index]

    def operator(self) -> Operator:
        """The next operator; all sixteen numbers of four bits are operators."""
        return Operator(self.bits(_OPERATOR_BITS) + 1)
