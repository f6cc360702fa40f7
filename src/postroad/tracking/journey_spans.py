"""A journey as OpenTelemetry spans: what exporters send, in the JSON form of OTLP (`ExportTraceServiceRequest`).

The record knows which brokers a message passed and when it entered, not when it passed each of them. So all spans of a
journey begin at the time in the message's id, and have no length; what says a time of its own (a drop) has that one.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from postroad.messages import MessageId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["TraceContext", "journey_spans"]

# W3C Trace Context, version 00: version-trace id-parent id-flags. Ids of zeros only are not valid.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")

# Of the enumerations of OTLP.
_INTERNAL, _PRODUCER, _CONSUMER = 1, 4, 5
_OK, _ERROR = 1, 2
_NANOSECONDS = 1_000_000


class TraceContext(NamedTuple):
    """What a `traceparent` header names: the trace, and the span that published the message; both hexadecimal."""

    trace: str
    span: str

    @classmethod
    def parse(cls, text: str) -> TraceContext | None:
        """What a header says; None if it is not a `traceparent`."""
        found = _TRACEPARENT.fullmatch(text.strip().lower())
        return None if found is None else cls(*found.groups())


def journey_spans(journeys: Iterable[tuple[Mapping[str, Any], TraceContext | None]], version: str) -> dict[str, Any]:
    """What an exporter sends to `/v1/traces`.

    Args:
        journeys: journeys as `journey_document` returns them, each with the context of its publisher; without one, the
            128 bits of the message's id are the trace id.
        version: of Postroad.
    """
    by_broker: dict[int, list[dict[str, Any]]] = {}
    for document, context in journeys:
        for broker, span in _spans(document, context):
            by_broker.setdefault(broker, []).append(span)
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": _attributes(
                        {
                            "service.name": "postroad",
                            "service.version": version,
                            "service.instance.id": f"broker-{broker}",
                        }
                    )
                },
                "scopeSpans": [{"scope": {"name": "postroad.trace", "version": version}, "spans": spans}],
            }
            for broker, spans in sorted(by_broker.items())
        ]
    }


def _spans(document: Mapping[str, Any], context: TraceContext | None) -> Iterable[tuple[int, dict[str, Any]]]:
    message = MessageId.parse(document["id"])
    trace = str(message).replace("-", "") if context is None else context.trace
    made = _Maker(trace, str(message), message.time)
    root = made.span(
        "send",
        "" if context is None else context.span,
        _PRODUCER,
        {
            "messaging.system": "postroad",
            "messaging.operation.type": "send",
            "messaging.client.id": document["origin"]["name"] or f"publisher {message.publisher}",
            "postroad.verdict": document["verdict"],
            "postroad.certainty": float(document["certainty"]),
            "postroad.gaps": len(document["gaps"]),
        },
    )
    yield message.broker, root
    at = {0: root["spanId"]}
    for stop in document["stops"]:
        broker = int(stop["broker"])
        parent = at.get(int(stop["from"]), root["spanId"])
        passed = made.span(
            f"broker {broker}",
            parent,
            _INTERNAL,
            {"postroad.broker": broker, "postroad.recorded": bool(stop["recorded"]), "postroad.doubt": stop["doubt"]},
        )
        at[broker] = passed["spanId"]
        yield broker, passed
        for span in _ends(made, stop, passed["spanId"]):
            yield broker, span
    for hop in document["lost"]:
        parent = at.get(int(hop["broker"]), root["spanId"])
        text = f"lost between broker {hop['broker']} and broker {hop['neighbour']}"
        yield int(hop["broker"]), made.span(text, parent, _INTERNAL, {"postroad.doubt": hop["doubt"]}, error=text)


def _ends(made: _Maker, stop: Mapping[str, Any], parent: str) -> Iterable[dict[str, Any]]:
    """What became of the message at one broker."""
    broker = stop["broker"]
    for one in stop["delivered"]:
        yield made.span(
            f"deliver {broker}/{one['subscription']}",
            parent,
            _CONSUMER,
            {
                "messaging.operation.type": "process",
                **_about(one),
                "postroad.acknowledged": bool(one["acknowledged"]),
                "postroad.refused": bool(one["refused"]),
            },
            status=_OK,
        )
    for one in stop["waiting"]:
        yield made.span(f"waiting {broker}/{one['subscription']}", parent, _INTERNAL, _about(one))
    for drop in stop["dropped"]:
        name = f"dropped {broker}/{drop['link'] or drop['subscription']}: {drop['reason']}"
        yield made.span(name, parent, _INTERNAL, {}, error=drop["reason"], time=int(drop["at"]))


def _about(one: Mapping[str, Any]) -> dict[str, Any]:
    named = {"messaging.client.id": "name", "messaging.destination.name": "topic", "postroad.selector": "selector"}
    known = {key: one[field] for key, field in named.items() if one.get(field)}
    return {"messaging.destination.subscription.name": str(one["subscription"]), **known}


class _Maker:
    """Makes the spans of one journey: a second export makes the same."""

    def __init__(self, trace: str, message: str, time: int) -> None:
        self._trace = trace
        self._message = message
        self._time = time

    def span(
        self,
        name: str,
        parent: str,
        kind: int,
        attributes: Mapping[str, Any],
        status: int = 0,
        error: str = "",
        time: int = 0,
    ) -> dict[str, Any]:
        nanoseconds = str((time or self._time) * _NANOSECONDS)
        ended = {"code": _ERROR, "message": error} if error else {"code": status}
        return {
            "traceId": self._trace,
            "spanId": hashlib.sha256(f"{self._message}\0{parent}\0{name}".encode()).hexdigest()[:16],
            **({"parentSpanId": parent} if parent else {}),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": nanoseconds,
            "endTimeUnixNano": nanoseconds,
            "attributes": _attributes({"messaging.message.id": self._message, **attributes}),
            "status": ended,
        }


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        # 64 bits are text in the JSON form of protocol buffers.
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}
