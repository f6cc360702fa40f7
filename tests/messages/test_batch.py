from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LimitError
from postroad.messages import (
    Batch,
    DecodeError,
    Draft,
    MessageError,
    MessageId,
    Untyped,
    buffers,
    decode_batch,
    encode_batch,
)
from postroad.messages import batch as batch_module
from postroad.messages import drafts as drafts_module
from postroad.messages import (
    encoder as encoding,
)
from postroad.messages.columns import TOPIC
from tests.messages.strategies import drafts

if TYPE_CHECKING:
    from postroad.messages import Value

ID = MessageId(7, 2, 1000, 3)


def told(batch: Batch) -> list[str]:
    return [repr(message) for message in batch]


@given(st.lists(drafts, min_size=1, max_size=4), st.data())
def test_take_selects_rows_over_the_same_buffer(rows: list[Draft], data: st.DataObject) -> None:
    batch = Batch.build(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5))
    taken = batch.take(chosen)
    assert taken.buffer is batch.buffer
    assert told(taken) == [told(batch)[row] for row in chosen]
    assert all(column.flags.c_contiguous for column in (taken.spans, taken.ids, taken.envelopes))


def test_take_accepts_a_mask() -> None:
    batch = Batch.build([("a",), ("b",), ("c",)])
    assert [message.topic for message in batch.take([True, False, True])] == ["a", "c"]
    assert len(Batch.build([]).take(np.zeros(0, bool))) == 0


@pytest.mark.parametrize("rows", [1, [[0]]])
def test_take_refuses_what_is_no_list_of_rows(rows: Any) -> None:
    with pytest.raises(MessageError, match="a list or a mask"):
        Batch.build([("a",)]).take(rows)


@given(st.lists(st.lists(drafts, max_size=3), max_size=3))
def test_concatenation_keeps_all_rows_in_order(groups: list[list[Draft]]) -> None:
    batches = [Batch.build(rows) for rows in groups]
    joined = Batch.concatenate(batches)
    assert told(joined) == [line for batch in batches for line in told(batch)]
    assert joined.spans.dtype == np.int32


def test_concatenation_shares_a_common_buffer() -> None:
    batch = Batch.build([("a",), ("b",)])
    joined = Batch.concatenate([batch.take([1]), Batch.build([]), batch])
    assert joined.buffer is batch.buffer
    assert [message.topic for message in joined] == ["b", "a", "b"]


def test_batches_beyond_the_reach_of_spans_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ten, others = Batch.build([("a",)] * 10), Batch.build([("b",)] * 10)
    data, lengths = encode_batch(ten)
    for module in (batch_module, drafts_module, encoding, buffers):
        monkeypatch.setattr(module, "MAX_BATCH_BYTES", 15)
    with pytest.raises(LimitError, match="20; the limit is 15"):
        Batch.concatenate([ten, others])
    with pytest.raises(LimitError, match="16; the limit is 15"):
        Batch.build([("a" * 16,)])
    with pytest.raises(LimitError, match="170; the limit is 15"):
        encode_batch(ten)
    with pytest.raises(DecodeError, match="170 bytes; one batch has at most 15"):
        decode_batch(data, lengths)


def test_message_counts_rows_from_both_ends() -> None:
    batch = Batch.build([("a",), ("b",)])
    assert (batch.message(-1).topic, batch.message(0).topic) == ("b", "a")
    for row in (2, -3):
        with pytest.raises(IndexError, match="of a batch of 2"):
            batch.message(row)


def test_empty_batch_has_its_columns() -> None:
    batch = Batch.build([])
    assert (batch.spans.shape, batch.ids.shape, batch.envelopes.shape) == ((0, 10), (0, 2), (0, 5))
    assert list(batch) == []


def test_first_occurrence_of_a_name_counts() -> None:
    row = Draft("a", {"x": 1}, [("x", "2"), ("y", "3"), ("y", "4")])
    message = Batch.build([row]).message(0)
    assert message.attributes == {"x": 1, "y": "3"}
    assert message.headers == {"x": "2", "y": "3"}
    assert isinstance(message.attributes["y"], Untyped)


def test_selector_sees_the_derived_names() -> None:
    row = Draft("a", {"type": True, "price": 7}, {"correlation-id": "42"}, id=ID, priority=9)
    assert Batch.build([row]).message(0).selectable() == {
        "type": True,
        "price": 7,
        "correlation-id": Untyped("42"),
        "JMSPriority": 9,
        "JMSTimestamp": 1000,
        "JMSMessageID": "00000007-00000002-0000000003e8-0003",
        "JMSCorrelationID": Untyped("42"),
        "JMSType": True,
    }


def test_client_cannot_set_the_derived_names() -> None:
    pretended: dict[str, Value] = {"JMSPriority": 0, "JMSTimestamp": 0, "JMSMessageID": "x", "JMSCorrelationID": "x"}
    message = Batch.build([Draft("a", pretended, {"JMSType": "x"}, id=ID)]).message(0)
    assert message.attributes == {**pretended, "JMSType": "x"}
    assert message.selectable() == {"JMSPriority": 4, "JMSTimestamp": 1000, "JMSMessageID": str(ID)}


def test_message_shows_itself_to_people() -> None:
    message = Batch.build([Draft("a.b", {"x": 1}, body=b"y" * 100, id=ID)]).message(0)
    assert repr(message) == (
        "<Message 00000007-00000002-0000000003e8-0003 to a.b {x=1} body b'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy...>"
    )
    assert repr(message.batch) == "<Batch of 1 messages over 116 bytes>"
    assert repr(Untyped("7")) == "Untyped('7')"


def test_message_names_the_place_of_a_broken_topic() -> None:
    batch = Batch.build([("a",)])
    batch.buffer = np.frombuffer(b"a\xff", np.uint8)
    batch.spans[0, TOPIC : TOPIC + 2] = (0, 2)
    with pytest.raises(DecodeError, match="message 0, byte 1: the topic is not UTF-8"):
        _ = batch.message(0).topic
