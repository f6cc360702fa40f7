"""Targets of bytes that come over a network: from clients, and from other brokers."""

from __future__ import annotations

import contextlib
import struct

import msgspec
import numpy as np

from fuzz.choices import Choices
from postroad.broker import AckMode, Broker, Outbox, PublisherNumbers
from postroad.broker.channels import Datagram
from postroad.broker.interests import Interests
from postroad.broker.peers import HEAD_BYTES, packet
from postroad.errors import LimitError
from postroad.filters import hash_bytes
from postroad.matching import SubscriptionIndex
from postroad.matching.encoding import EncodingError, Scheme, decode_exact, encode_exact, from_bytes, to_bytes
from postroad.messages import DecodeError, check_batch, decode_batch, decode_envelopes, encode_batch
from postroad.protocols.link import Control, Data, LinkDecoder, LinkError
from postroad.protocols.stomp import FrameReader, StompDecoder, StompError, StompLimits
from postroad.protocols.websocket import WebSocketDecoder
from postroad.protocols.websocket.decoder import LONGEST_CONTROL
from postroad.routing.contract import Delta
from postroad.routing.control_frames import Digest, Interest, InterestDelta, LinkRecord, decode_frame, encode_frame
from postroad.routing.errors import RoutingError
from postroad.routing.link_state import LinkState
from postroad.store import Log, SimulatedDisk, StoreSettings, carry_out, recover

__all__ = [
    "broker_frames",
    "client_frames",
    "control_frames",
    "encoded_messages",
    "encoded_predicates",
    "envelopes",
    "exact_interests",
    "interests",
    "link_frames",
    "link_state",
    "queue_packets",
    "websocket_frames",
]

_HANDSHAKES = (
    b"",
    b"CONNECT\naccept-version:1.0\n\n\0",
    b"CONNECT\naccept-version:1.1\n\n\0",
    b"STOMP\naccept-version:1.2\nhost:h\n\n\0",
)
# Small, so that limits are met by short inputs.
_LIMITS = StompLimits(header_bytes=512, headers=16, body_bytes=1_024)


def broker_frames(data: bytes) -> None:
    """STOMP as a broker hears it: messages that are well formed, and events; never an exception."""
    choices = Choices(data)
    decoder = StompDecoder(_LIMITS)
    decoder.receive(choices.pick(_HANDSHAKES))
    for piece in choices.pieces():
        received = decoder.receive(piece)
        if received.batch is not None:
            check_batch(received.batch)
            assert len(received.receipts) == len(received.message_ids) == len(received.batch)


def client_frames(data: bytes) -> None:
    """STOMP as a client hears it."""
    choices = Choices(data)
    reader = FrameReader(limits=_LIMITS)
    try:
        reader.receive(choices.pick((b"", b"CONNECTED\nversion:1.2\n\n\0", b"CONNECTED\nversion:1.1\n\n\0")))
        for piece in choices.pieces():
            reader.receive(piece)
    except (StompError, LimitError):
        pass


def websocket_frames(data: bytes) -> None:
    """Frames of a WebSocket client, cut into reads anywhere: the cuts change nothing that they carry."""
    choices = Choices(data)
    pieces = choices.pieces()
    decoder, whole = WebSocketDecoder(_LIMITS.body_bytes), WebSocketDecoder(_LIMITS.body_bytes)
    expected = whole.receive(b"".join(pieces))
    payload = b""
    for piece in pieces:
        found = decoder.receive(piece)
        payload += found.payload.tobytes()
        if found.close or found.fault is not None:
            assert (found.close, found.fault) == (expected.close, expected.fault)
            break
        assert decoder.pending < LONGEST_CONTROL
    else:
        assert not expected.close
        assert expected.fault is None
    assert payload == expected.payload.tobytes()


def link_frames(data: bytes) -> None:
    """Frames of a link, before and after the handshake, with what they carry."""
    choices = Choices(data)
    decoder = LinkDecoder()
    if choices.byte() % 4:
        decoder.open()
    try:
        for piece in choices.pieces():
            for frame in decoder.frames(piece):
                if isinstance(frame, Data):
                    check_batch(frame.batch)
                elif isinstance(frame, Control):
                    control_frames(bytes(frame.payload))
    except LinkError:
        pass


def control_frames(data: bytes) -> None:
    """What strategies say to each other: what is read is written as the same again."""
    try:
        frame = decode_frame(data)
    except (RoutingError, LimitError):
        return
    assert decode_frame(encode_frame(frame)) == frame


def encoded_messages(data: bytes) -> None:
    """Messages as links and files hold them: what is read is written as the same bytes again."""
    choices = Choices(data)
    sizes = [choices.byte() for _ in range(choices.byte() % 3)]
    body = choices.rest()
    lengths = np.array([*sizes, max(0, len(body) - sum(sizes))], np.int64)
    try:
        batch = decode_batch(body, lengths)
    except (DecodeError, LimitError):
        return
    for message in batch:
        message.selectable()
        str(message.topic), bytes(message.body), dict(message.headers)
    encoded, _ = encode_batch(batch)
    assert bytes(encoded) == body[: int(lengths.sum())]


def envelopes(data: bytes) -> None:
    """Envelopes: ids, sources, hops."""
    choices = Choices(data)
    count, start = choices.byte(), choices.byte()
    with contextlib.suppress(DecodeError, LimitError):
        decode_envelopes(choices.rest(), count, start)


