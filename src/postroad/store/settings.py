"""The settings of a store, with their reasons."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

__all__ = ["RetainedTopic", "StoreSettings"]

Some = Annotated[int, msgspec.Meta(ge=1)]
# Seconds in each unit of an age.
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE = re.compile(r"([1-9][0-9]{0,8})([smhd])")


class RetainedTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Messages that are kept after everybody has them, for subscribers who want to begin in the past.

    Attributes:
        topic: the pattern of their topics.
        age: how long they are kept, such as "7d", "12h", "30m" or "90s"; empty for no limit by age.
        bytes: how much is kept, give or take; 0 for no limit by bytes. Without either limit the store's own counts.
    """

    topic: str
    age: str = ""
    bytes: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        if self.age and _AGE.fullmatch(self.age) is None:
            raise ValueError(f"an age is a whole number and one of s, m, h, d, such as 7d; {self.age!r} is not")

    @property
    def age_ms(self) -> int:
        """The age in milliseconds; 0 for no limit."""
        found = _AGE.fullmatch(self.age)
        return 0 if found is None else int(found[1]) * _UNITS[found[2]] * 1_000


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
            the matching of a durable subscription until its client subscribes again. What cannot be paused makes a
            subscription drop its oldest. Other brokers keep what is refused here with "push-back"; with "stop", what
            waits here for durable subscriptions of another broker drops its oldest.
        max_age_seconds: what has waited longer is given up; 0 keeps it.
        cache_bytes: what is kept in memory of records that were written or read recently.
        retain: topics whose messages are kept for a while after everybody has them.
    """

    fsync: Literal["always", "interval", "never"] = "always"
    interval_ms: Some = 1_000
    segment_bytes: Annotated[int, msgspec.Meta(ge=4096, le=2**30)] = 64 * 1024 * 1024
    max_bytes: Annotated[int, msgspec.Meta(ge=128 * 1024 * 1024)] = 16 * 1024 * 1024 * 1024
    subscription_bytes: Some = 4 * 1024 * 1024 * 1024
    at_limit: Literal["push-back", "drop-oldest", "stop"] = "push-back"
    max_age_seconds: Annotated[int, msgspec.Meta(ge=0)] = 0
    cache_bytes: Some = 64 * 1024 * 1024
    retain: list[RetainedTopic] = []
