"""What tests of simulated networks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from postroad.broker import NoRecorder, make_strategy
from postroad.topology import Graph, line, power_law, ring, square_with_diagonal, star
from postroad.tracking.reasons import Detour

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.messages import Batch, MessageId
    from postroad.routing.contract import Strategy
    from postroad.simulation import SimulatedNetwork
    from postroad.simulation.network import MakeStrategy
    from postroad.topology import Settings, StrategyName

SETTLED_MS = 3_000

cyclic = st.one_of(
    st.integers(3, 8).map(ring),
    st.just(square_with_diagonal()),
    st.builds(power_law, st.integers(4, 9), seed=st.integers(0, 50)),
)
graphs = st.one_of(cyclic, st.integers(1, 7).map(line), st.integers(2, 7).map(star))


def strategy(kind: StrategyName, custody: bool = False, settings: Settings | None = None) -> MakeStrategy:
    """Makes the strategy of each broker."""

    def made(number: int, now: int) -> Strategy:
        return make_strategy(kind, number, now, custody=custody, settings=settings)

    return made


class Losses(NoRecorder):
    """Remembers what was dropped or shed for good, by id; what only waits for a way is not lost."""

    def __init__(self) -> None:
        self.ids: set[MessageId] = set()
        self.reasons: set[str] = set()

    def shed(self, batch: Batch, rows: Any, subscription: int, reason: str, now: int) -> None:
        self.dropped(batch, rows, 0, reason, now)

    def dropped(self, batch: Batch, rows: Any, link: int, reason: str, now: int) -> None:
        if reason in (Detour.HELD, Detour.SENT_ON):
            return
        self.ids.update(batch.message(row).id for row in rows.tolist())
        self.reasons.add(reason)


def reachable(graph: Graph, start: int, without: Iterable[int]) -> set[int]:
    """The brokers that a broker reaches on ways without some others."""
    seen, waiting, gone = {start}, [start], set(without)
    while waiting:
        for neighbour in graph.neighbours(waiting.pop()):
            if neighbour not in seen | gone:
                seen.add(neighbour)
                waiting.append(neighbour)
    return seen


def at_rest(net: SimulatedNetwork, living: Iterable[int]) -> bool:
    """Whether nothing is under way, and nobody waits for anything."""
    return not net.paused and all(
        not any(net.link(broker, other).unconfirmed for other in net.graph.neighbours(broker))
        and net.relay(broker).statistics().open_frames_now == 0
        and net.relay(broker).statistics().held_now == 0
        for broker in living
    )
