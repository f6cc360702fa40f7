"""The same trails through Spark: `pipeline trace`, `audit` and `follow`, against the same truth."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.parquet as pq

from postroad.pipeline import PipelineError, run_job, session
from postroad.pipeline.jobs import audit, compact, follow, trace
from postroad.trail import DAY_MS, TrailError, sweep
from truth.classifier import Class, Judgement, classify
from truth.facts import Fact, unsent
from truth.findings import Finding
from truth.mutations import draw
from truth.replies import reply_of_row
from truth.rounds import Round, harmed_rounds
from truth.shipped import use_credentials
from truth.specimens import SPECIMENS, made_specimen
from truth.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.pipeline import JobOptions, JobReport, SparkJob
    from truth.mutations import Mutation
    from truth.specimens import Specimen

__all__ = ["COMPACTED", "bulk_round", "bulk_specimen", "judge_audit", "judge_follow", "run_jobs"]

# A trail whose passages became journeys, and whose files of before are gone.
COMPACTED = "compacted"
# Rounds of harm and questions to its files, beside those of the jobs.
COMPACTED_ROUNDS = 10
# The other trails are left as they are: jobs must also be right where nothing is wrong.
HARMED = 0.85
# Small data: few tasks, and nothing compiled for a handful of rows.
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.showConsoleProgress": "false",
}
_VAGUE_OUTCOMES = ("recorded in part", "not recorded", "unanswered")
_BAD = (Class.WRONG, Class.CAUSELESS)

Options = TypeVar("Options", bound="JobOptions")

_sessions: list[SparkSession] = []


def bulk_round(name: str, folder: Path, seed: str) -> Round:
    """Harm a generated trail once, or not at all, and run the jobs over it."""
    chance = random.Random(seed)
    specimen = bulk_specimen(name, folder)
    result = run_jobs(name, folder, [draw(chance, specimen.patient)] if chance.random() < HARMED else [])
    if name == COMPACTED:
        more = harmed_rounds(specimen, chance, COMPACTED_ROUNDS)
        result.tally.add(more.tally)
        result.findings.extend(more.findings)
    return result


def bulk_specimen(name: str, folder: Path) -> Specimen:
    """A generated trail, compacted or as brokers wrote it."""
    return made_specimen(name, folder, _compact if name == COMPACTED else None)


def _spark() -> SparkSession:
    if not _sessions:
        use_credentials()
        _sessions.append(session("local[2]", name="truth", settings=SETTINGS))
    return _sessions[0]


def _compact(root: Path) -> None:
    out = root.with_suffix(".out")
    now = SPECIMENS["exact"].end + DAY_MS
    run_job("compact", compact.run, compact.CompactOptions(root, out, now=now, sample=10), spark=_spark())
    for folder in (root / "manifests").glob("broker=*"):
        sweep(root, int(folder.name.partition("=")[2]), now + DAY_MS)
    shutil.rmtree(out, ignore_errors=True)


def run_jobs(name: str, folder: Path, mutations: Sequence[Mutation]) -> Round:
    """All jobs over a generated trail to which these are done."""
    specimen = bulk_specimen(name, folder)
    specimen.harm(mutations)
    work = Bulk(_spark(), specimen, mutations)
    try:
        work.trace()
        work.audit()
        work.follow()
    finally:
        specimen.patient.heal()
        shutil.rmtree(work.out, ignore_errors=True)
    return Round(work.tally, work.findings)


class Bulk:
    """Jobs over one trail."""

    def __init__(self, spark: SparkSession, specimen: Specimen, mutations: Sequence[Mutation]) -> None:
        self.tally = Tally(mutations=len(mutations))
        self.findings: list[Finding] = []
        self.out: Path = specimen.patient.beside
        self._spark = spark
        self._specimen = specimen
        self._mutations = tuple(mutations)

    def _run(
        self, name: str, job: SparkJob[Options], make: Callable[..., Options], *, skip_damaged: bool = True, **own: Any
    ) -> JobReport | None:
        """What a job did; None where it refuses the trail, which is an honest answer."""
        options = make(self._specimen.asked or self._specimen.patient.root, self.out, skip_damaged=skip_damaged, **own)
        try:
            return run_job(name, job, options, spark=self._spark)
        except (PipelineError, TrailError):
            self.tally.refused += 1
        except Exception as error:
            self.tally.crashed += 1
            self._found(name, f"{type(error).__name__}: {str(error)[:300]}")
        return None

    def _found(self, source: str, why: str, identity: str = "") -> None:
        if all(finding.source != source for finding in self.findings):
            self.findings.append(
                Finding(why=why, source=source, id=identity, specimen=self._specimen.name, mutations=self._mutations)
            )

    def _count(self, source: str, judgement: Judgement, identity: str = "") -> None:
        self.tally.count(source, judgement.kind, filters=self._specimen.filters)
        if judgement.kind in _BAD:
            self._found(source, judgement.why, identity)

    def trace(self) -> None:
        """Every id of the trail, and some that never were."""
        facts = self._specimen.facts
        asked = [*facts, *(unsent(one) for one in list(facts)[:10])]
        self.out.mkdir(parents=True, exist_ok=True)
        ids = self.out / "ids.txt"
        ids.write_text("\n".join(map(str, asked)) + "\n", "utf-8")
        account = self._run("trace", trace.run, trace.TraceOptions, ids=ids)
        if account is None:
            return
        damaged = [str(one.path) for one in account.damaged]
        for row in pq.read_table(self.out / "trace").to_pylist():
            reply = reply_of_row(row, damaged)
            self._count("pipeline", classify(reply, facts.get(reply.id, Fact(entered=False))), str(reply.id))

    def audit(self) -> None:
        """The books, against the truth."""
        account = self._run("audit", audit.run, audit.AuditOptions)
        if account is None or not (self.out / "reconciliation").is_dir():
            return
        rows = pq.read_table(self.out / "reconciliation").to_pylist()
        self._count("audit", judge_audit(rows, list(self._specimen.facts.values()), _named(account)))

    def follow(self) -> None:
        """Losses by link; only the exact record says which."""
        account = self._run("follow", follow.run, follow.FollowOptions, skip_damaged=False, once=True, seconds=0.1)
        if account is None or self._specimen.filters:
            return
        alerts = pq.read_table(self.out / "alerts").to_pylist()
        self._count("follow", judge_follow(alerts, list(self._specimen.facts.values())))


def _named(account: JobReport) -> bool:
    """Whether the job says that something is missing."""
    # What a job says of absent brokers is in its summary, beside the files that it left out.
    return bool(account.damaged) or any("absent" in name or "missing" in name for name in account.summary)


def judge_audit(rows: Sequence[dict[str, Any]], facts: Sequence[Fact], incomplete: bool) -> Judgement:
    """The table `reconciliation` against what happened.

    Args:
        rows: the table.
        facts: of every message.
        incomplete: the job says itself that files or brokers are missing.
    """
    delivered = Counter(reader for fact in facts for reader in fact.received)
    for row in rows:
        least = row["messages"] - row["doubtful"]
        if row["about"] == "subscription" and row["outcome"] == "delivered":
            known = delivered[row["number"], row["other"]]
            if least > known + 0.5:
                reader = f"subscription {row['other']} at broker {row['number']}"
                return Judgement(Class.WRONG, f"{reader} got {known}, and the audit counts {row['messages']}")
    by_outcome = Counter[str]()
    for row in rows:
        if row["about"] == "origin":
            by_outcome[row["outcome"]] += row["messages"]
    lost = sum(fact.lost > 0 for fact in facts)
    if by_outcome["lost after hop"] > lost + 0.5:
        return Judgement(Class.WRONG, f"{lost} were lost, and the audit counts {by_outcome['lost after hop']}")
    if by_outcome.total() > len(facts):
        return Judgement(Class.WRONG, f"{len(facts)} messages entered, and the audit counts {by_outcome.total()}")
    vague = sum(by_outcome[outcome] for outcome in _VAGUE_OUTCOMES)
    if incomplete or vague:
        return Judgement(Class.VAGUE)
    if by_outcome and by_outcome.total() < len(facts):
        counted = f"{len(facts)} messages entered, and the audit counts {by_outcome.total()}"
        return Judgement(Class.WRONG, f"{counted} and says nothing of the others")
    return Judgement(Class.RIGHT)


def judge_follow(alerts: Sequence[dict[str, Any]], facts: Sequence[Fact]) -> Judgement:
    """Losses that `follow` tells, against those that happened."""
    happened = Counter(fact.lost for fact in facts if fact.lost)
    told = Counter[int]()
    for alert in alerts:
        if alert["alert"] == "loss after hop":
            told[alert["neighbour"]] += alert["messages"]
    for neighbour, messages in told.items():
        if messages > happened[neighbour]:
            return Judgement(
                Class.WRONG, f"{happened[neighbour]} were lost on the way to {neighbour}, and {messages} are told"
            )
    return Judgement(Class.RIGHT)
