"""A finding once more, from the folder it was written to."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from postroad.messages import MessageId
from truth.classifier import Class
from truth.findings import fact_of, read_finding
from truth.fleet import Nursery
from truth.rounds import wrong_answer
from truth.specimens import SPECIMENS, make_specimen, specimen_of_files
from truth.stage import play

if TYPE_CHECKING:
    from pathlib import Path

    from truth.findings import Finding

__all__ = ["replay"]

# What a network does depends on the moment: a scenario is played so often before it counts as mended.
TIMES = 3


def replay(place: Path, folder: Path) -> int:
    """Show a finding; 1 if it is still there, 0 if not."""
    finding, files = read_finding(place)
    for mutation in finding.mutations:
        print(f"done to the trail: {mutation}")
    if finding.scenario is not None and not files:
        why = asyncio.run(_play(finding, folder))
    elif finding.source in ("files", ""):
        why = _ask(finding, files, folder)
    else:
        why = _run_jobs(finding, folder)
    print(f"still there: {why}" if why else "not seen any more")
    return 1 if why else 0


def _ask(finding: Finding, files: dict[str, bytes], folder: Path) -> str:
    identity = MessageId.parse(finding.id)
    if finding.specimen in SPECIMENS:
        specimen = make_specimen(finding.specimen, folder)
    elif finding.specimen == "compacted":
        from truth.bulk import bulk_specimen

        specimen = bulk_specimen(finding.specimen, folder)
    else:
        facts = {} if finding.fact is None else {identity: fact_of(finding.fact)}
        roster = {(broker, number): login for broker, number, login in finding.roster}
        specimen = specimen_of_files(files, folder / "trail", facts, roster, filters=True)
    return wrong_answer(specimen, finding.mutations, identity)


def _run_jobs(finding: Finding, folder: Path) -> str:
    from truth.bulk import run_jobs

    result = run_jobs(finding.specimen, folder, finding.mutations)
    found = [one for one in result.findings if one.source == finding.source]
    return found[0].why if found else ""


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


async def _play(finding: Finding, folder: Path) -> str:
    assert finding.scenario is not None
    nursery = Nursery()
    await nursery.start()
    try:
        for _ in range(TIMES):
            played = await play(finding.scenario, nursery, folder / "network", _tell)
            bad = [one for one in played.outcomes if one.judgement.kind in (Class.WRONG, Class.CAUSELESS)]
            for outcome in bad[:10]:
                print(f"{outcome.place}: {outcome.reply.id}: {outcome.reply.verdict}: {outcome.judgement.why}")
            others = [*played.doubled, *played.lost, *played.breaches]
            if bad or others:
                return bad[0].judgement.why if bad else others[0]
    finally:
        await nursery.stop()
    return ""
