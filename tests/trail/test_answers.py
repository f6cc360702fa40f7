"""Answers against the truth: networks whose brokers crash anywhere, and commit whatever they got to."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import MessageId
from postroad.tracking import LinkChanges, Shed, Verdict
from postroad.tracking.verdicts import OPEN
from postroad.trail import Trail, TrailWriter
from tests.trail.lives import Network
from tests.trail.samples import HOUR, NOON, passages, short, wide

if TYPE_CHECKING:
    from pathlib import Path

# Nothing more is to come: who got it is known.
_SETTLED = (Verdict.DELIVERED, Verdict.ACKNOWLEDGED, Verdict.MATCHED_NOBODY)


def check(network: Network) -> Verdict:
    """No answer is wrong with certainty, and none is vague without a cause."""
    journey = network.trace()
    got = {(broker, hit.number) for broker, hit in journey.delivered}
    assert got <= network.delivered
    if journey.verdict in OPEN:
        assert journey.certainty == 0.0
        assert network.cause(), journey
        return journey.verdict
    assert journey.certainty == 1.0
    if journey.verdict in _SETTLED:
        assert got == network.delivered
        assert not network.waiting
    elif journey.verdict is Verdict.NEVER_ACCEPTED:
        assert not network.accepted
    elif journey.verdict is Verdict.LOST_AFTER_HOP:
        assert {(hop.broker, hop.neighbour) for hop in journey.lost} <= network.lost
    elif journey.verdict is Verdict.WAITING:
        assert (network.waiting and got == network.delivered) or network.lost
    else:
        assert journey.verdict is Verdict.DROPPED
        assert network.lost
    return journey.verdict


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**32))
def test_no_answer_is_wrong_with_certainty_or_vague_without_a_cause(seed: int) -> None:
    check(Network(Random(seed)))


def test_every_kind_of_answer_occurs() -> None:
    """The test above would pass on a world in which nothing happens."""
    found = {check(Network(Random(seed))) for seed in range(1_000)}
    assert found >= {
        Verdict.DELIVERED,
        Verdict.MATCHED_NOBODY,
        Verdict.RECORDED_IN_PART,
        Verdict.NOT_RECORDED,
        Verdict.NEVER_ACCEPTED,
        Verdict.DROPPED,
        Verdict.WAITING,
    }


def test_messages_of_a_network_without_crashes_are_never_answered_vaguely() -> None:
    random = Random(5)
    for _ in range(500):
        assert check(Network(random, crash_share=0.0)) in (*_SETTLED, Verdict.NEVER_ACCEPTED)


@pytest.mark.parametrize("goes_on", [False, True], ids=["not written yet", "crashed, and began again"])
def test_hop_after_a_long_wait_is_open_while_the_record_of_the_receiver_has_a_gap_then(
    tmp_path: Path, goes_on: bool
) -> None:
    minute, late = 60_000, NOON + 50 * 60_000

    def noted(reason: str, at: int) -> Shed:
        return Shed(wide([1]), wide([NOON]), wide([7]), short([0]), wide([0]), wide([0]), [reason], wide([at]))

    # Accepted at noon, kept because the home of its queue is down, and handed to it fifty minutes later.
    sender = TrailWriter(tmp_path, 1, NOON - HOUR)
    sender.write([LinkChanges(wide([2]), wide([NOON - HOUR]), short([1]), short([1]))], NOON - HOUR + 1)
    sender.write([passages([(1, NOON, 7, 0)]), noted("held", NOON)], NOON + minute)
    hop = passages([(1, NOON, 7, 0)], arrived_from=[-1], relayed_to=[[2]])
    sender.write([noted("sent on", late), hop], late + minute)
    sender.write([], NOON + 3 * HOUR)
    sender.close(NOON + 3 * HOUR)
    # The home has written nothing since shortly before that.
    home = TrailWriter(tmp_path, 2, NOON - HOUR)
    home.write([LinkChanges(wide([1]), wide([NOON - HOUR]), short([1]), short([1]))], NOON - HOUR + 1)
    home.write([], late - minute // 2)
    if goes_on:
        again = TrailWriter(tmp_path, 2, late + 2 * minute)
        again.write([], NOON + 3 * HOUR)
        again.close(NOON + 3 * HOUR)
    journey = Trail(tmp_path).trace(MessageId(7, 1, NOON, 0)).journey
    assert journey.lost == ()
    assert [(hop.broker, hop.neighbour) for hop in journey.open] == [(1, 2)]
    assert journey.verdict is Verdict.RECORDED_IN_PART
    assert {broker for broker, _ in journey.gaps} == {2}
