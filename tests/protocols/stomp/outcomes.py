"""What a decoder makes of a stream, in a form that can be compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from postroad.messages import check_batch
from postroad.messages.headers import read_headers
from postroad.protocols.stomp import StompDecoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from postroad.protocols.stomp import Received, StompLimits


def connected(version: str = "1.2", limits: StompLimits | None = None, *, in_parts: bool = False) -> StompDecoder:
    """A decoder whose client speaks a version."""
    decoder = StompDecoder(limits, in_parts=in_parts)
    accept = "" if version == "1.0" else f"accept-version:{version}\n"
    received = decoder.receive(f"CONNECT\n{accept}host:h\n\n\0".encode())
    assert len(received.events) == 1
    assert str(decoder.version) == version
    return decoder


def rows_of(received: Received) -> list[tuple[Any, ...]]:
    """Topic, header lines, body, receipt, priority, expiry of each row. The batch must pass every check there is."""
    if received.batch is None:
        assert len(received.receipts) == 0
        return []
    batch = received.batch
    check_batch(batch)
    assert not batch.ids.any()
    assert len(batch) == len(received.receipts) == len(received.message_ids)
    found: list[tuple[Any, ...]] = []
    for row, message in enumerate(batch):
        start, end = batch.spans[row, 4:6].tolist()
        headers = [(name, str(value)) for name, value in read_headers(batch.buffer[start:end].tobytes())]
        receipt = text_at(received, received.receipts[row].tolist())
        found.append((message.topic, headers, message.body, receipt, message.priority, message.expiry))
    return found


def text_at(received: Received, span: list[int]) -> bytes | None:
    assert received.batch is not None
    return None if span[0] < 0 else received.batch.buffer[span[0] : span[1]].tobytes()


def _whole(decoder: StompDecoder, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces, and after each what it takes to read the rest of it."""
    for piece in pieces:
        yield piece
        while decoder.has_more:
            yield b""


def outcome(decoder: StompDecoder, pieces: Iterable[bytes]) -> list[Any]:
    """Rows and events of all pieces, in order."""
    found: list[Any] = []
    for piece in _whole(decoder, pieces):
        received = decoder.receive(piece)
        rows = rows_of(received)
        taken = 0
        for event in received.events:
            assert taken <= event.row <= len(rows)
            found += rows[taken : event.row]
            taken = event.row
            found.append(replace(event, row=0))
        found += rows[taken:]
    return found
