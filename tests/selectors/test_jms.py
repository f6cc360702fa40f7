"""The derived JMS names, as selectors see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.messages import MessageId, Untyped
from postroad.messages.attributes import derived
from postroad.selectors import Selector

if TYPE_CHECKING:
    from postroad.messages import Value

ID = MessageId(publisher=1, broker=2, time=1_700_000_000_000, counter=3)


@pytest.mark.parametrize(
    "text",
    [
        "JMSPriority = 4",
        "JMSTimestamp BETWEEN 1699999999999 AND 1700000000001",
        "JMSMessageID LIKE '00000001-00000002-%'",
        "JMSCorrelationID = 17 AND JMSCorrelationID = '17'",
        "JMSType = 'order'",
        "price = 5 AND JMSReplyTo IS NULL",
    ],
)
def test_selector_sees_the_derived_names(text: str) -> None:
    attributes: dict[str, Value] = {"correlation-id": Untyped("17"), "type": "order", "price": 5}
    assert Selector.parse(text).matches(derived(attributes, ID, 4))


def test_client_cannot_forge_a_derived_name() -> None:
    forged: dict[str, Value] = {"JMSPriority": 9, "JMSCorrelationID": "x", "JMSType": "x"}
    selector = Selector.parse("JMSPriority = 9 OR JMSCorrelationID IS NOT NULL OR JMSType IS NOT NULL")
    assert selector.matches(forged)
    assert not selector.matches(derived(forged, ID, 4))
