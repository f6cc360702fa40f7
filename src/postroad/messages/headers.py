"""Header lines: `name:value` and a newline each, in the escaping of STOMP 1.2; every value is untyped text.

The lines of a STOMP client are kept as they arrived. `\\\\` is a backslash, `\\c` a colon, `\\n` a newline, `\\r` a
carriage return; nothing else may follow a backslash. The first colon of a line ends the name; a value may contain bare
colons, because many clients send them. A bare carriage return or NUL is not allowed: the first is part of a line's end,
the second ends a frame.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from postroad.errors import LimitError
from postroad.messages.errors import DecodeError, MessageError
from postroad.messages.limits import MAX_HEADER_BYTES, MAX_NAME_BYTES
from postroad.messages.values import Untyped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["escape", "header_block", "read_headers", "unescape"]

_ESCAPES = {"\\": "\\\\", ":": "\\c", "\n": "\\n", "\r": "\\r"}
_TO_ESCAPE = re.compile(r"[\\:\n\r]")
_UNESCAPES = {b"\\\\": b"\\", b"\\c": b":", b"\\n": b"\n", b"\\r": b"\r"}
_ESCAPED = re.compile(rb"\\.?", re.DOTALL)


def escape(text: str) -> str:
    """Return the escaped form of a name or value."""
    return _TO_ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)


def unescape(data: bytes) -> bytes:
    """Return the unescaped form of a name or value; raises `ValueError` for an unknown escape."""
    if b"\\" not in data:
        return data
    return _ESCAPED.sub(_unescape_one, data)


def _unescape_one(found: re.Match[bytes]) -> bytes:
    if found[0] not in _UNESCAPES:
        raise ValueError(f"{found[0]!r} is not an escape of STOMP")
    return _UNESCAPES[found[0]]


def header_block(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[bytes, int]:
    """Return the header lines for these pairs, and their number."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        lines = [_line(name, value) for name, value in pairs]
    except (TypeError, ValueError):
        raise MessageError("headers are a mapping or a list of pairs of names and values") from None
    block = b"".join(lines)
    if len(block) > MAX_HEADER_BYTES:
        raise LimitError(
            "the header lines of a message", len(block), MAX_HEADER_BYTES, "bytes; put large values in the body"
        )
    return block, len(lines)


def _line(name: str, value: str) -> bytes:
    if not isinstance(name, str) or not isinstance(value, str):
        raise MessageError(f"header {name!r}: names and values of headers are str; typed values go in attributes")
    if "\0" in name or "\0" in value:
        raise MessageError(f"header {name!r}: NUL cannot stand in a header line; send it as an attribute")
    try:
        line = f"{escape(name)}:{escape(value)}\n".encode()
        size = len(name.encode())
    except UnicodeEncodeError:
        raise MessageError(f"header {name!r}: a lone surrogate has no UTF-8") from None
    if not 1 <= size <= MAX_NAME_BYTES:
        raise MessageError(f"header {name[:40]!r}: a name has 1 to {MAX_NAME_BYTES} bytes of UTF-8, this has {size}")
    return line


def read_headers(block: bytes, row: int = 0, offset: int = 0) -> Iterator[tuple[str, Untyped]]:
    """Yield the pairs of a header block in order, unescaped; errors name the place as `row` and `offset`."""
    start = 0
    while start < len(block):
        end = block.find(b"\n", start)
        if end < 0:
            raise DecodeError("the last header line does not end in a newline", row, offset + start)
        yield _read_line(block[start:end], row, offset + start)
        start = end + 1


def _read_line(line: bytes, row: int, offset: int) -> tuple[str, Untyped]:
    name, colon, value = line.partition(b":")
    if not colon:
        raise DecodeError("a header line has no colon", row, offset)
    if b"\r" in line or b"\0" in line:
        raise DecodeError("a header line holds a bare carriage return or NUL", row, offset)
    try:
        plain = unescape(name)
        pair = plain.decode(), Untyped(unescape(value).decode())
    except UnicodeDecodeError:
        raise DecodeError("a header line is not UTF-8", row, offset) from None
    except ValueError as error:
        raise DecodeError(f"in a header line, {error}", row, offset) from None
    if not 1 <= len(plain) <= MAX_NAME_BYTES:
        raise DecodeError(f"a header's name has 1 to {MAX_NAME_BYTES} bytes, this has {len(plain)}", row, offset)
    return pair
