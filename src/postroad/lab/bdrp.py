"""The workload of B-DRP's experiments, seeded and calibrated.

Messages have ten attributes; 60 % of the attribute names carry words out of 200, 40 % carry integers from 0 to 100.
Predicates are conjunctions of one to five constraints over the same names and values: words by equality (70 %),
prefix, suffix and substring (10 % each), integers by equality (80 %), less than and greater than (10 % each).

The paper does not say how many attribute names there are, nor how long the prefixes, suffixes and substrings are. With
170 names of a fixed type each, and pieces of three letters up to the whole word, all choices uniform, 80 clients with
20 one-constraint conjunctions each on 8 brokers get what the paper reports: a message reaches 4.2 clients on 3.3
brokers. A test holds that.

Few of the constraints decide how many clients want a message: those with < and >. One draw of 80 clients has some more
or some fewer of them, with narrower or wider ranges, and is off by a client then. `dealt` holds the stated shares in
each draw instead of on average, so that any seed gives what the paper reports.

Everything is drawn as integer columns first, so that a million subscriptions take seconds and exact matching is a
table lookup (`matches`), which serves as the truth that encodings are measured against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from postroad.lab.news_words import NEWS_WORDS
from postroad.messages import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ATTRIBUTES_PER_MESSAGE",
    "INTEGERS",
    "MAX_CONSTRAINTS",
    "NAMES",
    "SHORTEST_PIECE",
    "TEXT_NAMES",
    "BdrpWorkload",
    "Messages",
    "Predicates",
    "deal",
    "is_text",
    "matches",
]

NAME_COUNT = 170
TEXT_NAMES = 102  # 60 % of the names; the others carry integers
INTEGERS = 101  # the values 0 to 100
ATTRIBUTES_PER_MESSAGE = 10
MAX_CONSTRAINTS = 5
SHORTEST_PIECE = 3  # letters of a prefix, suffix or substring: shorter pieces match too many words for 4.2 clients

NAMES: tuple[str, ...] = tuple(
    f"term_{index}" if index < TEXT_NAMES else f"count_{index - TEXT_NAMES}" for index in range(NAME_COUNT)
)

# Operators, as numbers in the columns of `Predicates`.
EQUAL, LESS, GREATER, PREFIX, SUFFIX, SUBSTRING = range(6)
_TEXT_OPERATORS = np.array([EQUAL] * 7 + [PREFIX, SUFFIX, SUBSTRING], np.int8)
_INTEGER_OPERATORS = np.array([EQUAL] * 8 + [LESS, GREATER], np.int8)

_ABSENT = -1
_WORD_LENGTHS = np.array([len(word) for word in NEWS_WORDS], np.int16)


def is_text(name: int) -> bool:
    """Whether the name of this number carries words (the others carry integers)."""
    return name < TEXT_NAMES


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages as columns: per row ten distinct names and their values (a word's number, or an integer)."""

    names: NDArray[np.int16]
    values: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.names)

    def attributes(self) -> list[dict[str, str | int]]:
        """Each message as a mapping, as `Selector.matches` takes it."""
        return [
            {NAMES[name]: NEWS_WORDS[value] if is_text(name) else value for name, value in zip(*row, strict=True)}
            for row in zip(self.names.tolist(), self.values.tolist(), strict=True)
        ]

    def batch(self, topic: str = "news") -> Batch:
        """The messages as brokers get them: typed attributes in an encoded batch, all on one topic."""
        return Batch.build((topic, attributes) for attributes in self.attributes())


@dataclass(frozen=True, slots=True)
class Predicates:
    """Conjunctions as columns: constraints beyond a row's width are not part of it.

    Operands are a word's number or an integer; `starts` and `ends` cut the piece of the word that a prefix, suffix or
    substring constraint looks for.
    """

    widths: NDArray[np.int8]
    names: NDArray[np.int16]
    operators: NDArray[np.int8]
    operands: NDArray[np.int16]
    starts: NDArray[np.int8]
    ends: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.widths)

    def constraints(self) -> tuple[NDArray[np.integer], ...]:
        """The columns that describe a constraint: name, operator, operand, start and end of the piece."""
        return self.names, self.operators, self.operands, self.starts, self.ends

    def texts(self) -> list[str]:
        """Each conjunction as the text of a selector."""
        rows = zip(self.widths.tolist(), *(column.tolist() for column in self.constraints()), strict=True)
        return [
            " AND ".join([_text(*constraint) for constraint in zip(*(column[:width] for column in row), strict=True)])
            for width, *row in rows
        ]


def _text(name: int, operator: int, operand: int, start: int, end: int) -> str:
    if not is_text(name):
        return f"{NAMES[name]} {'=<>'[operator]} {operand}"
    if operator == EQUAL:
        return f"{NAMES[name]} = '{NEWS_WORDS[operand]}'"
    before = "" if operator == PREFIX else "%"
    after = "" if operator == SUFFIX else "%"
    return f"{NAMES[name]} LIKE '{before}{NEWS_WORDS[operand][start:end]}{after}'"


def deal(random: np.random.Generator, count: int, kinds: int) -> NDArray[np.int64]:
    """So many numbers below `kinds` in random order, each as often as the others; evenly spread if not all occur.

    Each of them is uniformly distributed: they are sampled at equal steps from a random start.
    """
    places = (np.arange(count) + random.random()) * (kinds / max(count, 1))
    return random.permutation(np.minimum(places.astype(np.int64), kinds - 1))


