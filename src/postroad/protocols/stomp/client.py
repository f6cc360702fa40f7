"""The client's side of STOMP: encodes any frame, and decodes the frames of a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroad.errors import LimitError, PostroadError
from postroad.protocols.stomp.header_escapes import header_lines, read_lines
from postroad.protocols.stomp.limits import StompLimits
from postroad.protocols.stomp.versions import Version, negotiate

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Frame", "FrameReader", "StompError", "encode_frame"]

_UNESCAPED = ("CONNECT", "STOMP", "CONNECTED")
_LINE_ENDS = re.compile(rb"[\r\n]*")
_HEADERS_END = re.compile(rb"\n\r?\n")
_DIGITS = re.compile(r"[0-9]{1,18}")


class StompError(PostroadError):
    """What a server sent is not STOMP, or a frame cannot be written."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as a program sees it: headers unescaped, the first of each name."""

    command: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def encode_frame(
    command: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    version: Version = Version.V1_2,
) -> bytes:
    """Encode a frame. A body gets a `content-length` unless the headers have one.

    Raises:
        StompError: this version cannot express a header: it contains a NUL, or in 1.0 and in CONNECT a line end, or a
            colon in its name.
    """
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if body and not any(name == "content-length" for name, _ in pairs):
        pairs.append(("content-length", str(len(body))))
    bare = command in _UNESCAPED or version is Version.V1_0
    for name, value in pairs:
        if "\0" in name + value or (bare and (":" in name or re.search(r"[\r\n]", name + value))):
            raise StompError(f"header {name!r}: STOMP {version} cannot say this in a {command} frame")
    return command.encode() + b"\n" + header_lines(pairs, None if bare else version) + b"\n" + body + b"\0\n"


class FrameReader:
    """Decodes a server's bytes into frames. It takes the version from the CONNECTED frame.

    Attributes:
        version: the version spoken; None before CONNECTED.
    """

    __slots__ = ("_buffer", "_limits", "version")

    def __init__(self, version: Version | None = None, limits: StompLimits | None = None) -> None:
        self.version = version
        self._limits = limits or StompLimits()
        self._buffer = bytearray()

    def receive(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Return the frames that are complete now. Line ends between them, the heart-beats, are skipped.

        Raises:
            StompError: this is not STOMP; close the connection.
            LimitError: a frame is larger than the limits allow.
        """
        self._buffer += data
        frames: list[Frame] = []
        at = 0
        while (found := self._next(at)) is not None:
            frame, at = found
            frames.append(frame)
            if frame.command == "CONNECTED":
                self.version = negotiate(frame.headers.get("version"))
        del self._buffer[:at]
        return frames

    def _next(self, at: int) -> tuple[Frame, int] | None:
        """Return the frame at an offset and where it ends, or None while it is not complete."""
        skipped = _LINE_ENDS.match(self._buffer, at)
        start = skipped.end() if skipped else at
        most = self._limits.command_bytes + self._limits.header_bytes
        found = _HEADERS_END.search(self._buffer, start, start + most + 4)
        if found is None:
            if len(self._buffer) - start > most:
                raise LimitError("the header block of a frame", len(self._buffer) - start, most, "bytes")
            return None
        first, _, lines = bytes(self._buffer[start : found.start() + 1]).partition(b"\n")
        command = first.removesuffix(b"\r").decode("utf-8", "replace")
        try:
            headers = read_lines(lines, None if command in _UNESCAPED else self.version)
        except ValueError as error:
            raise StompError(f"{command[:20]}: {error}") from None
        end = self._body_end(headers, found.end())
        return None if end is None else (Frame(command, headers, bytes(self._buffer[found.end() : end])), end + 1)

    def _body_end(self, headers: dict[str, str], start: int) -> int | None:
        """Return where the NUL after the body is, or None while it has not arrived."""
        most = self._limits.body_bytes
        stated = headers.get("content-length")
        if stated is None:
            end = self._buffer.find(b"\0", start)
            length = (len(self._buffer) if end < 0 else end) - start
        elif _DIGITS.fullmatch(stated):
            length = int(stated)
            end = start + length if start + length < len(self._buffer) else -1
        else:
            raise StompError(f"content-length is {stated!r:.80}, not a number of bytes")
        if length > most:
            raise LimitError("the body of a frame", length, most, "bytes")
        if end >= 0 and self._buffer[end]:
            raise StompError("no NUL follows where content-length says the body ends")
        return end if end >= 0 else None
