from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from postroad.matching.encoding import Scheme, message_categories
from postroad.messages import Batch, Draft, Untyped, number_of
from tests.matching.encoding.strategies import drafts, selector_messages, values, wide_schemes

# In the order of their numbers.
FAMILIES = (
    *("text", "text=", "number", "integer=", "float=", "boolean", "boolean=", "bytes"),
    *("below", "above", "prefix", "suffix", "gram", "topic", "level", "depth"),
)


def hashed(data: bytes) -> int:
    return xxhash.xxh64_intdigest(data, 42)


def derived(word: int, number: int) -> int:
    mixed = hashed(struct.pack("<Q", number))
    return hashed(struct.pack("<Q", word ^ mixed))


class Slow:
    """The categories of a message, straight from the rules."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self.found: set[int] = set()

    def add(self, family: str, name: str | None, *words: int) -> None:
        word = derived(0 if name is None else hashed(name.encode()), FAMILIES.index(family) + 1)
        for value in words:
            word = derived(word, value)
        self.found.add(word)

    def text(self, name: str, text: str) -> None:
        raw, gram = text.encode(), self.scheme.gram
        self.add("text", name)
        self.add("text=", name, hashed(raw))
        for length in range(1, gram + 1):
            if length <= len(raw):
                self.add("prefix", name, self.packed(raw[:length]))
                self.add("suffix", name, self.packed(raw[len(raw) - length :]))
        for at in range(len(raw) - gram + 1 if gram else 0):
            self.add("gram", name, self.packed(raw[at : at + gram]))

    def packed(self, piece: bytes) -> int:
        return int(piece[::-1].hex(), 16) + (len(piece) << 56)

    def number(self, name: str, number: int | float) -> None:
        self.add("number", name)
        if number == number // 1 and -(2**63) <= number < 2**63:
            self.add("integer=", name, int(number) % 2**64)
        else:
            self.add("float=", name, struct.unpack("<Q", struct.pack("<d", number))[0])
        for place, threshold in enumerate(self.scheme.thresholds):
            if number != threshold:
                self.add("below" if number < threshold else "above", name, place)

    def value(self, name: str, value: Any) -> None:
        if isinstance(value, bool):
            self.add("boolean", name)
            self.add("boolean=", name, int(value))
        elif isinstance(value, str):
            self.text(name, value)
            number = number_of(value) if isinstance(value, Untyped) else None
            if number is not None:
                self.number(name, number)
        elif isinstance(value, bytes):
            self.add("bytes", name)
        else:
            self.number(name, value)

    def message(self, draft: Draft) -> set[int]:
        if self.scheme.topics:
            levels = draft.topic.split(".")
            self.add("topic", None, hashed(draft.topic.encode()))
            self.add("depth", None, len(levels))
            for place, level in enumerate(levels[:8]):
                self.add("level", None, place, hashed(level.encode()))
        if self.scheme.priority:
            self.number("JMSPriority", draft.priority)
        for name, value in draft.attributes.items():
            self.value(name, value)
        for name, value in dict(draft.headers).items():
            self.value(name, Untyped(value))
        return self.found


def sets(batch: Batch, scheme: Scheme) -> list[set[int]]:
    offsets, words = message_categories(batch, scheme)
    assert offsets[0] == 0
    assert offsets[-1] == len(words)
    return [set(words[start:end].tolist()) for start, end in pairwise(offsets)]


@given(wide_schemes, st.lists(drafts() | selector_messages, max_size=4))
def test_kernel_finds_the_categories_of_the_rules(scheme: Scheme, rows: list[Draft]) -> None:
    assert sets(Batch.build(rows), scheme) == [Slow(scheme).message(row) for row in rows]


escaped = st.text("a\\:\n\r5.é", min_size=1, max_size=8)


@given(wide_schemes, st.dictionaries(escaped, escaped, max_size=4))
def test_kernel_reads_escaped_header_lines(scheme: Scheme, lines: dict[str, str]) -> None:
    row = Draft("t", {}, lines)
    assert sets(Batch.build([row]), scheme) == [Slow(scheme).message(row)]


@given(wide_schemes, st.lists(st.tuples(st.sampled_from("ab"), values), min_size=1, max_size=6))
def test_kernel_counts_the_rows_of_a_selection(scheme: Scheme, pairs: list[tuple[str, Any]]) -> None:
    batch = Batch.build([("t", {name: value}) for name, value in pairs])
    backwards = batch.take(np.arange(len(batch))[::-1])
    assert sets(backwards, scheme) == sets(batch, scheme)[::-1]


def test_kernel_makes_room_for_a_message_of_many_categories() -> None:
    scheme = Scheme.sharp()
    row = Draft("t", {f"name{index}": "letters" * 300 + str(index) for index in range(20)})
    assert sets(Batch.build([row, row]), scheme) == [Slow(scheme).message(row)] * 2


def test_kernel_asks_python_for_hard_numbers() -> None:
    scheme = Scheme.sharp()
    texts = ["0.1234567890123456789", "1e300", "1e-400", "1e400", "123456789012345678901e0", "7", "x"]
    rows = [Draft("t", {"a": Untyped(text)}, {"b": text}) for text in texts]
    assert sets(Batch.build(rows), scheme) == [Slow(scheme).message(row) for row in rows]


def test_equal_numbers_of_any_type_have_the_same_categories() -> None:
    scheme = Scheme.sharp(topics=False)
    texts = [Untyped("50"), Untyped("50.0"), Untyped("5e1"), Untyped("+50.")]
    batch = Batch.build([("t", {"a": value}) for value in (50, 50.0, *texts)])
    integer, real, *others = sets(batch, scheme)
    assert integer == real
    assert all(integer < other for other in others)
    zeros = sets(Batch.build([("t", {"a": value}) for value in (0, 0.0, -0.0)]), scheme)
    assert zeros[0] == zeros[1] == zeros[2]


def test_paper_counts_two_categories_per_attribute() -> None:
    batch = Batch.build([("t", {"stock": "XYZ", "price": 50, "quantity": 100})])
    assert len(sets(batch, Scheme.paper(topics=False))[0]) == 6


def test_empty_batch_has_no_categories() -> None:
    assert sets(Batch.build([]), Scheme.sharp()) == []
