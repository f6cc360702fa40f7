"""A selector without NOT: conditions over constraints that are true for the same messages as the selector.

Matching only needs to know whether a selector is true, so false and unknown need not differ. NOT can then be pushed
down to the leaves: De Morgan's rules hold in three-valued logic, and the negation of a comparison is the opposite
comparison, unknown for the same messages. Only `Every` (AND), `Some` (OR) and constraints are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from postroad.selectors.constraints import Constraint, Operator, Range
from postroad.selectors.limits import MAX_CONJUNCTIONS
from postroad.selectors.logic import EQUALITIES, MIRRORED, OPPOSITE, compare
from postroad.selectors.tree import And, Between, Comparison, In, IsNull, Like, Literal, Name, Node, Not, Or, names

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.messages import Value
    from postroad.selectors.like import LikePattern

__all__ = ["Every", "Positive", "Some", "positive_form", "width"]

TOO_WIDE = MAX_CONJUNCTIONS + 1


class Every:
    """All parts must hold; without parts it always holds."""

    __slots__ = ("parts", "width")

    def __init__(self, parts: list[Positive]) -> None:
        self.parts = parts
        self.width = 1
        for part in parts:
            if not isinstance(part, Constraint):
                self.width = min(self.width * part.width, TOO_WIDE)


class Some:
    """One part must hold; without parts it never holds. `source` is a tree with the same meaning."""

    __slots__ = ("parts", "source", "width")

    def __init__(self, parts: list[Positive], source: Node) -> None:
        self.parts = parts
        self.source = source
        self.width = min(sum([width(part) for part in parts]), TOO_WIDE)


Positive: TypeAlias = Every | Some | Constraint


def width(form: Positive) -> int:
    """Return how many conjunctions the form expands into, or TOO_WIDE; the nodes store it."""
    return 1 if isinstance(form, Constraint) else form.width


_FALSE = Literal(False)
_NO_ATTRIBUTES: dict[str, Value] = {}


def positive_form(node: Node, negated: bool = False) -> Positive:
    """Return the node, or its negation, as a condition without NOT."""
    while isinstance(node, Not):
        node, negated = node.operand, not negated
    if not isinstance(node, And | Or):
        return _LEAVES[node.__class__](node, negated)
    parts: list[Positive] = []
    for operand in node.operands:
        parts.append(positive_form(operand, negated))  # noqa: PERF401  (it would be one more frame per level)
    if isinstance(node, And) is negated:
        return some(parts, Not(node) if negated else node)
    return every(parts)


def _always(truth: object) -> Positive:
    return Every([]) if truth is True else Some([], _FALSE)


# AND and OR


def every(parts: list[Positive]) -> Positive:
    flat: list[Positive] = []
    for part in parts:
        if isinstance(part, Every):
            flat.extend(part.parts)
        elif isinstance(part, Some) and not part.parts:
            return part
        else:
            flat.append(part)
    return flat[0] if len(flat) == 1 else Every(flat)


def some(parts: list[Positive], source: Node) -> Positive:
    flat: list[Positive] = []
    for part in parts:
        if isinstance(part, Some):
            flat.extend(part.parts)
        elif isinstance(part, Every) and not part.parts:
            return part
        else:
            flat.append(part)
    flat = _with_texts_merged(flat)
    return flat[0] if len(flat) == 1 else Some(flat, source)


_TEXTS = (Operator.EQUAL_TEXT, Operator.IN_TEXT)


def _with_texts_merged(parts: list[Positive]) -> list[Positive]:
    """Merge `a = 'x' OR a = 'y' OR a IN (…)` into one IN, at the place of the first."""
    texts: dict[str, list[str]] = {}
    for part in parts:
        if isinstance(part, Constraint) and part.operator in _TEXTS:
            texts.setdefault(part.attribute, []).extend(_texts_of(part))
    merged: list[Positive] = []
    for part in parts:
        if not (isinstance(part, Constraint) and part.operator in _TEXTS):
            merged.append(part)
        elif part.attribute in texts:
            merged.append(one_of(part.attribute, texts.pop(part.attribute)))
    return merged


def _texts_of(constraint: Constraint) -> tuple[str, ...]:
    operand = constraint.operand
    return (operand,) if isinstance(operand, str) else operand


def one_of(attribute: str, values: list[str] | tuple[str, ...]) -> Constraint:
    distinct = sorted(set(values))
    if len(distinct) == 1:
        return Constraint(attribute, Operator.EQUAL_TEXT, distinct[0])
    return Constraint(attribute, Operator.IN_TEXT, tuple(distinct))


# Comparisons


def _comparison(node: Comparison, negated: bool) -> Positive:
    operator = OPPOSITE[node.operator] if negated else node.operator
    left, right = node.left, node.right
    if left.__class__ is Name and right.__class__ is Literal:
        return _against_constant(left.name, operator, right.constant)
    return _other_comparison(operator, left, right)


def _other_comparison(operator: str, left: Node, right: Node) -> Positive:
    left_names, right_names = frozenset(names(left)), frozenset(names(right))
    if not left_names and not right_names:
        return _always(compare(operator, left.value(_NO_ATTRIBUTES), right.value(_NO_ATTRIBUTES)))
    if not left_names:
        left, right, operator = right, left, MIRRORED[operator]
        left_names, right_names = right_names, left_names
    if not right_names:
        constant = right.value(_NO_ATTRIBUTES)
        if constant is None:
            return _always(False)
        if isinstance(left, Name):
            return _against_constant(left.name, operator, constant)
        if isinstance(constant, bool) and not left.is_value and operator in EQUALITIES:
            # A condition compared with TRUE is the condition, and with FALSE its negation; unknown stays unknown.
            return positive_form(left, constant is not (operator == "="))
    return _test(Comparison(operator, left, right))


def _against_constant(name: str, operator: str, constant: Value) -> Positive:
    kind = constant.__class__
    if kind is str:
        texts = _TEXT_OPERATORS.get(operator)
        return _always(False) if texts is None else Constraint(name, texts, constant)
    if kind is bool:
        return _always(False) if operator not in EQUALITIES else _boolean(name, constant is (operator == "="))
    numbers = _NUMBER_OPERATORS.get(operator)
    if numbers is not None:
        return Constraint(name, numbers, constant)
    return Constraint(name, _RANGE, _RANGES[operator](constant))


def _boolean(name: str, wanted: bool) -> Constraint:
    return Constraint(name, Operator.EQUAL_BOOLEAN, wanted)


# Looked up once: access to an enumeration's member costs more than the rest of a constraint.
_RANGE = Operator.RANGE
_TEXT_OPERATORS = {"=": Operator.EQUAL_TEXT, "<>": Operator.NOT_EQUAL_TEXT}
_NUMBER_OPERATORS = {"=": Operator.EQUAL_NUMBER, "<>": Operator.NOT_EQUAL_NUMBER}
_RANGES: dict[str, Callable[[Any], Range]] = {
    ">": lambda bound: Range(bound, True, None, False),
    ">=": lambda bound: Range(bound, False, None, False),
    "<": lambda bound: Range(None, False, bound, True),
    "<=": lambda bound: Range(None, False, bound, False),
}


def _test(node: Node) -> Positive:
    """Return a constraint that needs evaluation, and EXISTS for the attributes without which it cannot be true."""
    needed = sorted(needed_names(node))
    test = Constraint("", Operator.TEST, node)
    return Every([*(Constraint(name, Operator.EXISTS, None) for name in needed), test]) if needed else test


def needed_names(node: Node) -> frozenset[str]:
    """Return the attributes without which the node's value or truth is always unknown."""
    if isinstance(node, IsNull):
        return frozenset()
    if isinstance(node, And | Or):
        # One false operand of AND, or one true operand of OR, decides alone.
        return frozenset.intersection(*map(needed_names, node.operands))
    if isinstance(node, Between):
        return needed_names(node.operand) | (needed_names(node.low) & needed_names(node.high))
    if isinstance(node, Name):
        return frozenset((node.name,))
    return frozenset().union(*map(needed_names, node.children()))


