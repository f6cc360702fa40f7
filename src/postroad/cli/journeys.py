"""Where a message went, as a tree on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.tree import Tree

from postroad.cli.output import printable
from postroad.tracking import Verdict

if TYPE_CHECKING:
    from postroad.tracking import Drop, Hit, Journey, Stop, Told

__all__ = ["instant", "journey_lines", "journey_tree"]

_GOOD = {Verdict.DELIVERED, Verdict.ACKNOWLEDGED}
_BAD = {Verdict.LOST_AFTER_HOP, Verdict.DROPPED, Verdict.SHED}


def instant(milliseconds: int) -> str:
    """A time for people; ids can name times that no calendar has."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1_000:03d} UTC"


def journey_tree(story: Told) -> Tree:
    """The origin, each broker it passed, each subscriber, and how sure each is."""
    journey = story.journey
    colour = "green" if journey.verdict in _GOOD else "red" if journey.verdict in _BAD else "yellow"
    root = Tree(f"[bold]{journey.id}[/]  [{colour}]{journey.verdict.value}[/], {_certainty(journey)}")
    root.add(_origin(story))
    branches: dict[int, Tree] = {}
    for stop in journey.stops:
        above = branches.get(stop.parent, root)
        branches[stop.broker] = above.add(_stop(stop))
        _add_subscribers(branches[stop.broker], stop, story)
    for hop in journey.lost:
        branches[hop.broker].add(f"[red]broker {hop.neighbour} never had it: lost after this hop[/]{_doubt(hop.doubt)}")
    return root


def journey_lines(journey: Journey) -> list[str]:
    """What a reader should know beside the tree: pruned answers, gaps, brokers that did not answer."""
    lines = [
        f"pruned: broker {hop.neighbour} (asked because of broker {hop.broker}): {hop.reason}{_doubt(hop.doubt)}"
        if hop.neighbour != hop.broker
        else f"pruned: broker {hop.broker}: {hop.reason}{_doubt(hop.doubt)}"
        for hop in journey.pruned
    ]
    lines += [
        f"broker {broker}: not recorded between {instant(gap.since)} and {instant(gap.until)} ({gap.reason})"
        for broker, gap in journey.gaps
    ]
    lines += [f"broker {broker} did not answer; what it knows is missing here" for broker in journey.silent]
    return lines


def _certainty(journey: Journey) -> str:
    wrong = 1.0 - journey.certainty
    return "certain" if wrong <= 0.0 else f"wrong with probability {wrong:.1e}"


def _doubt(doubt: float) -> str:
    return "" if doubt == 0.0 else f" [dim](false with probability {doubt:.1e})[/]"


def _origin(story: Told) -> str:
    id = story.journey.id
    name = "" if story.publisher is None else f" ({_text(story.publisher)})"
    return f"published by publisher {id.publisher}{name} at broker {id.broker}, {instant(id.time)}"


def _stop(stop: Stop) -> str:
    since, until = stop.window
    window = "" if since > until else f" [dim]{instant(since)} to {instant(until)}[/]"
    return f"[bold]broker {stop.broker}[/]{window}{_doubt(stop.doubt)}"


def _add_subscribers(branch: Tree, stop: Stop, story: Told) -> None:
    findings = stop.findings
    acknowledged = {hit.number for hit in findings.acknowledged}
    refused = {hit.number for hit in findings.refused}
    taken = {hit.number for hit in findings.delivered}
    for hit in findings.delivered:
        fate = "refused" if hit.number in refused else "acknowledged" if hit.number in acknowledged else "delivered"
        branch.add(f"{_subscriber(stop.broker, hit, story)}: {fate}{_doubt(hit.doubt)}")
    for hit in findings.queued:
        if hit.number not in taken and not any(drop.subscriber == hit.number for drop in findings.dropped):
            branch.add(f"{_subscriber(stop.broker, hit, story)}: [yellow]waits in its queue[/]{_doubt(hit.doubt)}")
    for drop in findings.dropped:
        branch.add(_drop(drop))


def _subscriber(broker: int, hit: Hit, story: Told) -> str:
    known = story.subscribers.get((broker, hit.number))
    if known is None:
        return f"subscriber {hit.number}"
    wanted = f" where {_text(known.selector)}" if known.selector else ""
    who = f"{_text(known.principal)}, " if known.principal else ""
    return f"subscriber {hit.number} ({who}{_text(known.topic)}{wanted})"


def _drop(drop: Drop) -> str:
    where = (
        f"subscriber {drop.subscriber}" if drop.subscriber else f"broker {drop.link}" if drop.link else "other brokers"
    )
    if drop.reason == "returned":
        return f"[dim]handed to {where}, which was gone; sent another way at {instant(drop.at)}[/]"
    return f"[red]not to {where}: {_text(drop.reason)}[/] at {instant(drop.at)}"


def _text(text: str) -> str:
    """Text of clients, harmless on a terminal."""
    return escape(printable(text))
