"""What `postroad doctor` finds: on this machine, and in a running network."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from postroad.cli.admin_requests import (
    admin_base,
    admin_endpoint,
    admin_request,
    is_one_of_network,
    local_network,
    read_token,
)
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Asked", "Health", "Symptom", "network_symptoms", "skew_symptom"]

# What the record assumes about the clocks of brokers (docs/tracking.md).
MOST_SKEW_MS = 5_000


class Health(StrEnum):
    """How well something is."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"


class Symptom(NamedTuple):
    """What was checked, how it is, and what to do."""

    what: str
    health: Health
    found: str
    advice: str = ""


class Asked(NamedTuple):
    """One broker's answer, and what it says about its clock.

    Attributes:
        broker: its number.
        version: of its program.
        skew_ms: its clock minus this machine's.
        error_ms: the possible error of that: half of the time between request and response.
    """

    broker: int
    version: str
    skew_ms: float
    error_ms: float


def network_symptoms(
    where: str, token_file: Path | None, authority: Path | None, broker_skew_ms: int
) -> Iterator[Symptom]:
    """Yield the state of a running network: who answers, whose clock is off, who has another version.

    Args:
        where: its plan, data directory, or the admin address of one of its brokers.
        token_file: the token of the admin endpoints.
        authority: of their certificates.
        broker_skew_ms: how far clocks may differ, by the settings.
    """
    asked: list[Asked] = []
    try:
        admins, token, authority = _admins(where, token_file, authority)
    except PostroadError as error:
        yield Symptom("network", Health.BAD, str(error), "name a network that runs")
        return
    for base in admins:
        try:
            answer, one = _ask(base, token, authority)
        except PostroadError as error:
            yield Symptom("network", Health.BAD, str(error), "look at the log of this broker")
            continue
        asked.append(one)
        network = answer["network"]
        down = [] if network is None else [link["neighbour"] for link in network["neighbours"] if not link["up_now"]]
        for part, trouble in (("tracking", "trouble"), ("tracking", "ship_trouble"), ("store", "trouble")):
            if answer[part] is not None and answer[part][trouble]:
                found = f"broker {one.broker}: {part}: {answer[part][trouble]}"
                yield Symptom("network", Health.BAD, found, "see /health of this broker")
        if down:
            found = f"broker {one.broker}: no link to {', '.join(map(str, down))}"
            yield Symptom("network", Health.DOUBTFUL, found, "see whether they run, and whether they can be reached")
    if asked:
        yield _versions(asked)
        yield skew_symptom(asked, broker_skew_ms)


def _admins(where: str, token_file: Path | None, authority: Path | None) -> tuple[list[str], str, Path | None]:
    """Whom to ask, with which token and authority."""
    path = Path(where)
    if is_one_of_network(where):
        base, token, authority = admin_endpoint(where, token_file, authority)
        return [base], token, authority
    if "://" not in where and (path.exists() or path.suffix == ".toml"):
        found = local_network(path, token_file, authority)
        return [entry.admin for entry in found.brokers], read_token(found.token_file), found.authority
    return [admin_base(where)], read_token(token_file), authority


def _ask(base: str, token: str, authority: Path | None) -> tuple[dict[str, Any], Asked]:
    # The first exchange may have to import the client; the second measures the time.
    admin_request(base, "/status", token, authority=authority)
    before = time.time_ns()
    answer = admin_request(base, "/status", token, authority=authority)
    after = time.time_ns()
    middle = (before + after) / 2e6
    one = Asked(int(answer["broker"]), str(answer["version"]), answer["time"] - middle, (after - before) / 2e6)
    return answer, one


def _versions(asked: list[Asked]) -> Symptom:
    versions = {one.version for one in asked}
    found = f"{len(asked)} brokers answer, of version {', '.join(sorted(versions))}"
    if len(versions) > 1:
        old = ", ".join(f"broker {one.broker}: {one.version}" for one in asked)
        return Symptom("network", Health.DOUBTFUL, old, "`postroad network restart --rolling` brings all to the same")
    return Symptom("network", Health.GOOD, found)


def skew_symptom(asked: list[Asked], broker_skew_ms: int) -> Symptom:
    """Return whether the clocks of brokers are close enough; only what exceeds the error of measurement counts."""
    ahead = max(asked, key=lambda one: one.skew_ms)
    behind = min(asked, key=lambda one: one.skew_ms)
    if len(asked) == 1:
        return Symptom("clocks", Health.GOOD, f"only broker {ahead.broker} was asked: there is no clock to compare")
    apart, error = ahead.skew_ms - behind.skew_ms, ahead.error_ms + behind.error_ms
    least = max(0.0, apart - error)
    found = f"clocks are {apart:,.0f} ms apart, give or take {error:,.0f} ms"
    if error > broker_skew_ms and least <= broker_skew_ms:
        advice = f"brokers took too long to answer to tell {broker_skew_ms:,} ms; try again when they are less busy"
        return Symptom("clocks", Health.DOUBTFUL, found, advice)
    if least <= broker_skew_ms:
        return Symptom("clocks", Health.GOOD, found)
    found = f"broker {ahead.broker} is {apart:,.0f} ms ahead of broker {behind.broker}"
    advice = "set the clocks by NTP (chrony, systemd-timesyncd)"
    if least > MOST_SKEW_MS:
        return Symptom("clocks", Health.BAD, found, f"{advice}: traces are not certain beyond {MOST_SKEW_MS:,} ms")
    return Symptom("clocks", Health.DOUBTFUL, found, f"{advice}, or set tracking.broker_skew_ms above it")
