"""`scripts/truth`: look for lies until the time is over, reduce what is found, and say how it stands."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from truth.classifier import Class
from truth.findings import MOST_FINDINGS, Finding, write_finding
from truth.fleet import Nursery
from truth.reduction import reduced_slowly
from truth.replay import replay
from truth.rounds import harmed_rounds, specimen_rounds
from truth.scenarios import KINDS, draw_scenario
from truth.specimens import SPECIMENS, specimen_of_trail
from truth.stage import play
from truth.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from truth.rounds import Round
    from truth.scenarios import Operation, Scenario
    from truth.stage import Outcome, Played

__all__ = ["main"]

INTERRUPTED = 130
LIES_FOUND = 1
# Rounds of harm that a worker does before it reports: some seconds.
ROUNDS = 20
# Of each network's trail, afterwards.
NETWORK_ROUNDS = 15
# A scenario takes half a minute: as many as these are tried to make one smaller.
REDUCTION_TRIES = 6
_BAD = (Class.WRONG, Class.CAUSELESS)


class Search:
    """One search for lies.

    Args:
        chosen: the options.
        folder: for networks and what they leave.
        scratch: for trails that are harmed.
    """

    def __init__(self, chosen: argparse.Namespace, folder: Path, scratch: Path) -> None:
        self.tally = Tally()
        self._chosen = chosen
        self._folder = folder
        self._scratch = scratch
        self._began = time.monotonic()
        self._stopped = Event()
        self._sorts: set[tuple[str, ...]] = set()
        self._doing = {"networks": "", "harm": "", "spark": ""}
        self._shown = 0.0
        self.findings: list[Path] = []

    @property
    def is_over(self) -> bool:
        """Whether to begin nothing more."""
        return self._stopped.is_set() or time.monotonic() - self._began > 60 * self._chosen.minutes

    def stop(self, *_: object) -> None:
        """Begin nothing more, and end what is under way."""
        self._stopped.set()

    # --- display --------------------------------------------------------------------------------------------------

    def tell(self, who: str, text: str) -> None:
        """Say what is done now; a line that is written over on a terminal."""
        self._doing[who] = text
        now = time.monotonic()
        if now - self._shown < (0.2 if sys.stderr.isatty() else 15):
            return
        self._shown = now
        minutes = (now - self._began) / 60
        line = (
            f"{minutes:5.1f} min  answers {self.tally.answers.total():,}  mutations {self.tally.mutations:,}  "
            f"scenarios {self.tally.scenarios}  wrong {self.tally.wrong}  vague without cause "
            f"{self.tally.answers[Class.CAUSELESS]}  crashed {self.tally.crashed}  {self._doing['networks']}"
        )
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r{line[:width]:<{width}}")
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def found(self, finding: Finding, files: dict[str, bytes] | None = None) -> None:
        """Write a finding down, once for each sort."""
        first = finding.mutations[0] if finding.mutations else None
        harm = (first.kind, first.path.split("/")[0]) if first else (finding.scenario.kind if finding.scenario else "",)
        what = finding.why.split(", and ")[-1] if ", and " in finding.why else finding.why.partition(":")[0]
        sort = (finding.source, what, *harm)
        if sort in self._sorts or len(self.findings) >= MOST_FINDINGS:
            return
        self._sorts.add(sort)
        place = write_finding(self._chosen.out, finding, files)
        self.findings.append(place)
        done = "; ".join(map(str, finding.mutations)) or (finding.scenario.kind if finding.scenario else "")
        sys.stderr.write(f"\nfound: {finding.source}: {finding.why}\n  after: {done}\n  again: {place / 'replay.sh'}\n")

    # --- harm -----------------------------------------------------------------------------------------------------

    def harm(self) -> None:
        """Rounds of harm in other processes, and Spark in one more; in a thread of its own."""
        names = itertools.cycle(SPECIMENS)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self._chosen.jobs, context, initializer=_ignore_interrupts) as pool:
            spark = ProcessPoolExecutor(1, context, initializer=_ignore_interrupts) if self._chosen.spark else None
            waiting: dict[Future[Round], str] = {}
            number = 0
            try:
                while not self.is_over:
                    while sum(kind == "harm" for kind in waiting.values()) < self._chosen.jobs:
                        number += 1
                        seed = f"{self._chosen.seed} {number}"
                        waiting[pool.submit(specimen_rounds, next(names), self._scratch, seed, ROUNDS)] = "harm"
                    if spark is not None and "spark" not in waiting.values():
                        waiting[spark.submit(_bulk, self._scratch, number, self._chosen.seed)] = "spark"
                    self._take(waiting)
            finally:
                for future in waiting:
                    future.cancel()
                _end(pool)
                if spark is not None:
                    _end(spark)

    def _take(self, waiting: dict[Future[Round], str]) -> None:
        for future in wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED).done:
            kind = waiting.pop(future)
            result = future.result()
            self.tally.add(result.tally)
            for finding in result.findings:
                self.found(finding)
            self.tell(kind, "")

    # --- networks -------------------------------------------------------------------------------------------------

    async def networks(self) -> None:
        """Scenario after scenario."""
        nursery = Nursery()
        self.tell("networks", "loading")
        try:
            await nursery.start()
            for number in itertools.count():
                if self.is_over:
                    break
                kinds = self._chosen.kinds or KINDS
                scenario = draw_scenario(kinds[number % len(kinds)], self._chosen.seed * 1_000 + number)
                played = await self._play(scenario, nursery)
                self._count(played, scenario)
                await self._report(played, scenario, nursery)
                await asyncio.to_thread(self._harm_trails, played, scenario)
        finally:
            await nursery.stop()

    async def _play(self, scenario: Scenario, nursery: Nursery) -> Played:
        name = f"{scenario.kind} {scenario.seed}"
        work = asyncio.create_task(
            play(scenario, nursery, self._folder / "network", lambda text: self.tell("networks", f"{name}: {text}"))
        )
        while not work.done():
            await asyncio.wait([work], timeout=0.2)
            if self._stopped.is_set():
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work
                raise asyncio.CancelledError
        return work.result()

    def _count(self, played: Played, scenario: Scenario) -> None:
        tally = self.tally
        for outcome in played.outcomes:
            tally.count(outcome.reply.source, outcome.judgement.kind, filters=not scenario.exact)
        tally.scenarios += 1
        tally.doubled += len(played.doubled)
        tally.lost += len(played.lost)
        tally.breaches += len(played.breaches)
        tally.troubles += bool(played.trouble)
        if played.trouble:
            sys.stderr.write(f"\nnot played to its end: {scenario.kind} {scenario.seed}: {played.trouble}\n")
        if played.vague_of is not None:
            sums = tally.after_kill_journal if scenario.kind == "crash-journal" else tally.after_kill
            sums[0] += played.vague_of[0]
            sums[1] += played.vague_of[1]
        tally.live_seconds = max([tally.live_seconds, *played.live_seconds])

    async def _report(self, played: Played, scenario: Scenario, nursery: Nursery) -> None:
        bad = [outcome for outcome in played.outcomes if outcome.judgement.kind in _BAD]
        problems = [*((one.judgement.why, one) for one in bad[:1]), *((text, None) for text in played.doubled[:1])]
        problems += [(text, None) for text in (*played.lost[:1], *played.breaches[:1])]
        for why, outcome in problems:
            smaller = await self._smaller(scenario, nursery, why, outcome)
            self.found(_network_finding(why, outcome, smaller))

    async def _smaller(self, scenario: Scenario, nursery: Nursery, why: str, outcome: Outcome | None) -> Scenario:
        """The scenario without the operations that the finding does not need."""

        async def shows(operations: list[Operation]) -> bool:
            if self.is_over:
                return False
            played = await self._play(scenario.without(tuple(operations)), nursery)
            if outcome is None:
                return bool(played.doubled or played.lost or played.breaches)
            return any(one.judgement.kind is outcome.judgement.kind for one in played.outcomes)

        return scenario.without(tuple(await reduced_slowly(scenario.operations, shows, REDUCTION_TRIES)))

    def _harm_trails(self, played: Played, scenario: Scenario) -> None:
        """Harm the trail that a network left, too."""
        bad = any(outcome.judgement.kind in _BAD for outcome in played.outcomes)
        if bad or not played.trails or not played.facts:
            return
        specimen = specimen_of_trail(
            played.trails[0], self._folder / "harmed", played.facts, played.roster, filters=not scenario.exact
        )
        self.tell("networks", f"{scenario.kind} {scenario.seed}: harming its trail")
        result = harmed_rounds(specimen, random.Random(scenario.seed), NETWORK_ROUNDS)
        self.tally.add(result.tally)
        for finding in result.findings:
            self.found(finding, specimen.patient.files)


def _network_finding(why: str, outcome: Outcome | None, scenario: Scenario) -> Finding:
    if outcome is None:
        return Finding(why=why, source="clients", scenario=scenario)
    return Finding(why=why, source=outcome.reply.source, id=str(outcome.reply.id), scenario=scenario)


def _bulk(folder: Path, number: int, seed: int) -> Round:
    from truth.bulk import COMPACTED, bulk_round

    names = [COMPACTED, *SPECIMENS]
    return bulk_round(names[number % len(names)], folder, f"bulk {seed} {number}")


def _ignore_interrupts() -> None:
    """Ctrl-C is for the program in front, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end(pool: ProcessPoolExecutor) -> None:
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(10)


