"""What the runs of the benchmark of durability add up to: medians, ratios against targets, tables, one line of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.durable_load import DurableOutcome
from bench.outcomes import Outcomes, RatioTarget, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["DURABLE_TARGETS", "DurableScores"]


DURABLE_TARGETS = (
    RatioTarget("interval_vs_jetstream_1_1", "1_1_100", "jetstream", 2, "postroad interval"),
    RatioTarget("always_vs_activemq_1_1", "1_1_100", "activemq always", 10, "postroad always"),
    RatioTarget("always_vs_rabbitmq_1_1", "1_1_100", "rabbitmq", 5, "postroad always"),
    RatioTarget("drain_vs_rabbitmq", "drain", "rabbitmq", 10, "postroad always"),
)
TEN_BYTES_MOST = 1.2
OFF_COST_LEAST = 0.97


class DurableScores:
    """The outcomes of all runs, by case and broker.

    Args:
        meaning: what a confirmation of each broker means.

    Attributes:
        recovery: messages a second that our recovery takes up; 0 when it was not measured.
        ten_bytes: bytes on disk with ten durable subscribers over those with one.
        off_cost: the plain relay with a store that nobody uses, over the same without.
    """

    def __init__(self, meaning: Mapping[str, str]) -> None:
        self._meaning = meaning
        self._outcomes = Outcomes(DurableOutcome, ("lost",))
        self._restarts: dict[str, float] = {}
        self.recovery = self.ten_bytes = self.off_cost = 0.0

    def add(self, case: str, broker: str, outcome: DurableOutcome) -> None:
        """One run more."""
        self._outcomes.add(case, broker, outcome)

    def restart(self, broker: str, seconds: float) -> None:
        """A broker was killed with a backlog: so long from its start until the first message came."""
        self._restarts[broker] = seconds

    def medians(self, case: str, broker: str) -> DurableOutcome | None:
        """The median of each figure; `lost` is a sum. None without runs."""
        return self._outcomes.medians(case, broker)

    def ratio(self, target: RatioTarget) -> float | None:
        """What was reached; None when one of the two did not run."""
        ours, theirs = self.medians(target.case, target.ours), self.medians(target.case, target.rival)
        return None if ours is None or theirs is None else ours.messages_per_s / theirs.messages_per_s

    def thrift(self, target: RatioTarget) -> float | None:
        """The same of messages per processor second of the broker."""
        ours, theirs = self.medians(target.case, target.ours), self.medians(target.case, target.rival)
        return None if ours is None or theirs is None else theirs.broker_cpu_us / ours.broker_cpu_us

    def table(self) -> Iterator[str]:
        """A line for each case and broker."""
        yield (
            f"{'case':17}{'broker':19}{'messages/s':>12}{'CPU us each':>13}{'generator':>11}{'others':>8}"
            f"{'messages':>11}{'lost':>9}{'late':>9}  a confirmation means"
        )
        for case, broker in sorted(self._outcomes, key=lambda each: each[0]):
            found = self.medians(case, broker)
            assert found is not None
            yield (
                f"{case:17}{broker:19}{found.messages_per_s:>12,.0f}{found.broker_cpu_us:>13.2f}"
                f"{found.generator_busy:>11.0%}{found.others_busy:>8.0%}{found.messages:>11,.0f}{found.lost:>9,}{found.late:>9,.0f}"
                f"  {self._meaning.get(broker, 'nothing') if not case.startswith('burst') else 'none was asked for'}"
            )
        for broker, seconds in self._restarts.items():
            yield f"{'restart':17}{broker:19}{seconds:>12.1f} s from its start after kill -9 until the first message"

    def verdicts(self) -> Iterator[str]:
        """A line for each target."""
        yield f"{'target':28}{'wanted':>10}{'reached':>12}{'per CPU s':>11}"
        for target in DURABLE_TARGETS:
            reached, thrift = self.ratio(target), self.thrift(target)
            if reached is None or thrift is None:
                yield f"{target.name:28}{target.least:>8,g}+ {'not run':>12}"
            else:
                word = "" if reached >= target.least else "   missed"
                yield f"{target.name:28}{target.least:>8,g}+ {reached:>12,.2f}{thrift:>11,.2f}{word}"
        missed = "   missed" if self.ten_bytes > TEN_BYTES_MOST else ""
        yield f"{'ten_durable_bytes_vs_one':28}{TEN_BYTES_MOST:>8,g}- {self.ten_bytes:>12,.3f}{missed}"
        missed = "   missed" if self.off_cost < OFF_COST_LEAST else ""
        yield f"{'off_cost':28}{OFF_COST_LEAST:>8,g}+ {self.off_cost:>12,.3f}{missed}"
        yield f"{'recovery_messages_per_s':28}{'':10}{self.recovery:>12,.0f}"

    def summary(self) -> dict[str, object]:
        """Everything, for the last line."""
        ratios = {each.name: self.ratio(each) for each in DURABLE_TARGETS}
        ratios |= {f"cpu_{each.name}": self.thrift(each) for each in DURABLE_TARGETS}
        return {
            **rounded(ratios),
            "ten_durable_bytes_vs_one": round(self.ten_bytes, 3),
            "recovery_messages_per_s": round(self.recovery),
            "off_cost": round(self.off_cost, 3),
            "restart_seconds": {name: round(seconds, 2) for name, seconds in self._restarts.items()},
            "medians": self._outcomes.table(),
        }
