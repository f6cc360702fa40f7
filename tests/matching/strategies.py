"""Random subscriptions and messages over few names, topics and values, so that many pairs match and many nearly do."""

from __future__ import annotations

from hypothesis import strategies as st

from postroad.messages import Batch, Draft, MessageId, Untyped
from tests.selectors.expressions import spell
from tests.selectors.strategies import NAMES, attribute_maps, selector_texts

# As selectors write them.
_WRITTEN = tuple(spell(name) for name in (*NAMES, "correlation-id"))
JMS_NAMES = ("JMSPriority", "JMSTimestamp", "JMSMessageID", "JMSCorrelationID", "JMSType", "type")
SOME_IDS = (
    MessageId(0, 0, 0, 0),
    MessageId(7, 3, 1_700_000_000_000, 5),
    MessageId(2**32 - 1, 2**32 - 1, 2**48 - 1, 65535),
)

LEVELS = ("a", "b", "ab", "größe")
topics = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map(".".join)


@st.composite
def topic_patterns(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.sampled_from((*LEVELS, "*")), max_size=4))
    if not levels or draw(st.booleans()):
        levels = [*levels, ">"]
    return ".".join(levels)


# Texts that share beginnings, endings and middles, and numbers close to each other.
_TERMS = ("market", "marked", "arket", "remark", "mark", "ma", "k", "größer", "aaaa", "x" * 70, "x" * 71)
_PARTS = ("mark", "ark", "m", "ed", "ket", "aa", "rö", "x" * 64, "x" * 70)
_BOUNDS = ("0", "1", "2.5", "9007199254740992", "9007199254740993", "-9007199254740993", "9223372036854775807")


def _text_clause(name: str, part: str, form: int) -> str:
    patterns = (
        f"'{part}%'",
        f"'%{part}'",
        f"'%{part}%'",
        f"'%{part}_%'",
        f"'_{part}%'",
        f"'{part}'",
        f"'{part[:1]}%{part[-1:]}'",
    )
    if form < len(patterns):
        return f"{name} LIKE {patterns[form]}"
    return (f"{name} = '{part}'", f"{name} <> '{part}'", f"{name} NOT LIKE '{part}%'")[form - len(patterns)]


clauses = st.one_of(
    st.builds(_text_clause, st.sampled_from(_WRITTEN), st.sampled_from(_TERMS + _PARTS), st.integers(0, 9)),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(_WRITTEN),
        st.sampled_from(("<", "<=", ">", ">=", "=", "<>")),
        st.sampled_from(_BOUNDS),
    ),
    st.builds(
        "{} BETWEEN {} AND {}".format, st.sampled_from(_WRITTEN), st.sampled_from(_BOUNDS), st.sampled_from(_BOUNDS)
    ),
    st.builds(
        lambda name, terms, negated: f"{name} {'NOT ' if negated else ''}IN ({', '.join(map(repr, terms))})",
        st.sampled_from(_WRITTEN),
        st.lists(st.sampled_from(_TERMS), min_size=1, max_size=20),
        st.booleans(),
    ),
    st.sampled_from(
        (
            "JMSPriority > 4",
            "JMSPriority = 4",
            "JMSTimestamp >= 1700000000000",
            "JMSMessageID LIKE '00000007%'",
            "JMSMessageID = '00000007-00000003-018bcfe56800-0005'",
            "JMSCorrelationID = 'mark'",
            "JMSType LIKE 'm%'",
            "type <> 'mark'",
        )
    ),
)
conjunctions = st.lists(clauses, min_size=1, max_size=4).map(" AND ".join)
disjunctions = st.lists(conjunctions.map("({})".format), min_size=1, max_size=3).map(" OR ".join)

subscriptions = st.tuples(
    st.one_of(st.none(), conjunctions, disjunctions, selector_texts()), st.one_of(st.none(), topics, topic_patterns())
)

_VALUES = st.one_of(
    st.sampled_from(_TERMS),
    st.sampled_from(_TERMS).map(Untyped),
    st.integers(-1, 3),
    st.sampled_from((2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2.5, float(2**53), 1e300)),
    st.sampled_from(
        ("2.5", "1", "9007199254740993", "2.50000000000000000000001", "1e-320", "123456789012345678901e3")
    ).map(Untyped),
)
_attributes = st.one_of(
    attribute_maps(),
    st.dictionaries(st.sampled_from((*NAMES, *JMS_NAMES, "correlation-id")), _VALUES, max_size=6),
)
_headers = st.lists(
    st.tuples(
        st.sampled_from((*NAMES, "type", "correlation-id", "na:me", "JMSPriority")),
        st.sampled_from(
            (*_TERMS, "2.5", "1", "a\nb", "ma:rk", "\\", "2.50000000000000000000001", "9223372036854775808")
        ),
    ),
    max_size=4,
)

messages = st.builds(
    Draft,
    topic=topics,
    attributes=_attributes,
    headers=_headers,
    id=st.sampled_from(SOME_IDS),
    priority=st.integers(0, 9),
)
batches = st.lists(messages, max_size=6).map(Batch.build)
