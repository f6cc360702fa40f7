"""Trails of brokers with subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.lab.trails import Scale
from postroad.lab.trails.histories import filters_of
from postroad.messages import MessageId
from postroad.tracking import SubscriptionChanges
from postroad.trail import DAY_MS
from tests.trail.samples import NOON, passages, short, wide

if TYPE_CHECKING:
    from postroad.tracking import FilterSegment


MINUTE = 60_000


MIDNIGHT = NOON + DAY_MS // 2


ANN = 5


def attached(at: int) -> SubscriptionChanges:
    return SubscriptionChanges(wide([ANN]), wide([at]), short([1]), ["ann"], ["news"], [""])


def filters(message: MessageId) -> list[FilterSegment]:
    """What says that a message entered at broker 1, and that ann got it."""
    passed = passages([(1, message.time, message.publisher, message.counter)], delivered=[[ANN]])
    return list(filters_of(passed, 1, Scale(recorder="bloom"), message.time, message.time))


def sent(at: int) -> MessageId:
    return MessageId(7, 1, at, 0)
