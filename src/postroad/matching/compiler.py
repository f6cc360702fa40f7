"""Compile a condition that only a program can decide; `programs.py` runs it.

What the kernel relies on, and does not check again:

- every operation finds as many cells as it takes: an operand's code is emitted before its operator's, and leaves one
  cell more than there was;
- `depth` is the most cells there are at any point, so the stack that `Interner.program` makes is large enough;
- numbers of attributes come from `attribute_number`, which has given each of them a row;
- offsets of constants are into `text`, which becomes the text of the constraint.

`cost` counts every word, and the patterns of LIKE by their length. There are no jumps, so that is what a run costs.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from postroad.errors import LimitError
from postroad.matching import programs
from postroad.matching.costs import WORD_COST, like_cost
from postroad.matching.search import ANY_ONE, ANY_RUN, MAX_PATTERN_BYTES
from postroad.selectors import tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.selectors.like import LikePattern

_COMPARISONS = {
    "=": programs.EQUAL,
    "<>": programs.NOT_EQUAL,
    "<": programs.LESS,
    "<=": programs.LESS_EQUAL,
    ">": programs.GREATER,
    ">=": programs.GREATER_EQUAL,
}
_ARITHMETIC = {"+": programs.ADD, "-": programs.SUBTRACT, "*": programs.MULTIPLY, "/": programs.DIVIDE}


class Program(NamedTuple):
    """A compiled condition.

    Attributes:
        words: the number of attributes it reads, their numbers, then the code.
        text: the bytes of its constants.
        depth: how many cells of the stack it needs.
        cost: the most that running it can cost (`costs.py`).
    """

    words: list[int]
    text: bytes
    depth: int
    cost: int


def like_bytes(pattern: LikePattern) -> bytes:
    """A LIKE pattern as bytes, with the two wildcards as bytes that UTF-8 does not use.

    Raises:
        LimitError: it is longer than the searches have room for; a selector's own limit is as long.
    """
    parts = []
    for part, holes in zip(pattern.parts, pattern.holes, strict=True):
        pieces, start = [], 0
        for hole in holes:
            pieces.append(part[start:hole].encode())
            start = hole + 1
        pieces.append(part[start:].encode())
        parts.append(bytes([ANY_ONE]).join(pieces))
    data = bytes([ANY_RUN]).join(parts)
    if len(data) > MAX_PATTERN_BYTES:
        raise LimitError("a LIKE pattern", len(data), MAX_PATTERN_BYTES, "bytes of UTF-8, MAX_PATTERN_BYTES")
    return data


def compile_condition(condition: tree.Node, attribute_number: Callable[[str], int]) -> Program:
    """The program of a condition; `attribute_number` gives each name its number in the index."""
    compiler = _Compiler(attribute_number)
    compiler.condition(condition)
    attributes = sorted(set(compiler.attributes))
    return Program(
        [len(attributes), *attributes, *compiler.code], bytes(compiler.text), compiler.deepest, compiler.cost
    )


class _Compiler:
    """Writes code in postfix order. Recursion is bounded by the selector's nesting limit."""

    def __init__(self, attribute_number: Callable[[str], int]) -> None:
        self.attribute_number = attribute_number
        self.code: list[int] = []
        self.text = bytearray()
        self.attributes: list[int] = []
        self.depth = 0
        self.deepest = 0
        self.cost = 0

    def condition(self, node: tree.Node) -> None:
        """Code that leaves the truth of a node on the stack."""
        if isinstance(node, tree.And | tree.Or):
            operation = programs.AND if isinstance(node, tree.And) else programs.OR
            self._chain(node, operation)
        elif isinstance(node, tree.Not):
            self.condition(node.operand)
            self._emit(0, programs.NOT)
        elif isinstance(node, tree.Comparison):
            self.value(node.left)
            self.value(node.right)
            self._emit(-1, programs.COMPARE, _COMPARISONS[node.operator])
        elif isinstance(node, tree.Between):
            self._between(node)
        elif isinstance(node, tree.In):
            self._attribute(node.name)
            spans = [word for text in node.values for word in self._constant(text.encode())]
            self._emit(0, programs.IN, int(node.negated), len(node.values), *spans)
        elif isinstance(node, tree.Like):
            self._attribute(node.name)
            pattern = like_bytes(node.pattern)
            self.cost += like_cost(pattern)
            self._emit(0, programs.LIKE, int(node.negated), *self._constant(pattern))
        elif isinstance(node, tree.IsNull):
            self._emit(1, programs.IS_NULL, int(node.negated), self._number(node.name))
        else:
            self.value(node)
            self._emit(0, programs.CONDITION)

    def value(self, node: tree.Node) -> None:
        """Code that leaves the value of a node on the stack."""
        if isinstance(node, tree.Name):
            self._attribute(node)
        elif isinstance(node, tree.Literal):
            self._literal(node.constant)
        elif isinstance(node, tree.Sign):
            self.value(node.operand)
            self._emit(0, programs.NEGATE if node.operator == "-" else programs.NUMBER)
        elif isinstance(node, tree.Arithmetic):
            self.value(node.first)
            for operator, operand in node.rest:
                self.value(operand)
                self._emit(-1, _ARITHMETIC[operator])
        else:
            self.condition(node)

    def _chain(self, node: tree.And | tree.Or, operation: int) -> None:
        # Each operand is folded in as it comes, so that a long chain needs no deep stack.
        first, *rest = node.children()
        self.condition(first)
        for operand in rest:
            self.condition(operand)
            self._emit(-1, operation)

    def _between(self, node: tree.Between) -> None:
        for comparison, bound in ((programs.GREATER_EQUAL, node.low), (programs.LESS_EQUAL, node.high)):
            self.value(node.operand)
            self.value(bound)
            self._emit(-1, programs.COMPARE, comparison)
        self._emit(-1, programs.AND)
        if node.negated:
            self._emit(0, programs.NOT)

    def _literal(self, constant: str | float | bool) -> None:
        if isinstance(constant, bool):
            self._emit(1, programs.TRUTH_VALUE, int(constant))
        elif isinstance(constant, int):
            self._emit(1, programs.INTEGER_VALUE, *struct.unpack("<ii", struct.pack("<q", constant)))
        elif isinstance(constant, float):
            self._emit(1, programs.FLOAT_VALUE, *struct.unpack("<ii", struct.pack("<d", constant)))
        else:
            self._emit(1, programs.TEXT_VALUE, *self._constant(constant.encode()))

    def _attribute(self, node: tree.Name) -> None:
        self._emit(1, programs.ATTRIBUTE_VALUE, self._number(node))

    def _number(self, node: tree.Name) -> int:
        number = self.attribute_number(node.name)
        self.attributes.append(number)
        return number

    def _constant(self, data: bytes) -> tuple[int, int]:
        start = len(self.text)
        self.text += data
        return start, len(data)

    def _emit(self, growth: int, *words: int) -> None:
        self.code += words
        self.cost += len(words) * WORD_COST
        self.depth += growth
        self.deepest = max(self.deepest, self.depth)
