"""From a draft of a message to the bytes of a SEND frame."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf
from typing import TYPE_CHECKING

from postroad.client.errors import ClientError
from postroad.errors import LimitError
from postroad.messages.headers import header_block
from postroad.messages.limits import DEFAULT_PRIORITY, MAX_BODY_BYTES
from postroad.messages.topics import topic_bytes
from postroad.messages.values import check_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from postroad.messages import Draft, Value

__all__ = [
    "OWN_HEADERS",
    "QUEUE_PREFIX",
    "TOPIC_PREFIX",
    "destination_of",
    "header_text",
    "send_frame",
    "with_headers",
]

TOPIC_PREFIX = "/topic/"
QUEUE_PREFIX = "/queue/"

# What these say belongs to the protocol: as attributes they would not arrive, or mean something else.
OWN_HEADERS = frozenset(
    {"destination", "content-length", "receipt", "transaction", "message-id", "subscription", "ack"}
)

# What an envelope has and a SEND cannot say.
_NOT_IN_STOMP = ("source", "flags", "metadata")


def header_text(name: str, value: Value) -> str:
    """A value as header text: numbers as a selector's literals, so that the broker compares them as numbers.

    Raises:
        ClientError: bytes and infinity have no text that a selector would read as the same value.
    """
    check_value(name, value)
    if isinstance(value, bytes):
        raise ClientError(f"attribute {name!r}: STOMP's headers are text, and bytes are none; send them as the body")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and isinf(value):
        raise ClientError(f"attribute {name!r}: infinity is not a number in a selector; leave the attribute out")
    return repr(value)


def destination_of(topic: str) -> str:
    """The destination of a topic; of a queue, whose name is written with `/queue/` before it.

    Raises:
        ClientError: a topic is written with `/topic/` before it, which would be a part of its name.
    """
    if topic.startswith(TOPIC_PREFIX):
        rest = topic.removeprefix(TOPIC_PREFIX)
        raise ClientError(f"{topic}: write {rest or 'the topic'} alone; the client adds {TOPIC_PREFIX} itself")
    return topic if topic.startswith(QUEUE_PREFIX) else TOPIC_PREFIX + topic


def send_frame(draft: Draft, receipt: str | None = None, transaction: str | None = None) -> bytes:
    """A SEND frame of STOMP 1.2.

    Raises:
        PostroadError: the topic, a name, a value or the body is not one that a broker would take.
    """
    if not isinstance(draft.body, bytes | bytearray | memoryview):
        raise ClientError(f"a body is bytes, not {type(draft.body).__name__}; encode it first")
    body = bytes(draft.body)
    if len(body) > MAX_BODY_BYTES:
        raise LimitError("the body of a message", len(body), MAX_BODY_BYTES, "bytes; send it in parts")
    for field in _NOT_IN_STOMP:
        if getattr(draft, field):
            raise ClientError(f"STOMP has no way to send a message's {field}; leave it out")
    own = [("destination", destination_of(topic_bytes(draft.topic).decode()))]
    own += [(name, text) for name, text in (("receipt", receipt), ("transaction", transaction)) if text is not None]
    if body:
        own.append(("content-length", str(len(body))))
    lines, _ = header_block([*own, *_user_headers(draft)])
    return _SEND + lines + b"\n" + body + b"\0\n"


_SEND = b"SEND\n"


def with_headers(frame: bytes, **headers: str | None) -> bytes:
    """A SEND frame with headers of the protocol put before its own; underscores become dashes, None is left out.

    They are known to need no escapes: numbers and ids.
    """
    lines = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items() if value is not None)
    return _SEND + lines.encode() + frame[len(_SEND) :]


def _user_headers(draft: Draft) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name, value in _pairs(draft):
        if name in OWN_HEADERS:
            raise ClientError(f"{name!r} is a header of the protocol itself; give the attribute another name")
        if name in seen:
            raise ClientError(f"{name!r} is given twice; only the first would count")
        seen.add(name)
        yield name, value


def _pairs(draft: Draft) -> Iterator[tuple[str, str]]:
    headers: Iterable[tuple[str, str]]
    headers = draft.headers.items() if isinstance(draft.headers, Mapping) else draft.headers
    yield from headers
    if draft.priority != DEFAULT_PRIORITY:
        yield "priority", str(draft.priority)
    if draft.expiry:
        yield "expires", str(draft.expiry)
    for name, value in draft.attributes.items():
        yield name, header_text(name, value)
