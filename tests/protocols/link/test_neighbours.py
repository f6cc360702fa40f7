"""What is held, resent, returned and told: one neighbour at a time, without bytes in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import PostroadError
from postroad.messages import Batch, Draft
from postroad.protocols.link import (
    Attached,
    LinkError,
    LinkReceiver,
    LinkSender,
    LinkStanding,
    Progress,
    Pulse,
    Room,
    SenderLimits,
    decode_data,
    redial_delay,
)
from postroad.protocols.link.limits import MAX_HELD_FRAMES, MAX_PROGRESS_RANGES

SETS = np.array([[6], [9]], np.uint64)
OWN, PEER = 1_000, 2_000


def bodies(data: Any) -> list[bytes]:
    return [message.body for message in data.batch]


def send(sender: LinkSender, *texts: bytes, sets: Any = SETS) -> Any:
    batch = Batch.build([Draft("a.b", body=text) for text in texts])
    rows = np.arange(len(batch))
    return sender.send(batch, rows, sets, rows % 2, 7)


def attached(**more: Any) -> LinkSender:
    sender = LinkSender(OWN, **more)
    assert sender.attach(PEER, LinkStanding(), sender.first) == Attached([], [])
    return sender


def numbers(frames: list[memoryview]) -> list[int]:
    return [decode_data(frame).number for frame in frames]


def test_frames_are_numbered_and_held() -> None:
    sender = attached()
    sent = [send(sender, b"one", b"two"), send(sender, b"three")]
    frames = [decode_data(frame) for one in sent for frame in one.frames]
    assert [(frame.number, frame.epoch, bodies(frame)) for frame in frames] == [
        (1, 7, [b"one", b"two"]),
        (2, 7, [b"three"]),
    ]
    assert [one.taken for one in sent] == [2, 1]
    found = sender.statistics()
    assert (found.held_frames, found.held_rows, found.sent_rows) == (2, 3, 3)
    assert found.held_bytes == sum(len(frame) for one in sent for frame in one.frames)


@pytest.mark.parametrize(("custody", "held"), [(False, [2, 2, 0]), (True, [3, 2, 1])], ids=["relay", "custody"])
def test_promise_says_when_frames_go(custody: bool, held: list[int]) -> None:
    sender = attached(custody=custody)
    for text in (b"a", b"b", b"c"):
        send(sender, text)
    seen = []
    for told in (Progress(1, 0), Progress(1, 1), Progress(3, 2)):
        sender.progress(told)
        seen.append(sender.statistics().held_frames)
    assert seen == held
    sender.progress(Progress(1, 1))  # old news
    assert sender.statistics().held_frames == held[-1]
    assert sender.statistics().freed_frames == 3 - held[-1]


def test_rows_wait_for_a_connection() -> None:
    sender = LinkSender(OWN)
    assert send(sender, b"early") == ([], 1, 1)
    found = sender.attach(PEER, LinkStanding(), sender.first)
    assert numbers(found.resend) == [1]
    sender.detach()
    assert send(sender, b"late") == ([], 1, 1)
    found = sender.attach(PEER, LinkStanding(OWN, 1, 0), sender.first)
    assert numbers(found.resend) == [2]


def test_what_the_peer_lacks_is_sent_again_and_no_more() -> None:
    sender = attached(custody=True)
    for text in (b"a", b"b", b"c", b"d"):
        send(sender, text)
    sender.progress(Progress(1, 0))
    sender.detach()
    found = sender.attach(PEER, LinkStanding(OWN, 2, 1), sender.first)
    assert numbers(found.resend) == [3, 4]
    assert found.returned == []
    assert sender.statistics().held_frames == 3


@pytest.mark.parametrize("theirs", [LinkStanding(), LinkStanding(OWN - 1, 7, 7), LinkStanding(OWN, 1, 1)])
@pytest.mark.parametrize("custody", [False, True])
def test_restarted_peer_gets_nothing_again(theirs: LinkStanding, custody: bool) -> None:
    """What was not freed is returned once, and the numbers go on where the peer was told they would."""
    sender = attached(custody=custody)
    for text in (b"a", b"b", b"c"):
        send(sender, text)
    sender.progress(Progress(1, 0))
    first = sender.first
    assert first == 2
    found = sender.attach(PEER + 1, theirs, first)
    assert found.resend == []
    assert [bodies(data) for data in found.returned] == ([[b"a"]] if custody else []) + [[b"b"], [b"c"]]
    assert numbers(send(sender, b"new").frames) == [2]
    assert sender.attach(PEER + 1, LinkStanding(OWN, 1, 1), sender.first).returned == []


def test_peer_that_forgot_this_process_is_like_a_restarted_one() -> None:
    sender = attached()
    send(sender, b"a")
    send(sender, b"b")
    sender.progress(Progress(1, 1))
    found = sender.attach(PEER, LinkStanding(OWN - 1, 5, 5), sender.first)
    assert [bodies(data) for data in found.returned] == [[b"b"]]


def test_peer_whose_end_of_the_handshake_was_cut_off_gets_what_it_missed() -> None:
    """This end was open and sent; the peer never was. It is the same process, and it has nothing."""
    sender = attached()
    send(sender, b"a")
    found = sender.attach(PEER, LinkStanding(), sender.first)
    assert numbers(found.resend) == [1]
    assert found.returned == []


def test_given_up_frames_are_not_waited_for() -> None:
    sender, receiver = attached(custody=True), LinkReceiver()
    receiver.attach(OWN, 1, custody=True)
    for text in (b"a", b"b", b"c"):
        send(sender, text)
    assert receiver.accept(1)
    with pytest.raises(LinkError, match="detach first"):
        sender.give_up()
    sender.detach()
    assert [bodies(data) for data in sender.give_up()] == [[b"a"], [b"b"], [b"c"]]
    assert sender.give_up() == []
    assert send(sender, b"d").taken == 1
    first = sender.first
    found = sender.attach(PEER, LinkStanding(OWN, receiver.received, receiver.settled), first)
    receiver.attach(OWN, first, custody=True)
    assert numbers(found.resend) == [4]
    assert receiver.accept(4)
    receiver.settle(OWN, 1)
    receiver.settle(OWN, 4)
    assert (receiver.received, receiver.settled) == (4, 4)
    assert receiver.statistics().skipped_frames == 2


def test_frames_given_up_during_a_handshake_end_it() -> None:
    """The peer was told to go on at 1, and now nobody would ever send it that."""
    sender = attached()
    send(sender, b"a")
    sender.detach()
    first = sender.first
    sender.give_up()
    for peer in (PEER, PEER + 1):
        with pytest.raises(LinkError, match="dial again"):
            sender.attach(peer, LinkStanding(OWN, 0, 0), first)
    assert sender.attach(PEER, LinkStanding(OWN, 0, 0), sender.first) == Attached([], [])


def test_progress_on_an_older_connection_does_not_disturb_a_handshake() -> None:
    sender = attached()
    for text in (b"a", b"b", b"c"):
        send(sender, text)
    first = sender.first
    sender.progress(Progress(2, 2))
    found = sender.attach(PEER, LinkStanding(OWN, 1, 1), first)
    assert numbers(found.resend) == [3]


@pytest.mark.parametrize("peer", [PEER, PEER + 1])
def test_peer_cannot_have_what_was_never_sent(peer: int) -> None:
    sender = attached()
    send(sender, b"a")
    with pytest.raises(LinkError, match="the peer has DATA 2, and 1 is the last"):
        sender.progress(Progress(2, 0))
    with pytest.raises(LinkError, match="as long as the process lives"):
        sender.attach(peer, LinkStanding(OWN, 2, 0), sender.first)
    assert sender.statistics().held_frames == 1
    fresh = LinkSender(OWN)
    send(fresh, b"a")
    with pytest.raises(LinkError, match="0 is the last"):
        fresh.attach(PEER, LinkStanding(OWN, 1, 0), fresh.first)


def test_long_batches_are_cut_into_frames() -> None:
    sender = attached(limits=SenderLimits(frame_bytes=1_000))
    texts = [bytes([n]) * 200 for n in range(20)] + [b"x" * 5_000, b"y"]
    sent = send(sender, *texts)
    assert sent.taken == len(texts)
    assert [text for frame in sent.frames for text in bodies(decode_data(frame))] == texts
    assert [len(frame) > 1_000 for frame in sent.frames].count(True) == 1
    assert numbers(sent.frames) == list(range(1, len(sent.frames) + 1))


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=12),
    st.integers(1, 2_000),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 800),
    st.integers(1, 40),
    st.booleans(),
)
def test_limits_hold_and_taken_rows_are_the_first(
    sizes: list[int], most_bytes: int, rows: int, frames: int, frame_bytes: int, words: int, twice: bool
) -> None:
    sender = attached(limits=SenderLimits(most_bytes, rows, frames, frame_bytes))
    texts = [b"x" * size for size in sizes]
    sets = np.zeros((2, words), np.uint64)
    for _ in range(1 + twice):
        sent = send(sender, *texts, sets=sets)
        assert [
            len(frame) for frame in sent.frames if len(frame) > frame_bytes and len(decode_data(frame).batch) > 1
        ] == []
        assert [text for frame in sent.frames for text in bodies(decode_data(frame))] == texts[: sent.taken]
        found = sender.statistics()
        assert found.held_bytes <= most_bytes
        assert found.held_rows <= rows
        assert found.held_frames <= frames
        assert sender.room == Room(most_bytes - found.held_bytes, rows - found.held_rows, frames - found.held_frames)
        if sent.taken < len(texts):
            assert send(sender, texts[sent.taken], sets=sets).taken == 0
            room = sender.room
            assert min(room.rows, room.frames) == 0 or room.bytes < 150 + 8 * words + len(texts[sent.taken])


def test_sender_refuses_wrong_rows_before_it_takes_any() -> None:
    sender = attached(limits=SenderLimits(frame_bytes=1))
    batch = Batch.build([Draft("a.b"), Draft("a.c")])
    for rows, lines in (([0, 2], [0, 0]), ([0, 1], [0, 2]), ([0, 1], [0])):
        with pytest.raises(PostroadError):
            sender.send(batch, np.array(rows), SETS, np.array(lines), 1)
    assert sender.statistics().sent_frames == 0
    assert send(sender) == ([], 0, 0)


@pytest.mark.parametrize("wrong", [{"bytes": 0}, {"frames": MAX_HELD_FRAMES + 1}, {"frame_bytes": 2**26}])
def test_sender_limits_have_limits(wrong: dict[str, int]) -> None:
    with pytest.raises(LinkError):
        SenderLimits(**wrong)


def receiving(custody: bool = True, **more: Any) -> LinkReceiver:
    receiver = LinkReceiver(**more)
    receiver.attach(PEER, 1, custody=custody)
    return receiver


def test_receiver_takes_frames_in_order_and_once() -> None:
    receiver = receiving()
    assert [receiver.accept(number) for number in (1, 2, 1, 2, 3)] == [True, True, False, False, True]
    with pytest.raises(LinkError, match="DATA 5 came, and 4 is next"):
        receiver.accept(5)
    assert receiver.statistics().repeated_frames == 2


@given(st.permutations(range(1, 9)), st.integers(0, 8))
def test_settled_is_the_longest_run_from_the_start(order: list[int], count: int) -> None:
    receiver = receiving()
    for number in range(1, 9):
        receiver.accept(number)
    done = set(order[:count])
    for number in order[:count]:
        receiver.settle(PEER, number)
        receiver.settle(PEER, number)
    assert receiver.settled == next(number for number in range(9) if number + 1 not in done)
    assert receiver.statistics().settled_early == len(done) - receiver.settled
    with pytest.raises(LinkError, match="cannot be settled"):
        receiver.settle(PEER, 9)


def test_relayed_frames_are_settled_on_receipt() -> None:
    receiver = receiving(custody=False)
    receiver.accept(1)
    assert receiver.settled == 1


def test_settlements_of_an_earlier_process_are_ignored() -> None:
    receiver = receiving()
    receiver.accept(1)
    receiver.attach(PEER + 1, 1, custody=True)
    receiver.accept(1)
    receiver.settle(PEER, 1)
    assert (receiver.epoch, receiver.received, receiver.settled) == (PEER + 1, 1, 0)
    assert receiver.statistics().restarts == 1


def test_receiver_bounds_what_is_not_settled() -> None:
    receiver = receiving()
    for number in range(1, MAX_HELD_FRAMES + 1):
        receiver.accept(number)
    with pytest.raises(LinkError, match="not settled"):
        receiver.accept(MAX_HELD_FRAMES + 1)


def test_progress_is_told_after_so_many_frames_or_so_long() -> None:
    receiver = receiving(every_frames=3, every_ms=20)
    assert receiver.progress(0) is None
    receiver.accept(1)
    assert receiver.progress(100) is None
    assert receiver.progress(119) is None
    assert receiver.progress(120) == Progress(1, 0)
    assert receiver.progress(500) is None
    for number in (2, 3, 4):
        receiver.accept(number)
    assert receiver.progress(501) == Progress(4, 0)
    receiver.settle(PEER, 1)
    assert receiver.progress(502) is None
    assert receiver.progress(522) == Progress(4, 1)


def test_what_is_settled_out_of_turn_is_told_once_in_runs_and_again_after_a_cut() -> None:
    receiver = receiving(every_frames=1, every_ms=0)
    for number in range(1, 9):
        receiver.accept(number)
    for number in (3, 7, 4, 8):
        receiver.settle(PEER, number)
    assert receiver.progress(0) == Progress(8, 0, ((3, 4), (7, 8)))
    assert receiver.progress(0) is None
    receiver.settle(PEER, 6)
    assert receiver.progress(0) == Progress(8, 0, ((6, 6),))
    receiver.settle(PEER, 1)
    receiver.settle(PEER, 2)
    assert receiver.progress(0) == Progress(8, 4)
    receiver.attach(PEER, 9, custody=True)
    assert receiver.progress(0) == Progress(8, 4, ((6, 8),))


def test_more_runs_than_a_frame_takes_are_told_in_turn() -> None:
    receiver = receiving(every_frames=1, every_ms=0)
    for number in range(1, 2 * MAX_PROGRESS_RANGES + 4):
        receiver.accept(number)
    for number in range(2, 2 * MAX_PROGRESS_RANGES + 4, 2):
        receiver.settle(PEER, number)
    first, second = receiver.progress(0), receiver.progress(0)
    assert first is not None
    assert second is not None
    assert (len(first.early), len(second.early)) == (MAX_PROGRESS_RANGES, 1)
    assert receiver.progress(0) is None


def test_frames_settled_out_of_turn_are_let_go_with_their_marks() -> None:
    sender = attached(custody=True)
    for mark in ("one", None, "three", "four"):
        batch = Batch.build([Draft("a.b", body=b"x")])
        sender.send(batch, np.array([0]), SETS, np.array([0]), 7, mark=mark)
    sender.progress(Progress(4, 0, ((2, 3),)))
    assert sender.take_let_go() == ["three"]
    assert sender.take_let_go() == []
    sender.progress(Progress(4, 0, ((2, 3),)))  # old news
    assert (sender.take_let_go(), sender.statistics().held_frames) == ([], 2)
    sender.detach()
    assert [(data.number, data.mark) for data in sender.give_up()] == [(1, "one"), (4, "four")]


def test_under_relay_nothing_is_let_go_before_its_turn() -> None:
    sender = attached()
    for text in (b"a", b"b"):
        send(sender, text)
    sender.progress(Progress(1, 0, ()))
    assert sender.statistics().held_frames == 1


def test_what_another_link_gave_back_has_more_room() -> None:
    sender = attached(limits=SenderLimits(rows=4))
    batch = Batch.build([Draft("a.b", body=b"x")] * 10)
    rows = np.arange(10)
    assert sender.send(batch, rows, SETS, np.zeros(10, np.int64), 7).taken == 4
    assert (sender.crowded, sender.relaxed) == (True, False)
    assert sender.send(batch, rows, SETS, np.zeros(10, np.int64), 7, returned=True).taken == 4
    assert sender.send(batch, rows, SETS, np.zeros(10, np.int64), 7).taken == 0
    sender.progress(Progress(1, 1))
    assert (sender.crowded, sender.relaxed) == (True, False)
    sender.progress(Progress(2, 2))
    assert (sender.crowded, sender.relaxed) == (False, True)


def test_one_frame_that_is_not_settled_stops_a_link_when_too_many_have_passed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("postroad.protocols.link.sender.MAX_HELD_FRAMES", 4)
    sender = attached(custody=True, limits=SenderLimits(frames=4))
    for body in (b"first", b"second", b"third"):
        assert send(sender, body).taken == 1
    # All but the first are settled, and held no more.
    sender.progress(Progress(3, 0, ((2, 3),)))
    assert send(sender, b"last").taken == 1
    assert (sender.room.frames, send(sender, b"more").taken) == (0, 0)


def test_pulse_beats_when_idle() -> None:
    pulse = Pulse(100, 1_000, 0)
    assert pulse.due == 100
    assert [pulse.tick(now) for now in (50, 100, 150, 200)] == [False, True, False, True]
    pulse.sent(250)
    assert [pulse.tick(now) for now in (300, 349, 350)] == [False, False, True]


def test_peer_is_dead_after_three_missed_beats() -> None:
    pulse = Pulse(10_000, 100, 0)
    seen = []
    for now in (99, 100, 199, 200, 299, 300):
        pulse.tick(now)
        seen.append(pulse.dead)
    assert seen == [False] * 5 + [True]
    pulse.heard(310)
    assert not pulse.dead
    assert pulse.due == 410


def test_process_that_slept_gives_its_peer_time() -> None:
    pulse = Pulse(100, 100, 0)
    for now in (5_000, 5_001, 5_100):
        pulse.tick(now)
        assert not pulse.dead
    pulse.tick(5_200)
    assert pulse.dead


def test_redial_delay_doubles_up_to_its_limit() -> None:
    assert [redial_delay(attempt, 0.0) for attempt in (0, 1, 2, 8, 9, 1_000_000)] == [100, 200, 400, 25_600] + [
        30_000
    ] * 2
    assert redial_delay(1, 0.5) == 150


@given(st.integers(0, 100), st.floats(0, 1, exclude_max=True))
def test_redial_delay_stays_within_half_and_whole(attempt: int, random: float) -> None:
    assert redial_delay(attempt, 0.0) / 2 <= redial_delay(attempt, random) <= redial_delay(attempt, 0.0)
