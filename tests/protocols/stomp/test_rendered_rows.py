"""Rows become MESSAGE and RECEIPT frames that any client reads as they were meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroad.errors import PostroadError
from postroad.messages import Batch, Draft, MessageId, Untyped
from postroad.protocols.stomp import (
    Version,
    message_prefix,
    parse_ack,
    render_messages,
    render_receipts,
    render_rows,
)
from tests.protocols.stomp.outcomes import connected
from tests.protocols.stomp.reference import Parsed, ack_text, read_stream
from tests.protocols.stomp.strategies import bodies, names, topics, values

if TYPE_CHECKING:
    from postroad.messages import Value

ids = st.builds(MessageId, *(st.integers(0, 2**bits - 1) for bits in (32, 32, 48, 16)))
drafts = st.builds(
    Draft,
    topics,
    st.just({}),
    st.lists(st.tuples(names("1.2"), values("1.2")), max_size=5),
    bodies,
    ids,
)


def read(data: bytes, version: Version) -> list[Parsed]:
    frames, ending = read_stream(data, str(version))
    assert ending == "whole"
    return frames


def in_1_0(text: str, *, name: bool = False) -> str:
    """What remains of a text in a version without escapes."""
    text = text.replace("\n", " ").replace("\r", " ")
    return text.replace(":", " ") if name else text


def expected_headers(draft: Draft, version: Version) -> list[tuple[str, str]]:
    own = [
        ("message-id", str(draft.id)),
        ("destination", f"/topic/{draft.topic}"),
        ("content-length", str(len(draft.body))),
    ]
    pairs = list(draft.headers)
    if version is Version.V1_0:
        # The reference drops blanks before a value, as 1.0 is read.
        return own + [(in_1_0(name, name=True), in_1_0(value).lstrip(" ")) for name, value in pairs]
    return own + pairs  # type: ignore[operator]


@pytest.mark.parametrize("version", Version)
@given(rows=st.lists(drafts, min_size=1, max_size=5), data=st.data())
def test_subscriber_gets_what_was_published(version: Version, rows: list[Draft], data: st.DataObject) -> None:
    batch = Batch.build(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6))
    rendered = render_rows(batch, chosen, version)
    prefix = message_prefix("s:1", version)
    frames = read(rendered.for_subscription(prefix, chosen).tobytes(), version)
    assert len(frames) == len(chosen)
    for frame, row in zip(frames, chosen, strict=True):
        assert (frame.command, frame.body) == ("MESSAGE", rows[row].body)
        assert frame.headers == [("subscription", "s:1"), *expected_headers(rows[row], version)]


@given(rows=st.lists(drafts, min_size=1, max_size=4), number=st.integers(0, 2**32 - 1))
def test_ack_header_leads_back_to_message_and_subscription(rows: list[Draft], number: int) -> None:
    rendered = render_rows(Batch.build(rows), range(len(rows)))
    data = rendered.for_subscription(b"MESSAGE\nsubscription:s\n", range(len(rows)), number).tobytes()
    for frame, row in zip(read(data, Version.V1_2), rows, strict=True):
        ack = frame.first("ack")
        assert ack == ack_text(row.id, number)
        assert parse_ack(ack) == (row.id, number)


attributes = st.dictionaries(
    st.text("ab:\n", min_size=1, max_size=3),
    st.one_of(
        st.text("ab:\\\n\r", max_size=5),
        st.text("ab:\\\n\r", max_size=5).map(Untyped),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.booleans(),
        st.binary(max_size=3),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("version", Version)
@given(
    rows=st.lists(drafts, min_size=1, max_size=4),
    repeats=st.integers(1, 3),
    number=st.none() | st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_single_subscriber_gets_the_same_bytes_as_one_of_many(
    version: Version, rows: list[Draft], repeats: int, number: int | None, data: st.DataObject
) -> None:
    # Rows of one topic that share its span, as those of one read do, and rows that only spell the same topic.
    batch = Batch.build([*rows, ("typed", {"price": 7}), *rows])
    batch = batch.take(np.repeat(np.arange(len(batch)), repeats))
    chosen = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=9))
    prefix = message_prefix("s", version)
    one = render_messages(batch, chosen, version, prefix, number).tobytes()
    assert one == render_rows(batch, chosen, version).for_subscription(prefix, chosen, number).tobytes()
    assert len(read(one, version)) == len(chosen)


def as_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@given(typed=attributes, headers=st.lists(st.tuples(names("1.2"), values("1.2")), max_size=3))
@example(typed={"y": b"hides"}, headers=[("y", "hidden")])
def test_typed_attributes_become_header_lines(typed: dict[str, Value], headers: list[tuple[str, str]]) -> None:
    batch = Batch.build([Draft("plain", {}, headers), Draft("typed", typed, headers, b"body")])
    data = render_rows(batch, [0, 1]).for_subscription(message_prefix(None, Version.V1_2), [1, 0]).tobytes()
    first, second = read(data, Version.V1_2)
    expected = {name: value for name, value in batch.message(1).attributes.items() if not isinstance(value, bytes)}
    assert first.headers[3:] == [(name, as_text(value)) for name, value in expected.items()]
    assert first.body == b"body"
    assert second.headers[3:] == headers


@pytest.mark.parametrize("version", Version)
def test_attributes_named_like_own_headers_or_with_nul_are_left_out(version: Version) -> None:
    typed: dict[str, Value] = {"destination": "x", "content-length": 7, "nul": "a\0", "ack": True, "kept": 1.5}
    data = render_rows(Batch.build([Draft("a", typed)]), [0], version).for_subscription(b"MESSAGE\n", [0]).tobytes()
    (frame,) = read(data, version)
    assert frame.headers[3:] == [("kept", "1.5")]


def test_rendering_no_rows_gives_no_bytes() -> None:
    rendered = render_rows(Batch.build([("a",)]), [])
    assert len(rendered.for_subscription(b"MESSAGE\n", [])) == 0


def test_rows_that_are_not_there_are_refused() -> None:
    batch = Batch.build([("a",), ("b",)])
    for row in (-1, 2):
        with pytest.raises(PostroadError, match="not in a batch of 2"):
            render_rows(batch, [0, row])
        with pytest.raises(PostroadError, match="row"):
            render_messages(batch, [0, row], Version.V1_2, b"")
    rendered = render_rows(batch, [1])
    for row in (-1, 0, 2):
        with pytest.raises(PostroadError, match=f"row {row} was not rendered"):
            rendered.for_subscription(b"MESSAGE\n", [1, row])
    for rows in ([True, False], [[0]], [0.5]):
        with pytest.raises(PostroadError, match="list of row numbers"):
            render_rows(batch, rows)
    with pytest.raises(PostroadError, match="subscription's number"):
        rendered.for_subscription(b"MESSAGE\n", [1], 2**32)


@pytest.mark.parametrize("version", Version)
def test_receipts_carry_their_id_back_as_it_came_and_the_message_id(version: Version) -> None:
    send = b"SEND\ndestination:/topic/a\n"
    wire = b"r\\c\\\\1" if version is not Version.V1_0 else b"r\\:1"
    decoder = connected(str(version))
    received = decoder.receive(send + b"receipt:" + wire + b"\n\n\0" + send + b"\n\0" + send + b"receipt:\n\n\0")
    batch = received.batch
    assert batch is not None
    batch.ids[:, 1] = [5, 6, 7]
    data = render_receipts(batch, received.receipts, np.arange(3)).tobytes()
    assert b"receipt-id:" + wire + b"\n" in data
    first, last = read(data, version)
    plain = "r\\:1" if version is Version.V1_0 else "r:\\1"
    assert (first.command, first.headers) == (
        "RECEIPT",
        [("receipt-id", plain), ("message-id", str(MessageId.of(0, 5)))],
    )
    assert last.headers == [("receipt-id", ""), ("message-id", str(MessageId.of(0, 7)))]
    assert len(render_receipts(batch, received.receipts, [1])) == 0
    with pytest.raises(PostroadError, match="not in a batch of 3"):
        render_receipts(batch, received.receipts, [3])


def test_message_goes_from_stomp_to_stomp_byte_for_byte() -> None:
    lines = b"a\\cb:x:y\ncontent-type:text/plain\nk:\\r\\n\\\\\n"
    batch = connected().receive(b"SEND\ndestination:/topic/a.b\n" + lines + b"\nhello\0").batch
    assert batch is not None
    data = render_rows(batch, [0]).for_subscription(message_prefix("7", Version.V1_2), [0]).tobytes()
    assert data == (
        b"MESSAGE\nsubscription:7\nmessage-id:00000000-00000000-000000000000-0000\ndestination:/topic/a.b\n"
        b"content-length:5\n" + lines + b"\nhello\0\n"
    )


@given(st.lists(drafts, min_size=1, max_size=4), st.sampled_from(list(Version)), st.sampled_from([None, 0, 2**32 - 1]))
def test_parts_of_frames_are_the_frames_and_share_what_is_rendered(
    given_drafts: list[Draft], version: Version, number: int | None
) -> None:
    batch = Batch.build(given_drafts)
    rendered = render_rows(batch, range(len(batch)), version)
    prefix = message_prefix("s", version)
    rows = list(range(len(batch)))[::-1]
    parts = list(rendered.parts(prefix, rows, number))
    whole = rendered.for_subscription(prefix, rows, number)
    assert b"".join(head.tobytes() + common.tobytes() for head, common in parts) == whole.tobytes()
    assert all(np.shares_memory(common, rendered.buffer) for _, common in parts)


def test_parts_of_a_row_that_was_not_rendered_are_refused() -> None:
    batch = Batch.build([("a",), ("b",)])
    rendered = render_rows(batch, [0])
    for row in (1, 2, -3):
        with pytest.raises(PostroadError, match=f"row {row} was not rendered"):
            list(rendered.parts(b"MESSAGE\n", [row]))
