"""Control frames survive the wire, and what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LimitError
from postroad.routing import (
    Attach,
    Detach,
    Digest,
    Frame,
    Interest,
    LinkRecord,
    RoutingError,
    StepDown,
    Topics,
    decode_frame,
    encode_frame,
)

numbers = st.integers(1, 65_535)
counters = st.integers(0, 2**62)
patterns = st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=5), max_size=4).map(tuple)  # type: ignore[arg-type]
frames = st.one_of(
    st.builds(
        LinkRecord,
        numbers,
        counters,
        counters,
        counters,
        st.lists(st.tuples(numbers, st.integers(1, 2**32 - 1)), max_size=4).map(tuple),
        st.booleans(),
    ),
    st.builds(Interest, numbers, counters, counters, st.binary(max_size=20)),
    st.builds(Digest, st.lists(st.tuples(numbers, *[counters] * 4), max_size=4).map(tuple)),
    st.builds(Attach, counters, st.booleans(), numbers, patterns),
    st.builds(Topics, patterns, patterns, st.booleans()),
    st.builds(Detach, st.none() | numbers),
    st.builds(StepDown, counters, numbers),
)


@given(frames)
def test_frame_is_read_as_it_was_written(frame: Frame) -> None:
    assert decode_frame(encode_frame(frame)) == frame


@given(frames, st.data())
def test_damaged_frame_is_refused_or_another_frame(frame: Frame, data: st.DataObject) -> None:
    damaged = bytearray(encode_frame(frame))
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for given_bytes in (bytes(damaged), bytes(damaged[:cut])):
        try:
            other = decode_frame(given_bytes)
        except RoutingError:
            continue
        assert decode_frame(encode_frame(other)) == other


@pytest.mark.parametrize(
    "frame",
    [
        LinkRecord(0, 0, 0, 0, ()),
        LinkRecord(1, -1, 0, 0, ()),
        LinkRecord(1, 0, 2**63, 0, ()),
        LinkRecord(1, 0, 0, 0, ((1, 0),)),
        LinkRecord(1, 0, 0, 0, tuple((number, 1) for number in range(1, 4_098))),
        Topics(("",)),
        Topics(("x" * 1_025,)),
        StepDown(0, 70_000),
    ],
)
def test_values_out_of_range_are_refused(frame: Frame) -> None:
    with pytest.raises(RoutingError, match="cannot be read"):
        decode_frame(encode_frame(frame))


def test_oversized_frame_is_refused_before_it_is_read() -> None:
    with pytest.raises(LimitError, match="a control frame is"):
        decode_frame(bytes(2**24 + 2**16 + 1))
