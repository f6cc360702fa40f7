"""Ids by the broker's clock: rising whatever the clocks do, and in tolerance again after a correction."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.client import ClientClock, ClientError, ConnectionLost
from postroad.client.publisher import Grant, Publisher
from postroad.client.send_frames import send_frame
from postroad.client.unconfirmed_messages import CONFIRM_BYTES, CONFIRM_MESSAGES, MAX_UNCONFIRMED_BYTES, Unconfirmed
from postroad.messages import Draft, MessageId
from postroad.protocols.stomp import encode_frame
from tests.server.scene import Scene

TOLERANCE = 500
GRANT = Grant(7, 2, "token")


class Machine:
    """A computer whose clock is off from true time, and can be set."""

    def __init__(self, scene: Scene, off: int) -> None:
        self.scene = scene
        self.off = off

    def __call__(self) -> int:
        return self.scene.clock.now + self.off


class Far:
    """A client and a broker in virtual time, with a way between them that takes a while."""

    def __init__(self, off: int, there: int, back: int) -> None:
        self.scene = Scene()
        self.machine = Machine(self.scene, off)
        self.talker = self.scene.talker()
        self.there, self.back = there, back
        asked = self.machine()
        self.scene.wait(there)
        self.talker.say("CONNECT", {"accept-version": "1.2", "host": "here", "postroad-ids": "client"})
        self.scene.wait(back)
        (connected,) = self.talker.heard()
        clock = ClientClock.from_exchange(asked, self.machine(), connected.headers["server-time"])
        grant = Grant.of(connected.headers)
        assert grant is not None
        self.publisher = Publisher(grant, clock, now=self.machine)

    def publish(self, waits: int = 0) -> int:
        """Publish a message that waits somewhere on its way; returns how far its time is from the broker's."""
        given = self.publisher.stamp()
        self.scene.wait(self.there + waits)
        arrived = self.scene.clock.now
        self.talker.conversation.received(
            encode_frame("SEND", {"destination": "/topic/a", "message-id": str(given), "receipt": "r"})
        )
        self.scene.wait(self.back)
        frames = self.talker.heard()
        assert [frame.command for frame in frames] == ["RECEIPT"] * len(frames)
        for frame in frames:
            self.publisher.heard(frame.headers)
        return given.time - arrived


offs = st.integers(-(10**7), 10**7)
ways = st.integers(0, 200)


@given(off=offs, there=ways, back=ways)
def test_ids_are_in_tolerance_whatever_the_clock_says(off: int, there: int, back: int) -> None:
    far = Far(off, there, back)
    measured = far.publisher.clock
    assert measured.skew_ms is not None
    assert abs(measured.skew_ms + off) <= measured.error_ms
    assert measured.error_ms == (there + back + 1) // 2
    assert abs(far.publish()) <= TOLERANCE
    assert far.scene.core.statistics().ids_skewed == 0


@given(off=offs, there=ways, back=ways, step=st.integers(-(10**6), 10**6))
def test_after_a_clock_was_set_one_correction_brings_ids_back(off: int, there: int, back: int, step: int) -> None:
    far = Far(off, there, back)
    assert abs(far.publish()) <= TOLERANCE
    far.machine.off += step
    # A clock that was set back shows with the second message: the first has the time of the one before.
    far.publish()
    far.scene.wait(1_000)
    far.publish()
    # A clock that was ahead leaves ids ahead: they never go back, so true time has to get there first.
    far.scene.wait(1_000 + max(0, step))
    assert abs(far.publish()) <= TOLERANCE
    assert far.scene.core.statistics().ids_skewed <= 2


@given(off=offs, there=ways, back=ways, waits=st.integers(TOLERANCE + 201, 10**6))
def test_a_message_that_only_waited_does_not_change_the_clock(off: int, there: int, back: int, waits: int) -> None:
    far = Far(off, there, back)
    before = far.publisher.clock
    far.publish(waits)
    assert far.scene.core.statistics().ids_skewed == 1
    assert far.publisher.clock == before


moves = st.one_of(
    st.tuples(st.just("time"), st.integers(0, 10**4)),
    st.tuples(st.just("set"), st.integers(-(10**6), 10**6)),
    st.tuples(st.just("skew"), st.integers(-(10**6), 10**6)),
    st.tuples(st.just("stamp"), st.integers(1, 5)),
)


