"""Plays a scenario: starts the network, lets clients talk, does what the scenario says, and asks questions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from postroad.config import TrackingConfig
from postroad.errors import PostroadError
from postroad.topology import cluster, line, ring, square_with_diagonal, star, tree
from postroad.tracking import journey_document
from postroad.trail import Trail
from truth.classifier import Class, Judgement, classify
from truth.facts import Fact, unsent
from truth.fleet import Fleet
from truth.replies import reply_of_document
from truth.traffic import Traffic, Wish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from postroad.messages import MessageId
    from postroad.topology import Delivery, Graph, Hierarchy, StrategyName
    from truth.facts import Reader
    from truth.fleet import Nursery
    from truth.replies import Reply
    from truth.scenarios import Operation, Scenario

__all__ = ["Outcome", "Played", "play"]

# Operations that change who can reach whom, or who knows what others want.
ROUTING = frozenset({"kill", "start", "freeze", "thaw", "cut", "join", "restart", "upgrade", "archive"})
# How long before and after such an operation nothing is said about who should have got a message.
UNSETTLED_SECONDS = 4.0
# Questions to the running network: in the middle, and when all is repaired.
LIVE_QUESTIONS = 6
ASK_SECONDS = 1.0
LAST_QUESTIONS = 25
LIVE_SECONDS = 70.0
# Questions to the files, of all that clients know of.
FILE_QUESTIONS = 250


@dataclass
class Outcome:
    """An answer and what it was worth."""

    reply: Reply
    judgement: Judgement
    place: str


@dataclass
class Played:
    """What came of a scenario.

    Attributes:
        outcomes: all answers.
        doubled: copies that came twice over one connection.
        lost: messages that custody promised and a whole connection did not get.
        breaches: other things that must not happen.
        vague_of: (vague, all) answers about ids that were old enough when a broker was killed; None elsewhere.
        live_seconds: how long a live trace took while two brokers were dead.
        trouble: what went wrong with the scenario itself.
        account: the traffic, for whoever looks further.
        trails: the trails that are left, by name.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)
    vague_of: tuple[int, int] | None = None
    live_seconds: list[float] = field(default_factory=list)
    trouble: str = ""
    facts: dict[MessageId, Fact] = field(default_factory=dict)
    roster: Mapping[tuple[int, int], str] = field(default_factory=dict)
    trails: list[Path] = field(default_factory=list)


