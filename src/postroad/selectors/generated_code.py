"""Generates one Python function per selector: the fastest way to evaluate one selector for one message.

The source is straight-line Python: a dictionary look-up for each attribute at its first use, a check of its class, a
comparison, joined by `and` and `or`. Of a selector, only the `repr` of a name, a text or a number gets into the
source; everything else is passed as an object, under a name that does not come from the selector.

The functions agree with `Selector.matches` for the exact classes of attribute values (`str`, `Untyped`, `int`, `float`,
`bool`, `bytes`), which are all that a message can have. Only `matches` supports subclasses.
"""

from __future__ import annotations

import operator as python
from typing import TYPE_CHECKING, Any, NamedTuple

from postroad.messages import Untyped, number_of
from postroad.selectors.conjunctions import conjoined
from postroad.selectors.constraints import Constraint, Operator, Range
from postroad.selectors.like import like_matcher
from postroad.selectors.logic import arithmetic, compare, negative, positive
from postroad.selectors.positive_form import Positive, Some, positive_form
from postroad.selectors.tree import Arithmetic, Comparison, Literal, Name, Node, Sign, names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroad.messages import Value
    from postroad.selectors.selector import Selector

__all__ = ["generate"]

# Levels of AND and OR in one function; deeper ones become another function. Python's own parser gives up at 100 to 200
# parentheses.
_DEEPEST = 16
# Operands of arithmetic in one comparison that become code; the tree evaluates longer ones.
_MOST_OPERANDS = 16


def generate(selector: Selector) -> Callable[[Mapping[str, Value]], bool]:
    """Return a function that says whether the selector matches the attributes of a message."""
    return _Writer().function(positive_form(selector.condition))


class _Code(NamedTuple):
    """An expression, and the attributes that are in their variables after it: if it held, and if it did not."""

    text: str
    read_if_true: frozenset[str]
    read_if_false: frozenset[str]


class _Writer:
    """Writes one function: variables for attributes, names for objects."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = dict(_HELPERS)
        self.variables: dict[str, str] = {}

    def function(self, form: Positive) -> Callable[[Mapping[str, Value]], bool]:
        code = compile(self.source(form), "<selector>", "exec")
        exec(code, self.objects)
        function: Callable[[Mapping[str, Value]], bool] = self.objects["matches"]
        return function

    def source(self, form: Positive) -> str:
        return f"def matches(m):\n    return {self.code(form, frozenset(), 0).text}\n"

    def code(self, form: Positive, read: frozenset[str], depth: int) -> _Code:
        if isinstance(form, Constraint):
            return self.constraint(form, read)
        if depth == _DEEPEST:
            inner = self.named(_Writer().function(form))
            return _Code(f"{inner}(m)", frozenset(), frozenset())
        if isinstance(form, Some):
            return self.some(form.parts, read, depth)
        return self.every(_merged(form.parts), read, depth)

    def every(self, parts: list[Positive] | None, read: frozenset[str], depth: int) -> _Code:
        """Later parts run only when all before them held."""
        if not parts:
            return _Code(str(parts is not None), frozenset(), frozenset())
        codes: list[_Code] = []
        failing: list[frozenset[str]] = []
        for part in parts:
            code = self.code(part, read, depth + 1)
            # Any part may be the first that fails; all parts before it held.
            failing.append(read | code.read_if_false)
            read |= code.read_if_true
            codes.append(code)
        return _Code(_joined(" and ", codes), read, frozenset.intersection(*failing))

    def some(self, parts: list[Positive], read: frozenset[str], depth: int) -> _Code:
        """Later parts run only when none before them held."""
        if not parts:
            return _Code("False", frozenset(), frozenset())
        codes: list[_Code] = []
        holding: list[frozenset[str]] = []
        for part in parts:
            code = self.code(part, read, depth + 1)
            # Any part may be the first that holds; all parts before it failed.
            holding.append(read | code.read_if_true)
            read |= code.read_if_false
            codes.append(code)
        return _Code(_joined(" or ", codes), frozenset.intersection(*holding), read)

    # Attributes and objects

    def named(self, thing: object) -> str:
        name = f"object{len(self.objects)}"
        self.objects[name] = thing
        return name

    def variable(self, attribute: str) -> str:
        return self.variables.setdefault(attribute, f"v{len(self.variables)}")

    def reading(self, attribute: str, read: frozenset[str]) -> str:
        """Return code for the attribute's value, which at its first use also sets its variable."""
        variable = self.variable(attribute)
        return variable if attribute in read else f"({variable} := m.get({attribute!r}))"

    # Constraints

    def constraint(self, constraint: Constraint, read: frozenset[str]) -> _Code:
        attribute, operator, operand = constraint
        if operator is Operator.TEST:
            return self.test(operand, read)
        value, variable = self.reading(attribute, read), self.variable(attribute)
        after = read | {attribute}
        return _Code(self.constraint_text(operator, operand, value, variable), after, after)

    def constraint_text(self, operator: Operator, operand: Any, value: str, variable: str) -> str:
        # No other class has values equal to a text, so these two need no check; nor do the three after them.
        if operator is Operator.EQUAL_TEXT:
            return f"{value} == {operand!r}"
        if operator is Operator.IN_TEXT:
            return f"{value} in {{{', '.join(map(repr, operand))}}}"
        if operator is Operator.EQUAL_BOOLEAN:
            return f"{value} is {operand}"
        if operator is Operator.EXISTS:
            return f"{value} is not None"
        if operator is Operator.MISSING:
            return f"{value} is None"
        if operator in _NUMBER_TESTS:
            test = _NUMBER_TESTS[operator]
            # Untyped text last: converting it to a number costs most. The class of a boolean is not int.
            return (
                f"({test(variable, operand)} if (c := {value}.__class__) is int or c is float "
                f"else c is Untyped and (n := number_of({variable})) is not None and {test('n', operand)})"
            )
        return f"((c := {value}.__class__) is str or c is Untyped) and {self.text_test(operator, operand, variable)}"

    def text_test(self, operator: Operator, operand: Any, variable: str) -> str:
        if operator is Operator.NOT_EQUAL_TEXT:
            return f"{variable} != {operand!r}"
        if operator is Operator.NOT_IN_TEXT:
            return f"{variable} not in {{{', '.join(map(repr, operand))}}}"
        if operator is Operator.PREFIX:
            return f"{variable}.startswith({operand!r})"
        if operator is Operator.SUFFIX:
            return f"{variable}.endswith({operand!r})"
        if operator is Operator.SUBSTRING:
            return f"{operand!r} in {variable}"
        matcher = self.named(like_matcher(operand))
        return f"{matcher}({variable}) is {'not ' if operator is Operator.LIKE else ''}None"

    # What only evaluation decides

    def test(self, node: Node, read: frozenset[str]) -> _Code:
        if not (isinstance(node, Comparison) and _is_plain(node.left) and _is_plain(node.right)):
            return _Code(f"{self.named(node.truth)}(m) is True", frozenset(), frozenset())
        left, read = self.value(node.left, read)
        right, read = self.value(node.right, read)
        return _Code(f"{_COMPARERS[node.operator]}({left}, {right})", read, read)

    def value(self, node: Node, read: frozenset[str]) -> tuple[str, frozenset[str]]:
        if isinstance(node, Name):
            return self.reading(node.name, read), read | {node.name}
        if isinstance(node, Literal):
            return repr(node.constant), read
        if isinstance(node, Sign):
            text, read = self.value(node.operand, read)
            return f"{'negative' if node.operator == '-' else 'positive'}({text})", read
        assert isinstance(node, Arithmetic)
        text, read = self.value(node.first, read)
        for operator, operand in node.rest:
            other, read = self.value(operand, read)
            text = f"{_CALCULATORS[operator]}({text}, {other})"
        return text, read


