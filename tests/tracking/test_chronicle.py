"""What every recorder keeps alike: chapters, presence, latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Batch, IdGenerator
from postroad.tracking import (
    LATENCY_BUCKETS,
    LATENCY_GROWTH,
    LEFT_OUT,
    Aliases,
    BatchCost,
    Chronicle,
    Drop,
    Latencies,
    LatencySketch,
    LinkChanges,
    Names,
    Presence,
    Repeated,
    Shed,
    SubscriptionChanges,
    Timings,
)
from postroad.tracking import chronicle as chronicle_module

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

NOW = 1_700_000_000_000


def batch_of(count: int, publisher: int = 7, broker: int = 3, now: int = NOW) -> Batch:
    batch = Batch.build([("t",)] * count)
    batch.ids[:] = IdGenerator(publisher, broker).take(now, count)
    return batch


def test_chapter_hands_over_every_table_it_was_told_of() -> None:
    chronicle = Chronicle(NOW)
    batch = batch_of(3)
    chronicle.publishes(7, "ann", NOW)
    chronicle.subscribed(1, "bob", "a.b", "x = 1", NOW)
    chronicle.unsubscribed(1, NOW + 5)
    chronicle.linked(9, 2, NOW)
    chronicle.aliased("uuid", int(batch.ids[1, 0]), int(batch.ids[1, 1]), NOW)
    chronicle.timed(BatchCost(10, 20, 30, 4, 4_000, 400), NOW)
    chronicle.shed(batch, np.array([0, 2]), 1, "queue full", NOW + 1)
    chronicle.dropped(batch, np.array([1]), 9, "hop limit", NOW + 2)
    chronicle.delayed(batch, np.array([0, 1, 2]), NOW + 100)
    tables = {type(segment): segment for segment in chronicle.close(1, NOW + 10).segments()}
    assert set(tables) == {Shed, SubscriptionChanges, LinkChanges, Names, Aliases, Timings, Latencies}
    shed = tables[Shed]
    assert isinstance(shed, Shed)
    assert shed.counter.tolist() == [0, 2, 1]
    assert shed.origin.tolist() == [3, 3, 3]
    assert shed.publisher.tolist() == [7, 7, 7]
    assert shed.subscription.tolist() == [1, 1, 0]
    assert shed.link.tolist() == [0, 0, 9]
    assert isinstance(shed.reason, Repeated)
    assert (shed.reason.texts, shed.reason.counts.tolist()) == (("queue full", "hop limit"), [2, 1])
    assert shed.at.tolist() == [NOW + 1, NOW + 1, NOW + 2]
    subscriptions = tables[SubscriptionChanges]
    assert isinstance(subscriptions, SubscriptionChanges)
    assert subscriptions.begins.tolist() == [1, 0]
    aliases = tables[Aliases]
    assert isinstance(aliases, Aliases)
    assert (aliases.alias, aliases.counter.tolist(), aliases.time.tolist()) == (["uuid"], [1], [NOW])
    latencies = tables[Latencies]
    assert isinstance(latencies, Latencies)
    assert latencies.deliveries.tolist() == [3]


def test_chapter_without_lines_hands_over_nothing() -> None:
    chronicle = Chronicle(NOW)
    assert chronicle.empty
    assert chronicle.close(1, NOW).segments() == []


def test_drops_stay_askable_until_their_job_is_released() -> None:
    chronicle = Chronicle(NOW)
    batch = batch_of(2)
    head, tail = int(batch.ids[1, 0]), int(batch.ids[1, 1])
    chronicle.shed(batch, np.array([1]), 4, "expired", NOW)
    chronicle.close(1, NOW)
    assert chronicle.drops(head, tail) == (Drop(4, 0, "expired", NOW),)
    assert chronicle.drops(head, tail - 1) == ()
    assert chronicle.held_bytes > 0
    chronicle.release(1)
    assert chronicle.drops(head, tail) == ()
    assert chronicle.held_bytes == 0


def test_much_that_is_shed_fills_chapters_of_its_own_and_stays_askable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chronicle_module, "SHED_CHAPTER_ROWS", 10)
    chronicle = Chronicle(NOW)
    batches = [batch_of(4, now=NOW + place) for place in range(7)]
    for batch in batches:
        chronicle.shed(batch, np.arange(4), 1, "session closed", NOW)
    chronicle.subscribed(2, "bob", "a.b", "", NOW)
    assert chronicle.full == 2

    def askable() -> list[int]:
        return [len(chronicle.drops(int(head), int(tail))) for batch in batches for head, tail in batch.ids]

    assert askable() == [1] * 28
    chapters = [chronicle.close_full(job, NOW) for job in (1, 2)]
    assert not chronicle.empty
    chapters.append(chronicle.close(3, NOW))
    assert chronicle.empty
    assert askable() == [1] * 28
    segments = [chapter.segments() for chapter in chapters]
    assert [[type(one) for one in parts] for parts in segments] == [[Shed], [Shed], [Shed, SubscriptionChanges]]
    assert [len(parts[0].at) for parts in segments if isinstance(parts[0], Shed)] == [12, 12, 4]
    held = chronicle.held_bytes
    chronicle.release(1)
    assert askable() == [0] * 12 + [1] * 16
    assert chronicle.held_bytes < held
    chronicle.release(2)
    chronicle.release(3)
    assert chronicle.held_bytes == 0


def test_texts_of_clients_count_as_the_memory_that_they_take() -> None:
    chronicle = Chronicle(NOW)
    ascii_text, wide_text = "x" * 10_000, "x" * 9_999 + "\N{ROCKET}"
    cases: list[tuple[Callable[[], None], int]] = [
        (lambda: chronicle.publishes(1, ascii_text, NOW), 10_000),
        (lambda: chronicle.subscribed(1, ascii_text, "a", ascii_text, NOW), 20_000),
        (lambda: chronicle.subscribed(1, "ann", wide_text, "", NOW), 40_000),
        (lambda: chronicle.aliased(wide_text, 1, 2, NOW), 40_000),
    ]
    for told, least in cases:
        before = chronicle.open_bytes
        told()
        assert least < chronicle.open_bytes - before < least + 1_000
    assert chronicle.held_bytes == chronicle.open_bytes
    chronicle.close(1, NOW)
    assert chronicle.held_bytes > 80_000
    chronicle.release(1)
    assert chronicle.held_bytes == 0


def test_aliases_beyond_the_limit_are_left_out_and_the_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chronicle_module, "MAX_ALIAS_BYTES", 10_000)
    chronicle = Chronicle(NOW)

    def tell(first: int, count: int) -> None:
        for number in range(first, first + count):
            chronicle.aliased(f"{number:0800}", 1, number, NOW)

    tell(0, 1_000)
    assert chronicle.aliases_left_out == 990
    assert chronicle.open_bytes < 11_000
    assert chronicle.ids_of(LEFT_OUT) == [(1, 10)]
    # What is closed and not written yet counts as well; each chapter says that it lacks some.
    chronicle.close(1, NOW)
    tell(1_000, 10)
    assert chronicle.ids_of(LEFT_OUT) == [(1, 10), (1, 1_000)]
    (aliases,) = chronicle.close(2, NOW).segments()
    assert isinstance(aliases, Aliases)
    assert aliases.alias == [LEFT_OUT]
    chronicle.release(1)
    chronicle.release(2)
    tell(2_000, 10)
    assert chronicle.aliases_left_out == 1_000
    assert chronicle.ids_of(f"{2_009:0800}") == [(1, 2_009)]
    assert chronicle.ids_of(LEFT_OUT) == []


def test_chapter_with_many_aliases_is_closed_early_and_converted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chronicle_module, "SEALED_ALIAS_BYTES", 2_000)
    monkeypatch.setattr(chronicle_module, "CONVERTED_LINES", 4)
    chronicle = Chronicle(NOW)
    for number in range(9):
        assert not chronicle.has_many_aliases
        chronicle.aliased(f"{number:010}", 1, number, NOW)
    chronicle.aliased("more", 1, 9, NOW)
    assert chronicle.has_many_aliases
    segments = chronicle.close(1, NOW).segments()
    assert [one.alias[-1] for one in segments if isinstance(one, Aliases)] == [f"{3:010}", f"{7:010}", "more"]
    assert not chronicle.has_many_aliases


def test_lines_with_long_texts_are_converted_in_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chronicle_module, "CONVERTED_CHARACTERS", 1_000)
    chronicle = Chronicle(NOW)
    for number, size in enumerate([10, 400, 700, 2_000, 10]):
        chronicle.subscribed(number, "", "a", "x" * size, NOW)
    parts = [one for one in chronicle.close(1, NOW).segments() if isinstance(one, SubscriptionChanges)]
    assert [part.subscription.tolist() for part in parts] == [[0, 1, 2], [3], [4]]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.booleans())), st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=200)
def test_presence_tells_who_was_there_between_two_times(steps: list[tuple[int, int, bool]], one: int, two: int) -> None:
    changes, at = [], 0
    for number, gap, begins in steps:
        at += gap
        changes.append((number, at, int(begins)))
    since, until = sorted((one, two))
    expected = set()
    # In one millisecond, ends come first.
    in_order: list[Any] = sorted(changes, key=lambda change: change[1:])
    for number in range(1, 5):
        begun: int | None = None
        for other, time, begins in [*in_order, (number, 10**9, 0)]:
            if other != number:
                continue
            if begins and begun is None:
                begun = time
            elif not begins and begun is not None:
                if begun <= until and time >= since:
                    expected.add(number)
                begun = None
    presence = Presence.of(changes)
    assert presence.between(since, until) == presence.stays().between(since, until) == tuple(sorted(expected))


def test_a_restart_ends_what_a_crashed_run_left_without_an_end() -> None:
    changes = [(1, 10, 1), (2, 20, 1), (2, 30, 0), (3, 50, 1), (1, 60, 1)]
    presence = Presence.of(changes, starts=[5, 50, 80])
    for at, there in [(4, ()), (15, (1,)), (25, (1, 2)), (49, (1,)), (50, (3,)), (60, (1, 3)), (79, (1, 3)), (80, ())]:
        assert presence.between(at, at) == presence.stays().between(at, at) == there, at


def test_presence_forgets_what_ended_long_ago() -> None:
    presence = Presence.of([(1, 10, 1), (1, 20, 0), (2, 10, 1), (2, 30, 0), (3, 10, 1)])
    presence.forget(25)
    assert presence.between(0, 100) == (2, 3)
    assert len(presence) == 1


def test_presence_says_from_when_it_remembers_not_all() -> None:
    presence = Presence(most=3)
    for number in range(1, 6):
        presence.begin(number, 10 * number)
        presence.end(number, 10 * number + 5)
    assert presence.between(0, 100) == (3, 4, 5)
    assert presence.forgotten_until(0) == presence.forgotten_until(25) == 25
    assert presence.forgotten_until(26) is None
    changes = [(number, number + end, 1 - end) for number in range(1, 10) for end in (0, 1)]
    assert len(Presence.of(changes).between(0, 100)) == 9


@given(st.lists(st.integers(-5, 10**9), min_size=1))
def test_latencies_fall_into_the_buckets_their_limits_promise(delays: list[int]) -> None:
    sketch = LatencySketch()
    now = 2 * 10**9
    ids = np.array([[1, (now - delay) << 16] for delay in delays], np.uint64)
    sketch.add(ids, np.arange(len(ids)), now)
    expected = np.zeros(LATENCY_BUCKETS, np.int64)
    for delay in delays:
        bucket = 0
        while delay > LATENCY_GROWTH**bucket:
            bucket += 1
        expected[bucket] += 1
    assert sketch.take().tolist() == expected.tolist()
    assert not sketch.take().any()


@given(st.integers(0, 10**6), st.integers(0, 65_535), st.integers(1, 200_000), st.integers(-5, 10**6))
def test_latencies_of_a_run_are_those_of_its_ids(time: int, counter: int, size: int, delay: int) -> None:
    tail = time << 16 | counter
    ids = np.ones((size, 2), np.uint64)
    ids[:, 1] = np.uint64(tail) + np.arange(size, dtype=np.uint64)
    one_by_one, together = LatencySketch(), LatencySketch()
    one_by_one.add(ids, np.arange(size), time + delay)
    together.add_run(tail, size, time + delay)
    assert together.take().tolist() == one_by_one.take().tolist()
    assert not together.take().any()