class BdrpWorkload:
    """One seeded stream of messages and predicates: the same seed and the same calls give the same draws."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def messages(self, count: int) -> Messages:
        """Draw messages of ten attributes with distinct names."""
        names = self._distinct_names(count, ATTRIBUTES_PER_MESSAGE)
        return Messages(names, self._values(names))

    def predicates(self, count: int, least: int = 1, most: int = MAX_CONSTRAINTS) -> Predicates:
        """Draw conjunctions of `least` to `most` constraints, on distinct names."""
        widths = self._random.integers(least, most, count, np.int8, endpoint=True)
        names = self._distinct_names(count, most)
        text = names < TEXT_NAMES
        draw = self._random.integers(0, 10, names.shape)
        operators = np.where(text, _TEXT_OPERATORS[draw], _INTEGER_OPERATORS[draw])
        operands = self._values(names)
        starts, ends = self._pieces(operators, np.where(text, operands, 0))
        return Predicates(widths, names, operators, operands, starts, ends)

    def dealt(self, count: int, least: int = 1, most: int = MAX_CONSTRAINTS) -> Predicates:
        """Conjunctions as `predicates` draws them, with the stated shares held by the draw itself.

        Widths, names, the operators of texts and of integers, and the operands of each operator are dealt out like
        cards: each occurs as often as the others, in random order.
        """
        widths = (least + self._deal(count, most - least + 1)).astype(np.int8)
        names = self._dealt_names(count, most)
        text = names < TEXT_NAMES
        operators, operands = np.zeros(names.shape, np.int8), np.zeros(names.shape, np.int16)
        for kind, table, values in ((text, _TEXT_OPERATORS, len(NEWS_WORDS)), (~text, _INTEGER_OPERATORS, INTEGERS)):
            operators[kind] = table[self._deal(int(kind.sum()), len(table))]
            for operator in np.unique(table):
                chosen = kind & (operators == operator)
                operands[chosen] = self._deal(int(chosen.sum()), values)
        starts, ends = self._pieces(operators, np.where(text, operands, 0))
        return Predicates(widths, names, operators, operands, starts, ends)

    def _deal(self, count: int, kinds: int) -> NDArray[np.int64]:
        return deal(self._random, count, kinds)

    def _dealt_names(self, count: int, width: int) -> NDArray[np.int16]:
        names = self._deal(count * width, NAME_COUNT).reshape(count, width).astype(np.int16)
        while True:
            in_order = np.sort(names, axis=1)
            repeated = np.flatnonzero((in_order[:, 1:] == in_order[:, :-1]).any(axis=1))
            if not len(repeated):
                return names
            # Their names are dealt again, together with those of as many other rows.
            again = np.union1d(repeated, self._random.integers(0, count, len(repeated)))
            names[again] = self._random.permutation(names[again].reshape(-1)).reshape(-1, width)

    def _distinct_names(self, count: int, width: int) -> NDArray[np.int16]:
        names = self._random.integers(0, NAME_COUNT, (count, width), np.int16)
        pending = np.arange(count)
        while len(pending):
            in_order = np.sort(names[pending], axis=1)
            pending = pending[(in_order[:, 1:] == in_order[:, :-1]).any(axis=1)]
            names[pending] = self._random.integers(0, NAME_COUNT, (len(pending), width), np.int16)
        return names

    def _values(self, names: NDArray[np.int16]) -> NDArray[np.int16]:
        return self._random.integers(0, np.where(names < TEXT_NAMES, len(NEWS_WORDS), INTEGERS), dtype=np.int16)

    def _pieces(
        self, operators: NDArray[np.int8], words: NDArray[np.int16]
    ) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        lengths = _WORD_LENGTHS[words]
        sizes = self._random.integers(SHORTEST_PIECE, lengths, dtype=np.int16, endpoint=True)
        inside = self._random.integers(0, lengths - sizes, dtype=np.int16, endpoint=True)
        starts = np.select([operators == PREFIX, operators == SUFFIX], [0, lengths - sizes], inside)
        return starts.astype(np.int8), (starts + sizes).astype(np.int8)


def matches(predicates: Predicates, messages: Messages) -> NDArray[np.bool_]:
    """Exact matching by table lookup: bool[message, conjunction]."""
    present = np.full((len(messages), NAME_COUNT), _ABSENT, np.int16)
    np.put_along_axis(present, messages.names.astype(np.int64), messages.values, axis=1)
    result = np.ones((len(messages), len(predicates)), np.bool_)
    for place in range(predicates.names.shape[1]):
        held = _accepted(predicates, place)
        for row in np.flatnonzero(predicates.widths > place):
            # The last entry of a row of `held` is False, so the index of an absent value (-1) reads False.
            result[:, row] &= held[row][present[:, predicates.names[row, place]]]
    return result


def _accepted(predicates: Predicates, place: int) -> NDArray[np.bool_]:
    """Which values the constraint at one place of each conjunction accepts: bool[conjunction, value or absent]."""
    rows = (column[:, place].tolist() for column in predicates.constraints())
    accepted = np.zeros((len(predicates), len(NEWS_WORDS) + 1), np.bool_)
    tables: dict[tuple[bool, int, int | str], NDArray[np.bool_]] = {}
    for index, (name, operator, operand, start, end) in enumerate(zip(*rows, strict=True)):
        piece = NEWS_WORDS[operand][start:end] if is_text(name) and operator != EQUAL else operand
        key = (is_text(name), operator, piece)
        if key not in tables:
            tables[key] = np.array([_holds(operator, value, piece) for value in range(len(NEWS_WORDS))] + [False])
        accepted[index] = tables[key]
    return accepted


def _holds(operator: int, value: int, operand: int | str) -> bool:
    if isinstance(operand, str):
        word = NEWS_WORDS[value]
        if operator == PREFIX:
            return word.startswith(operand)
        return word.endswith(operand) if operator == SUFFIX else operand in word
    if operator == EQUAL:
        return value == operand
    return value < operand if operator == LESS else value > operand