def _checked(choices: Choices) -> bytes:
    """What is left; mostly with a checksum that fits, which a fuzzer would not find."""
    is_checked = choices.byte() % 4
    body = choices.rest()
    return body + struct.pack("<Q", hash_bytes(body)) if is_checked else body


def _said(choices: Choices) -> bytes:
    return _checked(Choices(choices.short_blob()))


def encoded_predicates(data: bytes) -> None:
    """Lists of Bloom vectors: only the canonical bytes of a list are one."""
    given = _checked(Choices(data))
    try:
        found = from_bytes(given)
    except (EncodingError, LimitError):
        return
    assert to_bytes(found) == given


def exact_interests(data: bytes) -> None:
    """Predicates said exactly: only the canonical bytes of a set are one."""
    given = _checked(Choices(data))
    try:
        found = decode_exact(given)
    except (EncodingError, LimitError):
        return
    assert encode_exact(found) == given


def interests(data: bytes) -> None:
    """Advertisements, whole and as changes, of several brokers: a bad one leaves what was known."""
    choices = Choices(data)
    scheme = Scheme.sharp(64, 2) if choices.byte() % 2 else None
    known = Interests(SubscriptionIndex(), scheme)
    for _ in range(8):
        if not choices:
            break
        broker, kind = 1 + choices.byte() % 3, choices.byte() % 4
        before = known.brokers
        try:
            if kind == 0:
                known.replace(broker, None)
            elif kind == 1:
                known.change(broker, Delta(_said(choices), _said(choices)))
            else:
                known.replace(broker, _said(choices))
        except (EncodingError, LimitError):
            assert known.brokers == before


def _record(choices: Choices) -> LinkRecord | Interest | InterestDelta | Digest:
    kind, broker = choices.byte() % 4, 1 + choices.byte() % 4
    epoch, sequence = choices.number(2), choices.number(1)
    if kind == 0:
        links = sorted({1 + choices.byte() % 5: 1 + choices.byte() for _ in range(choices.byte() % 5)}.items())
        return LinkRecord(broker, epoch, sequence, choices.number(2), tuple(links), bool(choices.byte() % 2))
    if kind == 1:
        return Interest(broker, epoch, sequence, choices.short_blob())
    if kind == 2:
        return InterestDelta(broker, epoch, sequence, choices.number(1), choices.short_blob(), choices.short_blob())
    held = []
    for _ in range(choices.byte() % 4):
        one, two, three, four = (choices.number(1) for _ in range(4))
        held.append((1 + choices.byte() % 4, one, two, three, four))
    return Digest(tuple(held), bool(choices.byte() % 2))


def link_state(data: bytes) -> None:
    """One broker's knowledge of the network, told by neighbours that say anything: it stays consistent."""
    choices = Choices(data)
    state = LinkState(1, 1_000)
    now = 1_000
    for _ in range(64):
        if not choices:
            break
        now += choices.number(1)
        what, link = choices.byte() % 8, 2 + choices.byte() % 3
        try:
            if what == 0:
                state.neighbour_up(link, 1 + choices.byte(), now)
            elif what == 1:
                state.neighbour_down(link, now)
            elif what == 2:
                state.tick(now + 60_000 * choices.byte())
            elif what == 3:
                state.set_interest(choices.short_blob(), now)
            else:
                frame = decode_frame(encode_frame(_record(choices)))
                assert isinstance(frame, LinkRecord | Interest | InterestDelta | Digest)
                state.receive(frame, link, now)
        except (RoutingError, LimitError):
            continue
    known = state.known()
    assert 1 in known
    assert set(state.graph()) <= set(known)
    assert state.routes is not None


def queue_packets(data: bytes) -> None:
    """What a broker says about queues, over a channel that is open: done, or refused; never an exception."""
    disk = SimulatedDisk()
    core = Broker(1, PublisherNumbers(lambda: 1))
    core.homes.home = lambda _: 1
    core.homes.brokers = frozenset((1, 2))
    log = Log(StoreSettings(), recover(disk.segments(), disk.read))
    core.open_store(log, np.empty((0, 2), np.uint64), 1)
    peers = core.peers
    assert peers is not None
    theirs, number = 7, 0
    peers.receive(packet(2, 1, Datagram(theirs, 0)), 2)
    (answer,) = [each for _, each in peers.take_packets(2)]
    mine = msgspec.msgpack.decode(answer[HEAD_BYTES:], type=Datagram).sender
    peers.receive(packet(2, 1, Datagram(theirs, mine)), 2)
    # A subscription of which the other broker may know either version.
    durables = core.durables
    assert durables is not None
    for selector in ("", "n > 1"):
        reader = core.attached("reader")
        durables.subscribe(reader, "s", ("c", "n"), ">", selector, AckMode.AUTO, 2, Outbox())
        core.detached(reader, 2)
        peers.tick(2)
    assert len(durables.formers) == 1
    choices = Choices(data)
    while choices:
        number += 1
        item = choices.blob(choices.number(2))
        _, fault = peers.receive(packet(2, 1, Datagram(theirs, mine, number, 0, [item])), 2)
        while (commit := log.take_commit(2)) is not None:
            carry_out(commit, disk)
            log.committed(commit)
        core.stored(2)
        if fault:
            break
