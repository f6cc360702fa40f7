"""Parses a selector into a tree. A precedence parser, written by hand for speed: clients subscribe by the thousand.

    OR  <  AND  <  NOT  <  comparisons, BETWEEN, IN, LIKE, IS  <  + -  <  * /  <  signs

Chains on one level are loops. Only parentheses recurse, through `condition`, `predicate`, `value` and `operand`, and
MAX_NESTING bounds them. Both values and conditions can be in parentheses, so a node says which of the two it can
be, and its user checks. The grammar is in docs/selectors.md.
"""

from __future__ import annotations

from typing import NoReturn

from postroad.selectors.errors import SelectorError
from postroad.selectors.lexer import KEYWORDS, name_mistake, needs_quotes, position_of, spellings, tokens_of
from postroad.selectors.like import EscapeMistake, parse_like
from postroad.selectors.limits import (
    MAX_IN_VALUES,
    MAX_LIKE_LENGTH,
    MAX_NAME_BYTES,
    MAX_NESTING,
    MAX_SELECTOR_LENGTH,
    MAX_TERMS,
)
from postroad.selectors.literals import LiteralMistake, number_literal
from postroad.selectors.mistakes import HINTS, character_hint, shown
from postroad.selectors.tree import (
    And,
    Arithmetic,
    Between,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Node,
    Not,
    Or,
    Sign,
)

__all__ = ["parse_condition"]

_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))
_EQUALITIES = frozenset(("=", "<>"))
_SUMS = frozenset("+-")
_ARITHMETIC = frozenset("+-*/")
_NOT = frozenset(spellings("NOT"))
_JUNCTIONS = {spelling: word for word in ("AND", "OR") for spelling in spellings(word)}
_DIGITS = frozenset("0123456789")
_NAME_STARTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$")
_NUMBER_STARTS = _DIGITS | {"."}
# A name this short cannot be too long in UTF-8, whatever its characters.
_SURELY_SHORT = MAX_NAME_BYTES // 4

_A_VALUE = "a name, a number, a text in single quotes, TRUE, FALSE or ("
_A_CONDITION = "a condition, such as name = 'text' or name > 5"


# Canonical text is at most so many times as long as what it was made from: 9e15 becomes 9000000000000000.0, a=b gets
# two blanks, and a LIKE pattern at most an escape for each of its characters. So short texts need no second check.
_MOST_GROWTH = 8


def parse_condition(text: str, nesting: int = MAX_NESTING) -> Node:
    """Return the tree of a selector; the literal TRUE for a blank one.

    The limits apply to the text and to the canonical text of the tree, because other brokers and later processes parse
    the canonical text: whatever is accepted here is accepted there.

    Args:
        text: the selector.
        nesting: how deep it may be nested.

    Raises:
        SelectorError: the text is not a selector, or exceeds a limit.
    """
    _check_text(text)
    tokens = tokens_of(text)
    if len(tokens) == 1:
        return Literal(True)
    node = _Parser(text, tokens, nesting).whole()
    if len(text) * _MOST_GROWTH > MAX_SELECTOR_LENGTH:
        _check_canonical(text, len(node.text()))
    return node


def _check_canonical(text: str, length: int) -> None:
    if length > MAX_SELECTOR_LENGTH:
        message = (
            f"the selector has {length:,} characters in its canonical form, with blanks around operators and after "
            f"commas; the limit is {MAX_SELECTOR_LENGTH:,} (MAX_SELECTOR_LENGTH)"
        )
        raise SelectorError(message, text, len(text))


