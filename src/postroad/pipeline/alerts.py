"""From counts to alerts: losses between two brokers, filters out of budget, brokers gone quiet or near their limit.

The counts of all batches so far are added up. A minute is judged once every broker concerned has written its record of
it. The tables are small, and each is replaced as a whole in one step.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from postroad.pipeline.counts import ABOUT, BIN_MS, INCREMENTS
from postroad.pipeline.errors import PipelineError
from postroad.pipeline.loads import CAPACITY, LOADS_KEPT_MS, OF_LOADS, loads_of
from postroad.trail import (
    DEFAULT_SKEW_MS,
    DEFAULT_TOLERANCE_MS,
    gaps_within,
    manifest_brokers,
    pin_fitting,
    replace_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from postroad.trail import Pinned
    from postroad.trail.locations import Location

__all__ = [
    "ALERTS",
    "LINKS",
    "Totals",
    "alerts_of",
    "links_of",
    "news",
    "read_totals",
    "record_through",
    "refresh",
    "store_increments",
]

# A broker commits about once a minute. One that missed three commits counts as quiet.
QUIET_MS = 200_000
# Batches whose counts are kept apart before they are merged into one file.
MAX_BATCHES = 200
# If everything relayed in a minute arrived, daily sums are enough later. Minutes with losses are kept longer, because
# somebody should look at them, perhaps only after the holidays.
MINUTES_KEPT_MS = 24 * 3_600_000
LOSSES_KEPT_MS = 30 * MINUTES_KEPT_MS
_OFF_THE_LINK = ("returned", "arrived")
_OF_LINKS = ("relayed", *_OFF_THE_LINK)
# Counts that say where following began, and sums by origin; these have a meaning from the beginning on.
_NEVER_LET_GO = ("begun", "relayed in all", "arrived in all", "over budget")
_INCREMENTS = "increments"
_DAY_MS = 24 * 3_600_000

ALERTS = pa.schema(
    [
        ("alert", pa.string()),
        ("broker", pa.int64()),
        ("neighbour", pa.int64()),
        ("since", pa.int64()),
        ("until", pa.int64()),
        ("messages", pa.int64()),
        ("text", pa.string()),
    ]
)
LINKS = pa.schema(
    [
        ("broker", pa.int64()),
        ("neighbour", pa.int64()),
        ("since", pa.int64()),
        ("relayed", pa.int64()),
        ("returned", pa.int64()),
        ("arrived", pa.int64()),
        ("settled", pa.bool_()),
    ]
)


class Totals(NamedTuple):
    """Sums over all batches: (about, number, other, bin) -> messages."""

    counts: Mapping[tuple[str, int, int, int], int]

    def of(self, about: str) -> dict[tuple[int, int, int], int]:
        return {key[1:]: messages for key, messages in self.counts.items() if key[0] == about}

    def is_followed(self, brokers: Iterable[int], spot: int) -> bool:
        """Return whether the counts cover all that the brokers recorded of a minute; following may have begun later."""
        begun = {broker: through for broker, through, _ in self.of("begun")}
        return all(begun.get(broker, 0) <= spot * BIN_MS - DEFAULT_SKEW_MS for broker in brokers)


def store_increments(out: Path, batch: int, rows: Any, now: int = 0) -> None:
    """Store the counts of a batch. If the same batch is tried again, it replaces the first try.

    Args:
        out: the directory of results.
        batch: the number of the batch.
        rows: the counts of the batch.
        now: how far the record goes, in Unix ms. Old minutes without losses are dropped relative to it.
    """
    _write(out / _INCREMENTS / f"{batch:012d}.parquet", rows.cast(INCREMENTS))
    singles = sorted((out / _INCREMENTS).glob("[0-9]*.parquet"))
    # The latest batch may be tried again, so it is never merged.
    if len(singles) > MAX_BATCHES:
        last = int(singles[-2].stem)
        rows = _table(_still_told(read_totals(out, through=last).counts, now))
        _write(out / _INCREMENTS / f"through-{last:012d}.parquet", rows)
        for path in _summed_up(out, last):
            path.unlink()


def _still_told(counts: Mapping[tuple[str, int, int, int], int], now: int) -> dict[tuple[str, int, int, int], int]:
    """Return the counts without those of minutes that nobody needs any more."""
    lost: defaultdict[tuple[int, int, int], int] = defaultdict(int)
    for (about, *link), messages in counts.items():
        lost[link[0], link[1], link[2]] += {"relayed": messages}.get(about, -messages if about in _OFF_THE_LINK else 0)
    kept = {}
    for key, messages in counts.items():
        about, number, other, spot = key
        age = now - (spot + 1) * BIN_MS
        unbalanced = about in _OF_LINKS and lost[number, other, spot] != 0
        life = LOSSES_KEPT_MS if unbalanced else LOADS_KEPT_MS if about in OF_LOADS else MINUTES_KEPT_MS
        if about in _NEVER_LET_GO or age < life:
            kept[key] = messages
    return kept


def _summed_up(out: Path, last: int) -> list[Path]:
    folder = out / _INCREMENTS
    singles = [path for path in folder.glob("[0-9]*.parquet") if int(path.stem) <= last]
    return singles + [path for path in folder.glob("through-*.parquet") if int(path.stem.partition("-")[2]) < last]


def read_totals(out: Path, through: int | None = None) -> Totals:
    """Return the sums so far. Batches that a summary covers are not read again, even if a crash left their files."""
    folder = out / _INCREMENTS
    summaries = sorted(folder.glob("through-*.parquet"))
    covered = int(summaries[-1].stem.partition("-")[2]) if summaries else -1
    files = summaries[-1:] + [
        path
        for path in sorted(folder.glob("[0-9]*.parquet"))
        if int(path.stem) > covered and (through is None or int(path.stem) <= through)
    ]
    counts: defaultdict[tuple[str, int, int, int], int] = defaultdict(int)
    for path in files:
        for row in _increment(path):
            counts[row["about"], row["number"], row["other"], row["bin"]] += row["messages"]
    return Totals(counts)


def _increment(path: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = pq.ParquetFile(path, page_checksum_verification=True).read().to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise PipelineError(
            f"{path}: cannot be read ({error}); restore it, or begin again with another --out"
        ) from error
    if foreign := {row["about"] for row in rows} - ABOUT:
        raise PipelineError(f"{path}: counts of another format ({min(foreign)!r}); begin again with another --out")
    return rows


def links_of(totals: Totals, pins: Mapping[int, Pinned]) -> list[dict[str, Any]]:
    """Return what each link took and gave in each minute; a minute is settled once both ends have written it."""
    relayed, returned, arrived = (totals.of(about) for about in ("relayed", "returned", "arrived"))
    rows = []
    for broker, neighbour, spot in sorted({*relayed, *arrived}):
        rows.append(
            {
                "broker": broker,
                "neighbour": neighbour,
                "since": spot * BIN_MS,
                "relayed": relayed.get((broker, neighbour, spot), 0),
                "returned": returned.get((broker, neighbour, spot), 0),
                "arrived": arrived.get((broker, neighbour, spot), 0),
                "settled": totals.is_followed((broker, neighbour), spot)
                and _is_settled(pins, (broker, neighbour), spot),
            }
        )
    return rows


def _is_settled(pins: Mapping[int, Pinned], brokers: Iterable[int], spot: int) -> bool:
    """Return whether the brokers have complete records of a minute, including rows that arrive late."""
    since = spot * BIN_MS - DEFAULT_SKEW_MS
    until = (spot + 1) * BIN_MS + DEFAULT_TOLERANCE_MS + DEFAULT_SKEW_MS
    return all(
        broker in pins and not gaps_within(pins[broker].runs, pins[broker].holes, spot * BIN_MS, since, until)
        for broker in brokers
    )


def alerts_of(totals: Totals, pins: Mapping[int, Pinned], now: int) -> list[dict[str, Any]]:
    """Return what somebody should look at."""
    found = []
    for link in links_of(totals, pins):
        lost = link["relayed"] - link["returned"] - link["arrived"]
        if link["settled"] and lost > 0:
            text = (
                f"{lost:,} of {link['relayed']:,} messages from {link['broker']} never came to {link['neighbour']}, "
                f"in the minute from {_moment(link['since'])}"
            )
            found.append(_alert("loss after hop", link["broker"], link["neighbour"], link["since"], lost, text))
    found += _losses_by_origin(totals, pins)
    for (broker, _, spot), count in sorted(totals.of("over budget").items()):
        text = (
            f"{count:,} filters of broker {broker} err more often than they were made for, "
            f"in the minute from {_moment(spot * BIN_MS)}"
        )
        found.append(_alert("accuracy out of budget", broker, 0, spot * BIN_MS, count, text))
    for broker, pinned in sorted(pins.items()):
        last = max((run.through for run in pinned.runs), default=0)
        closed = any(run.closed for run in pinned.runs if run.through == last)
        if now - last > QUIET_MS and not closed:
            text = f"broker {broker} has written nothing since {_moment(last)}"
            found.append(_alert("broker gone quiet", broker, 0, last, 0, text, until=now))
    for one in loads_of(totals.counts, now):
        warning = "" if one.forecast is None else one.forecast.warning(now)
        if warning:
            # Reported once a day: the day makes each of these alerts distinct.
            today = now // _DAY_MS * _DAY_MS
            found.append(
                _alert("capacity limit", one.broker, 0, today, 0, f"broker {one.broker}: {warning}", until=now)
            )
    return found


def _losses_by_origin(totals: Totals, pins: Mapping[int, Pinned]) -> list[dict[str, Any]]:
    """Compare, for records kept as filters, all that was relayed with all that arrived, up to a settled time."""
    relayed, arrived = totals.of("relayed in all"), totals.of("arrived in all")
    # Messages relayed before following began may have arrived before it too; the counts cannot tell.
    relayed = {key: count for key, count in relayed.items() if totals.is_followed(pins, key[1])}
    spots = sorted({spot for _, _, spot in (*relayed, *arrived)})
    unsettled = [spot for spot in spots if totals.is_followed(pins, spot) and not _is_settled(pins, pins, spot)]
    end = min(unsettled, default=spots[-1] + 1 if spots else 0)
    found = []
    for origin in sorted({origin for origin, _, _ in relayed}):
        begun = sum(count for (whose, _, spot), count in relayed.items() if whose == origin and spot < end)
        lost = begun - sum(count for (whose, _, spot), count in arrived.items() if whose == origin and spot < end)
        if lost > 0:
            text = f"{lost:,} of {begun:,} hops of messages from origin {origin} were begun and never ended"
            until = end * BIN_MS
            found.append(_alert("loss after hop", origin, 0, spots[0] * BIN_MS, lost, text, until=until))
    return found


def _moment(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1_000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def news(alerts: Iterable[Mapping[str, Any]], reported: dict[tuple[Any, ...], int]) -> list[str]:
    """Return the lines to print: each alert once, and again when it got worse or is over.

    `reported` holds the alerts of earlier calls.
    """
    found, before = [], dict(reported)
    reported.clear()
    for alert in alerts:
        key = tuple(alert[name] for name in ("alert", "broker", "neighbour", "since"))
        reported[key] = alert["messages"]
        if alert["messages"] > before.get(key, -1):
            found.append(f"{alert['alert']}: {alert['text']}")
    return found


def _alert(
    alert: str, broker: int, neighbour: int, since: int, messages: int, text: str, until: int | None = None
) -> dict[str, Any]:
    return {
        "alert": alert,
        "broker": broker,
        "neighbour": neighbour,
        "since": since,
        "until": since + BIN_MS if until is None else until,
        "messages": messages,
        "text": text,
    }


def _pins(trail: Location) -> dict[int, Pinned]:
    return {number: pin_fitting(trail, number) for number in manifest_brokers(trail)}


def record_through(trail: Location) -> int:
    """Return how far the record of any broker goes, in Unix ms."""
    return max((run.through for pinned in _pins(trail).values() for run in pinned.runs), default=0)


def refresh(trail: Location, out: Path, now: int) -> list[dict[str, Any]]:
    """Rewrite the tables `links`, `capacity` and `alerts` from all counts so far; return the alerts."""
    pins = _pins(trail)
    totals = read_totals(out)
    alerts = alerts_of(totals, pins, now)
    _write(out / "links" / "links.parquet", pa.Table.from_pylist(links_of(totals, pins), schema=LINKS))
    loads = [row for one in loads_of(totals.counts, now) for row in one.rows()]
    _write(out / "capacity" / "capacity.parquet", pa.Table.from_pylist(loads, schema=CAPACITY))
    _write(out / "alerts" / "alerts.parquet", pa.Table.from_pylist(alerts, schema=ALERTS))
    return alerts


def _table(counts: Mapping[tuple[str, int, int, int], int]) -> Any:
    rows = [dict(zip(INCREMENTS.names, (*key, messages), strict=True)) for key, messages in sorted(counts.items())]
    return pa.Table.from_pylist(rows, schema=INCREMENTS)


def _write(path: Path, rows: Any) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
    replace_file(path, memoryview(sink.getvalue()).cast("B"))
