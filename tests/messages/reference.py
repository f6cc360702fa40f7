"""The formats once more, written straight from `docs/formats.md`, slowly: what the room's code is held against."""

from __future__ import annotations

import math
import re
import struct
import unicodedata

from postroad.messages import Untyped, Value

NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


def number(text: str) -> int | float | None:
    """The number of untyped text: a looser pattern than the room's, then each rule by itself."""
    if not NUMBER.fullmatch(text):
        return None
    if not set(text) & set(".eE"):
        digits = text.lstrip("+-")
        if len(digits) > 1 and digits[0] == "0":
            return None
        # Python itself refuses to read more than some thousands of digits; far fewer are too many here.
        if len(digits) > 30 or not -(2**63) <= int(text) < 2**63:
            return None
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else None


def read_value(tag: int, data: bytes) -> Value | None:
    """A value, or None where the format has none."""
    if tag in (1, 2):
        text = data.decode()
        return Untyped(text) if tag == 2 else text
    if tag == 3 and len(data) == 8:
        return int.from_bytes(data, "little", signed=True)
    if tag == 4 and len(data) == 8:
        value: float = struct.unpack("<d", data)[0]
        return None if math.isnan(value) else value
    if tag == 5 and data in (b"\0", b"\1"):
        return data == b"\1"
    return data if tag == 6 else None


def read_block(block: bytes) -> list[tuple[str, Value]] | None:
    """The entries of an attribute block, or None when it is not one."""
    found: list[tuple[str, Value]] = []
    while block:
        if len(block) < 4:
            return None
        tag, name_size, low, high = block[:4]
        size = 4 + name_size + low + 256 * high
        if name_size == 0 or size > len(block):
            return None
        try:
            name, value = block[4 : 4 + name_size].decode(), read_value(tag, block[4 + name_size : size])
        except UnicodeDecodeError:
            return None
        if value is None:
            return None
        found.append((name, value))
        block = block[size:]
    return found if len(found) <= 1024 else None


def unescape(text: str) -> str | None:
    """A part of a header line, one character after the other."""
    result = ""
    rest = iter(text)
    for character in rest:
        if character in "\r\0":
            return None
        if character == "\\":
            code = next(rest, "")
            if code not in ("\\", "c", "n", "r"):
                return None
            character = {"\\": "\\", "c": ":", "n": "\n", "r": "\r"}[code]
        result += character
    return result


def read_lines(block: bytes) -> list[tuple[str, Value]] | None:
    """The pairs of a header block, or None when it is not one."""
    try:
        text = block.decode()
    except UnicodeDecodeError:
        return None
    if text and not text.endswith("\n"):
        return None
    found: list[tuple[str, Value]] = []
    for line in text.split("\n")[:-1]:
        if ":" not in line:
            return None
        name, value = (unescape(part) for part in line.split(":", 1))
        if name is None or value is None or not 1 <= len(name.encode()) <= 255:
            return None
        found.append((name, Untyped(value)))
    return found if len(found) <= 1024 else None


def is_topic(data: bytes) -> bool:
    """Whether a message may be published to this topic."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    levels = text.split(".")
    if len(data) > 1024 or len(levels) > 64 or "" in levels or set(text) & set("*>"):
        return False
    return not any(is_unseen(character) for character in text)


# Default_Ignorable_Code_Point of Unicode 15.1 as far as its general category is not Cf, the blank of Braille, and the
# format characters that the oldest Python does not know.
IGNORABLE = [(0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065), (0x2800, 0x2800)]
IGNORABLE += [
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0xE0000, 0xE0FFF),
    (0x13430, 0x1343F),
]


def is_unseen(character: str) -> bool:
    """Whether a character is a blank, a control or format character, or one that is shown as nothing."""
    if character.isspace() or unicodedata.category(character) in ("Cc", "Cf"):
        return True
    return any(first <= ord(character) <= last for first, last in IGNORABLE)


def is_message(data: bytes) -> bool:
    """Whether these bytes are one encoded message."""
    if len(data) < 16 or data[:2] != b"\1\0":
        return False
    topic, attributes, headers, body = struct.unpack("<HIII", data[2:16])
    if 16 + topic + attributes + headers + body != len(data):
        return False
    if attributes > 256 * 1024 or headers > 64 * 1024 or body > 16 * 1024 * 1024:
        return False
    rest = data[16:]
    entries = read_block(rest[topic : topic + attributes])
    lines = read_lines(rest[topic + attributes : topic + attributes + headers])
    if not is_topic(rest[:topic]) or entries is None or lines is None:
        return False
    return len(entries) + len(lines) <= 1024
