"""What the index is measured against: asking each subscription about each message, one Python function per selector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroad.selectors import Selector, TopicPattern
from postroad.selectors.generated_code import generate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from postroad.lab.workloads import SubscriptionSpec
    from postroad.messages import Batch, Value

# A message as the functions take it: decoded once, the topic cut into its levels once.
Decoded = tuple[dict[str, "Value"], tuple[str, ...]]


class OneByOne:
    """Subscriptions as generated functions, numbered from 0."""

    def __init__(self, subscriptions: Iterable[SubscriptionSpec]) -> None:
        self._entries: list[tuple[int, Callable[..., bool] | None, Callable[..., bool] | None]] = [
            (
                key,
                None if topic is None else topic_test(TopicPattern.parse(topic)),
                None if selector is None else generate(Selector.parse(selector)),
            )
            for key, (selector, topic) in enumerate(subscriptions)
        ]
        self._functions = [(key, wants) for key, topic, wants in self._entries if topic is None and wants is not None]
        self._plain = len(self._functions) == len(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def matches(self, message: Decoded) -> list[int]:
        """The numbers of the subscriptions that want a message, in order."""
        attributes, levels = message
        if self._plain:
            return [key for key, wants in self._functions if wants(attributes)]
        return [
            key
            for key, topic, wants in self._entries
            if (topic is None or topic(levels)) and (wants is None or wants(attributes))
        ]


def decoded(batch: Batch) -> list[Decoded]:
    """The messages of a batch as mappings."""
    return [(message.selectable(), tuple(message.topic.split("."))) for message in batch]


def topic_test(pattern: TopicPattern) -> Callable[[tuple[str, ...]], bool]:
    """A function generated for a topic pattern, quicker than `TopicPattern.matches`, which cuts the topic each time."""
    levels = pattern.levels
    size = f"len(t) >= {len(levels)}" if levels[-1] == ">" else f"len(t) == {len(levels)}"
    tests = [f"t[{place}] == {level!r}" for place, level in enumerate(levels) if level not in ("*", ">")]
    names: dict[str, Any] = {}
    exec(f"def wants(t):\n    return {' and '.join([size, *tests])}\n", names)
    wants: Callable[[tuple[str, ...]], bool] = names["wants"]
    return wants
