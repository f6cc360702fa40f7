"""Covering: a conjunction need not be advertised when another one wants all that it wants, and more.

`covers` is sound and not complete: what it says is so, and some pairs of which it would be so it does not see, such as
those that need arithmetic. A pair that is not seen costs bytes, never a message.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from postroad.selectors.constraints import Conjunction, Constraint, Operator, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

__all__ = ["MAX_COMPARED", "CoveringSet", "Row", "covers", "pattern_covers"]

Row: TypeAlias = tuple[str, Conjunction]
"""The text of a topic pattern, and a conjunction."""

# With how many rows a new one is compared, each way. Rows that many others are like are not all found; a subscription
# then takes a quarter of a millisecond at most.
MAX_COMPARED = 256

_EQUALITIES = frozenset({Operator.EQUAL_NUMBER, Operator.EQUAL_TEXT, Operator.EQUAL_BOOLEAN})
_PIECES = frozenset({Operator.PREFIX, Operator.SUFFIX, Operator.SUBSTRING})


def covers(wider: Row, narrower: Row) -> bool:
    """Whether every message that the narrower row wants is wanted by the wider one too, as far as can be seen."""
    if not pattern_covers(wider[0], narrower[0]):
        return False
    return all(any(_implied(one, by) for by in narrower[1]) for one in wider[1])


def pattern_covers(wider: str, narrower: str) -> bool:
    """Whether every topic that fits the narrower pattern fits the wider one."""
    if wider in (narrower, ">"):
        return True
    given = narrower.split(".")
    levels = wider.split(".")
    for place, level in enumerate(levels):
        if level == ">":
            return len(given) > place
        if place >= len(given) or given[place] == ">":
            return False
        if level not in ("*", given[place]):
            return False
    return len(given) == len(levels)


def _implied(one: Constraint, by: Constraint) -> bool:
    """Whether one constraint holds wherever the other does."""
    if one.attribute != by.attribute:
        return False
    if one == by:
        return True
    if one.operator == Operator.EXISTS:
        return by.operator not in (Operator.MISSING, Operator.TEST)
    if one.operator in (Operator.RANGE, Operator.NOT_EQUAL_NUMBER):
        return _implied_number(one, by)
    if by.operator in (Operator.EQUAL_TEXT, Operator.IN_TEXT):
        holds = _text_test(one)
        texts = (by.operand,) if by.operator == Operator.EQUAL_TEXT else by.operand
        return holds is not None and all(map(holds, texts))
    if by.operator in _PIECES:
        return _implied_by_piece(one, by)
    if by.operator == Operator.NOT_IN_TEXT:
        return set(_excluded(one)) <= set(by.operand) and bool(_excluded(one))
    return False


def _implied_number(one: Constraint, by: Constraint) -> bool:
    if by.operator == Operator.EQUAL_NUMBER:
        inner = Range(by.operand, False, by.operand, False)
    elif by.operator == Operator.RANGE:
        inner = by.operand
    else:
        return False
    if one.operator == Operator.NOT_EQUAL_NUMBER:
        return not _inside(Range(one.operand, False, one.operand, False), inner)
    return _inside(inner, one.operand)


def _inside(inner: Range, outer: Range) -> bool:
    low = outer.low is None or (
        inner.low is not None
        and (inner.low > outer.low or (inner.low == outer.low and (inner.low_open or not outer.low_open)))
    )
    high = outer.high is None or (
        inner.high is not None
        and (inner.high < outer.high or (inner.high == outer.high and (inner.high_open or not outer.high_open)))
    )
    return low and high


def _excluded(one: Constraint) -> tuple[str, ...]:
    """The texts that a constraint is there to exclude."""
    if one.operator == Operator.NOT_EQUAL_TEXT:
        return (one.operand,)
    return tuple(one.operand) if one.operator == Operator.NOT_IN_TEXT else ()


def _text_test(one: Constraint) -> Callable[[str], bool] | None:
    """Whether a text satisfies a constraint, where that is easily said."""
    operator, operand = one.operator, one.operand
    if operator == Operator.EQUAL_TEXT:
        return lambda text: bool(text == operand)
    if operator == Operator.IN_TEXT:
        return lambda text: text in operand
    if excluded := _excluded(one):
        return lambda text: text not in excluded
    if operator == Operator.PREFIX:
        return lambda text: text.startswith(operand)
    if operator == Operator.SUFFIX:
        return lambda text: text.endswith(operand)
    if operator == Operator.SUBSTRING:
        return lambda text: operand in text
    return None


def _implied_by_piece(one: Constraint, by: Constraint) -> bool:
    piece = by.operand
    if excluded := _excluded(one):
        has = _text_test(by)
        return has is not None and not any(map(has, excluded))
    if one.operator == Operator.SUBSTRING:
        return one.operand in piece
    if one.operator == by.operator == Operator.PREFIX:
        return bool(piece.startswith(one.operand))
    if one.operator == by.operator == Operator.SUFFIX:
        return bool(piece.endswith(one.operand))
    return False


class CoveringSet:
    """Rows that come and go, without those that another one covers.

    Equal rows are counted. What was kept and is kept no more, or the other way round, is remembered until `take`.
    """

    def __init__(self) -> None:
        self._counts: Counter[Row] = Counter()
        # Each kept row with those it stands for, and the other way round.
        self._kept: dict[Row, dict[Row, None]] = {}
        self._covered: dict[Row, Row] = {}
        # Kept rows by what any row they cover must have, and by what any row that covers them may have.
        self._upward: dict[Hashable, dict[Row, None]] = {}
        self._downward: dict[Hashable, dict[Row, None]] = {}
        self._changes: dict[Row, bool] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def rows(self) -> Iterable[Row]:
        """The kept rows."""
        return self._kept.keys()

    def add(self, row: Row) -> None:
        """One more row."""
        self._counts[row] += 1
        if self._counts[row] == 1:
            self._place(row)

    def remove(self, row: Row) -> None:
        """One row less."""
        if self._counts[row] > 1:
            self._counts[row] -= 1
            return
        del self._counts[row]
        if (above := self._covered.pop(row, None)) is not None:
            del self._kept[above][row]
            return
        for below in self._drop(row):
            self._place(below)

    def take(self) -> tuple[list[Row], list[Row]]:
        """The rows that came to be kept since the last call, and those that are kept no more."""
        changes, self._changes = self._changes, {}
        return [row for row, kept in changes.items() if kept], [row for row, kept in changes.items() if not kept]

    def _place(self, row: Row) -> None:
        """Put a row below one that covers it; or keep it, and put those it covers below it."""
        for above in islice(self._above(row), MAX_COMPARED):
            if covers(above, row):
                self._covered[row] = above
                self._kept[above][row] = None
                return
        narrower = [other for other in islice(self._below(row), MAX_COMPARED) if covers(row, other)]
        below: dict[Row, None] = {}
        for other in narrower:
            below |= self._drop(other)
            below[other] = None
        self._kept[row] = below
        self._covered.update(dict.fromkeys(below, row))
        self._note(row, kept=True)
        for index, keys in ((self._upward, [_access(row)]), (self._downward, _marks(row))):
            for key in keys:
                index.setdefault(key, {})[row] = None

    def _drop(self, row: Row) -> dict[Row, None]:
        """Keep a row no more; returns those that it stood for."""
        below = self._kept.pop(row)
        for each in below:
            del self._covered[each]
        self._note(row, kept=False)
        for index, keys in ((self._upward, [_access(row)]), (self._downward, _marks(row))):
            for key in keys:
                del index[key][row]
                if not index[key]:
                    del index[key]
        return below

    def _note(self, row: Row, *, kept: bool) -> None:
        if self._changes.pop(row, kept) is kept:
            self._changes[row] = kept

    def _above(self, row: Row) -> Iterator[Row]:
        """Kept rows that may cover a row."""
        topic, conjunction = row
        for scope in dict.fromkeys((_scope(topic), None)):
            yield from self._upward.get((scope, None, None), ())
            marks = dict.fromkeys(mark for one in conjunction for mark in ((one.attribute, None), _mark(one)))
            for mark in marks:
                yield from self._upward.get((scope, *mark), ())

    def _below(self, row: Row) -> Iterator[Row]:
        """Kept rows that a row may cover: of what it asks for, the rarest among them."""
        topic, conjunction = row
        keys = [(_scope(topic), *_mark(one)) for one in conjunction] or [(_scope(topic), None, None)]
        yield from min((self._downward.get(key, {}) for key in keys), key=len)


def _scope(topic: str) -> str | None:
    """The topic of rows that are for one topic only."""
    return None if "*" in topic or ">" in topic else topic


def _access(row: Row) -> Hashable:
    """Something that every row which this one covers has: an equality if there is one."""
    topic, conjunction = row
    marks = [_mark(one) for one in conjunction]
    exact = [mark for mark in marks if mark[1] is not None]
    return (_scope(topic), *((exact or marks or [(None, None)])[0]))


def _marks(row: Row) -> list[Hashable]:
    """Everything that a row which covers this one may ask for."""
    topic, conjunction = row
    marks = {(None, None)} | {mark for one in conjunction for mark in ((one.attribute, None), _mark(one))}
    return [(scope, *mark) for scope in dict.fromkeys((_scope(topic), None)) for mark in marks]


def _mark(one: Constraint) -> tuple[str | None, Hashable]:
    """What a constraint shares with all that imply it: an equality is implied by itself alone."""
    return one.attribute, (one.operator, one.operand) if one.operator in _EQUALITIES else None
