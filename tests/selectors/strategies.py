"""Random selectors and messages over few names and few values, so that many pairs match and many nearly do."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from postroad.messages import Untyped
from tests.selectors.expressions import ANY, ONE, Form, write

NAMES = ("a", "b", "c", "$d", "größe", "content-type", "In", 'the "x"')
TEXTS = ("", "x", "xy", "axb", "5", "5.0", "%", "a_b", "it's", "\U0001d11e", "TRUE", "\\", "a\nb")
NUMERIC_TEXTS = ("5", "5.0", "-7", "+2", "0", "-0", "1e3", ".5", "5.", "9223372036854775807", "-9223372036854775808")
NEARLY_NUMERIC_TEXTS = (
    "007",
    " 5",
    "5 ",
    "0x5",
    "5L",
    "1e",
    "e5",
    ".",
    "-",
    "1e999",
    "9223372036854775808",
    "٣",
    "inf",
)
INTEGERS = (0, 1, 2, 5, 7, -1, -7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 0.5, 2.0, 5.0, -7.0, 1e3, 2.0**53, 2.0**63, 1e308, -1e308, 5e-324, math.inf, -math.inf)
# How a selector may spell a number, and what that is.
SPELLINGS = (
    ("0", 0),
    ("2", 2),
    ("5", 5),
    ("5.0", 5.0),
    ("5.", 5.0),
    ("0x5", 5),
    ("7L", 7),
    (".5", 0.5),
    ("00.5f", 0.5),
    ("1E3", 1000.0),
    ("10e+2d", 1000.0),
    ("9007199254740993", 2**53 + 1),
    ("9007199254740992.0", 2.0**53),
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    ("1e308", 1e308),
    ("5e-324", 5e-324),
)
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")

attribute_values = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from(INTEGERS),
    st.sampled_from(FLOATS),
    st.booleans(),
    st.sampled_from((b"", b"x")),
    st.sampled_from(TEXTS + NUMERIC_TEXTS + NEARLY_NUMERIC_TEXTS).map(Untyped),
)


def attribute_maps(names: tuple[str, ...] = NAMES) -> st.SearchStrategy[dict[str, str | int | float | bool | bytes]]:
    """The attributes of one message; any of the names may be missing."""
    return st.dictionaries(st.sampled_from(names), attribute_values, max_size=len(names))


def _spelled(number: tuple[str, float]) -> Form:
    return ("number", *number)


def _values(names: st.SearchStrategy[str]) -> st.SearchStrategy[Form]:
    """What arithmetic takes: names, numbers, and arithmetic."""
    leaves = st.one_of(st.tuples(st.just("name"), names), st.sampled_from(SPELLINGS).map(_spelled))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.just("sign"), st.sampled_from("+-"), inner),
            st.tuples(st.just("arithmetic"), st.sampled_from("+-*/"), inner, inner),
        ),
        max_leaves=4,
    )


def _patterns() -> st.SearchStrategy[Form]:
    item = st.sampled_from((ANY, ONE, "a", "x", "b", "5", "'", "\U0001d11e"))
    special = st.one_of(item, st.sampled_from(("%", "_", "!", "\\")))
    plain = st.tuples(st.lists(item, max_size=4).map(tuple), st.just(""))
    escaped = st.tuples(st.lists(special, max_size=4).map(tuple), st.sampled_from("!\\'"))
    return st.one_of(plain, escaped)


def conditions(names: tuple[str, ...] = NAMES, max_leaves: int = 6) -> st.SearchStrategy[Form]:
    """Forms of the whole language (see `expressions`)."""
    name = st.sampled_from(names)
    named = st.tuples(st.just("name"), name)
    number = st.sampled_from(SPELLINGS).map(_spelled)
    text = st.tuples(st.just("text"), st.sampled_from(TEXTS))
    boolean = st.tuples(st.just("boolean"), st.booleans())
    value = _values(name)
    constant = st.one_of(number, text, boolean)
    operator = st.sampled_from(COMPARISONS)
    compare = st.just("compare")
    between = st.just("between")
    leaves = st.one_of(
        st.tuples(compare, operator, named, constant),
        st.tuples(compare, operator, constant, named),
        st.tuples(compare, operator, named, named),
        st.tuples(compare, operator, value, value),
        st.tuples(compare, operator, named, number),
        st.tuples(between, st.booleans(), named, number, number),
        st.tuples(between, st.booleans(), value, value, value),
        st.tuples(st.just("in"), st.booleans(), name, st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4)),
        st.tuples(st.booleans(), name, _patterns()).map(lambda made: ("like", made[0], made[1], *made[2])),
        st.tuples(st.just("null"), st.booleans(), name),
        named,
        boolean,
    )

    def joined(inner: st.SearchStrategy[Form]) -> st.SearchStrategy[Form]:
        return st.one_of(
            st.tuples(st.sampled_from(("and", "or")), inner, inner),
            st.tuples(st.sampled_from(("and", "or")), inner, inner),
            st.tuples(st.just("not"), inner),
            st.tuples(compare, st.sampled_from(("=", "<>")), inner, st.one_of(inner, boolean, named)),
        )

    return st.recursive(leaves, joined, max_leaves=max_leaves)


def selector_texts(names: tuple[str, ...] = NAMES, max_leaves: int = 6) -> st.SearchStrategy[str]:
    """Selectors as text, in the whole language."""
    return st.builds(write, conditions(names, max_leaves), st.booleans())


# Selectors nearly: tokens of the language, and some of its neighbours, in any order.
TOKENS = (
    *(
        "a",
        "b",
        "größe",
        "$d",
        "'x'",
        "'it''s'",
        "5",
        "0.5",
        "1e3",
        "0x1F",
        "TRUE",
        "FALSE",
        "NULL",
        "NOT",
        "AND",
        "OR",
    ),
    *("BETWEEN", "LIKE", "IN", "IS", "ESCAPE", "(", ")", ",", "+", "-", "*", "/", "=", "<>", "<", "<=", ">", ">="),
    *(
        "and",
        "or",
        "not",
        "'",
        '"',
        "==",
        "!=",
        "&&",
        "||",
        "010",
        "5x",
        ".",
        "\u2018",
        "\u00a0",
        "\x00",
        "'!'",
        "1e999",
    ),
)
token_soup = st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join)
