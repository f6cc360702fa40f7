"""Typed attributes in Python: encodes and decodes attribute blocks, and sets the attributes that JMS derives.

The attributes of a message are the entries of its attribute block, then its header lines; the first occurrence of a
name wins, which is STOMP's own rule for repeated headers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from postroad.errors import LimitError
from postroad.messages.errors import DecodeError, MessageError
from postroad.messages.headers import read_headers
from postroad.messages.limits import MAX_NAME_BYTES, MAX_VALUE_BYTES
from postroad.messages.values import Tag, Untyped, Value, check_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.messages.identity import MessageId

__all__ = ["DERIVED_NAMES", "attribute_block", "derived", "merge", "read_attributes"]

# Selectors ignore an attribute that a client sends under one of these names, and use the broker's value.
DERIVED_NAMES = ("JMSPriority", "JMSTimestamp", "JMSMessageID", "JMSCorrelationID", "JMSType")

_ENTRY = struct.Struct("<BBH")
_INTEGER = struct.Struct("<q")
_FLOAT = struct.Struct("<d")


def attribute_block(attributes: Mapping[str, Value], limit: int) -> bytes:
    """Return the block of these attributes, in their order, of at most `limit` bytes."""
    if not isinstance(attributes, Mapping):
        raise MessageError(f"attributes are a mapping of names to values, not {type(attributes).__name__}")
    parts: list[bytes] = []
    for name, value in attributes.items():
        tag, data = _encode_value(name, value)
        key = _encode_name(name)
        parts += (_ENTRY.pack(tag, len(key), len(data)), key, data)
    block = b"".join(parts)
    if len(block) > limit:
        raise LimitError("an attribute block", len(block), limit, "bytes; large data belongs in the body")
    return block


def _encode_name(name: str) -> bytes:
    if not isinstance(name, str):
        raise MessageError(f"attribute {name!r}: a name is a str, not {type(name).__name__}")
    try:
        data = name.encode()
    except UnicodeEncodeError:
        raise MessageError(f"attribute {name!r}: a lone surrogate in the name has no UTF-8") from None
    if not 1 <= len(data) <= MAX_NAME_BYTES:
        raise MessageError(f"attribute {name[:40]!r}: a name has 1 to {MAX_NAME_BYTES} bytes, this has {len(data)}")
    return data


def _encode_value(name: str, value: Value) -> tuple[int, bytes]:
    tag = check_value(name, value)
    if isinstance(value, str):
        try:
            data = value.encode()
        except UnicodeEncodeError as error:
            raise MessageError(
                f"attribute {name!r}: character {error.start} of the text is a lone surrogate, which has no UTF-8"
            ) from None
    elif isinstance(value, bytes):
        data = value
    elif tag == Tag.INTEGER:
        data = _INTEGER.pack(value)
    elif tag == Tag.FLOAT:
        data = _FLOAT.pack(value)
    else:
        data = b"\1" if value else b"\0"
    if len(data) > MAX_VALUE_BYTES:
        raise LimitError(f"attribute {name!r}", len(data), MAX_VALUE_BYTES, "bytes; large data belongs in the body")
    return tag, data


def read_attributes(block: bytes, row: int = 0, offset: int = 0) -> Iterator[tuple[str, Value]]:
    """Yield the entries of an attribute block in order; errors name the place as `row` and `offset`."""
    at = 0
    while at < len(block):
        if at + _ENTRY.size > len(block):
            raise DecodeError("an attribute entry is cut short", row, offset + at)
        tag, name_size, value_size = _ENTRY.unpack_from(block, at)
        name_at = at + _ENTRY.size
        value_at = name_at + name_size
        end = value_at + value_size
        if end > len(block):
            raise DecodeError("an attribute entry goes beyond its block", row, offset + at)
        if name_size == 0:
            raise DecodeError("an attribute has no name", row, offset + at)
        try:
            yield block[name_at:value_at].decode(), _decode_value(tag, block[value_at:end])
        except UnicodeDecodeError:
            raise DecodeError("an attribute's name or text is not UTF-8", row, offset + at) from None
        except ValueError as error:
            raise DecodeError(str(error), row, offset + at) from None
        at = end


def _decode_value(tag: int, data: bytes) -> Value:
    if tag == Tag.TEXT:
        return data.decode()
    if tag == Tag.UNTYPED:
        return Untyped(data.decode())
    if tag == Tag.BYTES:
        return data
    if tag == Tag.BOOLEAN and data in (b"\0", b"\1"):
        return data == b"\1"
    if tag == Tag.INTEGER and len(data) == _INTEGER.size:
        return int(_INTEGER.unpack(data)[0])
    if tag == Tag.FLOAT and len(data) == _FLOAT.size:
        value = float(_FLOAT.unpack(data)[0])
        if value == value:
            return value
        raise ValueError("a float attribute is NaN")
    if tag in (Tag.BOOLEAN, Tag.INTEGER, Tag.FLOAT):
        raise ValueError("a fixed-size attribute has another size, or a boolean is neither 0 nor 1")
    raise ValueError(f"attribute tag {tag:#04x} is unknown to this version")


def merge(attributes: bytes, headers: bytes, row: int = 0, offsets: tuple[int, int] = (0, 0)) -> dict[str, Value]:
    """Return the attributes that the sender gave: block entries, then header lines, the first of each name."""
    found: dict[str, Value] = {}
    for name, value in read_attributes(attributes, row, offsets[0]):
        found.setdefault(name, value)
    for name, text in read_headers(headers, row, offsets[1]):
        found.setdefault(name, text)
    return found


def derived(attributes: Mapping[str, Value], identity: MessageId, priority: int) -> dict[str, Value]:
    """Return what a selector sees: the attributes of the sender, with the five JMS names set by the broker."""
    seen = {name: value for name, value in attributes.items() if name not in DERIVED_NAMES}
    seen["JMSPriority"] = priority
    seen["JMSTimestamp"] = identity.time
    seen["JMSMessageID"] = str(identity)
    for name, source in (("JMSCorrelationID", "correlation-id"), ("JMSType", "type")):
        if source in attributes:
            seen[name] = attributes[source]
    return seen
