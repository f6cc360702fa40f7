"""The nodes of a parsed selector: what each means for a message, and its canonical text.

`value` is the node as an operand, `truth` the node as a condition. They differ only for a name, which as a condition is
true or false only if the attribute is a boolean. None is "missing" as a value, "unknown" as a truth.

Chains of AND, of OR, and of arithmetic on one level are one node with many operands, so that the depth of a tree is
bounded by MAX_NESTING and not by the selector's length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeAlias

from postroad.selectors.lexer import needs_quotes
from postroad.selectors.like import like_matcher
from postroad.selectors.logic import arithmetic, compare, is_text, negative, positive

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from postroad.messages import Value
    from postroad.selectors.like import LikePattern

    Attributes: TypeAlias = Mapping[str, Value]

__all__ = [
    "And",
    "Arithmetic",
    "Between",
    "Comparison",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Name",
    "Node",
    "Not",
    "Or",
    "Sign",
    "names",
]

# The precedence of a node's text; an operand of a lower level than its place requires gets parentheses.
OR, AND, NOT, CONDITION, SUM, PRODUCT, SIGN, ATOM = range(8)


class Node:
    """A part of a selector. Two nodes are equal if their canonical texts are.

    Every kind of node defines `value`, `truth` and `text`. This is not an abstract base class: their metaclass makes
    `isinstance`, which the compiler of selectors calls for every node, several times as slow.
    """

    __slots__ = ()

    level: ClassVar[int]
    is_value: ClassVar[bool] = False
    is_condition: ClassVar[bool] = True

    def value(self, attributes: Attributes) -> Value | None:
        """The value for a message with these attributes; None for unknown."""
        raise NotImplementedError

    def truth(self, attributes: Attributes) -> bool | None:
        """Whether it holds for a message with these attributes; None for unknown."""
        raise NotImplementedError

    def children(self) -> tuple[Node, ...]:
        return ()

    def text(self) -> str:
        """The canonical text: upper-case words, single blanks, no more parentheses than needed."""
        raise NotImplementedError

    def within(self, level: int) -> str:
        """Return the text as an operand at a place that requires at least this level."""
        text = self.text()
        return f"({text})" if self.level < level else text

    def __str__(self) -> str:
        return self.text()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


def names(node: Node) -> Iterator[str]:
    """Yield every attribute name in the node, as often as it occurs."""
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, Name):
            yield node.name
        else:
            pending.extend(node.children())


class _Value(Node):
    __slots__ = ()

    is_value = True
    is_condition = False


class _Condition(Node):
    __slots__ = ()

    level = CONDITION

    def value(self, attributes: Attributes) -> Value | None:
        return self.truth(attributes)


class Name(Node):
    """An attribute's value; as a condition, whether it is the boolean TRUE."""

    __slots__ = ("name",)

    level = ATOM
    is_value = True

    def __init__(self, name: str) -> None:
        self.name = name

    def value(self, attributes: Attributes) -> Value | None:
        return attributes.get(self.name)

    def truth(self, attributes: Attributes) -> bool | None:
        value = attributes.get(self.name)
        return value if isinstance(value, bool) else None

    def text(self) -> str:
        if not needs_quotes(self.name):
            return self.name
        doubled = self.name.replace('"', '""')
        return f'"{doubled}"'


class Literal(Node):
    """A text, an integer, a float, TRUE or FALSE; only the last two are conditions."""

    __slots__ = ("constant",)

    level = ATOM
    is_value = True

    def __init__(self, constant: str | float | bool) -> None:
        self.constant = constant

    @property
    def is_condition(self) -> bool:  # type: ignore[override]
        return isinstance(self.constant, bool)

    def value(self, attributes: Attributes) -> Value | None:
        return self.constant

    def truth(self, attributes: Attributes) -> bool | None:
        return self.constant if isinstance(self.constant, bool) else None

    def text(self) -> str:
        constant = self.constant
        if isinstance(constant, str):
            return quoted(constant)
        return str(constant).upper() if isinstance(constant, bool) else repr(constant)


def quoted(text: str) -> str:
    """The text as a literal: in single quotes, each quote inside doubled."""
    return "'" + text.replace("'", "''") + "'"


class Sign(_Value):
    """Unary `+` or `-` of something that is not a plain number (the sign of a number is part of its literal)."""

    __slots__ = ("operand", "operator")

    level = SIGN

    def __init__(self, operator: str, operand: Node) -> None:
        self.operator = operator
        self.operand = operand

    def value(self, attributes: Attributes) -> Value | None:
        value = self.operand.value(attributes)
        return negative(value) if self.operator == "-" else positive(value)

    def children(self) -> tuple[Node, ...]:
        return (self.operand,)

    def text(self) -> str:
        text = self.operand.within(SIGN)
        # Without the parentheses, -(5) would read back as the number -5.
        return f"{self.operator}({text})" if text[0] in "0123456789" else f"{self.operator}{text}"


class Arithmetic(_Value):
    """A chain of `+` and `-`, or of `*` and `/`, taken from left to right."""

    __slots__ = ("first", "rest")

    def __init__(self, first: Node, rest: tuple[tuple[str, Node], ...]) -> None:
        self.first = first
        self.rest = rest

    @property
    def level(self) -> int:  # type: ignore[override]
        return SUM if self.rest[0][0] in "+-" else PRODUCT

    def value(self, attributes: Attributes) -> Value | None:
        result = self.first.value(attributes)
        for operator, operand in self.rest:
            result = arithmetic(operator, result, operand.value(attributes))
            if result is None:
                return None
        return result

    def children(self) -> tuple[Node, ...]:
        return (self.first, *(operand for _, operand in self.rest))

    def text(self) -> str:
        level = self.level
        text = self.first.within(level)
        for operator, operand in self.rest:
            text += f" {operator} {operand.within(level + 1)}"
        return text


