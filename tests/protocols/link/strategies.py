"""Random frames for the tests of links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from postroad.messages import Batch
from postroad.protocols.link import (
    HEART_BEAT,
    Hello,
    Progress,
    Welcome,
    encode_bye,
    encode_control,
    encode_data,
    encode_hello,
    encode_progress,
    encode_welcome,
)
from tests.messages.strategies import drafts

if TYPE_CHECKING:
    from collections.abc import Callable

counts = st.integers(0, 2**62)
words = st.integers(0, 2**64 - 1)


@st.composite
def parcels(draw: Callable[[Any], Any]) -> tuple[Batch, Any, Any, Any, int, int]:
    """What `encode_data` takes: rows of a batch in any order, also twice, and a dictionary of any size."""
    batch = Batch.build(draw(st.lists(drafts, min_size=1, max_size=5)))
    rows = draw(st.lists(st.integers(0, len(batch) - 1), min_size=1, max_size=8))
    width = draw(st.integers(1, 3))
    sets = draw(st.lists(st.lists(words, min_size=width, max_size=width), min_size=1, max_size=10))
    lines = draw(st.lists(st.integers(0, len(sets) - 1), min_size=len(rows), max_size=len(rows)))
    number, epoch = draw(st.integers(1, 2**62)), draw(counts)
    return batch, np.array(rows), np.array(sets, np.uint64), np.array(lines), epoch, number


hellos = st.builds(
    Hello,
    lowest=st.just(1),
    highest=st.integers(1, 9),
    broker=st.integers(1, 2**32 - 1),
    epoch=st.integers(1, 2**62),
    membership=counts,
    network=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    nonce=st.binary(min_size=32, max_size=32),
    authentication=st.integers(0, 255),
    capabilities=st.integers(0, 2**32 - 1),
    heart_beat=st.integers(1, 600_000),
)
welcomes = st.builds(
    lambda version, epoch, pair, first, proof: Welcome(version, epoch, max(pair), min(pair), first, proof),
    st.integers(1, 9),
    counts,
    st.tuples(counts, counts),
    st.integers(1, 2**62),
    st.binary(min_size=32, max_size=32),
)


def _told(numbers: set[int]) -> Progress:
    settled, *early, received = sorted(numbers)
    return Progress(received, settled, tuple(zip(early[::2], early[1::2], strict=False)))


progress = st.sets(words, min_size=2, max_size=9).map(_told)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)

frames = st.one_of(
    parcels().map(lambda parcel: bytes(encode_data(*parcel))),
    hellos.map(encode_hello),
    welcomes.map(encode_welcome),
    progress.map(encode_progress),
    st.builds(encode_control, st.integers(0, 255), st.binary(max_size=40)),
    st.builds(encode_bye, st.integers(0, 65_535), texts),
    st.just(HEART_BEAT),
)
