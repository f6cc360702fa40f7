"""What happens to a network, as plain data: its shape, its settings, and operations at given moments."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import msgspec

__all__ = ["KINDS", "Operation", "Scenario", "draw_scenario"]

RECORDERS = ("exact", "exact", "exact", "sealed", "bloom", "log")
# The clock is set by less than a reader allows for, by more, and by far more.
CLOCK_STEPS = (-60_000, -7_000, -1_000, 1_000, 7_000, 60_000)
# Sizes at which a disk is full: nothing more at all, a torn file, or files but not large ones.
FILE_SIZES = (0, 100, 4_096)
SHAPES = (("ring", 3), ("ring", 4), ("line", 3), ("star", 4), ("square", 4), ("tree", 5), ("cluster", 5))
# Kinds of scenarios that are drawn in turn, so that a short run has one of each.
KINDS = ("storm", "crash", "crash-journal", "two-dead", "calm", "storm", "custody", "archive")


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """One thing done to a network.

    Attributes:
        at: seconds after the traffic began.
        what: one of the names that `Stage` knows.
        broker: to whom, or from where.
        other: the other end of a link.
        number: an offset of the clock, or a size.
    """

    at: float
    what: str
    broker: int = 0
    other: int = 0
    number: int = 0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A network and what is done to it.

    Attributes:
        kind: what it is for; one of `KINDS`.
        seed: of prices, batches and questions.
        shape: "ring", "line", "star", "square", "tree" or "cluster".
        brokers: how many.
        strategy: how messages find their ways.
        delivery: what links promise.
        recorders: of each broker, by number.
        journal: the record is on disk before a receipt.
        persist: seconds after which the record is written.
        seconds: how long there is traffic.
        rate: messages a second of each publisher.
        operations: what is done, in order of time.
        ends: the brokers of publishers and readers; none for all of them.
    """

    kind: str
    seed: int
    shape: str = "ring"
    brokers: int = 4
    strategy: str = "drp"
    delivery: str = "relay"
    recorders: dict[str, str] = {}
    journal: bool = False
    persist: float = 0.5
    seconds: float = 6.0
    rate: float = 40.0
    operations: tuple[Operation, ...] = ()
    ends: tuple[int, ...] = ()

    def recorder(self, broker: int) -> str:
        """What a broker keeps."""
        return self.recorders.get(str(broker), "exact")

    @property
    def exact(self) -> bool:
        """No filter errs by chance here."""
        return all(self.recorder(broker) in ("exact", "log") for broker in range(1, self.brokers + 1))

    def without(self, operations: tuple[Operation, ...]) -> Scenario:
        """The same with other operations."""
        return msgspec.structs.replace(self, operations=operations)


def draw_scenario(kind: str, seed: int) -> Scenario:
    """A scenario of a kind; the same for the same seed."""
    chance = random.Random(f"{kind} {seed}")
    made: dict[str, Any] = {"kind": kind, "seed": seed}
    if kind == "crash":
        return Scenario(
            **made,
            shape="line",
            brokers=3,
            persist=1.0,
            seconds=8,
            operations=_crash(chance, restart=False),
            journal=chance.random() < 0.5,
        )
    if kind == "crash-journal":
        return Scenario(
            **made, shape="line", brokers=3, journal=True, seconds=7, operations=_crash(chance, restart=True)
        )
    if kind == "two-dead":
        dead = chance.sample(range(1, 6), 2)
        killed = tuple(Operation(3.0, "kill", broker) for broker in dead)
        return Scenario(**made, shape="ring", brokers=5, seconds=4, operations=killed)
    shape, brokers = chance.choice(SHAPES)
    recorders = {str(broker): chance.choice(RECORDERS) for broker in range(1, brokers + 1)}
    journal = chance.random() < 0.4
    if kind == "calm":
        return Scenario(
            **made,
            shape=shape,
            brokers=brokers,
            recorders=recorders,
            journal=journal,
            strategy=_strategy(chance, shape),
        )
    if kind == "custody":
        return _custody(chance, made, journal)
    if kind == "archive":
        moves = [Operation(round(chance.uniform(1.5, 3), 2), chance.choice(("move", "delete", "archive")))]
        if chance.random() < 0.5:
            moves.append(
                Operation(5.0, chance.choice(("restore", "move", "restart")), chance.randrange(1, brokers + 1))
            )
        return Scenario(**made, shape=shape, brokers=brokers, journal=journal, seconds=7, operations=tuple(moves))
    return Scenario(
        **made,
        shape=shape,
        brokers=brokers,
        strategy=_strategy(chance, shape),
        delivery=chance.choice(("relay", "custody")),
        recorders=recorders,
        journal=journal,
        persist=chance.choice((0.3, 0.5, 2.0)),
        seconds=9,
        operations=_storm(chance, shape, brokers),
    )


