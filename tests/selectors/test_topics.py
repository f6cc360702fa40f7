"""Topics and topic patterns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.errors import PostroadError
from postroad.selectors import TopicError, TopicPattern, check_topic
from postroad.selectors.topics import MAX_TOPIC_LENGTH, MAX_TOPIC_LEVELS

level = st.sampled_from(("a", "b", "ab", "ü"))
topics = st.lists(level, min_size=1, max_size=5)
patterns = st.tuples(
    st.lists(st.one_of(level, st.just("*")), max_size=4),
    st.lists(st.one_of(level, st.just(">")), min_size=1, max_size=1),
).map(lambda parts: parts[0] + parts[1])


def wanted(pattern: list[str], topic: list[str]) -> bool:
    if not pattern or not topic:
        return pattern == topic
    if pattern == [">"]:
        return True
    return pattern[0] in ("*", topic[0]) and wanted(pattern[1:], topic[1:])


@settings(max_examples=200)
@given(patterns, topics)
def test_pattern_matches_level_by_level(pattern: list[str], topic: list[str]) -> None:
    parsed = TopicPattern.parse(".".join(pattern))
    assert parsed.matches(".".join(topic)) is wanted(pattern, topic)
    assert parsed.is_exact is not bool({"*", ">"}.intersection(pattern))
    assert parsed.levels == tuple(pattern)


@given(patterns)
def test_pattern_text_parses_back(pattern: list[str]) -> None:
    parsed = TopicPattern.parse(".".join(pattern))
    assert TopicPattern.parse(str(parsed)) == parsed
    assert hash(TopicPattern.parse(str(parsed))) == hash(parsed)
    assert eval(repr(parsed)) == parsed
    assert parsed != str(parsed)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.B", False),
        ("a.b", "a", False),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("*", "a", True),
        ("*", "a.b", False),
        ("a.>", "a.b", True),
        ("a.>", "a.b.c.d", True),
        ("a.>", "a", False),
        (">", "a", True),
        (">", "a.b", True),
        ("*.>", "a", False),
        ("*.>", "a.b", True),
        ("a.*.c.>", "a.b.c.d.e", True),
        ("a.*.c.>", "a.b.x.d", False),
    ],
)
def test_wildcards_stand_for_levels(pattern: str, topic: str, expected: bool) -> None:
    assert TopicPattern.parse(pattern).matches(topic) is expected


BAD = [
    ("", 0, "empty"),
    (".", 0, "empty"),
    ("a.", 2, "empty"),
    (".a", 0, "empty"),
    ("a..b", 2, "empty"),
    ("a b", 1, "blanks"),
    ("a.\t", 2, "blanks"),
    ("a\n", 1, "blanks"),
    ("a\x00", 1, "control"),
    ("a\u00a0b", 1, "blanks"),
    ("a\u200bb", 1, r"U\+200B"),
    ("a.\u202eb", 2, r"U\+202E"),
    ("\ufeffa", 0, r"U\+FEFF"),
    ("a.\ud800", 2, "surrogate"),
    (".".join("a" * (MAX_TOPIC_LEVELS + 1)), 127, "MAX_TOPIC_LEVELS"),
    ("a" * (MAX_TOPIC_LENGTH + 1), 1024, "MAX_TOPIC_LENGTH"),
    ("ü" * (MAX_TOPIC_LENGTH // 2 + 1), 513, "MAX_TOPIC_LENGTH"),
]


@pytest.mark.parametrize(("text", "position", "word"), BAD)
def test_bad_topic_is_refused_where_it_is_bad(text: str, position: int, word: str) -> None:
    for refuse in (check_topic, TopicPattern.parse):
        with pytest.raises(TopicError, match=word) as caught:
            refuse(text)
        assert (caught.value.text, caught.value.position) == (text, position)


@pytest.mark.parametrize(
    ("text", "position"), [("a.>.b", 3), (">.>", 1), ("a*", 1), ("a.b>", 3), ("**", 0), ("a.>>", 2), ("a.*b.c", 2)]
)
def test_bad_wildcard_is_refused_where_it_is_bad(text: str, position: int) -> None:
    with pytest.raises(TopicError) as caught:
        TopicPattern.parse(text)
    assert caught.value.position == position


@pytest.mark.parametrize(("text", "position"), [("a.*", 2), (">", 0), ("a*b", 1), ("a.b>", 3)])
def test_topic_published_to_has_no_wildcard(text: str, position: int) -> None:
    with pytest.raises(TopicError, match="wildcard") as caught:
        check_topic(text)
    assert caught.value.position == position


@pytest.mark.parametrize("text", ["a", "a.b.c", "größe.名前", "a-b.c_d.1", "a/b:c", "x" * MAX_TOPIC_LENGTH])
def test_good_topic_passes(text: str) -> None:
    check_topic(text)
    assert TopicPattern.parse(text).is_exact


def test_topic_of_the_most_levels_passes() -> None:
    check_topic(".".join("a" * MAX_TOPIC_LEVELS))


def test_error_shows_the_place() -> None:
    with pytest.raises(TopicError) as caught:
        TopicPattern.parse("stocks.>.nyse")
    assert str(caught.value) == (
        "> stands for all further levels, so nothing can follow it\n"
        "  stocks.>.nyse\n"
        "          ^\n"
        "expected: the end of the pattern"
    )
    assert isinstance(caught.value, PostroadError)


@settings(max_examples=200)
@given(st.text(st.one_of(st.sampled_from("a.*>\u00e9"), st.characters()), max_size=8))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    refused: TopicError | None = None
    try:
        assert str(TopicPattern.parse(text)) == text
    except TopicError as error:
        refused = error
    if refused is not None:
        assert 0 <= refused.position <= len(text)
        assert str(refused).split("\n")[2].strip() == "^"
