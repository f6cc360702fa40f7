"""Where a message went, as a tree on a terminal: drawn from the document that `--json` prints.

Colours are codes of the terminal, which `typer.echo` leaves out if there is none. Text of clients cannot contain
any: it is made printable first.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from postroad.cli.output import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["JourneyTree", "instant", "journey_lines", "journey_tree"]

_COLOURS = {
    "delivered": "green",
    "acknowledged": "green",
    "lost after hop": "red",
    "dropped on the way": "red",
    "shed at the queue": "red",
}

# Verdicts that leave open where the message went: nothing is certain then.
_OPEN = ("recorded in part", "not recorded", "unanswered")

# Reasons that end nothing, by their names in the record (`tracking.reasons`): colour, coloured text, and the rest.
_DETOURS = {
    "held": ("yellow", "waits for {where}", " from {at} on"),
    "deferred": ("yellow", "waits for its turn at this broker", " from {at} on"),
    "kept for order": ("yellow", "kept back for earlier messages of its publisher", " from {at} on"),
    "comes again": ("yellow", "came back, to be delivered again", " at {at}: refused, or its consumer was gone"),
    "delivered again": ("dim", "delivered again at {at}", ""),
    "delivered late": ("dim", "delivered at {at}, {later} after it was published", ""),
    "retained": ("dim", "retained from {at} on: nobody wanted it here, and later subscribers may get it", ""),
    "out of time": ("dim", "entered at {at}, far from the time in its id", ""),
    "in order": ("dim", "kept back until {at}", ""),
    "resumed": ("dim", "had its turn at {at}", ""),
    "sent on": ("dim", "sent to {where} at {at}", ""),
    "returned": ("dim", "relayed to {where}, which was gone; sent another way at {at}", ""),
}
# Texts in trails that were written between 0.2.0 and 0.3.0.
_DETOURS["handed out again"] = _DETOURS["delivered again"]
_DETOURS["handed out late"] = _DETOURS["delivered late"]

Document = dict[str, Any]

# How a child begins that has others after it, and the last one; and what is below each.
_GUIDES = (("├── ", "│   "), ("└── ", "    "))
_ASCII_GUIDES = (("+-- ", "|   "), ("`-- ", "    "))

# Beyond every time that an id can have: a gap up to here has not ended yet.
END_OF_TIME = 2**48


def instant(milliseconds: int) -> str:
    """Format a time for people; ids can contain times beyond any calendar."""
    try:
        moment = datetime.fromtimestamp(milliseconds // 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1_000:03d} UTC"


class JourneyTree:
    """A line, and the lines below it."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.children: list[JourneyTree] = []

    def add(self, label: str) -> JourneyTree:
        """Add a line below; returns it, for those below it."""
        self.children.append(JourneyTree(label))
        return self.children[-1]

    def lines(self) -> Iterator[str]:
        """The tree, line by line."""
        others, last = _GUIDES if (sys.stdout.encoding or "").lower().startswith("utf") else _ASCII_GUIDES
        # Not by recursion: a journey may be longer than Python's stack is deep.
        pending = [("", "", self)]
        while pending:
            before, below, tree = pending.pop()
            yield before + tree.label
            for child in reversed(tree.children):
                guide, under = last if child is tree.children[-1] else others
                pending.append((below + guide, below + under, child))


def journey_tree(journey: Document) -> JourneyTree:
    """Return the origin, each broker it passed, each subscription, and how sure each is."""
    verdict = printable(journey["verdict"])
    shown = _coloured(_COLOURS.get(verdict, "yellow"), verdict)
    root = JourneyTree(f"{_coloured('bold', printable(journey['id']))}  {shown}{_certainty(journey)}")
    root.add(_origin(journey["origin"], known=bool(journey["stops"])))
    branches: dict[int, JourneyTree] = {}
    for stop in journey["stops"]:
        above = branches.get(stop["from"], root)
        branches[stop["broker"]] = above.add(_stop(stop))
        _add_subscriptions(branches[stop["broker"]], stop, journey["origin"]["time"])
    # A broker of an earlier version does not send these.
    for hop in journey.get("open", ()):
        text = _coloured("yellow", f"broker {hop['neighbour']}: relayed to it, and whether it arrived is not known")
        branches[hop["broker"]].add(f"{text} ({printable(hop['reason'])}){_doubt(hop['doubt'])}")
    for hop in journey["lost"]:
        text = _coloured("red", f"broker {hop['neighbour']} never had it: lost after this hop")
        branches[hop["broker"]].add(text + _doubt(hop["doubt"]))
    return root


