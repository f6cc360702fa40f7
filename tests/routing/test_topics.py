"""The table of topics against matching every pattern with every topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Batch, Draft
from postroad.routing import topics as topics_module
from postroad.routing.topics import LOCAL, TopicTable, distinct_topics
from tests.routing.network import matcher
from tests.routing.strategies import PATTERNS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

topics = st.lists(st.sampled_from([*TOPICS, "ä.b", "a.b.c.d"]), max_size=12)
changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "replace"]),
        st.integers(0, 3),
        st.sets(st.sampled_from(PATTERNS), max_size=3),
        topics,
    ),
    max_size=12,
)


@given(topics)
def test_rows_with_equal_topics_share_a_number(given_topics: list[str]) -> None:
    numbers, firsts = distinct_topics(Batch.build([(topic,) for topic in given_topics]))
    assert [given_topics[firsts[number]] for number in numbers.tolist()] == given_topics
    assert len(firsts) == len(set(given_topics))
    assert firsts.tolist() == sorted(firsts.tolist())


@settings(max_examples=150)
@given(changes)
def test_table_knows_who_wants_which_rows(steps: list[tuple[str, int, set[str], list[str]]]) -> None:
    table = TopicTable(matcher)
    held: dict[int, set[str]] = {owner: set() for owner in range(4)}
    for action, owner, patterns, published in steps:
        before = set(held[owner])
        if action == "add":
            held[owner] |= patterns
            changed = table.add(owner, patterns)
        elif action == "remove":
            held[owner] -= patterns
            changed = table.remove(owner, patterns)
        else:
            held[owner] = set(patterns)
            changed = table.replace(owner, set(patterns))
        assert changed == before ^ held[owner]
        assert table.patterns(owner) == held[owner]
        # Asked after every change, so that what was remembered has to be forgotten in time.
        wanted = table.wanted(Batch.build([(topic,) for topic in published]))
        for one, wishes in held.items():
            rows = [row for row, topic in enumerate(published) if any(matcher(wish)(topic) for wish in wishes)]
            assert wanted.rows(one).tolist() == rows
    assert set(table.all_patterns()) == set().union(*held.values())


def test_batch_full_of_new_topics_tries_patterns_so_often_and_nobody_misses_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = 0

    def counting(pattern: str) -> Callable[[str], bool]:
        fits = matcher(pattern)

        def counted(topic: str) -> bool:
            nonlocal tried
            tried += 1
            return fits(topic)

        return counted

    monkeypatch.setattr(topics_module, "MAX_TRIES", 1_000)
    table = TopicTable(counting)
    table.add(LOCAL, {f"{number}.*" for number in range(300)})
    table.add(4, {"5.*", "plain"})
    table.add(5, {"other"})
    batch = Batch.build([Draft(f"{number}.x") for number in range(20)] + [Draft("plain"), Draft("other")])
    first = table.wanted(batch)
    assert tried == 3 * 300
    # Three topics were looked at; the others may be for anybody with wildcards.
    assert first.rows(LOCAL).tolist() == list(range(22))
    assert first.rows(4).tolist() == list(range(3, 22))
    assert first.rows(5).tolist() == [21]
    for _ in range(8):
        last = table.wanted(batch)
    assert tried == 22 * 300
    assert [last.rows(owner).tolist() for owner in (LOCAL, 4, 5)] == [list(range(20)), [5, 20], [21]]
    table.remove(4, {"5.*"})
    table.wanted(Batch.build([Draft("new")]))
    monkeypatch.setattr(topics_module, "MAX_TRIES", 0)
    assert table.wanted(Batch.build([Draft("newer")])).by_owner.keys() == {LOCAL}