class Comparison(_Condition):
    """`left operator right`. Conditions may be operands of `=` and `<>`, as booleans."""

    __slots__ = ("left", "operator", "right")

    def __init__(self, operator: str, left: Node, right: Node) -> None:
        self.operator = operator
        self.left = left
        self.right = right

    def truth(self, attributes: Attributes) -> bool | None:
        return compare(self.operator, self.left.value(attributes), self.right.value(attributes))

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def text(self) -> str:
        return f"{self.left.within(SUM)} {self.operator} {self.right.within(SUM)}"


class Between(_Condition):
    """`operand >= low AND operand <= high`, or its negation."""

    __slots__ = ("high", "low", "negated", "operand")

    def __init__(self, negated: bool, operand: Node, low: Node, high: Node) -> None:
        self.negated = negated
        self.operand = operand
        self.low = low
        self.high = high

    def truth(self, attributes: Attributes) -> bool | None:
        value = self.operand.value(attributes)
        above = compare(">=", value, self.low.value(attributes))
        below = compare("<=", value, self.high.value(attributes))
        if above is False or below is False:
            return self.negated
        return None if above is None or below is None else not self.negated

    def children(self) -> tuple[Node, ...]:
        return (self.operand, self.low, self.high)

    def text(self) -> str:
        word = "NOT BETWEEN" if self.negated else "BETWEEN"
        return f"{self.operand.text()} {word} {self.low.text()} AND {self.high.text()}"


class In(_Condition):
    """Whether a text is one of several."""

    __slots__ = ("name", "negated", "values")

    def __init__(self, negated: bool, name: Name, values: tuple[str, ...]) -> None:
        self.negated = negated
        self.name = name
        self.values = values

    def truth(self, attributes: Attributes) -> bool | None:
        value = attributes.get(self.name.name)
        return (value in self.values) is not self.negated if is_text(value) else None

    def children(self) -> tuple[Node, ...]:
        return (self.name,)

    def text(self) -> str:
        word = "NOT IN" if self.negated else "IN"
        return f"{self.name.text()} {word} ({', '.join(map(quoted, self.values))})"


class Like(_Condition):
    """Whether a text matches a pattern."""

    __slots__ = ("name", "negated", "pattern")

    def __init__(self, negated: bool, name: Name, pattern: LikePattern) -> None:
        self.negated = negated
        self.name = name
        self.pattern = pattern

    def truth(self, attributes: Attributes) -> bool | None:
        value = attributes.get(self.name.name)
        if not is_text(value):
            return None
        return (like_matcher(self.pattern)(value) is not None) is not self.negated  # type: ignore[arg-type]

    def children(self) -> tuple[Node, ...]:
        return (self.name,)

    def text(self) -> str:
        word = "NOT LIKE" if self.negated else "LIKE"
        pattern, escape = self.pattern.literal()
        ending = f" ESCAPE {quoted(escape)}" if escape else ""
        return f"{self.name.text()} {word} {quoted(pattern)}{ending}"


class IsNull(_Condition):
    """Whether the attribute is missing; the only condition that is never unknown."""

    __slots__ = ("name", "negated")

    def __init__(self, negated: bool, name: Name) -> None:
        self.negated = negated
        self.name = name

    def truth(self, attributes: Attributes) -> bool | None:
        return (attributes.get(self.name.name) is None) is not self.negated

    def children(self) -> tuple[Node, ...]:
        return (self.name,)

    def text(self) -> str:
        return f"{self.name.text()} IS NOT NULL" if self.negated else f"{self.name.text()} IS NULL"


class Not(_Condition):
    """True for false, false for true, unknown for unknown."""

    __slots__ = ("operand",)

    level = NOT

    def __init__(self, operand: Node) -> None:
        self.operand = operand

    def truth(self, attributes: Attributes) -> bool | None:
        truth = self.operand.truth(attributes)
        return None if truth is None else not truth

    def children(self) -> tuple[Node, ...]:
        return (self.operand,)

    def text(self) -> str:
        return f"NOT {self.operand.within(NOT)}"


class _Junction(_Condition):
    """Many conditions joined by one word. The text is stored, because normal forms compare nodes by it."""

    __slots__ = ("_text", "operands")

    word: ClassVar[str]

    def __init__(self, operands: tuple[Node, ...]) -> None:
        self.operands = operands
        self._text = ""

    def children(self) -> tuple[Node, ...]:
        return self.operands

    def text(self) -> str:
        if not self._text:
            inner = self.level + 1
            texts: list[str] = []
            for operand in self.operands:
                texts.append(operand.within(inner))  # noqa: PERF401  (a comprehension would be one more frame per level)
            self._text = f" {self.word} ".join(texts)
        return self._text


class And(_Junction):
    """False when any operand is; else unknown when any is; else true."""

    __slots__ = ()

    level = AND
    word = "AND"

    def truth(self, attributes: Attributes) -> bool | None:
        result: bool | None = True
        for operand in self.operands:
            truth = operand.truth(attributes)
            if truth is False:
                return False
            if truth is None:
                result = None
        return result


class Or(_Junction):
    """True when any operand is; else unknown when any is; else false."""

    __slots__ = ()

    level = OR
    word = "OR"

    def truth(self, attributes: Attributes) -> bool | None:
        result: bool | None = False
        for operand in self.operands:
            truth = operand.truth(attributes)
            if truth is True:
                return True
            if truth is None:
                result = None
        return result
