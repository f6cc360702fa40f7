"""The faults that the scanning kernel finds: as numbers, which kernels can return, and as sentences for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.messages import faults as message_faults
from postroad.messages.limits import MAX_HEADER_BYTES as MAX_STORED_HEADER_BYTES
from postroad.messages.limits import MAX_NAME_BYTES
from postroad.protocols.stomp.limits import (
    MAX_BODY_BYTES,
    MAX_CONNECT_HEADER_BYTES,
    MAX_CONNECT_HEADERS,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
)

if TYPE_CHECKING:
    from postroad.protocols.stomp.limits import StompLimits

FINE = 0
# Not a fault: the frame continues in a later read.
UNFINISHED = 1
COMMAND_LONG = 2
COMMAND_UNKNOWN = 3
HEADER_BYTES = 4
HEADER_COUNT = 5
NO_COLON = 6
NAME_EMPTY = 7
NAME_LONG = 8
BAD_ESCAPE = 9
BARE_RETURN = 10
NUL_IN_HEADERS = 11
LENGTH_NO_NUMBER = 12
BODY_BYTES = 13
BODY_NO_NUL = 14
BODY_UNEXPECTED = 15
NO_DESTINATION = 16
BAD_DESTINATION = 17
NOT_UTF8 = 18
STORED_LONG = 19
# From here on: a fault of the topic, as the messages room numbers it.
TOPIC = 100

_TEXTS = {
    COMMAND_LONG: "the command has more than {command_bytes} bytes (limit MAX_COMMAND_BYTES); a frame starts with a "
    "command and a line end",
    COMMAND_UNKNOWN: "this is not a command of a STOMP client; a frame starts with a command in capitals and an LF",
    HEADER_BYTES: "the header lines have more than {header_bytes:,} bytes ({header_limit}); put large values "
    "in the body",
    HEADER_COUNT: "there are more than {headers:,} header lines ({count_limit})",
    NO_COLON: "a header line has no colon; write name:value, and an empty line before the body",
    NAME_EMPTY: "a header line has no name before its colon",
    NAME_LONG: f"the name of a header has more than {MAX_NAME_BYTES} bytes (limit MAX_NAME_BYTES)",
    BAD_ESCAPE: r"a backslash in a header line begins no escape of this version (1.1: \\ \c \n; 1.2: also \r)",
    BARE_RETURN: r"a header line holds a carriage return that does not end it; write \r",
    NUL_IN_HEADERS: "a NUL stands among the header lines; an empty line comes before the body, also when it is empty",
    LENGTH_NO_NUMBER: "content-length is not a number of bytes; write decimal digits, or leave it out for text",
    BODY_BYTES: "the body has more than {body_bytes:,} bytes ({body_limit}); send it in parts",
    BODY_NO_NUL: "no NUL follows where content-length says the body ends; count bytes, not characters",
    BODY_UNEXPECTED: "only SEND has a body; this frame must not have one",
    NO_DESTINATION: "SEND needs a destination header, such as destination:/topic/news.sport",
    BAD_DESTINATION: "this destination is not served here; destinations start with /topic/ or /queue/, such as "
    "/topic/news.sport",
    NOT_UTF8: "a header line is not UTF-8",
    STORED_LONG: f"the header lines have more than {MAX_STORED_HEADER_BYTES:,} bytes when escaped as in STOMP 1.2 "
    "(limit MAX_HEADER_BYTES)",
}

_CONNECT_TEXTS = {
    HEADER_BYTES: "the header lines of the first frame have more than {header_bytes:,} bytes ({header_limit})",
    HEADER_COUNT: "the first frame has more than {headers:,} header lines ({count_limit})",
}
# Fields of the limits that a broker can set lower, and the constants that hold otherwise.
_CONSTANTS = {
    "header_bytes": ("MAX_HEADER_BYTES", MAX_HEADER_BYTES),
    "headers": ("MAX_HEADERS", MAX_HEADERS),
    "body_bytes": ("MAX_BODY_BYTES", MAX_BODY_BYTES),
}
_CONNECT_CONSTANTS = {
    "header_bytes": ("MAX_CONNECT_HEADER_BYTES", MAX_CONNECT_HEADER_BYTES),
    "headers": ("MAX_CONNECT_HEADERS", MAX_CONNECT_HEADERS),
}


def text_of(fault: int, limits: StompLimits, is_first: bool = False) -> str:
    """Return what is wrong and what to do about it; `is_first` if the connection has no version yet."""
    if fault > TOPIC:
        reason = message_faults.decode_error(fault - TOPIC, 0, 0).reason
        return f"the topic in the destination: {reason}"
    text = _CONNECT_TEXTS.get(fault, _TEXTS[fault]) if is_first else _TEXTS[fault]
    return text.format(
        command_bytes=limits.command_bytes,
        header_bytes=limits.header_bytes,
        headers=limits.headers,
        body_bytes=limits.body_bytes,
        header_limit=_name_of("header_bytes", limits, is_first),
        count_limit=_name_of("headers", limits, is_first),
        body_limit=_name_of("body_bytes", limits, is_first),
    )


def _name_of(field: str, limits: StompLimits, is_first: bool) -> str:
    """Return which limit it is that holds: the constant, or the broker's setting if that is lower."""
    constant, most = (_CONNECT_CONSTANTS if is_first else _CONSTANTS).get(field, _CONSTANTS[field])
    return f"limit {constant}" if getattr(limits, field) >= most else f"setting frames.{field}"
