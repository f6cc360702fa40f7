"""Schemes, messages and subscriptions for the tests of encoded predicates."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from postroad.matching.encoding import Scheme
from postroad.messages import Draft, MessageId, Untyped
from postroad.selectors import Selector, TopicPattern
from tests.selectors.strategies import attribute_maps, selector_texts

NAMES = ("a", "b", "größe")
LEVELS = ("x", "y", "news", "größe")
JMS_NAMES = ("JMSPriority", "JMSTimestamp", "JMSMessageID", "JMSCorrelationID", "JMSType")
ladders = st.lists(
    st.sampled_from((-7.5, -1.0, 0.0, 0.5, 2.0, 5.0, 5.5, 1000.0, 2.0**53 - 1)), max_size=4, unique=True
).map(lambda thresholds: tuple(sorted(thresholds)))

schemes = st.builds(
    Scheme,
    bits=st.sampled_from((64, 192, 512, 4096)),
    hashes=st.sampled_from((1, 2, 4, 8)),
    thresholds=ladders,
    gram=st.sampled_from((0, 2, 3, 4)),
    topics=st.booleans(),
    priority=st.booleans(),
)
# Schemes whose vectors are so long that a false match is next to impossible: what matters is what categories say.
wide_schemes = st.builds(
    Scheme, st.just(32_768), st.just(8), ladders, st.sampled_from((0, 2, 3, 4)), st.booleans(), st.booleans()
)

# Texts that share pieces, with letters of one, two and four bytes.
long_texts = st.text("abé𝄞", max_size=9)
numeric_texts = st.sampled_from(
    ("50", "50.0", "5e1", "-0", "0.1", "12345678901234567890.5", "9007199254740993", "1e400", "0.30000000000000004e-30")
)
text_values = st.one_of(long_texts, long_texts.map(Untyped))
number_values = st.one_of(
    numeric_texts.map(Untyped),
    st.integers(-100, 100).map(str).map(Untyped),
    st.integers(-100, 100),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.integers(-100, 100).map(float),
)
values = st.one_of(text_values, number_values, st.booleans(), st.binary(max_size=3))
topics = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=10).map(".".join)


@st.composite
def drafts(draw: st.DrawFn, attributes: st.SearchStrategy[dict[str, Any]] | None = None) -> Draft:
    """A message whose untyped attributes stand in either block."""
    maps = st.dictionaries(st.sampled_from((*NAMES, "correlation-id", "type", *JMS_NAMES)), values, max_size=4)
    typed = draw(maps if attributes is None else attributes)
    as_lines = [name for name, value in typed.items() if type(value) is Untyped and "\0" not in value]
    lines = {name: str(typed.pop(name)) for name in as_lines if draw(st.booleans())}
    identity = MessageId(draw(st.integers(0, 9)), 1, draw(st.integers(0, 2**40)), 0)
    return Draft(draw(topics), typed, lines, id=identity, priority=draw(st.integers(0, 9)))


selector_messages = drafts(attribute_maps())


@st.composite
def patterns(draw: st.DrawFn) -> TopicPattern:
    """A topic pattern; `>` alone wants every topic."""
    levels = draw(st.lists(st.sampled_from((*LEVELS, "*", "*")), max_size=9))
    if not levels or draw(st.booleans()):
        levels.append(">")
    return TopicPattern.parse(".".join(levels))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@st.composite
def like_texts(draw: st.DrawFn) -> str:
    """A LIKE, or one of the comparisons that its text can be in too, on texts that share pieces."""
    name = draw(st.sampled_from((*NAMES, "JMSType", "JMSCorrelationID")))
    negated = draw(st.sampled_from(("", "", "NOT ")))
    kind = draw(st.sampled_from(("like", "in", "=", "<>")))
    if kind == "like":
        pieces = draw(st.lists(st.text("abé𝄞_", max_size=6), min_size=1, max_size=3))
        return f"{name} {negated}LIKE {quoted('%'.join(pieces))}"
    if kind == "in":
        texts = draw(st.lists(long_texts, min_size=1, max_size=20))
        return f"{name} {negated}IN ({', '.join(map(quoted, texts))})"
    return f"{name} {kind} {quoted(draw(long_texts))}"


@st.composite
def number_texts(draw: st.DrawFn) -> str:
    """A comparison with a number."""
    name = draw(st.sampled_from((*NAMES, "JMSPriority", "JMSTimestamp")))
    number = draw(
        st.one_of(st.integers(-100, 100), st.integers(-(2**63), 2**63 - 1), st.floats(-1e3, 1e3), st.just(0.1))
    )
    if draw(st.booleans()):
        return (
            f"{name} {draw(st.sampled_from(('', 'NOT ')))}BETWEEN {number!r} AND {number!r} + 0 OR {name} = {number!r}"
        )
    return f"{name} {draw(st.sampled_from(('=', '<>', '<', '<=', '>', '>=')))} {number!r}"


conditions = st.one_of(
    like_texts(), number_texts(), st.sampled_from((*NAMES, *JMS_NAMES)).map(lambda name: f"{name} IS NOT NULL")
)
own_selectors = st.lists(conditions, min_size=1, max_size=3).map(" AND ".join).map(Selector.parse)
selectors = st.one_of(selector_texts().map(Selector.parse), own_selectors)


# On, beside and between the thresholds of `ladders`, so that each of a ladder's comparisons is decided at its edge.
EDGES = (
    -8,
    -7.5,
    -7,
    -1,
    -0.5,
    0,
    0.25,
    0.5,
    1,
    2,
    3,
    5,
    5.25,
    5.5,
    6,
    999,
    1000,
    1001,
    2**53 - 2,
    2**53 - 1,
    2**53,
    2**53 + 1,
)
edge_values = st.sampled_from(EDGES).flatmap(lambda edge: st.sampled_from((edge, float(edge), Untyped(edge))))


@st.composite
def edge_texts(draw: st.DrawFn) -> str:
    """A comparison of `a` with a number at or near a threshold."""
    low, high = sorted((draw(st.sampled_from(EDGES)), draw(st.sampled_from(EDGES))))
    if draw(st.booleans()):
        return f"a {draw(st.sampled_from(('=', '<>', '<', '<=', '>', '>=')))} {low}"
    above, below = draw(st.sampled_from((">", ">="))), draw(st.sampled_from(("<", "<=")))
    return draw(st.sampled_from((f"a {above} {low} AND a {below} {high}", f"a NOT BETWEEN {low} AND {high}")))


@st.composite
def fitting_patterns(draw: st.DrawFn, text: str) -> str:
    """A LIKE pattern that the text fits: some of its letters become `_`, some of its runs `%`."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[start:end] for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True)]
    kept = [draw(st.sampled_from((piece, piece, "%", "%", "_" * len(piece)))) for piece in pieces]
    return "".join(kept)