# --- the program ------------------------------------------------------------------------------------------------------


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="scripts/truth",
        description="Look for lies in the record: networks under faults and trails under harm, each answer against "
        "what clients saw. The last line is JSON; the exit code is 1 if a lie was found.",
    )
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="how long to search (10)")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="S", help="what is drawn: the same for the same seed (1)"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=max(1, (os.cpu_count() or 2) - 1),
        help="processes that harm trails (one less than processors)",
    )
    parser.add_argument("--only", choices=("networks", "trails"), help="one half of the search")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="leave out the jobs of the pipeline")
    parser.add_argument("--kinds", nargs="+", choices=sorted(set(KINDS)), help="kinds of scenarios (all, in turn)")
    parser.add_argument(
        "--out", type=Path, default=Path(".cache/truth"), metavar="DIR", help="where findings go (.cache/truth)"
    )
    parser.add_argument("--replay", type=Path, metavar="DIR", help="show a finding again, and nothing else")
    return parser.parse_args(given)


async def search(chosen: argparse.Namespace, work: Search) -> None:
    """Both halves at once, until the time is over or Ctrl-C."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, work.stop)
    tasks: list[Any] = []
    if chosen.only != "networks":
        tasks.append(asyncio.to_thread(work.harm))
    if chosen.only != "trails":
        tasks.append(work.networks())
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


def main(given: Sequence[str] | None = None) -> int:
    """Search, or replay a finding; returns the exit code."""
    chosen = arguments(given)
    folder = Path(tempfile.mkdtemp(prefix="postroad-truth-"))
    # In memory if the system has such a place: harming a trail is writing small files again and again.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    scratch = Path(tempfile.mkdtemp(prefix="postroad-truth-", dir=memory))
    try:
        if chosen.replay is not None:
            return replay(chosen.replay, folder)
        work = Search(chosen, folder, scratch)
        asyncio.run(search(chosen, work))
    finally:
        for place in (folder, scratch):
            shutil.rmtree(place, ignore_errors=True)
    sys.stderr.write("\n")
    if work.findings:
        print(f"{len(work.findings)} findings, each with a replay.sh, in {chosen.out}")
    interrupted = work._stopped.is_set()
    print(json.dumps({"truth": "interrupted" if interrupted else "done", "seed": chosen.seed, **work.tally.figures()}))
    if interrupted:
        return INTERRUPTED
    return LIES_FOUND if work.findings else 0


if __name__ == "__main__":
    sys.exit(main())
