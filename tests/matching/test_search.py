"""LIKE and substrings equal a slow and obvious twin, on texts that make a plain search walk the same bytes again."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroad.matching import SubscriptionIndex
from postroad.messages import Batch
from postroad.selectors.like import like_matcher, parse_like
from tests.matching.oracle import matched

ALPHABET = ("a", "b", "é", "€", "𝄞")


def fits(pattern: str, text: str) -> bool:
    """The rules of LIKE, one character of the pattern after the other: which prefixes of the text fit so far."""
    fitting = [True] + [False] * len(text)
    for wanted in pattern:
        if wanted == "%":
            for length in range(1, len(text) + 1):
                fitting[length] = fitting[length] or fitting[length - 1]
        else:
            fitting = [False] + [fitting[length] and wanted in ("_", text[length]) for length in range(len(text))]
    return fitting[-1]


# Runs of one character are what makes a search go back; now and then something else stands between them.
runs = st.lists(st.tuples(st.sampled_from(ALPHABET), st.sampled_from((1, 2, 3, 60, 63, 64, 65, 300))), max_size=4).map(
    lambda parts: "".join(char * count for char, count in parts)
)
patterns = st.lists(
    st.one_of(
        st.sampled_from(("%", "%", "_", "a", "b", "é", "€")),
        st.tuples(st.sampled_from(("a", "b", "é", "_")), st.sampled_from((2, 9, 31, 64, 66, 130))).map(
            lambda part: part[0] * part[1]
        ),
    ),
    max_size=8,
).map("".join)


@settings(max_examples=300)
@given(st.lists(patterns, min_size=1, max_size=4), st.lists(runs, min_size=1, max_size=4))
@example(["%" + "a" * 200 + "b%"], ["a" * 900, "a" * 900 + "b" + "a"])
@example(["%" + "a" * 100 + "_" + "a" * 99 + "b%b"], ["a" * 900, "a" * 900 + "bab"])
@example(["%_" + "é" * 70 + "_%€_"], ["é" * 700, "é" * 700 + "€𝄞"])
@example(["%a_%a_%a_b"], ["a" * 800 + "b", "aaa€a€a€b" * 90])
def test_like_equals_its_rules_in_the_index_and_in_python(wanted: list[str], texts: list[str]) -> None:
    index = SubscriptionIndex()
    for key, pattern in enumerate(wanted):
        index.add(key, f"x LIKE '{pattern}'")
    truth = [{key for key, pattern in enumerate(wanted) if fits(pattern, text)} for text in texts]
    assert matched(index, Batch.build(("t", {"x": text}) for text in texts)) == truth
    by_python = [
        {key for key, pattern in enumerate(wanted) if like_matcher(parse_like(pattern))(text) is not None}
        for text in texts
    ]
    assert by_python == truth


@settings(max_examples=50)
@given(st.lists(st.text("ab", min_size=1, max_size=40), min_size=1, max_size=4), st.text("ab", max_size=60))
def test_python_searches_long_texts_as_it_does_short_ones(parts: list[str], piece: str) -> None:
    pattern = "%".join(("", *(part.replace("b", "_", 1) for part in parts), ""))
    matches = like_matcher(parse_like(pattern))
    # Long enough for the linear search; what occurs in it at all occurs near its beginning.
    text = piece * (70_000 // max(1, len(piece)))
    assert (matches(text) is not None) == fits(pattern, text[:4_000])


def test_programs_search_in_linear_time_as_well() -> None:
    index = SubscriptionIndex()
    wide = " OR ".join(f"(x LIKE '%{'a' * (90 + i)}_b%-{i}' AND y > {i})" for i in range(70))
    index.add("wide", f"z = 1 AND ({wide})")
    text = "a" * 900 + "€b"
    rows = [("t", {"x": f"{text}-{i}", "y": i + more, "z": 1}) for i in (3, 69) for more in (0, 1)]
    assert matched(index, Batch.build(rows)) == [set(), {"wide"}, set(), {"wide"}]


def test_a_long_pattern_with_holes_fills_all_the_room_there_is() -> None:
    index = SubscriptionIndex()
    part = "𝄞" * 1_021 + "_"
    index.add("long", f"x LIKE '%{part}%'")
    index.add("plain", f"x LIKE '%{'𝄞' * 1_022}%'")
    texts = ["𝄞" * 1_021, "𝄞" * 5_000, "a" + "𝄞" * 1_021 + "€b"]
    assert matched(index, Batch.build(("t", {"x": text}) for text in texts)) == [set(), {"long", "plain"}, {"long"}]
