"""Encodes and decodes the frames of a link, except DATA (`docs/formats.md`, "Link frames")."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from postroad.errors import LimitError
from postroad.protocols.link.errors import LinkError, Reason
from postroad.protocols.link.limits import (
    MAX_BYE_BYTES,
    MAX_HEART_BEAT_MS,
    MAX_LINK_FRAME_BYTES,
    MAX_NETWORK_NAME_BYTES,
    MAX_PROGRESS_RANGES,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CUSTODY",
    "ED25519",
    "HEADER",
    "HEADER_BYTES",
    "HEART_BEAT",
    "HMAC_SHA256",
    "KINDS",
    "LARGEST_COUNT",
    "NONCE_BYTES",
    "NO_PROOF",
    "NO_SIGNATURE",
    "PROOF_BYTES",
    "PROVED_BYTES",
    "SIGNATURE_BYTES",
    "SIGNED_VERSION",
    "UNAUTHENTICATED",
    "Bye",
    "Control",
    "HeartBeat",
    "Hello",
    "Progress",
    "Welcome",
    "decode_small",
    "encode_bye",
    "encode_control",
    "encode_hello",
    "encode_progress",
    "encode_welcome",
    "header",
]

HELLO, WELCOME, DATA, CONTROL, PROGRESS, BEAT, BYE = range(1, 8)
KINDS = {HELLO: "HELLO", WELCOME: "WELCOME", DATA: "DATA", CONTROL: "CONTROL"} | {
    PROGRESS: "PROGRESS",
    BEAT: "HEART_BEAT",
    BYE: "BYE",
}

# Length of the whole frame, type, three reserved bytes.
HEADER = struct.Struct("<IB3s")
HEADER_BYTES = HEADER.size
_NOTHING = bytes(3)

_MAGIC = b"POSTROAD"
_HELLO = struct.Struct("<8sHHBBHIIQQII32s")
_WELCOME = struct.Struct("<H6sQQQQ32s")
_PROGRESS = struct.Struct("<QQ")
_RANGE = struct.Struct("<QQ")
_CONTROL = struct.Struct("<B3s")
_BYE = struct.Struct("<HH")

# Authentication methods: bits that can be combined.
UNAUTHENTICATED, HMAC_SHA256, ED25519 = 0, 1, 2
NONCE_BYTES = PROOF_BYTES = 32
NO_PROOF = bytes(PROOF_BYTES)
# The part of a WELCOME that its proof and its signature cover.
PROVED_BYTES = HEADER_BYTES + _WELCOME.size - PROOF_BYTES
# From version 2 on a WELCOME ends with a signature.
SIGNED_VERSION = 2
SIGNATURE_BYTES = 64
NO_SIGNATURE = bytes(SIGNATURE_BYTES)

# Capabilities. This one asks to settle DATA frames when they are done with, not on receipt.
CUSTODY = 1

# Numbers of frames and epochs stay below this, so that no peer can make a counter overflow.
LARGEST_COUNT = 2**62


@dataclass(frozen=True, slots=True)
class Hello:
    """Who the sender is.

    Attributes:
        lowest: the oldest protocol version the sender speaks.
        highest: the newest one.
        broker: its number.
        epoch: when its process started (ms); a broker that returns with another epoch has forgotten everything.
        membership: the epoch of the network's membership as it knows it.
        network: the name of the network it belongs to.
        nonce: 32 random bytes, never used twice.
        authentication: `UNAUTHENTICATED`, `HMAC_SHA256`, `ED25519`, or the last two combined.
        capabilities: bits; unknown ones are ignored.
        heart_beat: it sends something at least at this interval, in ms.
    """

    lowest: int
    highest: int
    broker: int
    epoch: int
    membership: int
    network: str
    nonce: bytes
    authentication: int
    capabilities: int
    heart_beat: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """The proof that the sender knows the secret, and what it has received.

    Attributes:
        version: the protocol version both will speak.
        epoch: the epoch of the peer to which `received` and `settled` refer; 0 if it knows none.
        received: the last DATA frame it has from the peer.
        settled: all frames up to this one are settled.
        first: the first DATA frame it may send; earlier ones are settled, or take another route.
        proof: HMAC, or zeros without a secret.
        signature: by the broker's key, or zeros without a key; not in version 1.
    """

    version: int
    epoch: int
    received: int
    settled: int
    first: int
    proof: bytes = NO_PROOF
    signature: bytes = NO_SIGNATURE


class Control(NamedTuple):
    """A message of routing to the peer. The caller defines the kinds."""

    kind: int
    payload: bytes


class Progress(NamedTuple):
    """All DATA frames up to `received` have arrived; those up to `settled`, and those of `early`, are settled.

    `early` has ranges (first, last) of frames after `settled`, ascending. Without them, the brokers of a ring could
    wait for each other: rows of one frame continue in a later frame of the next link.
    """

    received: int
    settled: int
    early: tuple[tuple[int, int], ...] = ()


class HeartBeat(NamedTuple):
    """The sender is alive."""


class Bye(NamedTuple):
    """The end of the connection, and its reason: a `Reason`, or a number of a later version."""

    reason: int
    text: str


def header(kind: int, length: int) -> bytes:
    """Return the header of a frame of `length` bytes, header included."""
    if length > MAX_LINK_FRAME_BYTES:
        raise LimitError(f"a {KINDS[kind]} frame", length, MAX_LINK_FRAME_BYTES, "bytes; send it in parts")
    return HEADER.pack(length, kind, _NOTHING)


def _framed(kind: int, *parts: bytes) -> bytes:
    return b"".join((header(kind, HEADER_BYTES + sum(map(len, parts))), *parts))


HEART_BEAT = _framed(BEAT)


def encode_hello(hello: Hello) -> bytes:
    """Encode a HELLO frame."""
    name = hello.network.encode()
    fixed = _HELLO.pack(
        _MAGIC,
        hello.lowest,
        hello.highest,
        hello.authentication,
        0,
        len(name),
        hello.broker,
        hello.capabilities,
        hello.epoch,
        hello.membership,
        hello.heart_beat,
        0,
        hello.nonce,
    )
    return _framed(HELLO, fixed, name)


def encode_welcome(welcome: Welcome) -> bytes:
    """Encode a WELCOME frame."""
    counts = (welcome.epoch, welcome.received, welcome.settled, welcome.first)
    signature = welcome.signature if welcome.version >= SIGNED_VERSION else b""
    return _framed(WELCOME, _WELCOME.pack(welcome.version, bytes(6), *counts, welcome.proof), signature)


def encode_control(kind: int, payload: bytes) -> bytes:
    """Encode a CONTROL frame."""
    return _framed(CONTROL, _CONTROL.pack(kind, _NOTHING), payload)


def encode_progress(progress: Progress) -> bytes:
    """Encode a PROGRESS frame."""
    early = b"".join(_RANGE.pack(*run) for run in progress.early)
    return _framed(PROGRESS, _PROGRESS.pack(progress.received, progress.settled), early)


def encode_bye(reason: int, text: str) -> bytes:
    """Encode a BYE frame; a text that is too long is cut off."""
    data = text.encode("utf-8", "replace")[:MAX_BYE_BYTES].decode("utf-8", "ignore").encode()
    return _framed(BYE, _BYE.pack(reason, 0), data)


def decode_small(kind: int, body: bytes) -> Hello | Welcome | Control | Progress | HeartBeat | Bye:
    """Decode what follows the header of a frame that is not DATA.

    Raises:
        LinkError: the frame is not as the format requires; the text names the frame and the fault.
    """
    return _READERS[kind](body)


def _hello(body: bytes) -> Hello:
    if len(body) <= _HELLO.size or body[:8] != _MAGIC:
        raise LinkError("HELLO: this is not a link of Postroad; connect to the link port of a broker")
    fields = _HELLO.unpack_from(body)
    _, lowest, highest, authentication, zero, size, broker, capabilities = fields[:8]
    epoch, membership, heart_beat, zeros, nonce = fields[8:]
    if zero or zeros:
        raise LinkError("HELLO: a reserved byte is not 0")
    if not 1 <= size <= MAX_NETWORK_NAME_BYTES or len(body) != _HELLO.size + size:
        raise LinkError(f"HELLO: a network's name of {size} bytes in a frame with {len(body) - _HELLO.size} for it")
    if not 1 <= lowest <= highest:
        raise LinkError(f"HELLO: versions {lowest} to {highest} are not a range")
    if not 1 <= heart_beat <= MAX_HEART_BEAT_MS:
        raise LinkError(f"HELLO: a heart-beat of {heart_beat} ms; 1 to {MAX_HEART_BEAT_MS:,} are allowed")
    if not (broker and 1 <= epoch <= LARGEST_COUNT and membership <= LARGEST_COUNT):
        raise LinkError(f"HELLO: broker {broker}, epochs {epoch} and {membership}: one of them is out of range")
    network = _text(body[_HELLO.size :], "HELLO: the network's name")
    return Hello(lowest, highest, broker, epoch, membership, network, nonce, authentication, capabilities, heart_beat)


def _welcome(body: bytes) -> Welcome:
    if len(body) not in (_WELCOME.size, _WELCOME.size + SIGNATURE_BYTES):
        raise _size("WELCOME", _WELCOME.size, body)
    version, zeros, epoch, received, settled, first, proof = _WELCOME.unpack_from(body)
    if (version >= SIGNED_VERSION) != (len(body) > _WELCOME.size):
        raise LinkError(f"WELCOME: {len(body)} bytes after the header in version {version}")
    if any(zeros):
        raise LinkError("WELCOME: a reserved byte is not 0")
    if max(epoch, received, first) > LARGEST_COUNT or settled > received or not first:
        raise LinkError(f"WELCOME: received {received}, settled {settled}, first {first}, epoch {epoch} cannot be")
    return Welcome(version, epoch, received, settled, first, proof, body[_WELCOME.size :] or NO_SIGNATURE)


def _control(body: bytes) -> Control:
    if len(body) < _CONTROL.size:
        raise _size("CONTROL", _CONTROL.size, body)
    kind, zeros = _CONTROL.unpack_from(body)
    if any(zeros):
        raise LinkError("CONTROL: a reserved byte is not 0")
    return Control(kind, bytes(body[_CONTROL.size :]))


def _progress(body: bytes) -> Progress:
    count, rest = divmod(len(body) - _PROGRESS.size, _RANGE.size)
    if rest or not 0 <= count <= MAX_PROGRESS_RANGES:
        raise LinkError(
            f"PROGRESS: {len(body)} bytes after the header; two numbers and up to {MAX_PROGRESS_RANGES:,} runs of "
            f"{_RANGE.size} bytes are expected"
        )
    received, settled = _PROGRESS.unpack_from(body)
    if settled > received:
        raise LinkError(f"PROGRESS: settled {settled} but received only {received}")
    early = tuple(_RANGE.iter_unpack(body[_PROGRESS.size :]))
    end = settled
    for first, last in early:
        if not end < first <= last <= received:
            raise LinkError(f"PROGRESS: frames {first} to {last} cannot be settled after {end} of {received}")
        end = last
    return Progress(received, settled, early)


def _beat(body: bytes) -> HeartBeat:
    if body:
        raise _size("HEART_BEAT", 0, body)
    return HeartBeat()


def _bye(body: bytes) -> Bye:
    if not _BYE.size <= len(body) <= _BYE.size + MAX_BYE_BYTES:
        raise LinkError(f"BYE: {len(body)} bytes; a reason and a text of up to {MAX_BYE_BYTES} bytes are expected")
    reason, zero = _BYE.unpack_from(body)
    if zero:
        raise LinkError("BYE: a reserved byte is not 0")
    return Bye(reason, _text(body[_BYE.size :], "BYE: the text"))


def _text(data: bytes, what: str) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise LinkError(f"{what} is not UTF-8") from None


def _size(name: str, expected: int, body: bytes) -> LinkError:
    return LinkError(f"{name}: {expected} bytes are expected after the header, {len(body)} came", Reason.FAULT)


_READERS: dict[int, Callable[[bytes], Hello | Welcome | Control | Progress | HeartBeat | Bye]] = {
    HELLO: _hello,
    WELCOME: _welcome,
    CONTROL: _control,
    PROGRESS: _progress,
    BEAT: _beat,
    BYE: _bye,
}
