"""Targets of what subscribers write, and of the index that holds it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from fuzz.choices import Choices
from postroad.errors import LimitError
from postroad.matching import SubscriptionIndex
from postroad.messages import Batch, Draft
from postroad.selectors import Selector, SelectorError, TopicPattern
from postroad.selectors.errors import TopicError
from postroad.selectors.generated_code import generate

if TYPE_CHECKING:
    from postroad.messages import Value

__all__ = ["index", "selectors", "topics"]

_MESSAGE: dict[str, Value] = {"a": 5, "b": "x", "größe": True}
_NAMES = ("a", "b", "c")
_TEXTS = ("", "x", "xy", "yx", "x%_", "é")
_TOPICS = ("t", "t.u", "t.u.v", "u")
_PATTERNS = (None, "t", "t.*", "*.u", "t.>", ">", "t.*.v")
_NUMBERS = (0, 1, -1, 2**53, -(2**63), 0.5, 1e300, 2**63 - 1)
_OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


def _parsed(text: str) -> Selector | None:
    try:
        return Selector.parse(text)
    except SelectorError as error:
        refusal = error
    assert refusal.text == text
    assert 0 <= refusal.position <= len(text)
    return None


def selectors(data: bytes) -> None:
    """Any text is a selector, or is refused as one with the place; two evaluations of it agree."""
    selector = _parsed(data.decode("utf-8", "surrogateescape"))
    if selector is None:
        return
    assert Selector.parse(str(selector)) == selector
    assert selector.matches(_MESSAGE) is generate(selector)(_MESSAGE)
    with contextlib.suppress(LimitError):
        assert selector.disjunction == Selector.parse(str(selector)).disjunction


def topics(data: bytes) -> None:
    """Any text is a pattern of topics, or is refused as one."""
    pattern, _, topic = data.decode("utf-8", "surrogateescape").partition("\n")
    with contextlib.suppress(SelectorError, TopicError):
        TopicPattern.parse(pattern).matches(topic)


def _condition(choices: Choices) -> str:
    name, kind = choices.pick(_NAMES), choices.byte() % 7
    if kind == 0:
        return f"{name} {choices.pick(_OPERATORS)} {choices.pick(_NUMBERS)!r}"
    if kind == 1:
        return f"{name} {choices.pick(_OPERATORS[:2])} '{choices.pick(_TEXTS)}'"
    if kind == 2:
        return f"{name} IS {choices.pick(('', 'NOT '))}NULL"
    if kind == 3:
        return f"{name} {choices.pick(('', 'NOT '))}LIKE '{choices.pick(('%', '_', 'x%', '%y', 'x%y', '%x%'))}'"
    if kind == 4:
        return f"{name} {choices.pick(('', 'NOT '))}IN ('{choices.pick(_TEXTS)}', '{choices.pick(_TEXTS)}')"
    if kind == 5:
        return f"{name} {choices.pick(('', 'NOT '))}BETWEEN {choices.pick(_NUMBERS)!r} AND {choices.pick(_NUMBERS)!r}"
    return f"{name} = {choices.pick(('TRUE', 'FALSE'))}"


def _expression(choices: Choices, depth: int = 0) -> str:
    kind = choices.byte() % 5
    if kind == 0 and depth < 3:
        return f"({_expression(choices, depth + 1)} AND {_expression(choices, depth + 1)})"
    if kind == 1 and depth < 3:
        return f"({_expression(choices, depth + 1)} OR {_expression(choices, depth + 1)})"
    if kind == 2 and depth < 3:
        return f"NOT ({_expression(choices, depth + 1)})"
    return _condition(choices)


def _message(choices: Choices) -> Draft:
    values: list[Value] = [*_NUMBERS, *_TEXTS, True, False]
    given = {name: choices.pick(values) for name in _NAMES if choices.byte() % 3}
    return Draft(choices.pick(_TOPICS), given)


def index(data: bytes) -> None:
    """Subscriptions come and go: the index says of each message what evaluating every selector says."""
    choices = Choices(data)
    made = SubscriptionIndex()
    slow: dict[int, tuple[Selector | None, TopicPattern | None]] = {}
    for key in range(24):
        if not choices:
            break
        what = choices.byte() % 8
        if what == 0 and slow:
            gone = choices.pick(sorted(slow))
            made.remove(gone)
            del slow[gone]
        elif what in (1, 2):
            _compare(made, slow, [_message(choices) for _ in range(1 + choices.byte() % 3)])
        else:
            selector = None if choices.byte() % 8 == 0 else _parsed(_expression(choices))
            pattern = choices.pick(_PATTERNS)
            topic = None if pattern is None else TopicPattern.parse(pattern)
            try:
                made.add(key, selector, topic)
            except LimitError:
                continue
            slow[key] = selector, topic
    _compare(made, slow, [_message(choices) for _ in range(3)])


def _compare(
    made: SubscriptionIndex, slow: dict[int, tuple[Selector | None, TopicPattern | None]], drafts: list[Draft]
) -> None:
    batch = Batch.build(drafts)
    offsets, slots = made.match(batch)
    for row, message in enumerate(batch):
        found = made.keys(slots[offsets[row] : offsets[row + 1]].tolist())
        attributes = message.selectable()
        expected = {
            key
            for key, (selector, topic) in slow.items()
            if (topic is None or topic.matches(message.topic)) and (selector is None or selector.matches(attributes))
        }
        assert len(found) == len(set(found))
        assert set(found) == expected
