"""A journey as OpenTelemetry spans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from postroad.messages import MessageId
from postroad.tracking import TraceContext, journey_spans

MESSAGE = MessageId(7, 1, 1_700_000_000_123, 4)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def journey() -> dict[str, Any]:
    """Published at broker 1, delivered at broker 2, lost on the way to broker 3, shed at broker 2."""
    taken = {"subscription": 5, "doubt": 0.0, "name": "ann", "topic": "a.>", "selector": "price > 5"}
    return {
        "id": str(MESSAGE),
        "verdict": "lost after hop",
        "certainty": 1,
        "origin": {"broker": 1, "publisher": 7, "name": None, "time": MESSAGE.time, "counter": 4},
        "stops": [
            {"broker": 1, "from": 0, "recorded": True, "doubt": 0.0, "delivered": [], "waiting": [], "dropped": []},
            {
                "broker": 2,
                "from": 1,
                "recorded": True,
                "doubt": 0.0,
                "delivered": [{**taken, "acknowledged": True, "refused": False}],
                "waiting": [{"subscription": 6, "doubt": 0.0}],
                "dropped": [{"subscription": 8, "link": 0, "reason": "queue full", "at": MESSAGE.time + 2}],
            },
        ],
        "lost": [{"broker": 1, "neighbour": 3, "doubt": 0.0}],
        "gaps": [],
    }


def spans(request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = [span for one in request["resourceSpans"] for scope in one["scopeSpans"] for span in scope["spans"]]
    assert len({span["spanId"] for span in found}) == len(found)
    return {span["name"]: span for span in found}


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_spans_follow_the_way_of_the_message() -> None:
    request = journey_spans([(journey(), None)], "1.2")
    assert json.loads(json.dumps(request)) == request
    found = spans(request)
    root = found["send"]
    assert root["traceId"] == "0000000700000001018bcfe5687b0004"
    assert "parentSpanId" not in root
    assert attributes(root)["postroad.verdict"] == "lost after hop"
    assert attributes(root)["messaging.client.id"] == "publisher 7"
    assert found["broker 1"]["parentSpanId"] == root["spanId"]
    assert found["broker 2"]["parentSpanId"] == found["broker 1"]["spanId"]
    delivered = found["deliver 2/5"]
    assert (delivered["parentSpanId"], delivered["kind"]) == (found["broker 2"]["spanId"], 5)
    assert attributes(delivered)["postroad.acknowledged"] is True
    assert attributes(delivered)["messaging.destination.name"] == "a.>"
    assert found["waiting 2/6"]["status"] == {"code": 0}
    shed = found["dropped 2/8: queue full"]
    assert shed["status"] == {"code": 2, "message": "queue full"}
    assert shed["startTimeUnixNano"] == str((MESSAGE.time + 2) * 1_000_000)
    assert found["lost between broker 1 and broker 3"]["status"]["code"] == 2
    for span in found.values():
        assert (len(span["traceId"]), len(span["spanId"])) == (32, 16)
        assert int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"])
    instances = [
        one["value"]["stringValue"]
        for each in request["resourceSpans"]
        for one in each["resource"]["attributes"]
        if one["key"] == "service.instance.id"
    ]
    assert instances == ["broker-1", "broker-2"]


def test_spans_belong_to_the_trace_of_their_publisher_and_are_the_same_each_time() -> None:
    context = TraceContext.parse(PARENT)
    assert context == TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    request = journey_spans([(journey(), context)], "1.2")
    assert request == journey_spans([(journey(), context)], "1.2")
    found = spans(request)
    assert {span["traceId"] for span in found.values()} == {"0af7651916cd43dd8448eb211c80319c"}
    assert found["send"]["parentSpanId"] == "b7ad6b7169203331"


@pytest.mark.parametrize(
    "text",
    [
        "",
        str(MESSAGE),
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
    ],
)
def test_what_is_no_traceparent_is_none(text: str) -> None:
    assert TraceContext.parse(text) is None
