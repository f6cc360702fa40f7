"""Ids that senders gave: what the kernel reads is what `MessageId.parse` reads, and nothing else is an id."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroad.messages import DecodeError, MessageId
from postroad.protocols.stomp import StompDecoder, encode_frame, given_id_text, read_ids
from tests.messages.strategies import ids

texts = st.one_of(
    ids.map(str),
    ids.map(lambda one: str(one).upper()),
    st.tuples(ids.map(str), st.integers(0, 34), st.sampled_from("0af-gF ")).map(
        lambda drawn: drawn[0][: drawn[1]] + drawn[2] + drawn[0][drawn[1] + 1 :]
    ),
    ids.map(lambda one: str(one)[:-1]),
    ids.map(lambda one: str(one) + "0"),
    st.sampled_from(["", "1", "é" * 17 + "x"]),
    st.none(),
)


def is_id(text: str | None) -> bool:
    if text is None:
        return False
    try:
        MessageId.parse(text)
    except DecodeError:
        return False
    return True


@given(given=st.lists(ids.map(str), max_size=3).flatmap(lambda good: st.lists(texts, max_size=3).map(good.__add__)))
def test_ids_are_read_up_to_the_first_row_without_one(given: list[str | None]) -> None:
    decoder = StompDecoder()
    decoder.receive(encode_frame("CONNECT", {"accept-version": "1.2", "host": "here"}))
    frames = [
        encode_frame("SEND", {"destination": "/topic/a", **({} if text is None else {"message-id": text})}, b"body")
        for text in given
    ]
    received = decoder.receive(b"".join(frames))
    if not given:
        return
    batch = received.batch
    assert batch is not None
    good = next((row for row, text in enumerate(given) if not is_id(text)), len(given))
    assert read_ids(batch, received.message_ids) == good
    assert [str(message.id) for message in batch][:good] == given[:good]
    assert [given_id_text(batch, received.message_ids, row) for row in range(len(given))] == given


def test_an_error_shows_only_the_beginning_of_what_is_no_id() -> None:
    decoder = StompDecoder()
    decoder.receive(encode_frame("CONNECT", {"accept-version": "1.2", "host": "here"}))
    received = decoder.receive(encode_frame("SEND", {"destination": "/topic/a", "message-id": "x" * 1_000}))
    assert received.batch is not None
    assert given_id_text(received.batch, received.message_ids, 0) == "x" * 60