def _check_text(text: str) -> None:
    if len(text) > MAX_SELECTOR_LENGTH:
        raise SelectorError(
            f"the selector has {len(text):,} characters; the limit is {MAX_SELECTOR_LENGTH:,} (MAX_SELECTOR_LENGTH)",
            text,
            MAX_SELECTOR_LENGTH,
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            message = "half a surrogate pair is not a character, and no message can hold it"
            raise SelectorError(message, text, error.start) from None


class _Parser:
    __slots__ = ("at", "depth", "nesting", "terms", "text", "tokens")

    def __init__(self, text: str, tokens: list[str], nesting: int) -> None:
        self.text = text
        self.tokens = tokens
        self.nesting = nesting
        self.at = 0
        self.depth = 0
        self.terms = 0

    def whole(self) -> Node:
        node = self.condition()
        if self.tokens[self.at]:
            self.unexpected(_joint(node, "the end of the selector"))
        self.need_condition(node, 0)
        return node

    # Conditions

    def condition(self) -> Node:
        """Parse predicates joined by AND and OR; or a single predicate or value."""
        start = self.at
        node = self.predicate()
        junction = _JUNCTIONS.get(self.tokens[self.at])
        if junction is None:
            return node
        alternatives: list[Node] = []
        conjuncts: list[Node] = []
        while True:
            self.need_condition(node, start)
            if isinstance(node, And):
                conjuncts.extend(node.operands)
            else:
                conjuncts.append(node)
            if junction != "AND":
                self.add_alternative(alternatives, conjuncts)
                conjuncts = []
            if junction is None:
                break
            self.at += 1
            self.count_term()
            start = self.at
            node = self.predicate()
            junction = _JUNCTIONS.get(self.tokens[self.at])
        return alternatives[0] if len(alternatives) == 1 else Or(tuple(alternatives))

    @staticmethod
    def add_alternative(alternatives: list[Node], conjuncts: list[Node]) -> None:
        if len(conjuncts) > 1:
            alternatives.append(And(tuple(conjuncts)))
        elif isinstance(conjuncts[0], Or):
            alternatives.extend(conjuncts[0].operands)
        else:
            alternatives.append(conjuncts[0])

    def predicate(self) -> Node:
        """Parse one comparison or other test, with any NOTs before it; or just a value."""
        tokens = self.tokens
        if tokens[self.at] in _NOT:
            return self.negation()
        start = self.at
        left = self.value()
        operator = tokens[self.at]
        if operator in _COMPARISONS:
            self.at += 1
            middle = self.at
            right = self.value()
            if not (left.is_value and right.is_value) and operator not in _EQUALITIES:
                place = start if not left.is_value else middle
                self.refuse(place, "conditions compare only by = and <>", "a value")
            return Comparison(operator, left, right)
        word = KEYWORDS.get(operator)
        if word is None or word in ("AND", "OR"):
            return left
        return self.worded(left, start, word)

    def negation(self) -> Node:
        first = self.at
        while self.tokens[self.at] in _NOT:
            self.at += 1
        count = self.at - first
        self.deepen(count, first)
        start = self.at
        node = self.predicate()
        self.need_condition(node, start)
        self.depth -= count
        for _ in range(count):
            node = Not(node)
        return node

    def worded(self, left: Node, start: int, word: str) -> Node:
        """Parse IS NULL, BETWEEN, IN or LIKE after `left`."""
        negated = word == "NOT"
        if negated:
            self.at += 1
            word = KEYWORDS.get(self.tokens[self.at], "")
            if word not in ("BETWEEN", "IN", "LIKE"):
                self.unexpected("BETWEEN, IN or LIKE after NOT")
        if word == "BETWEEN":
            return self.between(negated, left, start)
        if word not in ("IN", "LIKE", "IS"):
            self.unexpected(_joint(left, "the end of the selector"))
        if not isinstance(left, Name):
            self.refuse(start, f"{word} takes the name of an attribute on its left", "a name")
        self.at += 1
        if word == "IN":
            return In(negated, left, self.texts())
        if word == "LIKE":
            return self.like(negated, left)
        return self.is_null(left)

    def is_null(self, name: Name) -> Node:
        negated = self.tokens[self.at] in _NOT
        if negated:
            self.at += 1
        if KEYWORDS.get(self.tokens[self.at]) != "NULL":
            self.unexpected("NULL" if negated else "NULL or NOT NULL")
        self.at += 1
        return IsNull(negated, name)

    def between(self, negated: bool, left: Node, start: int) -> Node:
        self.need_number(left, start, "BETWEEN")
        self.at += 1
        low = self.bound()
        if _JUNCTIONS.get(self.tokens[self.at]) != "AND":
            self.unexpected("AND and the upper bound of BETWEEN")
        self.at += 1
        return Between(negated, left, low, self.bound())

    def bound(self) -> Node:
        start = self.at
        node = self.value()
        self.need_number(node, start, "BETWEEN")
        return node

    def texts(self) -> tuple[str, ...]:
        """Parse the list of an IN, with its parentheses."""
        if self.tokens[self.at] != "(":
            self.unexpected("( and a list of texts after IN")
        values: list[str] = []
        while True:
            self.at += 1
            values.append(self.text_literal("IN"))
            if len(values) > MAX_IN_VALUES:
                message = f"IN has more than {MAX_IN_VALUES:,} texts, the limit (MAX_IN_VALUES); join several IN by OR"
                self.refuse(self.at - 1, message)
            if self.tokens[self.at] != ",":
                break
        if self.tokens[self.at] != ")":
            self.unexpected("a comma or )")
        self.at += 1
        return tuple(dict.fromkeys(values))

    def like(self, negated: bool, name: Name) -> Node:
        place = self.at
        pattern = self.text_literal("LIKE")
        escape = ""
        if KEYWORDS.get(self.tokens[self.at]) == "ESCAPE":
            self.at += 1
            escape = self.text_literal("ESCAPE")
            if len(escape) != 1:
                self.refuse(self.at - 1, f"ESCAPE takes one character, not {len(escape)}", "a text of one character")
        try:
            parsed = parse_like(pattern, escape)
        except EscapeMistake as mistake:
            # The literal may have doubled quotes before the mistake; the pattern has single ones.
            offset = 1 + mistake.index + pattern[: mistake.index].count("'")
            self.refuse(place, f"{shown(escape)} escapes nothing here", f"%, _ or {escape} after {escape}", offset)
        # Without escapes: canonical text has another escape character, and so another number of them.
        if parsed.length > MAX_LIKE_LENGTH:
            message = (
                f"the pattern has {parsed.length:,} characters; the limit is {MAX_LIKE_LENGTH:,} (MAX_LIKE_LENGTH)"
            )
            self.refuse(place, message)
        return Like(negated, name, parsed)

    def text_literal(self, word: str) -> str:
        token = self.tokens[self.at]
        if token[:1] != "'" or len(token) == 1:
            self.unexpected(f"a text in single quotes {'after' if word != 'IN' else 'in the list of'} {word}", word)
        self.at += 1
        return token[1:-1].replace("''", "'")

    # Values

    def value(self) -> Node:
        """Parse operands joined by arithmetic; or a single operand, which may be a condition."""
        start = self.at
        node = self.operand()
        if self.tokens[self.at] not in _ARITHMETIC:
            return node
        self.need_number(node, start, f"'{self.tokens[self.at]}'")
        return self.chain(node)

    def chain(self, first: Node) -> Node:
        """Parse sums of products, from left to right, without recursion."""
        terms: list[tuple[str, Node]] = []
        sign = "+"
        factors: list[tuple[str, Node]] = []
        while (operator := self.tokens[self.at]) in _ARITHMETIC:
            self.at += 1
            self.count_term()
            start = self.at
            operand = self.operand()
            self.need_number(operand, start, f"'{operator}'")
            if operator in _SUMS:
                terms.append((sign, _joined(first, factors)))
                sign, first, factors = operator, operand, []
            else:
                factors.append((operator, operand))
        terms.append((sign, _joined(first, factors)))
        return _joined(terms[0][1], terms[1:])

    def operand(self) -> Node:
        token = self.tokens[self.at]
        first = token[:1]
        if first in _NAME_STARTS:
            word = KEYWORDS.get(token)
            if word is not None:
                return self.constant(word)
            if len(token) > _SURELY_SHORT or not token.isascii():
                self.check_name(token)
            self.at += 1
            return Name(token)
        if first == "'" and len(token) > 1:
            self.at += 1
            return Literal(token[1:-1].replace("''", "'"))
        if first in _NUMBER_STARTS and token != ".":
            return self.number(token, False)
        if first == "(":
            self.open()
            node = self.condition()
            self.close(node)
            return node
        if first in _SUMS:
            return self.signed(token)
        if first == '"' and len(token) > 1:
            return self.quoted_name(token)
        if first > "\x7f":
            self.check_name(token)
            self.at += 1
            return Name(token)
        self.unexpected(_A_VALUE)

    def quoted_name(self, token: str) -> Node:
        """Parse a name that needs quotes. Others in quotes are refused: the author of `stock = "S1"` means a text."""
        name = token[1:-1].replace('""', '"')
        if not name:
            self.refuse(self.at, "there is no name between these quotes", "the name of an attribute")
        if not needs_quotes(name):
            message = f"texts are in single quotes; {shown(token)} would be the attribute {shown(name)}"
            self.refuse(self.at, message, f"'{name}' for the text, {name} for the attribute")
        self.check_size(name)
        self.at += 1
        return Name(name)

    def constant(self, word: str) -> Node:
        if word not in ("TRUE", "FALSE"):
            self.unexpected(_A_VALUE)
        self.at += 1
        return Literal(word == "TRUE")

    def number(self, token: str, negative: bool) -> Node:
        try:
            literal = Literal(number_literal(token, negative))
        except LiteralMistake as mistake:
            self.refuse(self.at, str(mistake))
        self.at += 1
        return literal

    def open(self) -> None:
        self.deepen(1, self.at)
        self.at += 1

    def close(self, node: Node) -> None:
        if self.tokens[self.at] != ")":
            self.unexpected(_joint(node, ")") if self.tokens[self.at] else ") for the ( that is still open")
        self.at += 1
        self.depth -= 1

    def signed(self, sign: str) -> Node:
        """Parse a sign. It is part of the number right after it, so that the smallest integer can be written."""
        place = self.at
        self.at += 1
        token = self.tokens[self.at]
        if token[:1] in _DIGITS or (token[:1] == "." and len(token) > 1):
            return self.number(token, sign == "-")
        self.deepen(1, place)
        start = self.at
        node = self.operand()
        self.need_number(node, start, f"'{sign}'")
        if isinstance(node, Literal):
            # Canonical text has the number in parentheses, which add a level.
            self.deepen(1, place)
            self.depth -= 1
        self.depth -= 1
        return Sign(sign, node)

    # Checks

    def need_condition(self, node: Node, start: int) -> None:
        if not node.is_condition:
            message = "a value alone is not a condition"
            self.refuse(start, message, _A_CONDITION)

    def need_number(self, node: Node, start: int, user: str) -> None:
        if not node.is_value:
            self.refuse(start, f"{user} works on numbers, and this is a condition", "a number or a name")
        if isinstance(node, Literal) and isinstance(node.constant, str | bool):
            self.refuse(start, f"{user} works on numbers, and this is a {_kind(node)}", "a number or a name")

    def check_name(self, name: str) -> None:
        mistake = name_mistake(name)
        if mistake is not None:
            self.refuse(self.at, character_hint(name[mistake]), "", mistake)
        self.check_size(name)

    def check_size(self, name: str) -> None:
        size = len(name.encode())
        if size > MAX_NAME_BYTES:
            message = f"the name has {size:,} bytes; attributes have at most {MAX_NAME_BYTES} (MAX_NAME_BYTES)"
            self.refuse(self.at, message)

    def deepen(self, levels: int, place: int) -> None:
        self.depth += levels
        if self.depth > self.nesting:
            message = f"the selector is nested more than {self.nesting} deep, the limit (MAX_NESTING)"
            self.refuse(place, message)

    def count_term(self) -> None:
        self.terms += 1
        if self.terms >= MAX_TERMS:
            message = f"the selector joins more than {MAX_TERMS:,} terms, the limit (MAX_TERMS)"
            self.refuse(self.at, message)

    # Refusals

    def unexpected(self, expected: str, word: str = "") -> NoReturn:
        """Refuse the current token."""
        token = self.tokens[self.at]
        if token == "'":
            self.refuse(self.at, "this text has no closing quote", "' at the end of the text, '' for a quote inside it")
        if token == '"':
            self.refuse(self.at, "this name has no closing quote", 'a " at its end; texts are in single quotes')
        message = f"unexpected {shown(token)}" if token else "the selector ends too early"
        hint = self.hint(token, word)
        self.refuse(self.at, f"{message}; {hint}" if hint else message, expected)

    def hint(self, token: str, word: str) -> str:
        previous = self.tokens[self.at - 1] if self.at else ""
        if token in _COMPARISONS and previous not in _COMPARISONS and not word:
            return "comparisons do not chain; join two by AND, or put one in parentheses"
        if word == "IN" and token == ")":
            return "an empty list matches nothing"
        if word == "IN" and token[:1] in _DIGITS:
            return "IN compares texts; for numbers write x = 1 OR x = 2"
        if previous[:1] == "'" and token[:1] in _NAME_STARTS and token not in KEYWORDS:
            return "write '' for a quote inside a text"
        if token in KEYWORDS and HINTS.get(KEYWORDS[token]) is None and token not in _JUNCTIONS:
            return f"{KEYWORDS[token]} is a reserved word"
        return HINTS.get(KEYWORDS.get(token, token), "")

    def refuse(self, place: int, message: str, expected: str = "", offset: int = 0) -> NoReturn:
        raise SelectorError(message, self.text, position_of(self.text, place) + offset, expected)


def _joined(first: Node, rest: list[tuple[str, Node]]) -> Node:
    """Return one chain, which takes in its first operand if that is a chain of the same level (in parentheses)."""
    if not rest:
        return first
    node = Arithmetic(first, tuple(rest))
    if isinstance(first, Arithmetic) and first.level == node.level:
        return Arithmetic(first.first, first.rest + node.rest)
    return node


def _joint(node: Node, ending: str) -> str:
    """Return what may follow a node in a condition, for errors."""
    if not node.is_condition:
        return "a comparison, such as = or <"
    return f"a comparison, AND, OR or {ending}" if node.is_value else f"AND, OR or {ending}"


def _kind(literal: Literal) -> str:
    return "boolean" if isinstance(literal.constant, bool) else "text"
