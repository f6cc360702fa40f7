"""Advertisements of other brokers: decoded before they are stored or passed on, applied whole, a step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from postroad.broker import Broker, Limits, PublisherNumbers, Relay, make_strategy
from postroad.broker.interests import STEP, Interests
from postroad.errors import LimitError, PostroadError
from postroad.filters import hash_bytes
from postroad.matching import SubscriptionIndex
from postroad.matching.encoding import EncodingError, encode_exact
from postroad.messages import Batch, Draft
from postroad.routing import Drp, Interest, InterestDelta, LinkRecord
from postroad.selectors import Selector

NOW = 1_000

if TYPE_CHECKING:
    from collections.abc import Sequence


def relay_of_broker_1() -> Relay:
    """Broker 1 with links to brokers 2 and 3, whose links it knows."""
    core = Broker(1, PublisherNumbers(lambda: 1))
    relay = Relay(core, make_strategy("drp", 1, NOW))
    for number in (2, 3):
        relay.link_up(number, 1, NOW)
        relay.control(LinkRecord(number, NOW, 1, 0, ((1, 1),)), number, NOW)
    return relay


def sealed(body: bytes) -> bytes:
    return body + hash_bytes(body).to_bytes(8, "little")


def advertised(count: int, topic: str = "t") -> bytes:
    return encode_exact([(f"{topic}.{number}", ()) for number in range(count)])


def wanted_by(relay: Relay, topic: str) -> list[int]:
    batch = Batch.build([Draft(topic)])
    return relay.interests.split(batch, entering=True).destinations.numbers(0)


def passed_on(relay: Relay, outbox_frames: Sequence[tuple[int, object]]) -> list[int]:
    return [link for link, frame in outbox_frames if isinstance(frame, Interest | InterestDelta)]


def test_advertisement_that_cannot_be_read_is_neither_stored_nor_passed_on() -> None:
    relay = relay_of_broker_1()
    state = relay.strategy.link_state if isinstance(relay.strategy, Drp) else None
    assert state is not None
    good = Interest(2, NOW, 1, advertised(1))
    assert passed_on(relay, relay.control(good, 2, NOW).frames) == [3]
    for bad in (Interest(2, NOW, 2, b"noise"), InterestDelta(2, NOW, 1, 2, b"noise", b"")):
        with pytest.raises(EncodingError):
            relay.control(bad, 2, NOW)
        assert state.interest_of(2) == good.summary
        assert wanted_by(relay, "t.0") == [2]
    # The number that the bad one took is free for an honest one.
    assert passed_on(relay, relay.control(Interest(2, NOW, 2, advertised(2)), 2, NOW).frames) == [3]
    assert wanted_by(relay, "t.1") == [2]


def test_advertisement_of_21_bytes_that_claims_a_million_rows_is_refused_at_once() -> None:
    claim = sealed(bytes.fromhex("01 00000001013e 0000 c0843d 00"))
    assert len(claim) == 21
    with pytest.raises(EncodingError, match="1,000,000 rows do not fit in 0 bytes"):
        relay_of_broker_1().control(Interest(2, NOW, 1, claim), 2, NOW)


def test_advertisement_that_the_index_refuses_half_way_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    index = SubscriptionIndex()
    interests = Interests(index)
    interests.replace(7, advertised(5, "old"))
    add = index.add_disjunction

    def refusing(key: Any, *rest: Any) -> int:
        if len(index) >= 8:
            raise LimitError("the index", 9, 8)
        return add(key, *rest)

    monkeypatch.setattr(index, "add_disjunction", refusing)
    with pytest.raises(LimitError):
        interests.replace(7, advertised(5, "new"))
    assert len(index) == 5
    monkeypatch.undo()
    interests.replace(7, advertised(5, "new"))
    batch = Batch.build([Draft("new.4"), Draft("old.4")])
    found = interests.split(batch, entering=True).destinations
    assert [found.numbers(row) for row in range(2)] == [[7], []]


def test_broker_whose_interest_has_no_room_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = relay_of_broker_1()
    index = relay.interests.index
    add = index.add_disjunction

    def refusing(key: Any, *rest: Any) -> int:
        if len(index) >= 3:
            raise LimitError("the index", 4, 3)
        return add(key, *rest)

    monkeypatch.setattr(index, "add_disjunction", refusing)
    relay.control(Interest(2, NOW, 1, advertised(50)), 2, NOW)
    assert wanted_by(relay, "t.3") == [2]
    assert wanted_by(relay, "anything") == [2]


def slow_rows(count: int) -> bytes:
    """An advertisement of searches in texts, each of which can take milliseconds for one message."""
    selectors = [Selector.parse(f"b LIKE '%x_{number}%y%'") for number in range(count)]
    return encode_exact([("t", selector.disjunction[0]) for selector in selectors])


def test_broker_whose_interest_costs_too_much_for_each_message_gets_everything() -> None:
    """Its own limits need not be those of an honest broker; a message of anybody would take seconds to match."""
    relay = relay_of_broker_1()
    index, most = relay.interests.index, Limits().matching_ms * 1_000_000
    relay.control(Interest(3, NOW, 1, slow_rows(20)), 3, NOW)
    honest = index.work
    assert wanted_by(relay, "t") == []
    for version in (1, 2):
        relay.control(Interest(2, NOW, version, slow_rows(2_000)), 2, NOW)
        while relay.working:
            assert index.work <= honest + most
            relay.work(NOW)
        assert wanted_by(relay, "anything") == [2]
        assert len(index) == 21
        assert index.work < honest + 1_000
    # What it wants next may be less.
    relay.control(Interest(2, NOW, 3, slow_rows(10)), 2, NOW)
    assert wanted_by(relay, "anything") == []
    assert len(index) == 30


def test_broker_that_is_gone_while_its_advertisement_is_applied_is_struck_in_steps() -> None:
    relay = relay_of_broker_1()
    index = relay.interests.index
    relay.control(Interest(2, NOW, 1, advertised(1_000)), 2, NOW)
    while len(index) < 500:
        relay.work(NOW)
    relay.control(LinkRecord(2, NOW + 1, 1, 0, (), True), 2, NOW)
    least, steps = len(index), 0
    assert least > 500 - 6 * STEP
    while relay.working:
        relay.work(NOW)
        assert least - len(index) <= STEP
        least, steps = len(index), steps + 1
    assert (len(index), index.work) == (0, 0)
    assert steps > 1
    assert wanted_by(relay, "t.3") == []


def test_long_advertisement_is_worked_off_in_steps_and_delays_no_other_broker() -> None:
    relay = relay_of_broker_1()
    outbox = relay.control(Interest(2, NOW, 1, advertised(3_000)), 2, NOW)
    assert relay.working
    assert not passed_on(relay, outbox.frames)
    assert passed_on(relay, relay.control(Interest(3, NOW, 1, advertised(2)), 3, NOW).frames) == [2]
    assert wanted_by(relay, "t.1") == [3]
    frames: list[tuple[int, object]] = []
    # A change that comes meanwhile waits its turn, and the copy that another neighbour sends is not read again.
    relay.control(InterestDelta(2, NOW, 1, 2, advertised(1, "more"), b""), 2, NOW)
    relay.control(Interest(2, NOW, 1, advertised(3_000)), 3, NOW)
    steps = 0
    while relay.working:
        frames += relay.work(NOW).frames
        steps += 1
    assert steps > 20
    assert passed_on(relay, frames) == [3, 3]
    assert wanted_by(relay, "t.2999") == [2]
    assert wanted_by(relay, "more.0") == [2]


def test_long_advertisement_that_goes_wrong_at_its_end_names_the_neighbour() -> None:
    relay = relay_of_broker_1()
    body = advertised(3_000)[:-8]
    # The last rows do not ascend any more.
    relay.control(Interest(2, NOW, 1, sealed(body[:-2] + bytes(2))), 2, NOW)
    refusals = []
    while relay.working:
        refusals += relay.work(NOW).refusals
    assert [(one.link, one.grave) for one in refusals] == [(2, True)]
    assert wanted_by(relay, "t.1") == []


def test_broker_that_begins_anew_while_its_advertisement_is_applied_leaves_nothing_behind() -> None:
    relay = relay_of_broker_1()
    relay.control(Interest(2, NOW, 1, advertised(3_000)), 2, NOW)
    for _ in range(60):
        relay.work(NOW)
    assert relay.working
    assert len(relay.interests.index) > 0
    relay.control(LinkRecord(2, NOW + 1, 1, 0, ((1, 1),)), 2, NOW + 1)
    relay.work(NOW + 1)
    # What its earlier life wanted counts until it says what it wants now.
    relay.control(Interest(2, NOW + 1, 1, advertised(2)), 2, NOW + 1)
    while relay.working:
        relay.work(NOW + 1)
    assert len(relay.interests.index) == 2
    assert (wanted_by(relay, "t.1"), wanted_by(relay, "t.3")) == ([2], [])


def test_counter_far_ahead_of_the_clock_is_refused() -> None:
    relay = relay_of_broker_1()
    with pytest.raises(PostroadError, match="more than a day ahead"):
        relay.control(LinkRecord(2, 2**62, 1, 0, ((1, 1),)), 2, NOW)
    for forged in (LinkRecord(3, 2**62, 1, 0, ()), LinkRecord(1, 2**62, 1, 0, ()), Interest(3, 2**62, 1, b"")):
        (refusal,) = relay.control(forged, 2, NOW).refusals
        assert (refusal.link, refusal.grave) == (2, False)
    state = relay.strategy.link_state if isinstance(relay.strategy, Drp) else None
    assert state is not None
    assert state.epoch == NOW
    assert state.routes.reached == 2
