"""What passes over a link is counted by kind, wherever a read ends."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad.messages import Batch, Draft
from postroad.protocols.link import encode_data
from postroad.protocols.link.frames import HEART_BEAT, Progress, encode_bye, encode_control, encode_progress
from postroad.testing.cuttable_links import FrameMeter
from postroad.testing.network_contract import LinkTraffic


def data_frame(rows: int) -> bytes:
    batch = Batch.build([Draft("quotes", body=b"x" * row) for row in range(rows)])
    rows_sent, lines = np.arange(rows, dtype=np.int64), np.zeros(rows, np.int64)
    return bytes(encode_data(batch, rows_sent, np.array([[4]], np.uint64), lines, 0, 1))


frames = st.one_of(
    st.integers(1, 5).map(lambda rows: ("data", rows, data_frame(rows))),
    st.binary(max_size=40).map(lambda payload: ("control", 0, encode_control(1, payload))),
    st.just(("other", 0, HEART_BEAT)),
    st.just(("other", 0, encode_progress(Progress(1, 1)))),
    st.just(("other", 0, encode_bye(1, "enough"))),
)


@given(told=st.lists(frames, max_size=12), cuts=st.lists(st.integers(0, 2_000), max_size=30))
def test_frames_are_counted_wherever_a_read_ends(told: list[tuple[str, int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame for _, _, frame in told)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    meter = FrameMeter()
    take = meter.stream()
    for start, end in pairwise(places):
        take(stream[start:end])

    def size(kind: str) -> int:
        return sum(len(frame) for one, _, frame in told if one == kind)

    rows = sum(rows for _, rows, _ in told)
    assert meter.traffic() == LinkTraffic(rows, size("data"), size("control"), size("other"))
