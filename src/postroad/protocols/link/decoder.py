"""`LinkDecoder`: decodes what a socket reads into whole frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from postroad.protocols.link.data import Data, decode_data
from postroad.protocols.link.errors import LinkError
from postroad.protocols.link.frames import (
    DATA,
    HEADER,
    HEADER_BYTES,
    KINDS,
    Bye,
    Control,
    HeartBeat,
    Hello,
    Progress,
    Welcome,
    decode_small,
)
from postroad.protocols.link.limits import MAX_HANDSHAKE_FRAME_BYTES, MAX_LINK_FRAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

Frame: TypeAlias = Hello | Welcome | Data | Control | Progress | HeartBeat | Bye

__all__ = ["Frame", "LinkDecoder"]


class LinkDecoder:
    """Splits the bytes of one connection into frames, and checks each.

    A frame within one read is not copied. The parts of a frame in several reads are copied once, into one buffer. At
    most one unfinished frame is kept, and before `open` only a small one.
    """

    __slots__ = ("_broken", "_kept", "_limit", "_wanted")

    def __init__(self) -> None:
        self._limit = MAX_HANDSHAKE_FRAME_BYTES
        self._kept = bytearray()
        self._wanted = HEADER_BYTES
        self._broken = False

    def open(self) -> None:
        """Allow frames of any kind and of full size, after the handshake."""
        self._limit = MAX_LINK_FRAME_BYTES

    @property
    def kept(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._kept)

    def receive(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Return the frames that are complete now, in order; see `frames`."""
        return list(self.frames(data))

    def frames(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Yield the frames that are complete now; `open` may be called in between. The caller has to exhaust it.

        Data that is not `bytes` is copied first, because its owner may write to it.

        Raises:
            LinkError: the bytes are not a frame; the decoder is closed.
        """
        if self._broken:
            raise LinkError("this link has been refused; open a new connection")
        try:
            yield from self._cut(data if isinstance(data, bytes) else bytes(data))
        except LinkError:
            self._broken = True
            self._kept = bytearray()
            raise

    def _cut(self, data: bytes) -> Iterator[Frame]:
        at = 0
        while self._kept and at < len(data):
            at = self._gather(data, at)
            if len(self._kept) == self._wanted:
                # The frame refers to the kept buffer, which is not used again.
                whole, self._kept, self._wanted = self._kept, bytearray(), HEADER_BYTES
                yield _decoded(memoryview(whole))
        view = memoryview(data)
        while len(data) - at >= HEADER_BYTES:
            end = at + self._length(data, at)
            if end > len(data):
                break
            yield _decoded(view[at:end])
            at = end
        if at < len(data):
            self._kept += view[at:]
            self._wanted = HEADER_BYTES if len(self._kept) < HEADER_BYTES else self._length(self._kept, 0)

    def _gather(self, data: bytes, at: int) -> int:
        """Append to the kept frame what it lacks; return the offset after that."""
        end = min(len(data), at + self._wanted - len(self._kept))
        self._kept += memoryview(data)[at:end]
        if len(self._kept) == HEADER_BYTES:
            self._wanted = self._length(self._kept, 0)
        return end

    def _length(self, data: bytes | bytearray, at: int) -> int:
        """Return the length in a header, checked."""
        length, kind, zeros = HEADER.unpack_from(data, at)
        if kind not in KINDS or any(zeros):
            raise LinkError(f"no frame begins with {bytes(data[at : at + HEADER_BYTES]).hex()}; is the peer a broker?")
        if length > self._limit:
            raise LinkError(
                f"a {KINDS[kind]} frame of {length:,} bytes; the limit is {self._limit:,}"
                + (" before the handshake is done" if self._limit < MAX_LINK_FRAME_BYTES else "")
            )
        if length < HEADER_BYTES:
            raise LinkError(f"a {KINDS[kind]} frame of {length} bytes; its header alone has {HEADER_BYTES}")
        return int(length)


def _decoded(frame: memoryview) -> Frame:
    kind = frame[4]
    return decode_data(frame) if kind == DATA else decode_small(kind, frame[HEADER_BYTES:].tobytes())
