"""`LinkDecoder`: reads of a socket in, whole frames out."""

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
    """Cuts what one connection brings into frames, and checks each.

    A frame that lies within one read is not copied. One that is spread over many reads is gathered in one place, each
    byte once, however many reads there are. At most one frame is kept, and before `open` a small one only.
    """

    __slots__ = ("_broken", "_kept", "_limit", "_wanted")

    def __init__(self) -> None:
        self._limit = MAX_HANDSHAKE_FRAME_BYTES
        self._kept = bytearray()
        self._wanted = HEADER_BYTES
        self._broken = False

    def open(self) -> None:
        """The handshake is done: frames of any kind and of full size may come."""
        self._limit = MAX_LINK_FRAME_BYTES

    @property
    def kept(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._kept)

    def receive(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """The frames that are whole now, in order; see `frames`."""
        return list(self.frames(data))

    def frames(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """The frames that are whole now, one by one: `open` may be called in between. To be taken to the end.

        What is not `bytes` is copied first: its owner may write to it.

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
                # The frame lies over what was kept, which is left to it.
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
        """Add to the frame that is kept what it wants; the offset after that."""
        end = min(len(data), at + self._wanted - len(self._kept))
        self._kept += memoryview(data)[at:end]
        if len(self._kept) == HEADER_BYTES:
            self._wanted = self._length(self._kept, 0)
        return end

    def _length(self, data: bytes | bytearray, at: int) -> int:
        """The length in a header, checked."""
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