# The other leaves


def _between(node: Between, negated: bool) -> Positive:
    if node.negated is not negated:
        outside = [
            positive_form(Comparison("<", node.operand, node.low)),
            positive_form(Comparison(">", node.operand, node.high)),
        ]
        return some(outside, Not(node) if negated else node)
    inside = [
        positive_form(Comparison(">=", node.operand, node.low)),
        positive_form(Comparison("<=", node.operand, node.high)),
    ]
    return every(inside)


def _in(node: In, negated: bool) -> Positive:
    inside = one_of(node.name.name, node.values)
    if node.negated is negated:
        return inside
    opposite = Operator.NOT_EQUAL_TEXT if inside.operator is Operator.EQUAL_TEXT else Operator.NOT_IN_TEXT
    return inside._replace(operator=opposite)


def _like(node: Like, negated: bool) -> Positive:
    name = node.name.name
    if node.negated is not negated:
        return Constraint(name, Operator.NOT_LIKE, node.pattern)
    return _like_constraint(name, node.pattern)


def _like_constraint(name: str, pattern: LikePattern) -> Constraint:
    parts = pattern.parts
    if pattern.is_plain:
        if len(parts) == 1:
            return Constraint(name, Operator.EQUAL_TEXT, parts[0])
        if len(parts) == 2 and parts[0] and not parts[1]:
            return Constraint(name, Operator.PREFIX, parts[0])
        if len(parts) == 2 and parts[1] and not parts[0]:
            return Constraint(name, Operator.SUFFIX, parts[1])
        if len(parts) == 3 and not parts[0] and not parts[2]:
            return Constraint(name, Operator.SUBSTRING, parts[1])
    return Constraint(name, Operator.LIKE, pattern)


def _is_null(node: IsNull, negated: bool) -> Positive:
    return Constraint(node.name.name, Operator.MISSING if node.negated is negated else Operator.EXISTS, None)


def _name(node: Name, negated: bool) -> Positive:
    return _boolean(node.name, not negated)


def _literal(node: Literal, negated: bool) -> Positive:
    return _always(node.constant is not negated)


_LEAVES: dict[type[Node], Callable[..., Positive]] = {
    Comparison: _comparison,
    Between: _between,
    In: _in,
    Like: _like,
    IsNull: _is_null,
    Name: _name,
    Literal: _literal,
}
