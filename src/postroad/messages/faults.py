"""The faults that decoding kernels find: as numbers, which kernels can return, and as sentences for people."""

from __future__ import annotations

from postroad.messages.errors import DecodeError
from postroad.messages.limits import (
    MAX_ATTRIBUTE_BYTES,
    MAX_ATTRIBUTES,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    MAX_METADATA_BYTES,
    MAX_NAME_BYTES,
    MAX_TOPIC_BYTES,
    MAX_TOPIC_LEVELS,
)

FINE = 0
BEYOND_BUFFER = 1
SHORT_PREFIX = 2
VERSION = 3
RESERVED = 4
LENGTH_SUM = 5
TOPIC_LONG = 6
ATTRIBUTES_LONG = 7
HEADERS_LONG = 8
BODY_LONG = 9
TOPIC_EMPTY_LEVEL = 10
TOPIC_WILDCARD = 11
TOPIC_BLANK = 12
TOPIC_LEVELS = 13
NOT_UTF8 = 14
ENTRY_CUT = 15
NAME_EMPTY = 16
TAG_UNKNOWN = 17
TAG_RESERVED = 18
VALUE_SIZE = 19
FLOAT_NAN = 20
BOOLEAN_BYTE = 21
TOO_MANY = 22
LINE_END = 23
LINE_COLON = 24
LINE_BYTE = 25
LINE_ESCAPE = 26
NAME_LONG = 27
METADATA_LONG = 28
FLAGS_UNKNOWN = 29
EXPIRY_RANGE = 30
SPAN_RANGE = 31

_TEXTS = {
    BEYOND_BUFFER: "the buffer ends before what the lengths announce",
    SHORT_PREFIX: "an encoded message has at least the 16 bytes of its prefix",
    VERSION: "this version of the encoded message is unknown; version 1 is read here, a newer sender must speak it",
    RESERVED: "a reserved byte is not 0",
    LENGTH_SUM: "the prefix and the four lengths in it do not add up to the length of the message",
    TOPIC_LONG: f"the topic has more than {MAX_TOPIC_BYTES:,} bytes",
    ATTRIBUTES_LONG: f"the attribute block has more than {MAX_ATTRIBUTE_BYTES:,} bytes",
    HEADERS_LONG: f"the header lines have more than {MAX_HEADER_BYTES:,} bytes",
    BODY_LONG: f"the body has more than {MAX_BODY_BYTES:,} bytes",
    TOPIC_EMPTY_LEVEL: "the topic is empty or has an empty level",
    TOPIC_WILDCARD: "the topic has a wildcard; wildcards are for subscriptions only",
    TOPIC_BLANK: "the topic holds a blank, or an invisible control or format character",
    TOPIC_LEVELS: f"the topic has more than {MAX_TOPIC_LEVELS} levels",
    NOT_UTF8: "this is not UTF-8",
    ENTRY_CUT: "an attribute entry goes beyond its block",
    NAME_EMPTY: "an attribute or a header has no name",
    TAG_UNKNOWN: "no attribute type has this tag",
    TAG_RESERVED: "this attribute tag is reserved for later versions (0x80 and up); version 1 cannot read it",
    VALUE_SIZE: "an integer or a float has 8 bytes and a boolean 1; this one has another size",
    FLOAT_NAN: "a float attribute is NaN",
    BOOLEAN_BYTE: "a boolean is neither 0 nor 1",
    TOO_MANY: f"there are more than {MAX_ATTRIBUTES:,} attributes",
    LINE_END: "the last header line does not end in a newline",
    LINE_COLON: "a header line has no colon",
    LINE_BYTE: "a header line holds a bare carriage return or a NUL",
    LINE_ESCAPE: r"a backslash in a header line is followed by none of \ c n r",
    NAME_LONG: f"a header's name has more than {MAX_NAME_BYTES} bytes",
    METADATA_LONG: f"the metadata has more than {MAX_METADATA_BYTES:,} bytes",
    FLAGS_UNKNOWN: "an envelope flag is set that this version does not know",
    EXPIRY_RANGE: "an expiry is beyond the year 292 million",
    SPAN_RANGE: "a span does not lie inside the batch's buffer",
}


def decode_error(fault: int, row: int, offset: int) -> DecodeError:
    """Return the error for what a kernel returned."""
    return DecodeError(_TEXTS[fault], row, offset)
