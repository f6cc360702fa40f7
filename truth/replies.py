"""What the record answered, in one form, whoever was asked: files, a running network, or Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from postroad.messages import MessageId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Reply", "reply_of_document", "reply_of_row"]

Claim = tuple[int, int]


class Reply(NamedTuple):
    """One answer.

    Attributes:
        source: who was asked: "files", "live" or "pipeline".
        id: the message.
        verdict: the answer in a word.
        certainty: how sure it claims to be.
        stops: the brokers it says the message passed, each with its doubt.
        delivered: (broker, subscription) it says got the message, each with its doubt.
        acknowledged: those of them that acknowledged.
        waiting: (broker, subscription) in whose queues it says the message waits.
        shed: (broker, subscription) whose queues it says did not take it.
        lost: (broker, neighbour, doubt): handed on, and never arrived.
        causes: why it cannot say more: gaps, brokers that are silent, files that cannot be read.
        names: who it says stands behind a subscription.
    """

    source: str
    id: MessageId
    verdict: str
    certainty: float
    stops: Mapping[int, float]
    delivered: Mapping[Claim, float]
    acknowledged: frozenset[Claim]
    waiting: frozenset[Claim]
    shed: frozenset[Claim]
    lost: tuple[tuple[int, int, float], ...]
    causes: tuple[str, ...]
    names: Mapping[Claim, str]


def reply_of_document(source: str, document: Mapping[str, Any], warnings: Iterable[str] = ()) -> Reply:
    """The JSON of `postroad trace`, from files or from a network."""
    delivered: dict[Claim, float] = {}
    names: dict[Claim, str] = {}
    acknowledged: set[Claim] = set()
    waiting: set[Claim] = set()
    shed: set[Claim] = set()
    for stop in document["stops"]:
        for one in stop["delivered"]:
            claim = stop["broker"], one["subscription"]
            delivered[claim] = one["doubt"]
            if one.get("name"):
                names[claim] = one["name"]
            if one["acknowledged"]:
                acknowledged.add(claim)
        waiting |= {(stop["broker"], one["subscription"]) for one in stop["waiting"]}
        shed |= {(stop["broker"], drop["subscription"]) for drop in stop["dropped"] if drop["subscription"]}
    return Reply(
        source,
        MessageId.parse(document["id"]),
        document["verdict"],
        document["certainty"],
        {stop["broker"]: stop["doubt"] for stop in document["stops"]},
        delivered,
        frozenset(acknowledged),
        frozenset(waiting),
        frozenset(shed),
        tuple((hop["broker"], hop["neighbour"], hop["doubt"]) for hop in document["lost"]),
        _causes(document, warnings),
        names,
    )


def reply_of_row(row: Mapping[str, Any], damaged: Iterable[str] = ()) -> Reply:
    """A row of what `postroad pipeline trace` writes."""
    identity = MessageId(row["publisher"], row["origin"], row["time"], row["counter"])
    return Reply(
        "pipeline",
        identity,
        row["verdict"],
        row["certainty"],
        dict.fromkeys(row["brokers"] or (), 0.0),
        {(one["broker"], one["subscription"]): one["doubt"] for one in row["delivered"] or ()},
        frozenset((one["broker"], one["subscription"]) for one in row["acknowledged"] or ()),
        frozenset(),
        frozenset(),
        tuple((hop["broker"], hop["neighbour"], hop["doubt"]) for hop in row["lost"] or ()),
        _causes(row, damaged),
        {},
    )


def _causes(answer: Mapping[str, Any], unreadable: Iterable[str]) -> tuple[str, ...]:
    gaps = [f"broker {gap['broker']}: {gap['reason']}" for gap in answer["gaps"] or ()]
    silent = [f"broker {broker} is silent" for broker in answer["silent"] or ()]
    return (*dict.fromkeys(gaps), *silent, *unreadable)
