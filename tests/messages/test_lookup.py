"""One attribute of all rows as a column of texts, against the lazy message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.messages import Batch, Draft, MessageError, Untyped, Value, attribute_texts
from tests.messages.strategies import drafts, names


def expected(value: Value | None) -> str | None:
    if value is None or isinstance(value, bool | float):
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


def texts(batch: Batch, name: str) -> list[str | None]:
    found = attribute_texts(batch, name)
    offsets = found.offsets.tolist()
    assert len(offsets) == len(batch) + 1
    assert offsets[-1] == len(found.data)
    spans = zip(offsets[:-1], offsets[1:], found.present.tolist(), strict=True)
    return [found.data[start:end].tobytes().decode() if present else None for start, end, present in spans]


@given(rows=st.lists(drafts, max_size=4), data=st.data())
def test_a_column_has_what_each_message_says(rows: list[Draft], data: st.DataObject) -> None:
    batch = Batch.build(rows)
    used = sorted({name for message in batch for name in message.attributes})
    name = data.draw(st.sampled_from(used) | names if used else names)
    assert texts(batch, name) == [expected(message.attributes.get(name)) for message in batch]


def test_numbers_bytes_and_escapes_become_the_text_that_people_would_write() -> None:
    batch = Batch.build(
        [
            Draft("a", {"order": -(2**63)}),
            Draft("a", {"order": 2**63 - 1}),
            Draft("a", {"order": 0}),
            Draft("a", {}, {"order": "a:b\\c\r\n"}),
            Draft("a", {"order": b"\x01\xff"}),
            Draft("a", {"order": Untyped("007")}),
            Draft("a", {"order": ""}),
            Draft("a", {"order": 1.5}, {"order": "hidden by the first"}),
            Draft("a", {"orders": "another name"}),
        ]
    )
    told = ["-9223372036854775808", "9223372036854775807", "0", "a:b\\c\r\n", "01ff", "007", "", None, None]
    assert texts(batch, "order") == told
    assert texts(batch.take([3, 0]), "order") == [told[3], told[0]]


def test_a_name_that_no_attribute_can_have_is_refused() -> None:
    for name in ("", "n" * 256):
        with pytest.raises(MessageError, match="1 to 255 bytes"):
            attribute_texts(Batch.build([("a", {})]), name)
