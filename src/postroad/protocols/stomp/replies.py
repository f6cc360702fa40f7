"""Encodes the server's single frames: all except MESSAGE, of which only the beginning is made here."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from postroad.protocols.stomp.header_escapes import header_lines
from postroad.protocols.stomp.versions import Version

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HEART_BEAT", "connected_frame", "error_frame", "message_prefix", "receipt_frame"]

HEART_BEAT = b"\n"
"""What either side sends if it has nothing else to send."""

# Clients show the `message` header in one line; a longer text continues in the body.
MAX_MESSAGE_CHARACTERS = 500

_NOTHING: Mapping[str, str] = MappingProxyType({})
_END = b"\n\0\n"


def connected_frame(
    version: Version,
    *,
    server: str | None = None,
    session: str | None = None,
    heart_beat: tuple[int, int] = (0, 0),
    headers: Mapping[str, str] = _NOTHING,
) -> bytes:
    """Return the reply to CONNECT. Its headers are not escaped in any version."""
    pairs = [("version", str(version))]
    if version is not Version.V1_0:
        pairs.append(("heart-beat", f"{heart_beat[0]},{heart_beat[1]}"))
    pairs += [(name, value) for name, value in (("server", server), ("session", session)) if value is not None]
    return b"CONNECTED\n" + header_lines([*pairs, *headers.items()], None) + _END


def receipt_frame(receipt: bytes, version: Version, headers: Mapping[str, str] = _NOTHING) -> bytes:
    """Return the reply to a frame that asked for a receipt; `receipt` is as it was on the wire."""
    return b"RECEIPT\nreceipt-id:" + receipt + b"\n" + header_lines(headers.items(), version) + _END


def error_frame(
    text: str,
    version: Version | None,
    *,
    details: str = "",
    receipt: bytes | None = None,
    headers: Mapping[str, str] = _NOTHING,
) -> bytes:
    """Return the last frame of a connection: what is wrong, with details in the body.

    Args:
        text: in one line; if it is too long for a header, the rest goes to the body.
        version: the version agreed on; None before.
        details: the body, for people.
        receipt: the receipt that the frame at fault asked for, as it was on the wire.
        headers: more headers, such as `version` if there is no common one.
    """
    short = text if len(text) <= MAX_MESSAGE_CHARACTERS else text[: MAX_MESSAGE_CHARACTERS - 3] + "..."
    body = (details if short == text else f"{text}\n{details}").encode("utf-8", "replace")
    pairs = [("message", short), *headers.items(), ("content-type", "text/plain"), ("content-length", str(len(body)))]
    # A connection without a version gets lines that are the same in all versions, as far as possible.
    lines = header_lines(pairs, version or Version.V1_0)
    confirmed = b"" if receipt is None else b"receipt-id:" + receipt + b"\n"
    return b"ERROR\n" + confirmed + lines + b"\n" + body + b"\0\n"


def message_prefix(subscription: str | None, version: Version) -> bytes:
    """Return the beginning of the MESSAGE frames of a subscription; None is for one without an id, as in 1.0."""
    pairs = [] if subscription is None else [("subscription", subscription)]
    return b"MESSAGE\n" + header_lines(pairs, version)
