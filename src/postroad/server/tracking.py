"""The settings of tracking: where messages went, and by which names people know them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from postroad.broker import DEFAULT_SKEW_TOLERANCE_MS
from postroad.messages.limits import MAX_NAME_BYTES

__all__ = ["TrackingConfig"]


class TrackingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a broker keeps of the messages that passed.

    Attributes:
        recorder: "auto" is "exact" where pyarrow is installed, else "none". docs/tracking.md says when to choose which.
        trail: the directory of the record; by default `trail` in the broker's data directory.
        persist_seconds: the record is written at least so often; a crash loses no more, without a journal.
        memory_bytes: what the recorder may hold; above, it writes sooner. As much again may wait for a disk.
        effective_error: the error rate of filters, for all that cover one id together.
        method: what a sealed history becomes.
        layout: "paper" keeps a history for each subscriber and neighbour, as the paper does, at far more bytes.
        forwarding: "sets" keeps one key for all neighbours that a message was handed to, instead of one for each; a
            question then probes every set of neighbours.
        hold_seconds: `bloom`: how long the brokers that messages come from keep their filters open. Where that is
            longer than persist_seconds, a filter is stored, kept open, and stored again.
        journal: write the record down before a receipt is given, so that a crash loses nothing that has one.
        keep_days: delete records older than this; 0 keeps all.
        keep_bytes: delete the oldest records above this size; 0 keeps all.
        skew_tolerance_ms: how far the time of an id that a client gives may be from the broker's clock. Beyond it the
            message is accepted, the id is recorded by itself, and the client is told the time.
        alias_attribute: the attribute, or header, that holds the name a message has in another system, such as
            "correlation-id"; none without.
    """

    recorder: Literal["auto", "none", "log", "exact", "bloom", "sealed"] = "auto"
    trail: str | None = None
    persist_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=86_400)] = 60.0
    memory_bytes: Annotated[int, msgspec.Meta(ge=1 << 16)] = 64 << 20
    effective_error: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 1e-5
    method: Literal["smallest", "bloom", "ribbon"] = "smallest"
    layout: Literal["shared", "paper"] = "shared"
    forwarding: Literal["keys", "sets"] = "keys"
    hold_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    journal: bool = False
    keep_days: Annotated[int, msgspec.Meta(ge=0)] = 0
    keep_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    skew_tolerance_ms: Annotated[int, msgspec.Meta(ge=0)] = DEFAULT_SKEW_TOLERANCE_MS
    alias_attribute: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_BYTES)] | None = None
