"""The demonstration: a generated stream of messages against 100,000 subscriptions.

python -m examples.matching_demo [--subscriptions N] [--seconds S] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from dataclasses import asdict, dataclass
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from postroad.lab.workloads import SubscriptionSpec
    from postroad.matching import SubscriptionIndex
    from postroad.messages import Batch, Message

__all__ = ["main"]

SEED = 1
SUBSCRIPTIONS = 100_000
SECONDS = 5.0
# A million take about a gigabyte with their texts; more would only make the demonstration long.
MOST_SUBSCRIPTIONS = 2_000_000
BATCH = 256
BATCHES = 64  # different ones; the stream is these over and over
EXAMPLES = 3  # one for each kind of topic
MOST_SHOWN = 4  # matches of a message that serves as an example

INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended


@dataclass(frozen=True)
class Example:
    """One message, and what those asked for who wanted it."""

    topic: str
    attributes: dict[str, Any]
    matches: int
    wanted_by: list[str]


@dataclass(frozen=True)
class Report:
    """What the demonstration found."""

    subscriptions: int
    subscribed_per_s: float
    messages: int
    messages_per_s: float
    matches_per_message: float
    index_bytes: int
    process_bytes: int
    examples: list[Example]
    unwanted: Example | None


class DemoProgress:
    """How far something is, on stderr: one line that changes, or a few lines where a line cannot change."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._changes = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._step = 100 if self._changes else 4
        self._told = 0

    def reach(self, count: int) -> None:
        """Tell when the next step is reached."""
        step = self._step * count // self._total
        if step == self._told:
            return
        self._told = step
        text = f"{self._what}: {count:,} of {self._total:,}"
        if self._changes:
            print(f"\r{text}", end="\n" if count == self._total else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def demonstrate(count: int, seconds: float) -> Report:
    """Subscribe, match for so many seconds, and report."""
    # Here and not at the top: these load the kernels, and Ctrl-C has to work in the meantime as well.
    from examples.everyday import messages, subscriptions
    from postroad.messages import Batch

    asked = list(islice(subscriptions(SEED), count))
    index, per_s = subscribed(asked)
    drafts = messages(SEED)
    batches = [Batch.build(islice(drafts, BATCH)) for _ in range(BATCHES)]
    done, matches, elapsed = matched(index, batches, seconds)
    examples, unwanted = examples_of(index, asked, batches)
    return Report(
        subscriptions=len(index),
        subscribed_per_s=per_s,
        messages=done,
        messages_per_s=done / elapsed,
        matches_per_message=matches / done,
        index_bytes=index.statistics().bytes,
        process_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        examples=examples,
        unwanted=unwanted,
    )


def subscribed(asked: list[SubscriptionSpec]) -> tuple[SubscriptionIndex, float]:
    """An index of the subscriptions, by their place in the list, and how many a second went in."""
    from postroad.matching import SubscriptionIndex

    index = SubscriptionIndex()
    progress = DemoProgress("subscribing", len(asked))
    start = perf_counter()
    for key, (selector, topic) in enumerate(asked):
        index.add(key, selector, topic)
        if key % 1_000 == 999:
            progress.reach(key + 1)
    progress.reach(len(asked))
    return index, len(asked) / (perf_counter() - start)


def matched(index: SubscriptionIndex, batches: list[Batch], seconds: float) -> tuple[int, int, float]:
    """Match the batches over and over: messages, matches, and the time it took."""
    print(f"matching batches of {BATCH} for {seconds:g} seconds", file=sys.stderr, flush=True)
    messages = matches = 0
    start = perf_counter()
    while True:
        for batch in batches:
            offsets, _ = index.match(batch)
            messages += len(batch)
            matches += int(offsets[-1])
        elapsed = perf_counter() - start
        if elapsed >= seconds:
            return messages, matches, elapsed


def examples_of(
    index: SubscriptionIndex, asked: list[SubscriptionSpec], batches: list[Batch]
) -> tuple[list[Example], Example | None]:
    """One message that few wanted of each kind of topic, and the first that nobody wanted, where there are such."""
    found: dict[str, Example] = {}
    unwanted: Example | None = None
    for message, wanted_by in outcomes(index, asked, batches):
        kind = message.topic.partition(".")[0]
        if not wanted_by:
            unwanted = unwanted or example(message, wanted_by)
        elif len(wanted_by) <= MOST_SHOWN and kind not in found:
            found[kind] = example(message, wanted_by)
        if len(found) == EXAMPLES and unwanted:
            break
    return list(found.values()), unwanted


def outcomes(
    index: SubscriptionIndex, asked: list[SubscriptionSpec], batches: list[Batch]
) -> Iterator[tuple[Message, list[SubscriptionSpec]]]:
    """Each message with the subscriptions that want it."""
    # Slots are the index's own numbers; the keys behind them are the places in the list.
    places = {index.slot(key): key for key in range(len(asked))}
    for batch in batches:
        offsets, slots = index.match(batch)
        for row, message in enumerate(batch):
            keys = sorted(places[slot] for slot in slots[offsets[row] : offsets[row + 1]].tolist())
            yield message, [asked[key] for key in keys]


def example(message: Message, wanted_by: list[SubscriptionSpec]) -> Example:
    return Example(message.topic, dict(message.attributes), len(wanted_by), [wording(one) for one in wanted_by])


def wording(subscription: SubscriptionSpec) -> str:
    """A subscription in one line."""
    selector, topic = subscription
    return f"{topic or '>'}  {selector or '(any message)'}"


def text_of(report: Report) -> str:
    """The report for people."""
    each = report.index_bytes / report.subscriptions
    rows = (
        ("subscriptions", f"{report.subscriptions:,}", f"parsed and added at {report.subscribed_per_s:,.0f} a second"),
        ("messages matched", f"{report.messages:,}", f"in batches of {BATCH}, on one processor"),
        ("messages per second", f"{report.messages_per_s:,.0f}", ""),
        ("matches per message", f"{report.matches_per_message:.1f}", ""),
        ("memory of the index", f"{report.index_bytes / 1e6:.1f} MB", f"{each:,.0f} bytes for each subscription"),
        (
            "memory of the process",
            f"{report.process_bytes / 1e6:.1f} MB",
            "at its peak, with Python, numba and all texts",
        ),
    )
    lines = ["", *(f"{name:22}{value:>12}   {remark}".rstrip() for name, value, remark in rows)]
    if report.examples:
        lines += ["", "Some messages, and who wanted them (topic pattern, selector):"]
    for one in report.examples:
        lines += ["", f"  {shown(one)}", *(f"    wanted by  {wanted}" for wanted in one.wanted_by)]
    if report.unwanted:
        lines += ["", f"  {shown(report.unwanted)}", "    wanted by nobody"]
    return "\n".join(lines)


def shown(one: Example) -> str:
    return f"{one.topic}  {', '.join(f'{name} = {value!r}' for name, value in one.attributes.items())}"


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo matching", description="Match a generated stream of messages against many subscriptions."
    )
    parser.add_argument("--subscriptions", type=int, default=SUBSCRIPTIONS, metavar="N", help="how many (100,000)")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="how long to match (5)")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    chosen = parser.parse_args(given)
    if not 1 <= chosen.subscriptions <= MOST_SUBSCRIPTIONS:
        parser.error(f"--subscriptions takes 1 to {MOST_SUBSCRIPTIONS:,}, not {chosen.subscriptions:,}")
    if not 0 <= chosen.seconds <= 3600:
        parser.error(f"--seconds takes 0 to 3600, not {chosen.seconds:g}")
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns the exit status."""
    chosen = arguments(given)
    try:
        report = demonstrate(chosen.subscriptions, chosen.seconds)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return INTERRUPTED
    print(json.dumps({"demo": "matching", **asdict(report)}) if chosen.json else text_of(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
