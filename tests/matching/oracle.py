"""The slow truth that the index must equal: every selector on every message, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.selectors import Selector, TopicPattern

if TYPE_CHECKING:
    from collections.abc import Hashable

    from postroad.matching import SubscriptionIndex
    from postroad.messages import Batch


class OneByOne:
    """Subscriptions in a dictionary, evaluated by the reference semantics of the selectors room."""

    def __init__(self) -> None:
        self.subscriptions: dict[Hashable, tuple[Selector | None, TopicPattern | None]] = {}

    def add(self, key: Hashable, selector: str | None, topic: str | None) -> None:
        self.subscriptions[key] = (
            None if selector is None else Selector.parse(selector),
            None if topic is None else TopicPattern.parse(topic),
        )

    def remove(self, key: Hashable) -> None:
        del self.subscriptions[key]

    def match(self, batch: Batch) -> list[set[Hashable]]:
        found = []
        for message in batch:
            attributes = message.selectable()
            found.append(
                {
                    key
                    for key, (selector, topic) in self.subscriptions.items()
                    if (topic is None or topic.matches(message.topic))
                    and (selector is None or selector.matches(attributes))
                }
            )
        return found


def matched(index: SubscriptionIndex, batch: Batch) -> list[set[Hashable]]:
    """What the index says, as sets of keys; fails when a key is reported twice."""
    offsets, slots = index.match(batch)
    assert len(offsets) == len(batch) + 1
    found = []
    for row in range(len(batch)):
        keys = index.keys(slots[offsets[row] : offsets[row + 1]].tolist())
        assert len(keys) == len(set(keys)), f"row {row} reports a subscription twice"
        found.append(set(keys))
    assert offsets[-1] == len(slots)
    return found
