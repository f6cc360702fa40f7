from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from postroad.lab.workloads import WORKLOADS, Ranges, Stocks, Wildcards
from postroad.matching import SubscriptionIndex
from postroad.messages import Untyped
from postroad.selectors import Selector, TopicPattern

if TYPE_CHECKING:
    from postroad.lab.workloads import SubscriptionSpec, Workload

KINDS = pytest.mark.parametrize("kind", WORKLOADS.values(), ids=lambda kind: kind.__name__)


def drawn(workload: Workload, count: int) -> list[SubscriptionSpec]:
    return list(islice(workload.subscriptions(), count))


def matches_per_message(workload: Workload, messages: int) -> float:
    index = SubscriptionIndex()
    for key, subscription in enumerate(drawn(workload, workload.size)):
        index.add(key, *subscription)
    offsets, _ = index.match(workload.batch(messages))
    return int(offsets[-1]) / messages


@KINDS
def test_same_seed_draws_the_same_workload(kind: type[Workload]) -> None:
    assert drawn(kind(500), 50) == drawn(kind(500), 50) != drawn(kind(500, seed=2), 50)
    assert bytes(kind(500).batch(20).buffer) == bytes(kind(500).batch(20).buffer)
    assert bytes(kind(500).batch(20).buffer) != bytes(kind(500, seed=2).batch(20).buffer)


@KINDS
def test_stream_goes_on_beyond_the_size_without_repeating_itself(kind: type[Workload]) -> None:
    many = drawn(kind(1_000), 20_000)
    assert len(many) == 20_000
    assert many[:5_000] != many[8_192 : 8_192 + 5_000]


@KINDS
def test_index_and_selectors_agree_on_the_workload(kind: type[Workload]) -> None:
    workload = kind(300)
    subscriptions = drawn(workload, 300)
    parsed = [
        (selector and Selector.parse(selector), topic and TopicPattern.parse(topic))
        for selector, topic in subscriptions
    ]
    index = SubscriptionIndex()
    for key, subscription in enumerate(subscriptions):
        index.add(key, *subscription)
    batch = workload.batch(40)
    offsets, slots = index.match(batch)
    for row, message in enumerate(batch):
        expected = {
            key
            for key, (selector, topic) in enumerate(parsed)
            if (not selector or selector.matches(message.selectable())) and (not topic or topic.matches(message.topic))
        }
        assert set(index.keys(slots[offsets[row] : offsets[row + 1]].tolist())) == expected


@KINDS
def test_messages_have_bodies_of_a_hundred_bytes_and_all_differ(kind: type[Workload]) -> None:
    bodies = [message.body for message in kind(100).batch(50)]
    assert {len(body) for body in bodies} == {100}
    assert len(set(bodies)) == 50


@pytest.mark.parametrize("size", [100, 2_000])
def test_a_message_is_wanted_by_about_five_at_any_size(size: int) -> None:
    assert matches_per_message(Stocks(size), 2_000) == pytest.approx(5, abs=0.5)


def test_ranges_match_about_a_third() -> None:
    assert matches_per_message(Ranges(1_000), 500) / 1_000 == pytest.approx(0.35, abs=0.02)


def test_ranges_and_readings_are_integers_and_floats() -> None:
    selectors = [str(subscription.selector) for subscription in drawn(Ranges(1), 200)]
    assert 60 < sum("." in selector for selector in selectors) < 140
    values = [value for message in Ranges(1).batch(20) for value in message.attributes.values()]
    assert {type(value) for value in values} == {int, float}
    assert len(values) == 20 * Ranges.CARRIED


def test_wildcards_match_about_five_in_a_hundred_thousand() -> None:
    assert matches_per_message(Wildcards(10_000), 8_000) / 10_000 == pytest.approx(4.5e-5, rel=0.15)


def test_wildcards_have_every_kind_of_pattern() -> None:
    subscriptions = drawn(Wildcards(1), 2_000)
    quoted = [selector.split("'")[1] for selector, _ in subscriptions if selector]
    kinds = [(text.startswith("%"), text.endswith("%")) for text in quoted]
    for kind in ((False, True), (True, False), (True, True)):
        assert kinds.count(kind) == pytest.approx(500, abs=70)
    alone = {topic for selector, topic in subscriptions if selector is None and topic}
    assert {topic.count("*") for topic in alone if not topic.endswith(">")} == {1}
    assert any(topic.endswith(">") for topic in alone)
    assert any(selector and topic for selector, topic in subscriptions)
    assert all(type(message.attributes["title"]) is Untyped for message in Wildcards(1).batch(5))
