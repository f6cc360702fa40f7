"""Simplifies one conjunction: merges the constraints on each attribute, and finds those that cannot all hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.selectors.constraints import Constraint, Operator, Range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.selectors.constraints import Conjunction

__all__ = ["conjoined", "ordered"]

_NUMBERS = frozenset((Operator.RANGE, Operator.EQUAL_NUMBER))
_TEXTS = frozenset((Operator.EQUAL_TEXT, Operator.IN_TEXT))
_OTHER_TEXTS = frozenset((Operator.NOT_EQUAL_TEXT, Operator.NOT_IN_TEXT))
_ALL_NUMBERS = Range(None, False, None, False)


def all_differ(constraints: Sequence[Constraint]) -> bool:
    """Whether no two constraints are on the same attribute, so that nothing can be merged."""
    return len({constraint[0] for constraint in constraints}) == len(constraints)


def conjoined(constraints: Sequence[Constraint]) -> Sequence[Constraint] | None:
    """Return the conjunction with the constraints on each attribute merged; None if no message can satisfy it."""
    if all_differ(constraints):
        return constraints
    by_attribute: dict[str, list[Constraint]] = {}
    for constraint in constraints:
        by_attribute.setdefault(constraint.attribute, []).append(constraint)
    merged: list[Constraint] = []
    for attribute, group in by_attribute.items():
        together = group if len(group) == 1 else _merged(attribute, group)
        if together is None:
            return None
        merged.extend(together)
    return merged


def _merged(attribute: str, group: list[Constraint]) -> list[Constraint] | None:
    operators = {constraint.operator for constraint in group}
    if Operator.MISSING in operators:
        return None if len(operators) > 1 else group[:1]
    if Operator.EQUAL_BOOLEAN in operators:
        booleans = {c.operand for c in group if c.operator is Operator.EQUAL_BOOLEAN}
        if len(booleans) > 1 or operators - {Operator.EQUAL_BOOLEAN, Operator.EXISTS}:
            return None
    # A number and a text can both hold: untyped text is either.
    numbers = _merged_numbers(attribute, group) if operators & _NUMBERS else []
    texts = _merged_texts(attribute, group) if operators & (_TEXTS | _OTHER_TEXTS) else []
    if numbers is None or texts is None:
        return None
    settled = _NUMBERS | _TEXTS | _OTHER_TEXTS
    if numbers:
        settled |= {Operator.NOT_EQUAL_NUMBER}
    if operators != {Operator.EXISTS}:
        settled |= {Operator.EXISTS}
    others = [constraint for constraint in group if constraint.operator not in settled]
    return [*numbers, *texts, *dict.fromkeys(others)]


# Numbers


def _merged_numbers(attribute: str, group: list[Constraint]) -> list[Constraint] | None:
    together = _ALL_NUMBERS
    excluded: list[int | float] = []
    for _, operator, operand in group:
        if operator is Operator.RANGE:
            together = _intersection(together, operand)
        elif operator is Operator.EQUAL_NUMBER:
            together = _intersection(together, Range(operand, False, operand, False))
        elif operator is Operator.NOT_EQUAL_NUMBER and operand not in excluded:
            excluded.append(operand)
    excluded = [number for number in excluded if _inside(number, together)]
    low, low_open, high, high_open = together
    if low is not None and high is not None and low >= high:
        if low > high or low_open or high_open or excluded:
            return None
        return [Constraint(attribute, Operator.EQUAL_NUMBER, low)]
    inside = Constraint(attribute, Operator.RANGE, together)
    return [inside, *(Constraint(attribute, Operator.NOT_EQUAL_NUMBER, number) for number in excluded)]


def _intersection(one: Range, other: Range) -> Range:
    low, low_open, high, high_open = one
    if other.low is not None:
        if low is None or other.low > low:
            low, low_open = other.low, other.low_open
        elif other.low == low:
            low_open = low_open or other.low_open
    if other.high is not None:
        if high is None or other.high < high:
            high, high_open = other.high, other.high_open
        elif other.high == high:
            high_open = high_open or other.high_open
    return Range(low, low_open, high, high_open)


def _inside(number: float, bounds: Range) -> bool:
    low, low_open, high, high_open = bounds
    if low is not None and (number < low or (low_open and number == low)):
        return False
    return high is None or not (number > high or (high_open and number == high))


# Texts


def _merged_texts(attribute: str, group: list[Constraint]) -> list[Constraint] | None:
    wanted: set[str] | None = None
    unwanted: set[str] = set()
    for _, operator, operand in group:
        texts = (operand,) if isinstance(operand, str) else operand
        if operator in _TEXTS:
            wanted = set(texts) if wanted is None else wanted.intersection(texts)
        elif operator in _OTHER_TEXTS:
            unwanted.update(texts)
    if wanted is None:
        return [_texts(attribute, unwanted, Operator.NOT_EQUAL_TEXT, Operator.NOT_IN_TEXT)]
    wanted -= unwanted
    return [_texts(attribute, wanted, Operator.EQUAL_TEXT, Operator.IN_TEXT)] if wanted else None


def _texts(attribute: str, values: set[str], single: Operator, several: Operator) -> Constraint:
    distinct = sorted(values)
    if len(distinct) == 1:
        return Constraint(attribute, single, distinct[0])
    return Constraint(attribute, several, tuple(distinct))


# Order


def ordered(constraints: Sequence[Constraint]) -> Conjunction | None:
    """Merge as `conjoined`, then sort by attribute, operator and operand: equal conjunctions are equal tuples."""
    if all_differ(constraints):
        # The attributes differ, so the sort never compares operands, which may have different types.
        return tuple(sorted(constraints))
    merged = conjoined(constraints)
    return None if merged is None else tuple(sorted(merged, key=_place))


def _place(constraint: Constraint) -> tuple[str, int, str]:
    # Operands of one operator may have types that do not compare; their texts do.
    return constraint.attribute, constraint.operator, str(constraint.operand)
