"""The table of topics against matching every pattern with every topic."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Batch
from postroad.routing.topics import TopicTable, distinct_topics
from tests.routing.network import matcher
from tests.routing.strategies import PATTERNS, TOPICS

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
