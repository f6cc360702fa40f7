"""The `ack` header of a MESSAGE: the message id and the subscription's number, so that decoding it needs no table."""

from __future__ import annotations

import re

from postroad.errors import PostroadError
from postroad.messages import MessageId
from postroad.messages.fields import ID_TEXT_BYTES

__all__ = ["ACK_TEXT_BYTES", "parse_ack"]

# A dash and eight hexadecimal digits follow the id: a fixed size, for the kernel that writes it.
ACK_TEXT_BYTES = ID_TEXT_BYTES + 9
_NUMBER = re.compile(r"-([0-9a-f]{8})")


def parse_ack(text: str) -> tuple[MessageId, int]:
    """Decode an `ack` header; raises `PostroadError` for a text that no MESSAGE can have."""
    found = _NUMBER.fullmatch(text, ID_TEXT_BYTES)
    if found is None:
        raise PostroadError(f"{text[:60]!r} is not the ack header of a MESSAGE; send back the one that came with it")
    return MessageId.parse(text[:ID_TEXT_BYTES]), int(found[1], 16)
