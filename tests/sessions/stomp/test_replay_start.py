"""Where a replay begins, from the headers `from` and `after` of SUBSCRIBE."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.broker import BrokerError, ReplayStart
from postroad.messages import MessageId
from postroad.sessions.stomp.replay import replay_start

ID = "00000007-00000002-018bcfe56800-0001"


def test_subscription_without_the_headers_begins_with_new_messages() -> None:
    assert replay_start({"id": "1"}) is None


@pytest.mark.parametrize(
    ("headers", "start"),
    [
        ({"from": "first"}, ReplayStart()),
        ({"from": "1700000000000"}, ReplayStart(since=1_700_000_000_000)),
        ({"from": "2023-11-14T22:13:20Z"}, ReplayStart(since=1_700_000_000_000)),
        ({"from": "2023-11-14T22:13:20"}, ReplayStart(since=1_700_000_000_000)),
        ({"from": "2023-11-15T00:13:20+02:00"}, ReplayStart(since=1_700_000_000_000)),
        ({"from": ID}, ReplayStart(id=MessageId.parse(ID))),
        ({"after": ID}, ReplayStart(id=MessageId.parse(ID), after=True)),
    ],
)
def test_header_names_where_to_begin(headers: dict[str, str], start: ReplayStart) -> None:
    assert replay_start(headers) == start


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"from": "first", "after": ID}, "contradict"),
        ({"from": "yesterday"}, "is not first, a time"),
        ({"from": ""}, "is not first, a time"),
        ({"from": "999999999999999"}, "outside the range"),
        ({"from": "1969-12-31T23:59:59Z"}, "outside the range"),
        ({"after": "first"}, "after: 'first' is not a message id"),
        ({"after": "1700000000000"}, "is not a message id"),
    ],
)
def test_header_that_names_no_start_is_refused(headers: dict[str, str], reason: str) -> None:
    with pytest.raises(BrokerError, match=reason):
        replay_start(headers)


@given(st.text(max_size=40))
def test_any_text_is_a_start_or_refused(text: str) -> None:
    for header in ("from", "after"):
        try:
            start = replay_start({header: text})
        except BrokerError:
            continue
        assert start is not None
        assert 0 <= start.since < 2**48


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_time_reads_back_as_the_millisecond_it_is(moment: datetime) -> None:
    start = replay_start({"from": moment.isoformat()})
    assert start is not None
    assert start.since == int(moment.timestamp() * 1_000)
