"""The categories that a conjunction asks for: a message that satisfies the conjunction has all of them.

    p(m) implies: some set of categories of p is a subset of the categories of m

holds for every selector and message. Whatever no category describes (NOT ..., IS NULL, arithmetic, a comparison of two
attributes) asks for less, at worst for nothing, and never for more.

A constraint that one set cannot express may have alternatives: `IN` asks for one of several values, `IS NOT NULL` for
one of several types. Alternatives multiply, so there is a bound on them; beyond it a constraint falls back to the
existence of a text, or to nothing.

In B-DRP each conjunction becomes one set of categories, and the sets of all conjunctions, encoded, are what a broker
advertises. A constraint there asks for "equals this value" if it is an equality, and for "exists, with this type"
otherwise. In the workload of the paper a quarter of the constraints are not equalities, and almost every message has
all attributes they name; so the sharp scheme asks for thresholds, prefixes, suffixes and grams instead, each implied by
the constraint:

    x < c             "below T" for the least threshold T >= c of the ladder
    x > c             "above T" for the greatest threshold T <= c
    prefix, suffix    its first or last bytes, as many as a gram has
    substring, LIKE   grams of its literal runs, at most MAX_GRAMS
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from postroad.filters import derived_key, hash_bytes
from postroad.matching.encoding.families import (
    ABOVE,
    ANY_TYPE,
    BELOW,
    DEPTH,
    EQUAL_BOOLEAN,
    EQUAL_TEXT,
    EXISTS_NUMBER,
    EXISTS_TEXT,
    GRAM,
    LEVEL,
    MAX_LEVELS,
    PREFIX,
    SUFFIX,
    TOPIC,
    base,
    category,
    equal_number,
    packed,
    topic_base,
)
from postroad.selectors.constraints import Operator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from postroad.matching.encoding.scheme import Scheme
    from postroad.selectors import TopicPattern
    from postroad.selectors.constraints import Conjunction, Constraint, Range
    from postroad.selectors.like import LikePattern

__all__ = ["MAX_ALTERNATIVES", "MAX_DEMANDS", "conjunction_categories", "topic_pattern_categories"]

MAX_ALTERNATIVES = 16  # rows that one conjunction may become; two IS NOT NULL of four types each just fit
MAX_GRAMS = 4  # per constraint, evenly apart; more select no better on the B-DRP workload, and each costs k bits
MAX_DEMANDS = 64  # categories of one row; dropping some is safe, and this many select sharply enough

# A category set is a tuple in a fixed order until the row is complete.
_Demand = tuple[int, ...]
_NOTHING: tuple[_Demand, ...] = ((),)

# Derived names that are another attribute under a name of JMS, and those whose value is not encoded.
_ALIASES = {"JMSCorrelationID": "correlation-id", "JMSType": "type"}
_PRIORITY = "JMSPriority"
_NOT_ENCODED = frozenset({"JMSTimestamp", "JMSMessageID"})

_TEXT_OPERATORS = frozenset({Operator.NOT_EQUAL_TEXT, Operator.NOT_IN_TEXT, Operator.NOT_LIKE})


def conjunction_categories(
    conjunction: Conjunction, scheme: Scheme, pattern: TopicPattern | None = None
) -> tuple[frozenset[int], ...]:
    """The alternative category sets of a conjunction on topics of a pattern; one empty set matches everything."""
    choices: list[Sequence[_Demand]] = [(topic_pattern_categories(pattern, scheme),)]
    room = MAX_ALTERNATIVES
    for constraint in conjunction:
        alternatives = _alternatives(constraint, scheme)
        if len(alternatives) > room:
            alternatives = _fallback(constraint)
        room //= len(alternatives)
        choices.append(alternatives)
    rows = (dict.fromkeys(word for demand in choice for word in demand) for choice in product(*choices))
    return tuple(dict.fromkeys(frozenset(list(row)[:MAX_DEMANDS]) for row in rows))


def topic_pattern_categories(pattern: TopicPattern | None, scheme: Scheme) -> _Demand:
    """What a topic pattern asks for: the whole topic, or its fixed levels and their number where it is known."""
    if pattern is None or not scheme.topics:
        return ()
    text = str(pattern)
    if pattern.is_exact:
        return (derived_key(topic_base(TOPIC), hash_bytes(text.encode())),)
    levels = text.split(".")
    demands = [
        derived_key(derived_key(topic_base(LEVEL), place), hash_bytes(level.encode()))
        for place, level in enumerate(levels[:MAX_LEVELS])
        if level not in ("*", ">")
    ]
    if levels[-1] != ">":
        demands.append(derived_key(topic_base(DEPTH), len(levels)))
    return tuple(demands)


def _alternatives(constraint: Constraint, scheme: Scheme) -> Sequence[_Demand]:
    name, operator, operand = constraint
    if operator in (Operator.MISSING, Operator.TEST) or name in _NOT_ENCODED:
        return _NOTHING
    if name == _PRIORITY and not scheme.priority:
        return _NOTHING
    name = _ALIASES.get(name, name)
    if operator == Operator.EXISTS:
        return [(base(family, name),) for family in ANY_TYPE]
    if operator == Operator.IN_TEXT:
        return [(_equal_text(name, text),) for text in operand]
    return (_demand(name, operator, operand, scheme),)


def _fallback(constraint: Constraint) -> Sequence[_Demand]:
    """What remains of a constraint with too many alternatives: IN needs a text, IS NOT NULL asks for nothing."""
    if constraint.operator != Operator.IN_TEXT:
        return _NOTHING
    name = _ALIASES.get(constraint.attribute, constraint.attribute)
    return ((base(EXISTS_TEXT, name),),)


def _demand(name: str, operator: Operator, operand: Any, scheme: Scheme) -> _Demand:
    if operator == Operator.EQUAL_TEXT:
        return (_equal_text(name, operand),)
    if operator == Operator.EQUAL_NUMBER:
        found = equal_number(operand)
        return (base(EXISTS_NUMBER, name),) if found is None else (category(found[0], name, found[1]),)
    if operator == Operator.EQUAL_BOOLEAN:
        return (category(EQUAL_BOOLEAN, name, int(operand)),)
    if operator == Operator.RANGE:
        return _range(name, operand, scheme) or (base(EXISTS_NUMBER, name),)
    if operator == Operator.NOT_EQUAL_NUMBER:
        return (base(EXISTS_NUMBER, name),)
    if operator in _TEXT_OPERATORS or scheme.gram == 0:
        return (base(EXISTS_TEXT, name),)
    return tuple(_pieces(name, operator, operand, scheme.gram)) or (base(EXISTS_TEXT, name),)


def _equal_text(name: str, text: str) -> int:
    return category(EQUAL_TEXT, name, hash_bytes(_utf8(text)))


def _utf8(text: str) -> bytes:
    # A lone surrogate is in no message, so what its bytes are does not matter; only an exception would.
    return text.encode("utf-8", "surrogatepass")


def _range(name: str, bounds: Range, scheme: Scheme) -> _Demand:
    """The nearest thresholds outside the range: a number in it lies strictly above the one and below the other."""
    ladder = scheme.thresholds
    demands = []
    if bounds.low is not None:
        place = (bisect_right if bounds.low_open else bisect_left)(ladder, bounds.low) - 1
        if place >= 0:
            demands.append(category(ABOVE, name, place))
    if bounds.high is not None:
        place = (bisect_left if bounds.high_open else bisect_right)(ladder, bounds.high)
        if place < len(ladder):
            demands.append(category(BELOW, name, place))
    return tuple(demands)


def _pieces(name: str, operator: Operator, operand: Any, gram: int) -> Iterable[int]:
    """Prefix, suffix and grams of a pattern's literal runs of bytes."""
    runs, at_start, at_end = _runs(operator, operand)
    if at_start and runs[0]:
        yield category(PREFIX, name, packed(runs[0][:gram]))
    if at_end and runs[-1]:
        yield category(SUFFIX, name, packed(runs[-1][-gram:]))
    inner = base(GRAM, name)
    grams = dict.fromkeys(run[at : at + gram] for run in runs for at in range(len(run) - gram + 1))
    for piece in _spread(list(grams), MAX_GRAMS):
        yield derived_key(inner, packed(piece))


def _runs(operator: Operator, operand: Any) -> tuple[list[bytes], bool, bool]:
    """The literal runs of a pattern, and whether the first is at the start of the text and the last at its end."""
    if operator == Operator.LIKE:
        return _literal_runs(operand), True, True
    return [_utf8(operand)], operator == Operator.PREFIX, operator == Operator.SUFFIX


def _literal_runs(pattern: LikePattern) -> list[bytes]:
    """Cut the parts of a LIKE pattern at each `_`. An empty first or last run says that nothing is known there."""
    runs = []
    for part, holes in zip(pattern.parts, pattern.holes, strict=True):
        edges = [-1, *holes, len(part)]
        runs += [_utf8(part[before + 1 : after]) for before, after in pairwise(edges)]
    return runs


def _spread(items: list[bytes], most: int) -> list[bytes]:
    """At most `most` of the items, evenly apart: neighbouring grams overlap and say much the same."""
    if len(items) <= most:
        return items
    return [items[index * len(items) // most] for index in range(most)]
