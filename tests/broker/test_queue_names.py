"""Which rows of a batch are for which queue."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad.broker.queue_names import rows_by_name
from postroad.messages import Batch, Draft
from postroad.protocols import stomp

NAMES = st.sampled_from(["a", "b", "ab", "ba", "orders", "orderz", "é", "日本"])


@given(st.lists(NAMES, max_size=30), st.data())
def test_each_name_has_its_rows_in_order(names: list[str], data: st.DataObject) -> None:
    batch = Batch.build([Draft(each, {}, (), b"") for each in names])
    chosen = [row for row in range(len(names)) if data.draw(st.booleans())]
    found = rows_by_name(batch, np.array(chosen, np.int64))
    assert len({name for name, _ in found}) == len(found)
    assert {name: rows.tolist() for name, rows in found} == {
        name: [row for row in chosen if names[row] == name] for name in {names[row] for row in chosen}
    }


def test_destinations_of_one_read_that_alternate_are_two_queues() -> None:
    decoder = stomp.StompDecoder()
    decoder.receive(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    frames = decoder.receive(b"SEND\ndestination:/queue/a\n\n\0SEND\ndestination:/queue/b\n\n\0" * 500)
    assert frames.batch is not None
    found = rows_by_name(frames.batch, np.arange(1_000))
    assert sorted((name, rows.tolist()) for name, rows in found) == [
        ("a", list(range(0, 1_000, 2))),
        ("b", list(range(1, 1_000, 2))),
    ]
