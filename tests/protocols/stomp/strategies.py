"""Frames and streams of bytes for property tests. Strategies are made once: making one costs more than a draw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hypothesis import strategies as st

from tests.protocols.stomp.reference import write_frame

VERSIONS = ("1.0", "1.1", "1.2")

# What the protocol sets itself is not a user's header.
RESERVED = {
    "destination",
    "content-length",
    "receipt",
    "transaction",
    "message-id",
    "subscription",
    "ack",
    "priority",
    "expires",
}

letters = st.text("abz-é€😀 \t", min_size=1, max_size=6)
topics = st.lists(st.text("abé:\\/-", min_size=1, max_size=4), min_size=1, max_size=4).map(".".join)
bodies = st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"\n", b"\0\0", b"x" * 31 + b"\0", b"y" * 100]))


@cache
def names(version: str) -> st.SearchStrategy[str]:
    characters = {"1.0": "ab\\é", "1.1": "ab\\:\n\ré", "1.2": "ab\\:\n\ré"}[version]
    return st.text(characters, min_size=1, max_size=6).filter(lambda name: name not in RESERVED)


@cache
def values(version: str) -> st.SearchStrategy[str]:
    characters = {"1.0": "ab\\:é€ ", "1.1": "ab\\:\n\ré€ ", "1.2": "ab\\:\n\ré€ "}[version]
    found = st.text(characters, max_size=8)
    # Blanks before a value do not survive 1.0, and a CR at the end would end the line there.
    return found.map(lambda text: text.lstrip(" ")) if version == "1.0" else found


@dataclass
class Send:
    """A SEND frame and what must become of it."""

    data: bytes
    topic: str
    headers: list[tuple[str, str]]
    body: bytes
    receipt: bytes | None
    priority: int
    expiry: int


@cache
def sends(version: str, transaction: str | None = None) -> st.SearchStrategy[Send]:
    """Any SEND of a version."""
    return drawn_send(version, transaction)


@st.composite
def drawn_send(draw: st.DrawFn, version: str, transaction: str | None) -> Send:
    topic = draw(topics)
    user = draw(st.lists(st.tuples(names(version), values(version)), max_size=5))
    body = draw(bodies)
    receipt = draw(st.none() | st.text("r7", min_size=1, max_size=3))
    priority = draw(st.none() | st.integers(0, 9))
    expiry = draw(st.none() | st.integers(0, 10**13))
    if priority is not None:
        user.append(("priority", str(priority)))
    if expiry is not None:
        user.append(("expires", str(expiry)))
    own = [("destination", f"/topic/{topic}")]
    if receipt is not None:
        own.append(("receipt", receipt))
    if transaction is not None:
        own.append(("transaction", transaction))
    if b"\0" in body or draw(st.booleans()):
        own.append(("content-length", str(len(body))))
    headers = list(user)
    for header in own:
        headers.insert(draw(st.integers(0, len(headers))), header)
    line_end = draw(st.sampled_from([b"\n", b"\r\n"])) if version != "1.1" else b"\n"
    data = write_frame("SEND", headers, body, version, line_end)
    written = None if receipt is None else receipt.encode()
    return Send(data, topic, user, body, written, 4 if priority is None else priority, expiry or 0)


@cache
def streams(version: str) -> st.SearchStrategy[list[bytes]]:
    """Whole frames of all kinds, with line ends between them."""
    name = st.text("ab1", min_size=1, max_size=3)
    receipt = st.lists(st.tuples(st.just("receipt"), name), max_size=1)

    def control(command: str, *headers: tuple[str, str]) -> st.SearchStrategy[bytes]:
        return receipt.map(lambda more: write_frame(command, [*headers, *more], b"", version))

    ack_id = "00000001-00000002-018bcfe56800-0003"
    one = st.one_of(
        sends(version).map(lambda send: send.data),
        sends(version, "t").map(lambda send: send.data),
        control("SUBSCRIBE", ("id", "s"), ("destination", "/topic/a.*"), ("selector", "price > 7")),
        control("UNSUBSCRIBE", ("id", "s")),
        control("ACK", ("id", ack_id + "-0000000f"), ("message-id", ack_id), ("subscription", "s")),
        control("BEGIN", ("transaction", "t")),
        control("COMMIT", ("transaction", "t")),
        control("ABORT", ("transaction", "t")),
        st.sampled_from([b"\n", b"\n\n\n", b"\r\n"]),
    )
    return st.lists(one, max_size=8)


@st.composite
def mutated(draw: st.DrawFn, version: str) -> bytes:
    """A stream with a few bytes changed, put in or taken out."""
    data = bytearray(b"".join(draw(streams(version))))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        byte = draw(st.sampled_from(b"\n\r\0\\:SD a\xff\xc3\xa97"))
        kind = draw(st.sampled_from(["change", "insert", "delete"]))
        if kind == "insert":
            data.insert(at, byte)
        elif at < len(data):
            if kind == "change":
                data[at] = byte
            else:
                del data[at]
    return bytes(data)


@cache
def junk() -> st.SearchStrategy[bytes]:
    """Pieces of frames in any order."""
    piece = st.sampled_from(
        b"SEND|SEND\n|\n|\n\n|\r\n|\0|:|\\|destination:/topic/a|content-length:3|abc|ACK|CONNECT|DISCONNECT|id:1|"
        b"receipt:5|\xff|transaction:t".split(b"|")
    )
    return st.lists(st.one_of(piece, piece, st.binary(max_size=3)), max_size=12).map(b"".join)


def splits(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """The same bytes in pieces."""
    cuts = st.lists(st.integers(0, len(data)), max_size=6).map(sorted)
    return cuts.map(lambda at: [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)])
