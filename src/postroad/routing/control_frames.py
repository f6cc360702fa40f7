"""Control frames: what brokers tell each other besides messages, as msgspec structs in MessagePack."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated

import msgspec

from postroad.errors import LimitError
from postroad.routing.errors import RoutingError
from postroad.topology import LARGEST_BROKER
from postroad.topology.graph import LARGEST_COST

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_INTEREST_BYTES",
    "MAX_NEIGHBOURS",
    "Attach",
    "Detach",
    "Digest",
    "Frame",
    "Interest",
    "InterestDelta",
    "LinkRecord",
    "StepDown",
    "Topics",
    "decode_frame",
    "encode_frame",
    "signed_bytes",
]

# What one broker wants, in the form it advertises it: 100,000 exact constraints are some 2 MB.
MAX_INTEREST_BYTES = 16 * 1024 * 1024
# A broker keeps a connection for each; a star of a thousand fits four times.
MAX_NEIGHBOURS = 4_096
# The largest interest and some room around it.
MAX_FRAME_BYTES = MAX_INTEREST_BYTES + 64 * 1024
# Twice the patterns that a table holds for one link would be refused anyway; see `topics.MAX_PATTERNS`.
_MAX_LISTED = 200_000

Number = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BROKER)]
Cost = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_COST)]
# Signed, so that the largest leaves room to count on: no broker may drive a counter to overflow.
Counter = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Signature = Annotated[bytes, msgspec.Meta(max_length=64)]
Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
Patterns = Annotated[tuple[Pattern, ...], msgspec.Meta(max_length=_MAX_LISTED)]


class LinkRecord(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A broker's own links, as it last said. The newest (epoch, sequence) counts.

    Attributes:
        broker: whose links.
        epoch: when that broker was started (ms): a broker that begins to count again is still the newer one.
        sequence: rises with each change and each refresh.
        age: ms since the broker said this, on all ways together.
        neighbours: (broker, cost) of each link, by number.
        left: it has gone on purpose; forget what it wanted.
        signature: of the broker, over all but the age; empty if brokers have no keys.
    """

    broker: Number
    epoch: Counter
    sequence: Counter
    age: Counter
    neighbours: Annotated[tuple[tuple[Number, Cost], ...], msgspec.Meta(max_length=MAX_NEIGHBOURS)]
    left: bool = False
    signature: Signature = b""


class Interest(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """What a broker's subscribers want, in a form only the core can read. The newest (epoch, version) counts."""

    broker: Number
    epoch: Counter
    version: Counter
    summary: Annotated[bytes, msgspec.Meta(max_length=MAX_INTEREST_BYTES)]
    signature: Signature = b""


class InterestDelta(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """How the interest of a broker changed, in a form only the core can read.

    Attributes:
        broker: whose interest.
        epoch: that of the whole it changes.
        base: the version of that whole.
        version: one above the version it changes.
        added: what is wanted from now on; empty for nothing.
        removed: what is wanted no more; empty for nothing.
    """

    broker: Number
    epoch: Counter
    base: Counter
    version: Counter
    added: Annotated[bytes, msgspec.Meta(max_length=MAX_INTEREST_BYTES)]
    removed: Annotated[bytes, msgspec.Meta(max_length=MAX_INTEREST_BYTES)]
    signature: Signature = b""


class Digest(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """What the sender holds: (broker, epoch and sequence of its links, epoch and version of its interest).

    The receiver answers with what it holds that is newer or missing there; when the digest is `partial`, only of the
    brokers that it names.
    """

    held: Annotated[
        tuple[tuple[Number, Counter, Counter, Counter, Counter], ...], msgspec.Meta(max_length=LARGEST_BROKER)
    ]
    partial: bool = False


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Tree and cluster: take me as your child, or as your peer; this is all I want so far.

    Attributes:
        epoch: when the sender took its place (ms); the newer claim on a place wins.
        as_peer: a controller at the top, not a child.
        instead_of: whose place the sender holds: its own number, or that of the controller it replaces.
        patterns: topics wanted on the sender's side.
    """

    epoch: Counter
    as_peer: bool
    instead_of: Number
    patterns: Patterns


class Topics(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Tree and cluster: topics that are wanted on the sender's side from now on, and topics no longer wanted there.

    Attributes:
        added: wanted from now on.
        removed: wanted no more.
        whole: those added are all there are, in place of what was said before.
        rooted: whether the sender has a way to the top of the plan; None when this frame does not say.
    """

    added: Patterns = ()
    removed: Patterns = ()
    whole: bool = False
    rooted: bool | None = None


class Detach(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Tree and cluster: the sender is no longer a child or a peer of the receiver.

    `holder`: who holds the sender's place at the top instead.
    """

    holder: Number | None = None


class StepDown(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Cluster: the broker `holder` has the receiver's place since `epoch`; give it up and become its child."""

    epoch: Counter
    holder: Number


Frame = LinkRecord | Interest | InterestDelta | Digest | Attach | Topics | Detach | StepDown

# So that no signature passes for one of another kind.
_LINKS_SIGNED, _INTEREST_SIGNED, _CHANGE_SIGNED = b"postroad links\0", b"postroad interest\0", b"postroad change\0"

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def signed_bytes(record: LinkRecord | Interest | InterestDelta) -> bytes:
    """What the broker of a record signs: all fields but the age, which changes on every hop.

    What interests hold is signed by its SHA-256, so that a signature costs the same however long the interest is.
    """
    if isinstance(record, LinkRecord):
        fields = (record.broker, record.epoch, record.sequence, record.neighbours, record.left)
        return _LINKS_SIGNED + _encoder.encode(fields)
    if isinstance(record, Interest):
        said = (record.broker, record.epoch, record.version, sha256(record.summary).digest())
        return _INTEREST_SIGNED + _encoder.encode(said)
    parts = (sha256(record.added).digest(), sha256(record.removed).digest())
    return _CHANGE_SIGNED + _encoder.encode((record.broker, record.epoch, record.base, record.version, *parts))


def encode_frame(frame: Frame) -> bytes:
    """A frame as bytes."""
    return _encoder.encode(frame)


def decode_frame(data: bytes) -> Frame:
    """Bytes as a frame.

    Raises:
        RoutingError: they are none; the text names the field.
        LimitError: there are too many of them.
    """
    if len(data) > MAX_FRAME_BYTES:
        raise LimitError("a control frame", len(data), MAX_FRAME_BYTES, "bytes")
    try:
        frame: Frame = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RoutingError(f"a control frame of {len(data)} bytes cannot be read: {error}") from None
    return frame
