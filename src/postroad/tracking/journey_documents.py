"""A journey as a document for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from postroad.messages import MessageId
    from postroad.tracking.answers import Answer, NamedSubscription
    from postroad.tracking.findings import Hit
    from postroad.tracking.reconstruction import Journey, Stop

__all__ = ["NamedJourney", "journey_document", "with_names"]


class NamedJourney(NamedTuple):
    """A journey and the names in it.

    Attributes:
        journey: where the message went.
        publisher: the name of the publisher; None if it is not known.
        subscriptions: (broker, number) -> who that is, as far as it is known.
    """

    journey: Journey
    publisher: str | None
    subscriptions: Mapping[tuple[int, int], NamedSubscription]


def with_names(journey: Journey, answers: Iterable[Answer]) -> NamedJourney:
    """The journey with the names that the answers have."""
    publisher = None
    subscriptions: dict[tuple[int, int], NamedSubscription] = {}
    for answer in answers:
        broker = answer.findings.broker
        if broker == journey.id.broker and answer.publisher is not None:
            publisher = answer.publisher
        subscriptions |= {(broker, one.number): one for one in answer.subscriptions}
    return NamedJourney(journey, publisher, subscriptions)


def journey_document(named: NamedJourney) -> dict[str, Any]:
    """The journey as JSON has it."""
    journey = named.journey
    return {
        "id": str(journey.id),
        "verdict": journey.verdict.value,
        "certainty": journey.certainty,
        "origin": _origin(journey.id, named.publisher),
        "stops": [_stop(stop, named) for stop in journey.stops],
        "lost": [hop._asdict() for hop in journey.lost],
        "open": [hop._asdict() for hop in journey.open],
        "pruned": [hop._asdict() for hop in journey.pruned],
        "gaps": [{"broker": broker, **gap._asdict()} for broker, gap in journey.gaps],
        "silent": list(journey.silent),
        "queries": journey.queries,
        "probes": journey.probes,
    }


def _origin(id: MessageId, publisher: str | None) -> dict[str, Any]:
    return {"broker": id.broker, "publisher": id.publisher, "name": publisher, "time": id.time, "counter": id.counter}


def _stop(stop: Stop, named: NamedJourney) -> dict[str, Any]:
    findings = stop.findings
    acknowledged = {hit.number for hit in findings.acknowledged}
    refused = {hit.number for hit in findings.refused}
    taken = {hit.number for hit in findings.delivered}
    return {
        "broker": stop.broker,
        "from": stop.parent,
        "depth": stop.depth,
        "recorded": stop.recorded,
        "doubt": stop.doubt,
        "window": list(stop.window),
        "delivered": [
            _subscription(stop, hit, named)
            | {"acknowledged": hit.number in acknowledged, "refused": hit.number in refused}
            for hit in findings.delivered
        ],
        "waiting": [_subscription(stop, hit, named) for hit in findings.queued if hit.number not in taken],
        "dropped": [drop._asdict() for drop in findings.dropped],
    }


def _subscription(stop: Stop, hit: Hit, named: NamedJourney) -> dict[str, Any]:
    known = named.subscriptions.get((stop.broker, hit.number))
    who = {} if known is None else {"name": known.principal, "topic": known.topic, "selector": known.selector}
    return {"subscription": hit.number, "doubt": hit.doubt, **who}