def _strategy(chance: random.Random, shape: str) -> str:
    return shape if shape in ("tree", "cluster") else chance.choice(("drp", "drp", "flood"))


def _crash(chance: random.Random, *, restart: bool) -> tuple[Operation, ...]:
    at = round(chance.uniform(4.0, 5.0), 2)
    broker = chance.choice((1, 2, 2, 3))
    killed = (Operation(at, "kill", broker),)
    return (*killed, Operation(at + 0.7, "start", broker)) if restart else killed


class _Custody(NamedTuple):
    """A network that keeps custody: who publishes and reads, who is on the way, and what may happen there."""

    shape: str
    brokers: int
    strategy: str
    ends: tuple[int, ...]
    between: tuple[int, ...]
    harms: tuple[str, ...] = ("kill", "freeze", "cut")
    most: int = 2


# What custody promises to survive: one thing at a time to brokers on the way, with another way, or this one again, soon
# after. `flood` promises it of one broker, and a cluster of brokers that die (docs/links.md, docs/routing.md).
_CUSTODY = (
    _Custody("ring", 4, "drp", (1, 3), (2, 4)),
    _Custody("square", 4, "drp", (1, 3), (2, 4)),
    _Custody("line", 3, "drp", (1, 3), (2,)),
    _Custody("ring", 4, "flood", (1, 3), (2, 4), most=1),
    _Custody("tree", 5, "tree", (4, 5, 3), (2, 1)),
    _Custody("cluster", 5, "cluster", (4, 5), (3, 2), ("kill",), most=1),
)
_OVER = {"kill": "start", "freeze": "thaw", "cut": "join"}


def _custody(chance: random.Random, made: dict[str, Any], journal: bool) -> Scenario:
    """A kill, a freeze or a cut on the way, each over before the next."""
    network = chance.choice(_CUSTODY)
    found: list[Operation] = []
    at = 1.0
    for _ in range(chance.randint(1, network.most)):
        broker, begin = chance.choice(network.between), chance.choice(network.harms)
        other = chance.choice(network.ends) if begin == "cut" else 0
        found += [Operation(at, begin, broker, other), Operation(at + 2.0, _OVER[begin], broker, other)]
        at += 4.5
    return Scenario(
        **made,
        shape=network.shape,
        brokers=network.brokers,
        strategy=network.strategy,
        ends=network.ends,
        delivery="custody",
        seconds=10,
        operations=tuple(found),
        journal=journal,
    )


_HARMS = ("kill", "freeze", "cut", "fill", "clock", "restart", "upgrade", "move", "delete", "twin", "harm")


def _storm(chance: random.Random, shape: str, brokers: int) -> tuple[Operation, ...]:
    """Anything, one upon the other."""
    found: list[Operation] = []
    for _ in range(chance.randrange(2, 6)):
        at = round(chance.uniform(0.5, 6.5), 2)
        until = round(at + chance.uniform(0.3, 2.5), 2)
        broker = chance.randrange(1, brokers + 1)
        other = chance.randrange(1, brokers + 1)
        kind = chance.choice(_HARMS)
        if kind == "kill":
            found += [Operation(at, "kill", broker), Operation(until, "start", broker)]
        elif kind == "freeze":
            found += [Operation(at, "freeze", broker), Operation(until, "thaw", broker)]
        elif kind == "cut":
            found += [Operation(at, "cut", broker, other), Operation(until, "join", broker, other)]
        elif kind == "fill":
            size = chance.choice(FILE_SIZES)
            found += [Operation(at, "fill", broker, 0, size), Operation(until, "drain", broker)]
        elif kind == "harm":
            found.append(Operation(at, kind, 0, 0, chance.randrange(1_000_000)))
        elif kind == "clock":
            found.append(Operation(at, "clock", broker, 0, chance.choice(CLOCK_STEPS)))
            if chance.random() < 0.5:
                found.append(Operation(until, "clock", broker, 0, 0))
        else:
            found.append(Operation(at, kind, broker))
            if kind == "move" and chance.random() < 0.5:
                found.append(Operation(until, "restore"))
    return tuple(sorted(found, key=lambda one: one.at))
