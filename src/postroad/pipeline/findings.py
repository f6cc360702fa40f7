"""From rows of evidence to what each broker knows about one id, and to the verdict: the general way, one id at a time.

Most ids have plain evidence and are judged in bulk (`judgement.py`). This module is for the rest: losses, drops, gaps,
late rows, false answers of filters. It ends in the same `Reconstruction` that `postroad trace` uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.pipeline.evidence import ASKED, HITS, JOURNEY, PASSAGE, RECORD, SHED
from postroad.tracking import Drop, Gap, Hit, Reconstruction
from postroad.tracking.witnessed_links import WitnessedLinks
from postroad.trail.evidence import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from postroad.messages import MessageId
    from postroad.pipeline.context import Context
    from postroad.tracking import Findings, Journey

__all__ = ["DAMAGED", "HIT", "findings_of", "journey_of"]

# One answer of a broker's filters, packed.
DAMAGED = -1  # the kind of an answer: this many filters could not be probed
HIT = np.dtype([("kind", "<i4"), ("number", "<i8"), ("doubt", "<f8"), ("time_from", "<i8"), ("time_to", "<i8")])


def _gathered(context: Context, id: MessageId, rows: Iterable[Mapping[str, Any]]) -> dict[int, Evidence]:
    known = {broker: Evidence(broker, id) for broker in context.brokers}
    for row in rows:
        if row["source"] == JOURNEY:
            # As evidence it has the columns of passages. A journey whose first broker is gone still tells of the
            # others.
            journey = {**row, "path": row["relayed_to"]}
            for one in known.values():
                one.journey(journey)
        elif row["source"] != ASKED and row["broker"] in known:
            _add(known[row["broker"]], row, context.window(id.time))
    return known


def _add(known: Evidence, row: Mapping[str, Any], window: tuple[int, int]) -> None:
    known.probes += 1
    if row["source"] == PASSAGE:
        known.passage(dict(row), row["run"] or 0)
    elif row["source"] == SHED:
        known.drops.append(Drop(row["subscription"], row["link"], row["reason"], row["at"]))
    elif row["source"] == HITS:
        for kind, number, doubt, since, until in np.frombuffer(row["hits"], HIT).tolist():
            if kind == DAMAGED:
                known.gaps.append(Gap(*window, f"{number} filters are damaged"))
            else:
                known.add(kind, Hit(number, doubt, since, until))
    elif row["source"] == RECORD:
        known.surely(row["link"], row["subscription"])


def findings_of(context: Context, id: MessageId, rows: Iterable[Mapping[str, Any]]) -> dict[int, Findings]:
    """Return what each broker of the trail knows about an id."""
    known = _gathered(context, id, rows)
    return {
        broker: one.findings(
            context.runs[broker],
            context.holes[broker],
            context.window(id.time),
            context.retained_since[broker],
            context.neighbours_at(broker, id.time),
        )
        for broker, one in known.items()
    }


def journey_of(context: Context, id: MessageId, rows: Sequence[Mapping[str, Any]]) -> Journey:
    """Return where a message went, by the same steps that ask one broker after the other."""
    answers = findings_of(context, id, rows)
    around = WitnessedLinks(context.brokers, lambda broker: context.neighbours_at(broker, id.time))
    reconstruction = Reconstruction(id, topology=around)
    while wanted := reconstruction.to_ask():
        for broker in wanted:
            reconstruction.tell(broker, answers.get(broker))
    return reconstruction.journey()
