"""Selectors: the JMS message-selector language, its meaning, and its normal form; and topic patterns.

>>> from postroad.selectors import Selector
>>> Selector.parse("stock = 'S1' AND price > 50").matches({"stock": "S1", "price": 60})
True
"""

from __future__ import annotations

from postroad.selectors.errors import SelectorError, TopicError
from postroad.selectors.mistakes import doubts, name_doubts, topic_doubts
from postroad.selectors.selector import Selector
from postroad.selectors.topics import TopicPattern, check_topic

__all__ = [
    "Selector",
    "SelectorError",
    "TopicError",
    "TopicPattern",
    "check_topic",
    "doubts",
    "name_doubts",
    "topic_doubts",
]
