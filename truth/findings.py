"""Findings on disk: what was done, what was asked, what was wrong, and the command that shows it again.

A finding is a folder with `finding.json`, `replay.sh`, and, if it is about the trail of a network, the trail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from postroad.messages import MessageId
from truth.facts import Fact
from truth.mutations import Mutation  # noqa: TC001  # msgspec reads it at run time
from truth.scenarios import Scenario  # noqa: TC001  # msgspec reads it at run time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Finding", "fact_of", "plain_fact", "read_finding", "write_finding"]

MOST_FINDINGS = 200


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong, and how to see it again.

    Attributes:
        why: what is wrong.
        source: who answered.
        id: the message that was asked for; empty where it is not about one.
        specimen: the kind of generated trail that was harmed; empty for others.
        mutations: what was done to the trail.
        scenario: what was done to the network; None for generated trails.
        fact: what is known of the message, if the trail is of a network.
        roster: (broker, number, login) of subscriptions, if the trail is of a network.
    """

    why: str
    source: str
    id: str = ""
    specimen: str = ""
    mutations: tuple[Mutation, ...] = ()
    scenario: Scenario | None = None
    fact: dict[str, object] | None = None
    roster: tuple[tuple[int, int, str], ...] = ()


def plain_fact(fact: Fact) -> dict[str, object]:
    """A fact as JSON has it."""
    return {
        "entered": fact.entered,
        "received": [list(one) for one in sorted(fact.received, key=str)],
        "missed": [list(one) for one in sorted(fact.missed, key=str)],
        "owed": [list(one) for one in sorted(fact.owed, key=str)],
    }


def fact_of(plain: Mapping[str, object]) -> Fact:
    """The fact that `plain_fact` wrote down."""

    def readers(name: str) -> frozenset[tuple[int, int | str]]:
        return frozenset((one[0], one[1]) for one in plain.get(name) or ())  # type: ignore[attr-defined]

    entered = plain["entered"]
    assert entered is None or isinstance(entered, bool)
    return Fact(entered, readers("received"), readers("missed"), owed=readers("owed"))


def write_finding(folder: Path, finding: Finding, files: Mapping[str, bytes] | None = None) -> Path:
    """Write a finding into a new folder, and answer which."""
    place = next(folder / f"{number:03d}" for number in range(10_000) if not (folder / f"{number:03d}").exists())
    place.mkdir(parents=True)
    (place / "finding.json").write_bytes(msgspec.json.format(msgspec.json.encode(finding), indent=2) + b"\n")
    script = place / "replay.sh"
    script.write_text(f"#!/bin/sh\n# {finding.why}\nexec scripts/truth --replay {place}\n", "utf-8")
    script.chmod(0o755)
    for path, data in (files or {}).items():
        target = place / "trail" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return place


def read_finding(place: Path) -> tuple[Finding, dict[str, bytes]]:
    """A finding and the files of its trail."""
    finding = msgspec.json.decode((place / "finding.json").read_bytes(), type=Finding)
    root = place / "trail"
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    if finding.id:
        MessageId.parse(finding.id)
    return finding, files