@given(start=st.integers(0, 10**12), moves=st.lists(moves, max_size=30))
def test_ids_rise_whatever_the_clocks_do(start: int, moves: list[tuple[str, int]]) -> None:
    now = [start]
    publisher = Publisher(GRANT, ClientClock(0), now=lambda: now[0])
    ids = [publisher.stamp()]
    for kind, size in moves:
        if kind == "stamp":
            ids += [publisher.stamp() for _ in range(size)]
        elif kind == "skew":
            publisher.clock = ClientClock(size)
        else:
            now[0] = max(0, now[0] + size)
    ids.append(publisher.stamp())
    assert ids == sorted(set(ids))
    assert {(given.publisher, given.broker) for given in ids} == {(7, 2)}


def test_a_millisecond_with_more_ids_than_it_holds_runs_into_the_next() -> None:
    publisher = Publisher(GRANT, ClientClock(10), now=lambda: 1_000)
    ids = [publisher.stamp() for _ in range(65_537)]
    assert ids[0] == MessageId(7, 2, 1_010, 0)
    assert ids[-2:] == [MessageId(7, 2, 1_010, 65_535), MessageId(7, 2, 1_011, 0)]


def test_a_correction_of_a_message_that_is_not_ours_or_without_a_time_is_ignored() -> None:
    publisher = Publisher(GRANT, ClientClock(10), now=lambda: 1_000)
    publisher.heard({"receipt-id": "postroad-clock", "message-id": str(MessageId(7, 2, 5, 0)), "server-time": "9"})
    given = publisher.stamp()
    for time in ({}, {"server-time": "noon"}):
        publisher.heard({"receipt-id": "postroad-clock", "message-id": str(given), **time})
    publisher.heard({"receipt-id": "1"})
    assert publisher.clock == ClientClock(10)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"postroad-publisher": "7", "postroad-broker": "2"},
        {"postroad-publisher": "x", "postroad-broker": "2", "postroad-token": "t"},
        {"postroad-publisher": "7", "postroad-broker": "2", "postroad-token": "t", "postroad-last": "x"},
    ],
)
def test_a_broker_that_does_not_say_everything_grants_nothing(headers: dict[str, str]) -> None:
    assert Grant.of(headers) is None


# --- what is not confirmed --------------------------------------------------------------------------------------------

FRAME = send_frame(Draft("a.b", {"n": 1}, body=b"x"))


def test_messages_are_kept_until_one_receipt_confirms_them_all() -> None:
    kept = Unconfirmed()
    asks = [kept.keep([(tail, FRAME)]) for tail in range(2 * CONFIRM_MESSAGES)]
    assert [tail for tail, asked in enumerate(asks) if asked] == [CONFIRM_MESSAGES - 1, 2 * CONFIRM_MESSAGES - 1]
    kept.confirm(CONFIRM_MESSAGES - 1)
    assert len(kept) == CONFIRM_MESSAGES
    again = kept.again()
    assert again[:-1] == [FRAME] * (CONFIRM_MESSAGES - 1)
    assert again[-1] == FRAME.replace(b"SEND\n", b"SEND\nreceipt:kept\n")
    assert Unconfirmed().again() == []


def test_large_messages_ask_for_a_receipt_earlier_and_publishing_waits_when_too_much_is_kept() -> None:
    async def fill() -> None:
        kept = Unconfirmed()
        assert kept.keep([(1, b"x" * CONFIRM_BYTES)])
        assert not kept.is_full
        kept.keep([(2, b"x" * (MAX_UNCONFIRMED_BYTES + 1))])
        waiting = asyncio.create_task(kept.room())
        await asyncio.sleep(0)
        kept.confirm(1)
        await asyncio.sleep(0)
        assert not waiting.done()
        kept.confirm(2)
        await waiting

    asyncio.run(fill())


def test_who_waits_for_a_message_hears_that_it_entered_or_that_nobody_knows() -> None:
    async def wait() -> None:
        kept = Unconfirmed()
        kept.keep([(tail, FRAME) for tail in range(1, 5)])
        tasks = [asyncio.create_task(kept.confirmed(tail)) for tail in range(1, 5)]
        await asyncio.sleep(0)
        kept.confirm(2)
        await asyncio.gather(*tasks[:2])
        assert kept.give_up(ClientError("the broker said no")) == 2
        # A later message that enters says nothing about those that were given up.
        kept.keep([(9, FRAME)])
        kept.confirm(9)
        for task in tasks[2:]:
            with pytest.raises(ConnectionLost, match="not known: the broker said no"):
                await task
        await kept.confirmed(9)

    asyncio.run(wait())
