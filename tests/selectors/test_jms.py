"""The derived JMS names."""

from __future__ import annotations

from postroad.messages import Untyped
from postroad.selectors import Selector
from postroad.selectors.jms import with_jms_names

ID = "00000001-00000002-018f00000000-0003"


def test_selector_sees_the_derived_names() -> None:
    attributes = {"correlation-id": Untyped("17"), "type": "order", "price": 5}
    seen = with_jms_names(attributes, priority=4, timestamp=1_700_000_000_000, message_id=ID)
    text = (
        "JMSPriority = 4 AND JMSTimestamp >= 1700000000000 AND JMSMessageID LIKE '00000001-%'"
        " AND JMSCorrelationID = 17 AND JMSType = 'order' AND price = 5"
    )
    assert Selector.parse(text).matches(seen)


def test_client_cannot_forge_a_derived_name() -> None:
    forged = {"JMSPriority": 9, "JMSTimestamp": 1, "JMSMessageID": "x", "JMSCorrelationID": "x", "JMSType": "x"}
    seen = with_jms_names(forged, priority=4, timestamp=2, message_id=ID)
    assert seen == {"JMSPriority": 4, "JMSTimestamp": 2, "JMSMessageID": ID}
