"""The settings of tracking: where messages went, and by which names people know them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from postroad.broker import DEFAULT_SKEW_TOLERANCE_MS
from postroad.messages.limits import MAX_NAME_BYTES

__all__ = ["TrackingConfig"]


class TrackingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a broker keeps of the messages that passed.

    Attributes:
        skew_tolerance_ms: how far the time of an id that a client gives may be from the broker's clock. Beyond it the
            message is accepted, the id is recorded by itself, and the client is told the time.
        alias_attribute: the attribute, or header, that holds the name a message has in another system, such as
            "correlation-id"; none without.
    """

    skew_tolerance_ms: Annotated[int, msgspec.Meta(ge=0)] = DEFAULT_SKEW_TOLERANCE_MS
    alias_attribute: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_BYTES)] | None = None
