"""Is an answer right, honestly vague, vague without a cause, or wrong? Decided by what is known from outside."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from postroad.tracking import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from truth.facts import Fact, Reader
    from truth.replies import Claim, Reply

__all__ = ["SURE", "Class", "Judgement", "classify"]

# An answer that is less sure than this counts as vague: it says itself that it may be wrong.
SURE = 0.99

# What an answer may say that it does not know; each needs a cause.
VAGUE = frozenset(
    one.value for one in (Verdict.RECORDED_IN_PART, Verdict.NOT_RECORDED, Verdict.UNANSWERED, Verdict.OUTSIDE_RETENTION)
)
# Who says this claims to know all that became of the message.
WHOLE = frozenset(one.value for one in (Verdict.ACKNOWLEDGED, Verdict.DELIVERED, Verdict.MATCHED_NOBODY))
WHOLE_OR_WAITING = WHOLE | {Verdict.WAITING.value}


class Class(StrEnum):
    """What an answer is worth."""

    RIGHT = "right"
    VAGUE = "vague"  # it does not know, and says why
    CAUSELESS = "vague without cause"
    CHANCE = "false by chance"  # a filter erred; it had said that it might, and how often is counted
    WRONG = "wrong with certainty"


class Judgement(NamedTuple):
    """The class of an answer, and what is wrong with it."""

    kind: Class
    why: str = ""


def classify(reply: Reply, fact: Fact, roster: Mapping[Claim, str] | None = None) -> Judgement:
    """Hold an answer against the truth.

    Args:
        reply: the answer.
        fact: what is known from outside.
        roster: the login behind each subscription's number, where facts name readers by login.
    """
    lies = [*_lies(reply, fact, roster)]
    if lies:
        doubt, why = min(lies)
        return Judgement(Class.CHANCE if doubt > 0 else Class.WRONG, why)
    if reply.verdict in VAGUE:
        # Retention is its own cause: whoever deletes records on purpose knows.
        known = reply.causes or reply.verdict == Verdict.OUTSIDE_RETENTION.value
        return Judgement(Class.VAGUE) if known else Judgement(Class.CAUSELESS, f"{reply.verdict}, and no reason given")
    return Judgement(Class.RIGHT if reply.certainty >= SURE else Class.VAGUE)


def _lies(reply: Reply, fact: Fact, roster: Mapping[Claim, str] | None) -> Iterator[tuple[float, str]]:
    """(the doubt that the answer itself puts beside it, what is not true)."""
    told = {_reader(claim, roster): doubt for claim, doubt in reply.delivered.items()}
    yield from _about_entry(reply, fact)
    yield from _too_much(reply, fact, told, roster)
    if reply.certainty >= SURE:
        yield from _too_little(reply, fact, told)


def _reader(claim: Claim, roster: Mapping[Claim, str] | None) -> Reader:
    """A subscription as facts name it. Whoever is not in the roster stays a number, and no fact is about it."""
    return claim if roster is None or claim not in roster else (claim[0], roster[claim])


def _about_entry(reply: Reply, fact: Fact) -> Iterator[tuple[float, str]]:
    if fact.entered is False and reply.stops:
        doubt = min(reply.stops.values())
        if reply.source == "pipeline":
            # Its rows give no doubt for each broker: what the verdict leaves open is the nearest to it.
            doubt = 1 - reply.certainty
        yield doubt, f"nobody sent it, and it is said to have passed {sorted(reply.stops)}"
    if fact.entered and reply.verdict == Verdict.NEVER_ACCEPTED.value:
        yield 0.0, "it entered, and is said never to have been accepted"
    if fact.entered and reply.verdict == Verdict.OUTSIDE_RETENTION.value:
        yield 0.0, "nothing is ever deleted here, and it is said to be outside retention"


def _too_much(
    reply: Reply, fact: Fact, told: Mapping[Reader, float], roster: Mapping[Claim, str] | None
) -> Iterator[tuple[float, str]]:
    """Things that are said to have happened, and did not. No gap excuses these: a positive answer is a claim."""
    for reader, doubt in told.items():
        known = fact.passed is not None and fact.entered
        if reader in fact.missed or (known and reader not in fact.received):
            yield doubt, f"{reader} did not get it, and is said to have"
    if fact.passed is not None and fact.entered:
        for broker, doubt in reply.stops.items():
            if broker not in fact.passed:
                yield doubt, f"broker {broker} never had it, and is said to have"
    for broker, neighbour, doubt in reply.lost:
        if neighbour in fact.brokers:
            yield doubt, f"broker {neighbour} had it, and is said to have lost it after {broker}"
    if reply.causes:
        # What a subscription did after the record ends is not in it.
        return
    received = {_reader(claim, roster) for claim in reply.waiting | reply.shed} & fact.received
    if received and reply.verdict not in VAGUE:
        yield 0.0, f"{sorted(received, key=str)} got it, and it is said to wait or to be shed there"


def _too_little(reply: Reply, fact: Fact, told: Mapping[Reader, float]) -> Iterator[tuple[float, str]]:
    """Things that happened, and are not in an answer that claims to be whole."""
    if reply.verdict in WHOLE_OR_WAITING:
        unnamed = {(broker, None) for broker, reader in told if isinstance(reader, int)}
        hidden = {one for one in fact.received if one not in told}
        # A number without a name may be any reader of its broker.
        hidden = {one for one in hidden if isinstance(one[1], int) or (one[0], None) not in unnamed}
        if hidden:
            yield 0.0, f"{sorted(hidden, key=str)} got it, and {reply.verdict!r} does not say so"
    if reply.verdict not in WHOLE:
        return
    if fact.passed is not None and fact.passed - reply.stops.keys():
        yield 0.0, f"it passed {sorted(fact.passed - reply.stops.keys())}, and {reply.verdict!r} does not say so"
    if fact.lost:
        yield 0.0, f"a copy of it was lost, and the answer is {reply.verdict!r}"
    if fact.shed:
        yield 0.0, f"{sorted(fact.shed, key=str)} did not get it, and the answer is {reply.verdict!r}"
    if fact.owed:
        yield 0.0, f"{sorted(fact.owed, key=str)} wanted it and did not get it, and the answer is {reply.verdict!r}"
