"""The books of the load generator."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from bench.accounts import Arrival, Lane, Window, count_messages, latencies
from bench.traffic import MARKER, body, cycle, header_lines
from hypothesis import given
from hypothesis import strategies as st

FRAME = 7


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces, cut at the given places."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def framed(headers: bytes, content: bytes) -> bytes:
    return b"MESSAGE\n" + headers + b"\n" + content + b"\0\n"


@given(count=st.integers(1, 20), size=st.integers(9, 60), places=st.lists(st.integers(0, 10_000), max_size=30))
def test_counter_finds_every_message_wherever_reads_end(count: int, size: int, places: list[int]) -> None:
    stream, _ = cycle(framed, size, count)
    pieces = cut(stream, places)
    assert sum(count_messages(np.frombuffer(piece, np.uint8)) for piece in pieces) == count


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40), st.integers(0, 40)), max_size=40))
def test_lane_sends_its_frames_in_order_however_little_the_socket_takes(steps: list[tuple[int, int, int]]) -> None:
    frames = bytes(range(3 * FRAME))
    lane, sent, allowed = Lane(frames, FRAME), b"", 0
    for messages, most, taken in steps:
        data = bytes(lane.following(messages, most))
        assert len(data) <= most
        allowed = max(allowed, lane.begun + messages)
        lane.bytes_sent += min(len(data), taken)
        sent += data[:taken]
    assert sent == (frames * (len(sent) // len(frames) + 1))[: len(sent)]
    assert lane.begun <= allowed
    assert (len(sent) + lane.unfinished) % FRAME == 0
    assert (len(sent) + lane.unfinished) // FRAME == lane.begun


def test_window_starts_small_grows_with_the_broker_and_stops_at_its_limit() -> None:
    window = Window(1_000)
    assert window.size == Window.LEAST
    window.adapt(2_000)
    assert window.size == 500
    window.adapt(1e9)
    assert window.size == 1_000
    window.adapt(0)
    assert window.size == Window.LEAST


def test_window_gives_no_credit_beyond_what_the_slowest_has() -> None:
    window = Window(100)
    window.adapt(1e9)
    assert window.credit(begun=100, slowest=0) == 0
    assert window.credit(begun=100, slowest=30) == 30
    window.adapt(0)
    assert window.credit(begun=100, slowest=0) == 0


def numbered(count: int) -> list[bytes]:
    return [framed(header_lines(number), body(number, 20)) for number in range(count)]


@given(waits=st.lists(st.integers(0, 9), min_size=1, max_size=12), places=st.lists(st.integers(0, 10_000), max_size=12))
def test_latency_ends_with_the_read_that_completes_the_number(waits: list[int], places: list[int]) -> None:
    frames = numbered(len(waits))
    pieces = cut(b"".join(frames), places)
    arrivals = [Arrival(float(time), piece) for time, piece in enumerate(pieces)]
    due = -np.array(waits, np.float64)

    expected: list[int] = []
    seen = b""
    for time, piece in enumerate(pieces):
        seen += piece
        while len(expected) < len(waits) and MARKER + b"%08d" % len(expected) in seen:
            expected.append(time + waits[len(expected)])
    assert latencies(arrivals, due).tolist() == expected


@pytest.mark.parametrize("order", [[0, 1, 3], [0, 1, 1, 2, 3], [0, 2, 1, 3], [], [0, 1, 2, 3, 4]])
def test_latency_is_refused_when_messages_are_lost_doubled_or_disordered(order: list[int]) -> None:
    frames = numbered(5)
    arrivals = [Arrival(0.0, b"".join(frames[place] for place in order))]
    with pytest.raises(ValueError, match="4 messages were sent"):
        latencies(arrivals, np.zeros(4))
