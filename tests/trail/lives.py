"""A small network of brokers that crash, restart and write their records late; what it did, and what is on record.

Everything is plain Python, written from the rules that brokers keep and not from their code: a broker handles a message
in one turn, a commit has whole turns, a crash loses what was not committed, and a neighbour sends again what the
crashed broker had not confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from postroad.messages import MessageId
from postroad.tracking import ADDENDUM, HERE, Drop, Reconstruction
from postroad.tracking.reasons import Detour
from postroad.trail.coverage import Run
from postroad.trail.evidence import Evidence

if TYPE_CHECKING:
    from random import Random

    from postroad.tracking import Findings, Journey

START = 10_000_000
SPAN = 60_000
# What brokers do within moments, by the rules: confirm what they took, send again what was not confirmed.
CONFIRM_MS = 50
HEART_BEAT_MS = 1_000
SKEW_MS, TOLERANCE_MS = 5_000, 10_000


class Turn(NamedTuple):
    """What a broker did with a message in one turn, at a time of the true clock."""

    at: int
    arrived_from: int
    relayed_to: tuple[int, ...] = ()
    delivered: tuple[int, ...] = ()
    queued: tuple[int, ...] = ()
    dropped: tuple[Drop, ...] = ()


class Life(NamedTuple):
    """One process: from when to when it ran, what it committed through, and whether it was closed; true clock."""

    number: int
    since: int
    until: int
    through: int
    closed: bool


@dataclass
class Station:
    """A broker: its lives, how far its clock is ahead, and its turns with the message by life."""

    number: int
    ahead: int
    lives: list[Life]
    neighbours: tuple[int, ...]
    turns: dict[int, list[Turn]] = field(default_factory=dict)

    def life_at(self, at: int) -> Life | None:
        return next((life for life in self.lives if life.since <= at < life.until), None)

    def act(self, turn: Turn) -> Life | None:
        """Do something, if it runs."""
        life = self.life_at(turn.at)
        if life is not None:
            self.turns.setdefault(life.number, []).append(turn)
        return life

    def on_record(self) -> list[tuple[int, Turn]]:
        """What was committed, with the run."""
        return [
            (life.number, turn)
            for life in self.lives
            for turn in self.turns.get(life.number, [])
            if turn.at <= life.through
        ]

    def findings(self, message: MessageId) -> Findings:
        """What its record says."""
        evidence = Evidence(self.number, message)
        for run, turn in self.on_record():
            evidence.passage(
                {
                    "arrived_from": turn.arrived_from,
                    "relayed_to": _packed(turn.relayed_to),
                    "delivered": _packed(turn.delivered),
                    "acknowledged": None,
                    "refused": None,
                    "queued": _packed(turn.queued),
                },
                run,
            )
            evidence.drops += turn.dropped
        runs = [
            Run(life.number, life.since + self.ahead, life.through + self.ahead, life.closed) for life in self.lives
        ]
        window = message.time - SKEW_MS, message.time + TOLERANCE_MS + SKEW_MS
        return evidence.findings(runs, (), window, 0, self.neighbours)


class Network:
    """A random tree of brokers with random lives, and one message that goes through it."""

    def __init__(self, random: Random, crash_share: float = 0.7) -> None:
        self._random = random
        size = random.randint(1, 5)
        parent = {number: random.randrange(1, number) for number in range(2, size + 1)}
        links = {number: {b for a, b in parent.items() if a == number} for number in range(1, size + 1)}
        for a, b in parent.items():
            links[b].add(a)
        self.stations = {
            number: Station(
                number,
                random.randint(-2_000, 2_000),
                self._lives(random.random() < crash_share),
                tuple(sorted(links[number])),
            )
            for number in links
        }
        self.origin = random.choice(sorted(links))
        self.sent_at = START + random.randint(0, SPAN)
        origin = self.stations[self.origin]
        self.message = MessageId(7, self.origin, self.sent_at + origin.ahead, 0)
        self.delivered: set[tuple[int, int]] = set()
        self.waiting: set[tuple[int, int]] = set()
        self.lost: set[tuple[int, int]] = set()
        self.accepted = False
        if random.random() < 0.95:
            self._enter(self.origin, HERE, self.sent_at)

    def _lives(self, crashes: bool) -> list[Life]:
        random, lives = self._random, list[Life]()
        now, number = START - 100_000, 1
        while now < START + SPAN + 100_000:
            until = START + SPAN + 100_000
            if crashes and len(lives) < 3:
                until = random.randint(max(now + 1, START - 20_000), max(now + 2, START + SPAN + 20_000))
            closed = random.random() < 0.5
            # Commits lag behind; what was committed last is known, whatever was committed before.
            through = until if closed else max(now, until - random.choice([1, 5, 500, 3_000, 20_000]))
            lives.append(Life(number, now, until, through, closed))
            number += random.randint(1, 9)
            now = until + random.choice([1, 200, 2_000, 30_000])
        return lives

    def _enter(self, broker: int, arrived_from: int, at: int) -> None:
        """The message comes to a broker, and is handled in one turn."""
        station, random = self.stations[broker], self._random
        life = station.life_at(at)
        if life is None:
            return
        self.accepted = self.accepted or arrived_from == HERE
        onward = tuple(n for n in station.neighbours if n != arrived_from and random.random() < 0.7)
        # Numbers of subscriptions are never used again: those of each life are new.
        subscriptions = [life.number * 100 + place for place in range(2) if random.random() < 0.5]
        waits = [one for one in subscriptions if random.random() < 0.2]
        now = tuple(one for one in subscriptions if one not in waits)
        station.act(Turn(at, arrived_from, onward, now, tuple(waits)))
        self.delivered |= {(broker, one) for one in now}
        for one in waits:
            later = at + random.choice([5, 2_000, 40_000])
            if later < life.until:
                station.act(Turn(later, ADDENDUM, (), (one,)))
                self.delivered.add((broker, one))
            else:
                self.waiting.add((broker, one))
        for neighbour in onward:
            self._relay_on(station, life, neighbour, at)

    def _relay_on(self, station: Station, life: Life, neighbour: int, at: int) -> None:
        other, random = self.stations[neighbour], self._random
        arrives = at + random.choice([1, 20, 900])
        there = other.life_at(arrives)
        if there is not None:
            # What is on its way when the sender dies may come, or not.
            if arrives < life.until or random.random() < 0.5:
                self._enter(neighbour, station.number, arrives)
            else:
                self.lost.add((station.number, neighbour))
            if there.until > arrives + CONFIRM_MS:
                return
        again = [one for one in other.lives if one.since > arrives and one.since <= arrives + HEART_BEAT_MS]
        back = arrives + CONFIRM_MS + HEART_BEAT_MS
        if again and life.until > again[0].since + 100:
            self._enter(neighbour, station.number, again[0].since + 100)
        elif life.until > back:
            # There is no other way in a tree: given back, it waits, and is given up.
            drops = (Drop(0, neighbour, Detour.RETURNED, back), Drop(0, 0, Detour.HELD, back))
            station.act(Turn(back, ADDENDUM, dropped=drops))
            self.lost.add((station.number, neighbour))
            if life.until > back + 10_000:
                station.act(Turn(back + 10_000, ADDENDUM, dropped=(Drop(0, 0, "unreachable", back + 10_000),)))
        else:
            self.lost.add((station.number, neighbour))

    def trace(self) -> Journey:
        """The answer, from what is on record."""
        work = Reconstruction(self.message)
        while asked := work.to_ask():
            for broker in asked:
                work.tell(broker, self.stations[broker].findings(self.message))
        return work.journey()

    def cause(self) -> str:
        """Why an answer may be vague; empty where nothing keeps it from being sure."""
        for station in self.stations.values():
            turns = [(life, turn) for life in station.lives for turn in station.turns.get(life.number, [])]
            if any(turn.at > life.through for life, turn in turns):
                return f"broker {station.number} did something that it never wrote"
            if len({life.number for life, turn in turns if turn.arrived_from != ADDENDUM}) > 1:
                return f"broker {station.number} handled it in several lives"
            for life, turn in turns:
                if turn.arrived_from == ADDENDUM:
                    continue
                early = [one for one in station.lives if one.until <= life.since and not one.closed]
                if any(one.until + 2_000 > turn.at - 25_000 or life.since > turn.at - 25_000 for one in early):
                    return f"broker {station.number} had crashed shortly before"
                late = [one for one in station.lives if life.until <= one.since < turn.at + 40_000]
                if any(not one.closed and one.through < one.since + 6_000 for one in late):
                    return f"broker {station.number} restarted, and has not written its first moments"
        if self.waiting or self.lost:
            return "it waits, or a hop was cut by a crash"
        if not self.accepted:
            return "its origin never had it, and cannot say so of a time near the end of its record"
        return ""


def _packed(numbers: tuple[int, ...]) -> bytes | None:
    return b"".join(number.to_bytes(4, "big") for number in sorted(numbers)) or None
