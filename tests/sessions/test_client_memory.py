"""What is held in memory for clients, and who goes when it is too much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroad.broker.queues import Load
from postroad.sessions import Holding, Holdings, who_goes
from postroad.sessions.client_memory import FREED_PART, RECOUNT_PART

some = st.lists(st.tuples(st.integers(0, 1_000), st.booleans()), max_size=20).map(
    lambda pairs: [Holding(key, size, is_stranger) for key, (size, is_stranger) in enumerate(pairs)]
)


@given(holdings=some, budget=st.integers(1, 5_000))
def test_strangers_go_first_then_those_for_whom_most_is_held_and_no_more_than_must(
    holdings: list[Holding[int]], budget: int
) -> None:
    gone = who_goes(holdings, budget)
    total = sum(each.bytes for each in holdings)
    if total <= budget:
        assert gone == []
        return
    target = budget - budget // FREED_PART
    assert total - sum(each.bytes for each in gone) <= target
    # Without the last of them it would not have been enough.
    assert total - sum(each.bytes for each in gone[:-1]) > target
    ranks = [(not each.is_stranger, 0 if each.is_stranger else -each.bytes) for each in gone]
    assert ranks == sorted(ranks)
    left = [each for each in holdings if each not in gone and not each.is_stranger]
    if any(not each.is_stranger for each in gone):
        assert not [each for each in holdings if each.is_stranger and each not in gone]
        assert max((each.bytes for each in left), default=0) <= min(each.bytes for each in gone if not each.is_stranger)


def test_the_sum_calls_for_a_count_above_the_budget_and_not_at_every_message_after_it() -> None:
    queued = Load()
    holdings = Holdings(6_400, queued)
    holdings.add(6_000)
    assert not holdings.is_too_much
    Load(queued).add(1, 401)
    assert (holdings.total, holdings.is_too_much) == (6_401, True)
    # The count finds that sockets have drained meanwhile.
    holdings.add(-100)
    holdings.counted()
    holdings.add(6_400 // RECOUNT_PART)
    assert not holdings.is_too_much
    holdings.add(1)
    assert holdings.is_too_much
    holdings.add(-5_000)
    holdings.counted()
    assert not holdings.is_too_much