async def play(scenario: Scenario, nursery: Nursery, folder: Path, tell: Callable[[str], None]) -> Played:
    """Play a scenario in a folder; what ran is ended at the end, whatever happens."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    stage = Stage(scenario, nursery, folder, tell)
    try:
        await stage.run()
    except (OSError, TimeoutError, RuntimeError) as error:
        stage.played.trouble = f"{type(error).__name__}: {error}"
    finally:
        with contextlib.suppress(TimeoutError):
            await stage.close()
    return stage.played


def shape_of(scenario: Scenario) -> Graph | Hierarchy:
    """Who is linked with whom."""
    if scenario.shape == "square":
        return square_with_diagonal()
    if scenario.shape == "tree":
        return tree(scenario.brokers, fan_out=2)
    if scenario.shape == "cluster":
        return cluster(tops=1, supers=1, units=1, nodes=scenario.brokers - 3)
    return {"ring": ring, "line": line, "star": star}[scenario.shape](scenario.brokers)


class Done(NamedTuple):
    """An operation that was done, from when to when by the clock of this process."""

    begun: float
    ended: float
    operation: Operation


class Stage:
    """One scenario under way."""

    def __init__(self, scenario: Scenario, nursery: Nursery, folder: Path, tell: Callable[[str], None]) -> None:
        self.played = Played()
        self._scenario = scenario
        self._chance = random.Random(scenario.seed)
        self._tell = tell
        self._folder = folder
        strategy, delivery = cast("StrategyName", scenario.strategy), cast("Delivery", scenario.delivery)
        self._fleet = Fleet(nursery, folder, shape_of(scenario), strategy, delivery)
        self._traffic = Traffic(
            self._fleet, self._wishes(), self._publishers(), scenario.rate, random.Random(scenario.seed + 1)
        )
        self._journal = dict.fromkeys(self._fleet.brokers, scenario.journal)
        self._recorders = {broker: scenario.recorder(broker) for broker in self._fleet.brokers}
        self._done: list[Done] = []
        self._moved = 0

    # --- what there is -------------------------------------------------------------------------------------------

    def _wishes(self) -> list[Wish]:
        brokers = self._fleet.brokers
        if self._scenario.ends:
            first, *others = self._scenario.ends
            return [Wish(first, 60), *(Wish(one, 100) for one in others), Wish(others[-1], 30, acknowledges=True)]
        wishes = [Wish(broker, self._chance.choice((20, 50, 100))) for broker in brokers]
        wishes.append(Wish(self._chance.choice(brokers), 40, acknowledges=True))
        wishes.append(Wish(self._chance.choice(brokers), 60, acknowledges=True, durable="keeper"))
        if self._scenario.kind == "storm":
            sheds = self._chance.random() < 0.5
            wishes.append(Wish(self._chance.choice(brokers), 100, reads=False, sheds=sheds))
        return wishes

    def _publishers(self) -> list[int]:
        return list(self._scenario.ends) or self._fleet.brokers

    def _set_tracking(self, broker: int) -> None:
        recorder = self._recorders[broker]
        self._fleet.tracking[broker] = TrackingConfig(
            recorder=recorder,  # type: ignore[arg-type]
            journal=self._journal[broker],
            persist_seconds=self._scenario.persist,
            memory_bytes=1 << 20,
            bits=65_536 if recorder == "bloom" else None,
        )

    # --- the play ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        fleet = self._fleet
        self._tell("starting")
        await fleet.lay_wires()
        for broker in fleet.brokers:
            self._set_tracking(broker)
        await fleet.start_all(fleet.brokers)
        await fleet.linked()
        await self._traffic.subscribe()
        await asyncio.sleep(1.0)
        self._traffic.publish()
        asker = asyncio.create_task(self._ask_meanwhile())
        try:
            await self._perform()
        finally:
            asker.cancel()
            await asyncio.gather(asker, return_exceptions=True)
        await self._traffic.stop_publishing()
        if self._scenario.kind == "two-dead":
            await self._ask_two_dead()
        elif self._scenario.kind not in ("crash",):
            await self._repair()
        self._tell("waiting until nothing more comes")
        await self._traffic.quiet()
        await self._ask_live(LAST_QUESTIONS, final=True)
        self._tell("stopping")
        whole = {id(inbox) for inbox in self._traffic.account.inboxes if inbox.whole}
        await self._traffic.stop()
        for inbox in self._traffic.account.inboxes:
            inbox.whole = id(inbox) in whole
        await asyncio.gather(*(fleet.end(broker) for broker in fleet.running))
        self._judge_delivery()
        await asyncio.to_thread(self._ask_files)

    async def _perform(self) -> None:
        began = time.monotonic()
        waiting = list(self._scenario.operations)
        end = self._scenario.seconds
        while (now := time.monotonic() - began) < end:
            while waiting and waiting[0].at <= now:
                operation = waiting.pop(0)
                self._tell(f"{operation.what} {operation.broker or ''}")
                begun = time.monotonic()
                await self._do(operation)
                self._done.append(Done(begun, time.monotonic(), operation))
            await asyncio.sleep(0.02)

    async def _ask_meanwhile(self) -> None:
        """Questions to the network while things happen to it."""
        while True:
            await asyncio.sleep(ASK_SECONDS)
            await self._ask_live(LIVE_QUESTIONS, final=False)

    async def _do(self, operation: Operation) -> None:
        fleet, broker = self._fleet, operation.broker
        if operation.what == "kill":
            await fleet.kill(broker)
        elif operation.what == "start" and broker not in fleet.running:
            await fleet.start(broker)
        elif operation.what == "freeze":
            fleet.freeze(broker)
        elif operation.what == "thaw":
            fleet.thaw(broker)
        elif operation.what in ("cut", "join"):
            wire = fleet.wires.get((min(broker, operation.other), max(broker, operation.other)))
            if wire is not None:
                (wire.cut if operation.what == "cut" else wire.join)()
        elif operation.what in ("fill", "drain"):
            fleet.limit_files(broker, operation.number if operation.what == "fill" else None)
        elif operation.what == "clock":
            fleet.set_clock(broker, operation.number)
        elif operation.what in ("restart", "upgrade"):
            await self._restart(broker, upgrade=operation.what == "upgrade")
        elif operation.what in ("move", "delete", "restore"):
            self._move(operation.what)
        elif operation.what == "archive":
            await self._archive()
        elif operation.what == "twin" and broker in fleet.running:
            if not await fleet.start_twin(broker):
                self.played.breaches.append(f"a second broker {broker} on the same directories was not refused")
        elif operation.what == "harm":
            self._harm(random.Random(operation.number))

    async def _restart(self, broker: int, *, upgrade: bool) -> None:
        if broker in self._fleet.running:
            await self._fleet.end(broker)
        if upgrade:
            # Another recorder and the other choice about the journal, over the same data and trail.
            names = ("exact", "sealed", "bloom", "log")
            self._recorders[broker] = names[(names.index(self._recorders[broker]) + 1) % len(names)]
            self._journal[broker] = not self._journal[broker]
            self._set_tracking(broker)
        await self._fleet.start(broker)

    def _harm(self, chance: random.Random) -> None:
        """Damage some file of the trail under the brokers that write it."""
        found = sorted(path for path in self._fleet.trail.rglob("*") if path.suffix in (".json", ".parquet"))
        with contextlib.suppress(OSError):
            path = chance.choice(found or [self._fleet.trail])
            data = bytearray(path.read_bytes())
            what = chance.choice(("flip", "cut", "remove"))
            if what == "remove":
                path.unlink()
            elif what == "cut":
                path.write_bytes(data[: chance.randrange(len(data))])
            else:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                path.write_bytes(data)

    def _move(self, what: str) -> None:
        trail = self._fleet.trail
        moved = self._folder / f"trail.moved-{self._moved}"
        if what == "restore":
            if not moved.exists():
                return
            self._moved += 1
            if trail.exists():
                trail.rename(self._folder / f"trail.moved-{self._moved}")
            moved.rename(trail)
        elif trail.exists():
            self._moved += 1
            trail.rename(self._folder / f"trail.moved-{self._moved}")
            if what == "delete":
                shutil.rmtree(self._folder / f"trail.moved-{self._moved}")

    async def _archive(self) -> None:
        """Stop all brokers, move the trail away, and start them again."""
        running = self._fleet.running
        await asyncio.gather(*(self._fleet.end(broker) for broker in running))
        self._move("move")
        await self._fleet.start_all(running)

    async def _repair(self) -> None:
        """All brokers run, all links are whole, all disks have room."""
        self._tell("repairing")
        fleet = self._fleet
        for wire in fleet.wires.values():
            wire.join()
        for broker in fleet.brokers:
            fleet.thaw(broker)
            fleet.limit_files(broker, None)
        for broker in fleet.brokers:
            if broker not in fleet.running:
                await fleet.start(broker)
        await fleet.linked()

    # --- questions -----------------------------------------------------------------------------------------------

    def _some_ids(self, count: int) -> list[MessageId]:
        known = list(self._traffic.account.sent)
        return self._chance.sample(known, min(count, len(known)))

    async def _ask_live(self, count: int, *, final: bool) -> list[float]:
        """Ask a running broker about some ids; how long each answer took."""
        taken = []
        for identity in self._some_ids(count):
            if not self._fleet.answering:
                break
            broker = self._chance.choice(self._fleet.answering)
            asked = identity if self._chance.random() < 0.9 else unsent(identity)
            fact = self._fact(asked, final=final)
            began = time.monotonic()
            with contextlib.suppress(OSError, ValueError, TimeoutError, IndexError):
                document = await self._fleet.document(broker, f"/trace/{asked}", LIVE_SECONDS)
                taken.append(time.monotonic() - began)
                self._note(reply_of_document("live", document), fact, f"broker {broker}")
        return taken

    async def _ask_two_dead(self) -> None:
        self._tell("asking while two brokers are dead")
        self.played.live_seconds += await self._ask_live(LAST_QUESTIONS, final=False)

    def _fact(self, identity: MessageId, *, final: bool) -> Fact:
        account = self._traffic.account
        if identity.counter >= 40_000:
            return Fact(entered=False)
        received = {(one.wish.broker, one.login) for one in account.inboxes if identity in one.got}
        return account.fact(identity, received, final=final)

    def _note(self, reply: Reply, fact: Fact, place: str) -> None:
        judgement = classify(reply, fact, self._traffic.account.roster())
        if self._scenario.kind == "calm" and judgement.kind is Class.VAGUE and place == "trail":
            judgement = Judgement(
                Class.CAUSELESS, f"nothing happened, and the answer is {reply.verdict!r}: {reply.causes}"
            )
        self.played.outcomes.append(Outcome(reply, judgement, place))

    def _ask_files(self) -> None:
        """Every message that clients know of, in every trail that is left."""
        account = self._traffic.account
        got = account.got_by()
        known = [*account.sent, *(one for one in got if one not in account.sent)]
        known = self._chance.sample(known, min(FILE_QUESTIONS, len(known)))
        self.played.roster = account.roster()
        self.played.facts = {
            one: account.fact(one, got.get(one, ()), final=True, owed=self._owed(one, got)) for one in known
        }
        trails = [path for path in sorted(self._folder.glob("trail*")) if (path / "manifests").is_dir()]
        self.played.trails = trails
        for place in trails:
            self._tell(f"asking {place.name} about {len(known)} messages")
            self._ask_trail(place, known)

    def _ask_trail(self, place: Path, known: Iterable[MessageId]) -> None:
        try:
            trail = Trail(place)
        except PostroadError:
            return
        old = self._old_enough()
        vague = total = 0
        for identity in known:
            reply = reply_of_document("files", journey_document(trail.trace(identity)), trail.warnings)
            self._note(reply, self.played.facts[identity], place.name)
            if old is not None and old(identity) and place.name == "trail":
                total += 1
                vague += self.played.outcomes[-1].judgement.kind in (Class.VAGUE, Class.CAUSELESS)
            if self._chance.random() < 0.1:
                never = unsent(identity)
                reply = reply_of_document("files", journey_document(trail.trace(never)), trail.warnings)
                self._note(reply, Fact(entered=False), place.name)
        if total:
            self.played.vague_of = vague, total

    def _old_enough(self) -> Callable[[MessageId], bool] | None:
        """Whether an id was published so long before the kill that the record of it was safe."""
        # From the beginning: a broker that is killed is dead before this process hears of it.
        kills = [one.begun for one in self._done if one.operation.what == "kill"]
        if self._scenario.kind not in ("crash", "crash-journal") or not kills:
            return None
        margin = 1.0 if self._scenario.kind == "crash-journal" else self._scenario.persist
        sent = self._traffic.account.sent
        return lambda one: one in sent and sent[one].at < kills[0] - margin

    # --- delivery ------------------------------------------------------------------------------------------------

    def _unsettled(self, at: float, after: float) -> bool:
        return any(
            one.begun < at + after and at - UNSETTLED_SECONDS < one.ended
            for one in self._done
            if one.operation.what in ROUTING
        )

    def _owed(self, identity: MessageId, got: Mapping[MessageId, set[Reader]]) -> set[Reader]:
        """Readers that wanted a message, in a network at rest, over a connection that never broke, and went without."""
        sent = self._traffic.account.sent.get(identity)
        if sent is None or not sent.confirmed or self._unsettled(sent.at, UNSETTLED_SECONDS):
            return set()
        return {
            (inbox.wish.broker, inbox.login)
            for inbox in self._traffic.account.inboxes
            if inbox.whole
            and inbox.wish.reads
            and inbox.since < sent.at - UNSETTLED_SECONDS
            and sent.price < inbox.wish.below
            and (inbox.wish.broker, inbox.login) not in got.get(identity, ())
        }

    def _judge_delivery(self) -> None:
        account = self._traffic.account
        self.played.doubled = [f"{login} got {identity} more than once" for login, identity in account.doubled]
        if self._scenario.kind != "custody":
            return
        began = min((sent.at for sent in account.sent.values()), default=0.0)
        starts = [one for one in self._done if one.operation.what in ("start", "thaw", "join")]
        for identity, sent in account.sent.items():
            # A broker that just started does not know yet what others want.
            if not sent.confirmed or any(one.begun < sent.at < one.ended + UNSETTLED_SECONDS for one in starts):
                continue
            for inbox in account.inboxes:
                wanted = inbox.whole and inbox.since < began and sent.price < inbox.wish.below
                if wanted and identity not in inbox.got:
                    self.played.lost.append(f"{inbox.login} at broker {inbox.wish.broker} never got {identity}")

    async def close(self) -> None:
        await self._traffic.stop()
        await self._fleet.stop()
