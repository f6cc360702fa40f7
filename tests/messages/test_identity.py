from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroad.messages import DecodeError, IdGenerator, MessageError, MessageId
from tests.messages.strategies import ids

LAST_TIME = 2**48 - 1


@given(ids)
def test_id_survives_both_written_forms(identity: MessageId) -> None:
    assert MessageId.from_bytes(bytes(identity)) == identity
    assert MessageId.parse(str(identity)) == identity
    assert MessageId.of(identity.head, identity.tail) == identity
    assert str(identity).replace("-", "") == bytes(identity).hex()


@given(ids, ids)
def test_ids_bytes_and_texts_sort_alike(one: MessageId, other: MessageId) -> None:
    assert (one < other) == (bytes(one) < bytes(other)) == (str(one) < str(other))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7-2-18bcfe56800-1",
        "00000007-00000002-018BCFE56800-0001",
        "0000000700000002018bcfe568000001",
        "00000007-00000002-018bcfe56800-0001\n",
        " 00000007-00000002-018bcfe56800-0001",
        "00000007-00000002-018bcfe56800-000g",
        "x" * 500,
    ],
)
def test_parser_refuses_other_spellings(text: str) -> None:
    with pytest.raises(DecodeError, match="is not a message id; write"):
        MessageId.parse(text)


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_parsers_accept_or_refuse_and_nothing_else(data: bytes | str) -> None:
    try:
        identity = MessageId.from_bytes(data) if isinstance(data, bytes) else MessageId.parse(data)
    except DecodeError:
        return
    assert data in (bytes(identity), str(identity))


@pytest.mark.parametrize(
    "fields", [(2**32, 0, 0, 0), (0, -1, 0, 0), (0, 0, 2**48, 0), (0, 0, 0, 65_536), (0, 0, 1.5, 0), (True, 0, 0, 0)]
)
def test_id_refuses_fields_out_of_range(fields: tuple[int, int, int, int]) -> None:
    with pytest.raises(MessageError, match="a message id's"):
        MessageId(*fields)


def test_generator_counts_within_a_millisecond() -> None:
    generator = IdGenerator(7, 2)
    assert [generator.next(1000), generator.next(1000), generator.next(1001)] == [
        MessageId(7, 2, 1000, 0),
        MessageId(7, 2, 1000, 1),
        MessageId(7, 2, 1001, 0),
    ]
    assert generator.lead_ms == 0


def test_generator_keeps_its_time_when_the_clock_steps_back() -> None:
    generator = IdGenerator(7, 2)
    generator.next(1000)
    assert generator.next(400) == MessageId(7, 2, 1000, 1)
    assert generator.lead_ms == 600
    assert generator.next(999) == MessageId(7, 2, 1000, 2)
    assert generator.next(1001) == MessageId(7, 2, 1001, 0)
    seen = generator.statistics()
    assert (seen.issued, seen.steps_back, seen.largest_step_back_ms) == (4, 1, 600)
    assert (seen.lead_ms, seen.largest_lead_ms, seen.last_time_ms) == (0, 600, 1001)


def test_generator_runs_ahead_when_the_counter_is_used_up() -> None:
    generator = IdGenerator(7, 2)
    taken = generator.take(1000, 65_536)
    assert MessageId.of(*taken[-1].tolist()) == MessageId(7, 2, 1000, 65_535)
    assert generator.lead_ms == 0
    assert generator.next(1000) == MessageId(7, 2, 1001, 0)
    assert generator.lead_ms == 1
    assert generator.next(1001) == MessageId(7, 2, 1001, 1)
    assert generator.lead_ms == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=8), st.integers(0, 65_535))
def test_taking_many_equals_taking_one_by_one(steps: list[tuple[int, int]], used: int) -> None:
    one, many = IdGenerator(1, 2), IdGenerator(1, 2)
    for generator in (one, many):
        generator.take(3, used + 1)
    last = MessageId(1, 2, 3, used)
    for now, count in steps:
        taken = [MessageId.of(*row) for row in many.take(now, count).tolist()]
        assert taken == [one.next(now) for _ in range(count)]
        for identity in taken:
            assert last < identity
            last = identity
    assert one.statistics() == many.statistics()


@given(st.integers(0, 2**40), st.integers(0, 2**40))
@example(0, 0)
def test_generator_starts_not_before_a_time(not_before: int, now: int) -> None:
    assert IdGenerator(1, 2, not_before=not_before).next(now) == MessageId(1, 2, max(not_before, now), 0)


@pytest.mark.parametrize("now", [-1, LAST_TIME + 1, 1.5])
def test_generator_refuses_a_time_without_effect(now: int) -> None:
    generator = IdGenerator(1, 2)
    before = generator.statistics()
    with pytest.raises(MessageError, match="time"):
        generator.next(now)
    assert generator.statistics() == before


def test_generator_refuses_to_go_beyond_the_last_id() -> None:
    generator = IdGenerator(1, 2)
    with pytest.raises(MessageError, match="end of time"):
        generator.take(LAST_TIME, 65_537)
    assert len(generator.take(LAST_TIME, 65_536)) == 65_536
    with pytest.raises(MessageError, match="end of time"):
        generator.next(LAST_TIME)


def test_generator_takes_none_and_refuses_less() -> None:
    generator = IdGenerator(1, 2)
    assert generator.take(5, 0).shape == (0, 2)
    with pytest.raises(MessageError, match="-1 ids"):
        generator.take(5, -1)
