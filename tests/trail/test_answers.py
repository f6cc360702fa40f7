"""Answers against the truth: networks whose brokers crash anywhere, and commit whatever they got to."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.tracking import Verdict
from postroad.tracking.verdicts import OPEN
from tests.trail.lives import Network

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