def journey_lines(journey: Document) -> list[str]:
    """Return what a reader should know besides the tree: pruned answers, gaps, brokers that did not answer."""
    lines = []
    for hop in journey["pruned"]:
        asked = "" if hop["neighbour"] == hop["broker"] else f" (broker {hop['broker']} named it)"
        lines.append(f"pruned: broker {hop['neighbour']}{asked}: {printable(hop['reason'])}{_doubt(hop['doubt'])}")
    for gap in journey["gaps"]:
        between = f"between {instant(gap['since'])} and {instant(gap['until'])}"
        if gap["until"] >= END_OF_TIME:
            between = f"since {instant(gap['since'])}"
        elif gap["since"] <= 0:
            between = f"before {instant(gap['until'])}"
        hides = f"; may hide {printable(gap['hides'])}" if gap.get("hides") else ""
        lines.append(f"broker {gap['broker']}: not recorded {between} ({printable(gap['reason'])}){hides}")
    lines += [f"broker {broker} did not answer; what it knows is missing here" for broker in journey["silent"]]
    return lines


def _certainty(journey: Document) -> str:
    wrong = 1.0 - journey["certainty"]
    if journey["verdict"] in _OPEN:
        return ""
    return f", wrong with probability {wrong:.1e}" if wrong > 0.0 else ", certain"


def _doubt(doubt: float) -> str:
    return "" if doubt == 0.0 else " " + _coloured("dim", f"(false with probability {doubt:.1e})")


def _origin(origin: Document, *, known: bool) -> str:
    if not known:
        said = f"publisher {origin['publisher']} at broker {origin['broker']}, {instant(origin['time'])}"
        return f"the id itself names {said}"
    name = f" ({printable(origin['name'])})" if origin["name"] else ""
    return f"published by publisher {origin['publisher']}{name} at broker {origin['broker']}, {instant(origin['time'])}"


def _stop(stop: Document) -> str:
    since, until = stop["window"]
    window = "" if since >= until else " " + _coloured("dim", f"{instant(since)} to {instant(until)}")
    missing = _coloured("yellow", "(by the records of its neighbours; its own is missing)")
    source = "" if stop.get("recorded", True) else f" {missing}"
    return _coloured("bold", f"broker {stop['broker']}") + source + window + _doubt(stop["doubt"])


def _add_subscriptions(branch: JourneyTree, stop: Document, accepted: int) -> None:
    for one in stop["delivered"]:
        # What a queue delivers again after a refusal is acknowledged in the end.
        fate = "acknowledged" if one["acknowledged"] else "refused" if one["refused"] else "delivered"
        branch.add(f"{_subscription(one)}: {fate}{_doubt(one['doubt'])}")
    shed = {drop["subscription"] for drop in stop["dropped"]}
    for one in stop["waiting"]:
        if one["subscription"] not in shed:
            waits = f"{_coloured('yellow', 'waits in its queue')} since {instant(stop['window'][0])}"
            branch.add(f"{_subscription(one)}: {waits}{_doubt(one['doubt'])}")
    for drop in stop["dropped"]:
        branch.add(_drop(drop, accepted))


def _subscription(one: Document) -> str:
    if "topic" not in one:
        return f"subscription {one['subscription']}"
    wanted = f" where {printable(one['selector'])}" if one["selector"] else ""
    who = f"{printable(one['name'])}, " if one["name"] else ""
    return f"subscription {one['subscription']} ({who}{printable(one['topic'])}{wanted})"


def _drop(drop: Document, accepted: int) -> str:
    where = f"broker {drop['link']}" if drop["link"] > 0 else "other brokers"
    if drop["subscription"]:
        where = f"subscription {drop['subscription']}"
    if drop["reason"] in _DETOURS:
        colour, text, rest = _DETOURS[drop["reason"]]
        said = {"where": where, "at": instant(drop["at"]), "later": _duration(drop["at"] - accepted)}
        return _coloured(colour, text.format(**said)) + rest.format(**said)
    return f"{_coloured('red', f'not to {where}: ' + printable(drop['reason']))} at {instant(drop['at'])}"


def _coloured(colour: str, text: str) -> str:
    return typer.style(text, **{colour: True}) if colour in ("bold", "dim") else typer.style(text, fg=colour)


def _duration(milliseconds: int) -> str:
    """Format a length of time for people, to two units."""
    seconds = max(0, milliseconds) // 1_000
    for unit, size, lower, share in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // share} {lower}"
    return f"{seconds} s"