def _merged(parts: list[Positive]) -> list[Positive] | None:
    """Return the constraints, merged and in the order written, then the other parts; None if they cannot all hold."""
    constraints = [part for part in parts if isinstance(part, Constraint)]
    together = conjoined(constraints)
    if together is None:
        return None
    return [*together, *(part for part in parts if not isinstance(part, Constraint))]


def _joined(word: str, codes: list[_Code]) -> str:
    if len(codes) == 1:
        return codes[0].text
    return "(" + word.join([f"({code.text})" if " and " in code.text else code.text for code in codes]) + ")"


def _is_plain(node: Node) -> bool:
    """Whether the node is a value with few operands, which can become code."""
    return node.is_value and sum(1 for _ in names(node)) + _operations(node) <= _MOST_OPERANDS


def _operations(node: Node) -> int:
    return sum(1 + _operations(child) for child in node.children())


_NUMBER_TESTS: dict[Operator, Callable[[str, Any], str]] = {
    Operator.EQUAL_NUMBER: lambda variable, number: f"{variable} == {number!r}",
    Operator.NOT_EQUAL_NUMBER: lambda variable, number: f"{variable} != {number!r}",
    Operator.RANGE: lambda variable, bounds: _range_test(variable, bounds),
}


def _range_test(variable: str, bounds: Range) -> str:
    low, low_open, high, high_open = bounds
    if low is None:
        return f"{variable} {'<' if high_open else '<='} {high!r}"
    if high is None:
        return f"{variable} {'>' if low_open else '>='} {low!r}"
    return f"{low!r} {'<' if low_open else '<='} {variable} {'<' if high_open else '<='} {high!r}"


# Arithmetic and comparisons of two attributes: plain cases directly, all others by the reference in `logic`.

_NUMERIC = frozenset((int, float))
_COMPARERS = {"=": "equal", "<>": "differ", "<": "less", "<=": "at_most", ">": "greater", ">=": "at_least"}
_CALCULATORS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_LEAST, _MOST = -(2**63), 2**63 - 1


def _comparer(operator: str, of_numbers: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compared(left: Any, right: Any) -> bool:
        if left.__class__ in _NUMERIC and right.__class__ in _NUMERIC:
            return of_numbers(left, right)
        return compare(operator, left, right) is True

    return compared


def _calculator(operator: str, of_integers: Callable[[int, int], int]) -> Callable[[Any, Any], int | float | None]:
    def calculated(left: Any, right: Any) -> int | float | None:
        if left.__class__ is int and right.__class__ is int:
            result = of_integers(left, right)
            return result if _LEAST <= result <= _MOST else None
        return arithmetic(operator, left, right)

    return calculated


_HELPERS: dict[str, object] = {
    "Untyped": Untyped,
    "number_of": number_of,
    "negative": negative,
    "positive": positive,
    "equal": _comparer("=", python.eq),
    "differ": _comparer("<>", python.ne),
    "less": _comparer("<", python.lt),
    "at_most": _comparer("<=", python.le),
    "greater": _comparer(">", python.gt),
    "at_least": _comparer(">=", python.ge),
    "add": _calculator("+", python.add),
    "subtract": _calculator("-", python.sub),
    "multiply": _calculator("*", python.mul),
    "divide": lambda left, right: arithmetic("/", left, right),
}
