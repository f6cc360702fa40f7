r"""STOMP read and written byte by byte, straight from its three specifications: slow, obvious, independent.

What they leave open is decided as in docs/stomp.md: a bare colon in a value is kept; in 1.0 CR LF ends a line as LF
does, and blanks before a value are dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroad.errors import PostroadError
from postroad.messages.topics import topic_bytes

if TYPE_CHECKING:
    from postroad.messages import MessageId

COMMANDS = ["SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT"]
COMMANDS += ["CONNECT", "STOMP", "DISCONNECT"]
SERVER_COMMANDS = ["CONNECTED", "MESSAGE", "RECEIPT", "ERROR"]
UNESCAPED = ("CONNECT", "STOMP", "CONNECTED")

ESCAPES = {
    "1.0": {},
    "1.1": {b"\\": b"\\", b"n": b"\n", b"c": b":"},
    "1.2": {b"\\": b"\\", b"n": b"\n", b"c": b":", b"r": b"\r"},
}


class BrokenError(Exception):
    """The bytes are not STOMP."""


class UnfinishedError(Exception):
    """The bytes stop inside a frame."""


@dataclass
class Parsed:
    command: str
    headers: list[tuple[str, str]]
    body: bytes
    end: int

    def first(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


def byte_at(stream: bytes, at: int) -> bytes:
    if at >= len(stream):
        raise UnfinishedError
    return stream[at : at + 1]


def skip_line_ends(stream: bytes, at: int) -> int:
    while stream[at : at + 1] == b"\n" or stream[at : at + 2] == b"\r\n":
        at += 1 if stream[at : at + 1] == b"\n" else 2
    return at


def read_line(stream: bytes, at: int, returns: bool) -> tuple[bytes, int]:
    """A line without its end, and where the next one starts. `returns`: whether CR LF ends a line as well."""
    line = b""
    while (byte := byte_at(stream, at)) != b"\n":
        if byte == b"\0":
            raise BrokenError
        line += byte
        at += 1
    if returns and line.endswith(b"\r"):
        line = line[:-1]
    return line, at + 1


def unescape(part: bytes, version: str, escapes: bool) -> bytes:
    result, at = b"", 0
    while at < len(part):
        byte = part[at : at + 1]
        if byte == b"\r" and version == "1.2" and escapes:
            raise BrokenError
        if byte == b"\\" and escapes:
            code = part[at + 1 : at + 2]
            if code not in ESCAPES[version]:
                raise BrokenError
            byte = ESCAPES[version][code]
            at += 1
        result += byte
        at += 1
    return result


def read_frame(stream: bytes, at: int, version: str) -> Parsed:
    """The frame that starts at an offset."""
    word, at = read_line(stream, at, True)
    command = word.decode("latin-1")
    if command not in COMMANDS + SERVER_COMMANDS:
        raise BrokenError
    bare = command in UNESCAPED
    headers: list[tuple[bytes, bytes]] = []
    while True:
        line, at = read_line(stream, at, bare or version != "1.1")
        if not line:
            break
        name, colon, value = line.partition(b":")
        if not colon:
            raise BrokenError
        if version == "1.0" and not bare:
            value = value.lstrip(b" ")
        escapes = not bare and version != "1.0"
        name, value = unescape(name, version, escapes), unescape(value, version, escapes)
        if not 1 <= len(name) <= 255:
            raise BrokenError
        headers.append((name, value))
    body, at = read_body(stream, at, next((value for name, value in headers if name == b"content-length"), None))
    if body and command not in ("SEND", "MESSAGE", "ERROR"):
        raise BrokenError
    try:
        return Parsed(command, [(name.decode(), value.decode()) for name, value in headers], body, at)
    except UnicodeDecodeError:
        raise BrokenError from None


def read_body(stream: bytes, at: int, length: bytes | None) -> tuple[bytes, int]:
    if length is None:
        body = b""
        while (byte := byte_at(stream, at)) != b"\0":
            body += byte
            at += 1
        return body, at + 1
    if not length or any(digit not in b"0123456789" for digit in length) or len(length) > 7:
        raise BrokenError
    end = at + int(length)
    if byte_at(stream, end) != b"\0":
        raise BrokenError
    return stream[at:end], end + 1


def read_stream(stream: bytes, version: str) -> tuple[list[Parsed], str]:
    """All frames, and how it ends: "whole", "unfinished" or "broken"."""
    found: list[Parsed] = []
    at = 0
    while True:
        at = skip_line_ends(stream, at)
        if at == len(stream):
            return found, "whole"
        try:
            found.append(read_frame(stream, at, version))
        except UnfinishedError:
            return found, "unfinished"
        except BrokenError:
            return found, "broken"
        at = found[-1].end


def escape(text: str, version: str) -> bytes:
    """A name or a value, which must be one that the version can say."""
    back = {plain: b"\\" + code for code, plain in ESCAPES[version].items()}
    return b"".join(back.get(bytes([byte]), bytes([byte])) for byte in text.encode())


def write_frame(
    command: str, headers: list[tuple[str, str]], body: bytes = b"", version: str = "1.2", line_end: bytes = b"\n"
) -> bytes:
    written = "1.0" if command in UNESCAPED else version
    lines = [escape(name, written) + b":" + escape(value, written) for name, value in headers]
    return line_end.join([command.encode(), *lines, b"", b""]) + body + b"\0"


MESSAGE_ID = "[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{12}-[0-9a-f]{4}"


def is_allowed(frame: Parsed, version: str) -> bool:
    """Whether a frame other than CONNECT says all it must."""
    has = {name for name, _ in frame.headers}
    destination = frame.first("destination") or ""
    served = destination.startswith("/topic/") and destination != "/topic/"
    if frame.command == "SEND":
        return served and is_topic(destination.removeprefix("/topic/"))
    if frame.command == "SUBSCRIBE":
        modes = (None, "auto", "client", "client-individual")
        return served and frame.first("ack") in modes and (version == "1.0" or "id" in has)
    if frame.command == "UNSUBSCRIBE":
        return "id" in has or (version == "1.0" and served)
    if frame.command in ("ACK", "NACK"):
        if version == "1.2":
            return re.fullmatch(MESSAGE_ID + "-[0-9a-f]{8}", frame.first("id") or "") is not None
        known = re.fullmatch(MESSAGE_ID, frame.first("message-id") or "") is not None
        return known and ("subscription" in has if version == "1.1" else frame.command == "ACK")
    return frame.command == "DISCONNECT" or (frame.command in ("BEGIN", "COMMIT", "ABORT") and "transaction" in has)


def is_topic(text: str) -> bool:
    try:
        topic_bytes(text)
    except PostroadError:
        return False
    return True


def allowed_frames(frames: list[Parsed], version: str) -> list[Parsed]:
    """The frames of an open connection up to the first that is not allowed."""
    for number, frame in enumerate(frames):
        if not is_allowed(frame, version) or (number and frames[number - 1].command == "DISCONNECT"):
            return frames[:number]
    return frames


def ack_text(message_id: MessageId, number: int) -> str:
    """The `ack` header of a message for the subscription with this number."""
    return f"{message_id}-{number:08x}"
