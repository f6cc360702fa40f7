"""A slow reading of normal forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroad.selectors import Selector
from postroad.selectors.normal_form import Constraint, LikePattern, Operator, Range
from tests.selectors.expressions import ANY, ONE, compared, kind_of, like

if TYPE_CHECKING:
    from postroad.selectors.normal_form import Conjunction


def holds(constraint: Constraint, attributes: dict[str, Any]) -> bool:
    """One constraint, by the words of its contract."""
    attribute, operator, operand = constraint
    if operator is Operator.TEST:
        assert attribute == ""
        return Selector(operand).evaluate(attributes) is True
    value = attributes.get(attribute)
    if operator in (Operator.EXISTS, Operator.MISSING):
        assert operand is None
        return (value is not None) is (operator is Operator.EXISTS)
    if value is None:
        return False
    if operator is Operator.EQUAL_BOOLEAN:
        return value is operand
    if operator in (Operator.EQUAL_NUMBER, Operator.NOT_EQUAL_NUMBER):
        assert kind_of(operand) == "number"
        return compared("=" if operator is Operator.EQUAL_NUMBER else "<>", value, operand) is True
    if operator is Operator.RANGE:
        return in_range(value, operand)
    return kind_of(value) in ("text", "untyped") and text_holds(operator, operand, str(value))


def in_range(value: Any, bounds: Range) -> bool:
    assert bounds.low is not None or bounds.high is not None
    above = bounds.low is None or compared(">" if bounds.low_open else ">=", value, bounds.low) is True
    below = bounds.high is None or compared("<" if bounds.high_open else "<=", value, bounds.high) is True
    return above and below


def text_holds(operator: Operator, operand: Any, text: str) -> bool:
    if operator in (Operator.IN_TEXT, Operator.NOT_IN_TEXT):
        assert len(operand) >= 2
        assert list(operand) == sorted(set(operand))
        return (text in operand) is (operator is Operator.IN_TEXT)
    if operator in (Operator.LIKE, Operator.NOT_LIKE):
        return like(items(operand), text) is (operator is Operator.LIKE)
    if operator in (Operator.EQUAL_TEXT, Operator.NOT_EQUAL_TEXT):
        return (text == operand) is (operator is Operator.EQUAL_TEXT)
    assert operand
    places = [start for start in range(len(text)) if text[start : start + len(operand)] == operand]
    if operator is Operator.PREFIX:
        return 0 in places
    if operator is Operator.SUFFIX:
        return len(text) - len(operand) in places
    assert operator is Operator.SUBSTRING
    return bool(places)


def items(pattern: LikePattern) -> tuple[str, ...]:
    found: list[str] = []
    for part, holes in zip(pattern.parts, pattern.holes, strict=True):
        assert all(part[hole] == "_" for hole in holes)
        found += [ONE if place in holes else char for place, char in enumerate(part)]
        found.append(ANY)
    return tuple(found[:-1])


def satisfied(alternatives: tuple[Conjunction, ...], attributes: dict[str, Any]) -> bool:
    return any(all(holds(constraint, attributes) for constraint in conjunction) for conjunction in alternatives)
