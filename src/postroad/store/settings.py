"""The settings of a store, with their reasons."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = ["StoreSettings"]

Some = Annotated[int, msgspec.Meta(ge=1)]


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a store keeps its promises, and how much it keeps.

    Attributes:
        fsync: when what is written is forced to disk: "always" before a receipt is given, "interval" every
            `interval_ms`, or "never", which leaves it to the operating system. Receipts wait for the write in all
            three, so the end of the process alone loses nothing.
        interval_ms: at most so much is lost with "interval" when the machine fails.
        segment_bytes: a segment is closed at this size. Disk space comes back by whole segments, and a checkpoint is
            written for each.
        max_bytes: what all segments may take together.
        subscription_bytes: what one subscription may have in the store, give or take; then `at_limit` counts.
        at_limit: what happens then, and when the store is nearly full: "push-back" pauses the publishers on this broker
            whose messages it is, "drop-oldest" gives up an eighth of what waits for the subscription, and "stop" ends
            the matching of a durable subscription until its client subscribes again. What cannot be paused, such as
            another broker, makes a subscription drop its oldest.
        max_age_seconds: what has waited longer is given up; 0 keeps it.
        cache_bytes: what is kept in memory of records that were written or read lately.
    """

    fsync: Literal["always", "interval", "never"] = "always"
    interval_ms: Some = 1_000
    segment_bytes: Annotated[int, msgspec.Meta(ge=4096, le=2**30)] = 64 * 1024 * 1024
    max_bytes: Annotated[int, msgspec.Meta(ge=128 * 1024 * 1024)] = 16 * 1024 * 1024 * 1024
    subscription_bytes: Some = 4 * 1024 * 1024 * 1024
    at_limit: Literal["push-back", "drop-oldest", "stop"] = "push-back"
    max_age_seconds: Annotated[int, msgspec.Meta(ge=0)] = 0
    cache_bytes: Some = 64 * 1024 * 1024
