"""Ids as columns say the same as ids one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad.messages import MessageId
from postroad.messages.id_columns import id_fields, id_order, id_words

ids = st.builds(
    MessageId,
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**47 - 1),
    st.integers(0, 2**16 - 1),
)


@given(st.lists(ids, max_size=20))
def test_columns_have_the_parts_of_each_id_and_give_it_back(some: list[MessageId]) -> None:
    words = np.array([(one.head, one.tail) for one in some], np.uint64).reshape(-1, 2)
    fields = id_fields(words)
    rows = list(zip(*(column.tolist() for column in fields), strict=True))
    assert rows == [(one.broker, one.time, one.publisher, one.counter) for one in some]
    assert id_words(*fields).tolist() == words.tolist()


@given(st.lists(ids, max_size=20))
def test_order_is_by_origin_time_publisher_and_counter(some: list[MessageId]) -> None:
    words = np.array([(one.head, one.tail) for one in some], np.uint64).reshape(-1, 2)
    ordered = [some[row] for row in id_order(words[:, 0], words[:, 1]).tolist()]
    assert ordered == sorted(some, key=lambda one: (one.broker, one.time, one.publisher, one.counter))
