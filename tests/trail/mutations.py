"""A small good trail with every table, and what may happen to its files."""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING, NamedTuple

from postroad.lab.trails import TRUTH, Faults, Scale, read_truth, write_trail
from postroad.messages import MessageId
from postroad.tracking import Aliases, Verdict
from postroad.trail import Ledger, by_date, tabulate, write_file
from tests.trail.samples import short, wide

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from postroad.tracking import Journey

SCALE = Scale(
    brokers=4,
    messages=120,
    seed=5,
    publishers=6,
    subscriptions=4,
    interests=30,
    seconds=60,
    seal_seconds=20,
    faults=Faults(lost=0.1, shed=0.1, acknowledging=0.3),
)
# What may be said where something is missing. All other words are believed.
VAGUE = {Verdict.RECORDED_IN_PART, Verdict.NOT_RECORDED, Verdict.UNANSWERED, Verdict.OUTSIDE_RETENTION}


def good_trail(root: Path, recorder: str) -> list[MessageId]:
    """Write a trail; returns the messages in it, each of which has the alias `alias-` and its place here."""
    write_trail(root, dataclasses.replace(SCALE, recorder=recorder))
    ids = [
        MessageId(row["publisher"], row["origin"], row["time"], row["counter"]) for row in read_truth(root).to_pylist()
    ]
    for broker in {one.broker for one in ids}:
        here = [(place, one) for place, one in enumerate(ids) if one.broker == broker]
        aliases = Aliases(
            [f"alias-{place}" for place, _ in here],
            wide(one.broker for _, one in here),
            wide(one.time for _, one in here),
            wide(one.publisher for _, one in here),
            short(one.counter for _, one in here),
        )
        (rows,) = tabulate([aliases]).values()
        files = [write_file(root, "aliases", broker, day, "extra", part) for day, part in by_date("aliases", rows)]
        ledger = Ledger(root, broker)
        ledger.append(SCALE.end, files)
        # As after a broker that wrote them and ended: otherwise the record would be whole without its last change.
        ledger.checkpoint(SCALE.end)
    shutil.rmtree(root / TRUTH)
    return ids


class Known(NamedTuple):
    """A journey as it is told: the word, where it passed, who got it, where it was lost."""

    verdict: Verdict
    stops: frozenset[int]
    delivered: frozenset[tuple[int, int]]
    lost: frozenset[tuple[int, int]]
    dropped: frozenset[object]

    @classmethod
    def of(cls, journey: Journey) -> Known:
        return cls(
            journey.verdict,
            frozenset(stop.broker for stop in journey.stops),
            frozenset((broker, hit.number) for broker, hit in journey.delivered),
            frozenset((hop.broker, hop.neighbour) for hop in journey.lost),
            frozenset(journey.dropped),
        )

    def is_honest(self, truth: Known) -> bool:
        """Whether all that is told is true, and nothing is denied."""
        # These rest on what is on record, whatever else is missing.
        seen = (Verdict.LOST_AFTER_HOP, Verdict.DROPPED, Verdict.SHED)
        parts = ((mine, whole) for mine, whole in zip(self[1:], truth[1:], strict=True))
        return (self.verdict in VAGUE or self.verdict in seen) and all(mine <= whole for mine, whole in parts)


class Harm(NamedTuple):
    """Something that was done to a trail: what, where, and how it was before."""

    what: str
    path: Path
    before: bytes | Path

    def undo(self) -> None:
        if isinstance(self.before, bytes):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(self.before)
        else:
            self.before.rename(self.path)


def harmed(root: Path, chance: random.Random, table: str | None = None) -> Harm:
    """Do something to one file, of a table if one is named, or take away a whole folder of a broker."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    tables = sorted({path.relative_to(root).parts[0] for path in files})
    table = table or chance.choice(tables)
    mine = [path for path in files if path.relative_to(root).parts[0] == table]
    path = chance.choice(mine)
    if chance.random() < 0.05:
        folder = next(parent for parent in path.parents if parent.name.startswith("broker="))
        aside = root.parent / "aside"
        folder.rename(aside)
        return Harm("take away", folder, aside)
    data = path.read_bytes()
    what = chance.choice(["flip", "flip", "flip", "cut", "empty", "remove", "swap", "grow"])
    if what == "flip":
        changed = bytearray(data)
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
    elif what == "swap":
        path.write_bytes(chance.choice(mine).read_bytes())
    elif what == "remove":
        path.unlink()
    else:
        path.write_bytes({"cut": data[: chance.randrange(len(data))], "empty": b"", "grow": data + b"\0"}[what])
    return Harm(what, path, data)
