"""What the runs of the broker benchmark add up to: medians, ratios against targets, tables, one line of JSON."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.load import Outcome
from bench.outcomes import Outcomes, RatioTarget, rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BEFORE", "TARGETS", "Scores"]


TARGETS = (
    RatioTarget("vs_nats_1_1", "1_1", "nats", 1),
    RatioTarget("vs_nats_1_10", "1_10", "nats", 0.8),
    RatioTarget("vs_bare_relay_1_1", "1_1", "relay", 2),
    RatioTarget("vs_activemq_1_1", "1_1", "activemq", 15),
    RatioTarget("vs_activemq_1_10", "1_10", "activemq", 10),
    RatioTarget("vs_mosquitto_1_1", "1_1", "mosquitto", 5),
    RatioTarget("vs_activemq_10k_selectors", "selectors_10000", "activemq", 1_000),
)


# The contender that is an earlier Postroad.
BEFORE = "before"


def _median_ratio(pairs: list[tuple[Outcome, Outcome]], figure: str) -> float:
    """The median of the rounds' ratios; 0 if none was long enough for a tick of the processor's clock (10 ms)."""
    ratios = [getattr(ours, figure) / getattr(theirs, figure) for ours, theirs in pairs if getattr(theirs, figure)]
    return median(ratios) if ratios else 0.0


class Scores:
    """The outcomes of all rounds, by case and contender."""

    def __init__(self) -> None:
        self._outcomes = Outcomes(Outcome, ("sent", "lost"))

    def add(self, case: str, contender: str, outcome: Outcome) -> None:
        """One run more."""
        self._outcomes.add(case, contender, outcome)

    def medians(self, case: str, contender: str) -> Outcome | None:
        """The median of each figure over the rounds; `sent` and `lost` are sums. None when there were no rounds."""
        return self._outcomes.medians(case, contender)

    def spread(self, case: str, contender: str) -> float:
        """The distance of the best and the worst round, as a part of the median."""
        rates = [outcome.messages_per_s for outcome in self._outcomes.runs(case, contender)]
        return (max(rates) - min(rates)) / median(rates)

    @property
    def lost(self) -> int:
        """Deliveries that failed to come, or came too often, in all runs."""
        return sum(abs(outcome.lost) for outcome in self._outcomes.all_runs())

    @property
    def others_busy(self) -> float:
        """Processors that other programs kept busy, in the median run."""
        return median(outcome.others_busy for outcome in self._outcomes.all_runs())

    def ratio(self, target: RatioTarget) -> float | None:
        """What was reached, of the medians; None when one of the two did not run."""
        return self._compared(target, lambda outcomes: median(each.messages_per_s for each in outcomes))

    def best_ratio(self, target: RatioTarget) -> float | None:
        """The same of the best rounds, those that other programs disturbed least."""
        return self._compared(target, lambda outcomes: max(each.messages_per_s for each in outcomes))

    def thrift(self, target: RatioTarget) -> float | None:
        """The same of messages per processor second of the broker, which other programs hardly change."""
        return self._compared(target, lambda outcomes: 1 / median(each.broker_cpu_s_per_million for each in outcomes))

    def _compared(self, target: RatioTarget, figure: Callable[[list[Outcome]], float]) -> float | None:
        ours, theirs = (self._outcomes.runs(target.case, name) for name in (target.ours, target.rival))
        return figure(ours) / figure(theirs) if ours and theirs else None

    def table(self) -> Iterator[str]:
        """A line for each case and contender."""
        yield (
            f"{'case':18}{'broker':12}{'messages/s':>12}{'deliveries/s':>14}{'CPU s/million':>15}"
            f"{'spread':>8}{'generator':>11}{'others':>8}{'p50 ms':>9}{'p99 ms':>9}{'lost':>6}"
        )
        for case, contender in self._outcomes:
            outcome = self.medians(case, contender)
            assert outcome is not None
            latency = f"{outcome.p50_ms:>9.2f}{outcome.p99_ms:>9.2f}" if outcome.p50_ms else f"{'':18}"
            yield (
                f"{case:18}{contender:12}{outcome.messages_per_s:>12,.0f}{outcome.deliveries_per_s:>14,.0f}"
                f"{outcome.broker_cpu_s_per_million:>15.2f}{self.spread(case, contender):>8.0%}"
                f"{outcome.generator_busy:>11.0%}{outcome.others_busy:>8.0%}{latency}{outcome.lost:>6,}"
            )

    def verdicts(self) -> Iterator[str]:
        """A line for each target, or for each case against an earlier version."""
        earlier = self.against_before()
        if earlier:
            yield f"{'against the earlier version':28}{'messages/s':>12}{'CPU s/message':>15}{'outside the kernel':>20}"
            for case, ratios in earlier.items():
                yield (
                    f"{case:28}{ratios['messages']:>12,.3f}{ratios['processor_time']:>15,.3f}"
                    f"{ratios['user_time']:>20,.3f}"
                )
            return
        yield f"{'target':28}{'at least':>10}{'reached':>10}{'best rounds':>13}{'per CPU s':>11}"
        for target in TARGETS:
            reached, best, thrift = self.ratio(target), self.best_ratio(target), self.thrift(target)
            if reached is None:
                yield f"{target.name:28}{target.least:>10,g}{'not run':>10}"
            else:
                word = "" if reached >= target.least else "   missed"
                yield f"{target.name:28}{target.least:>10,g}{reached:>10,.2f}{best:>13,.2f}{thrift:>11,.2f}{word}"

    def against_before(self) -> dict[str, dict[str, float]]:
        """By case, ours over the earlier one's: medians of the ratios of rounds, which ran one after the other.

        The kernel's part of a round differs by a factor of two without a change of ours (how full sockets happen to
        be), so the time outside the kernel is compared too.
        """
        found = {}
        for case, contender in self._outcomes:
            if contender == BEFORE:
                pairs = list(zip(self._outcomes.runs(case, "postroad"), self._outcomes.runs(case, BEFORE), strict=True))
                found[case] = {
                    "messages": _median_ratio(pairs, "messages_per_s"),
                    "processor_time": _median_ratio(pairs, "broker_cpu_s_per_million"),
                    "user_time": _median_ratio(pairs, "broker_user_s_per_million"),
                }
        return found

    def summary(self) -> dict[str, object]:
        """Everything, for the last line."""
        medians = self._outcomes.table()
        for case, contender in self._outcomes:
            medians[case][contender]["spread"] = round(self.spread(case, contender), 3)
        ratios = {target.name: self.ratio(target) for target in TARGETS}
        ratios |= {f"best_{target.name}": self.best_ratio(target) for target in TARGETS}
        ratios |= {f"cpu_{target.name}": self.thrift(target) for target in TARGETS}
        earlier = {"against_before": self.against_before()} if self.against_before() else {}
        totals = {"lost": self.lost, "others_busy": round(self.others_busy, 2), "medians": medians}
        return {**rounded(ratios), **earlier, **totals}
