"""Small DATA frames that came together are taken as one."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Batch
from postroad.protocols.link import Control, Data, decode_data, encode_data, group_frames, join_frames
from postroad.protocols.link import joined_frames as joined_module
from tests.protocols.link.strategies import parcels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def rows_of(frames: Sequence[Data]) -> list[tuple[object, ...]]:
    """All there is to know of each row, frame by frame."""
    return [
        (
            message.topic,
            dict(message.attributes),
            bytes(message.body),
            message.id,
            tuple(frame.batch.envelopes[row].tolist()),
            tuple(frame.sets[frame.lines[row]].tolist()),
        )
        for frame in frames
        for row, message in enumerate(frame.batch)
    ]


controls = st.builds(Control, kind=st.integers(1, 9), payload=st.binary(max_size=5))
frames_of_all_kinds = st.lists(st.one_of(parcels().map(lambda parcel: decode_data(encode_data(*parcel))), controls))


@settings(max_examples=60)
@given(frames_of_all_kinds, st.integers(1, 2_000), st.integers(1, 4_000))
def test_groups_have_all_frames_in_order_and_stay_within_the_limits(
    frames: list[Data | Control], small: int, joined: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined_module, "SMALL_FRAME_BYTES", small)
        patch.setattr(joined_module, "JOINED_BYTES", joined)
        groups = list(group_frames(frames))
    assert list(chain.from_iterable([one] if isinstance(one, Control) else one for one in groups)) == frames
    for group in groups:
        if isinstance(group, Control) or len(group) == 1:
            continue
        sizes = [frame.batch.buffer.nbytes for frame in group]
        assert max(sizes) <= small
        assert sum(sizes) <= joined
        assert len({(frame.epoch, frame.sets.shape[1]) for frame in group}) == 1


@settings(max_examples=60)
@given(frames_of_all_kinds)
def test_joined_frame_has_the_rows_and_destinations_of_its_parts(frames: list[Data | Control]) -> None:
    data = [frame._replace(epoch=1, sets=wide(frame.sets)) for frame in frames if isinstance(frame, Data)]
    groups = [group for group in group_frames(data) if not isinstance(group, Control)]
    assert len(groups) == min(1, len(data))
    for group in groups:
        whole = join_frames(group)
        assert whole.number == group[-1].number
        assert rows_of([whole]) == rows_of(group)


def test_frames_for_the_same_brokers_share_one_table_of_sets() -> None:
    sets = np.array([[6], [9]], np.uint64)
    parts = [(Batch.build([("a",), ("b",)]), np.arange(2), sets, np.array([1, 0]), 1, number) for number in (4, 5, 6)]
    whole = join_frames([decode_data(encode_data(*part)) for part in parts])
    assert whole.sets.tolist() == [[6], [9]]
    assert whole.lines.tolist() == [1, 0] * 3


def wide(sets: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The same sets with three words."""
    return np.pad(sets, ((0, 0), (0, 3 - sets.shape[1])))
