"""What if: recorded traffic, replayed through another network in virtual time, beside its own network.

And a workload of one's own, played on a network that need not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.lab.errors import LabError
from postroad.lab.performance import Performance
from postroad.lab.raw_events import RawEvents
from postroad.lab.scenarios.recorded_trail import DEFAULT_MESSAGE_BYTES, RecordedScenario
from postroad.lab.service_costs import MEASURED_TIMES
from postroad.lab.simulated_stage import play_simulated
from postroad.simulation import LinkQuality
from postroad.topology import Graph, Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from postroad.lab.scenarios import Scenario
    from postroad.lab.scenarios.recorded_trail import RecordedTraffic
    from postroad.simulation import ServiceTimes

__all__ = ["PlayedTraffic", "ReplayComparison", "ReplayRequest", "play_workload", "replay"]

_LINKS = LinkQuality(delay_ms=(1, 10))


@dataclass(frozen=True)
class ReplayRequest:
    """How to play a record or a workload.

    Attributes:
        plan: the network to try.
        recorded: the plan of the recorded network; by default its links as recorded, routed by `drp`.
        message_bytes: of each message; by default from the record.
        speed: how many times as fast as it was.
        quality: how good the links of both networks are.
        service: how long brokers work on what arrives.
        seed: of the delays of links.
    """

    plan: Plan
    recorded: Plan | None = None
    message_bytes: int | None = None
    speed: float = 1.0
    quality: LinkQuality = _LINKS
    service: ServiceTimes = MEASURED_TIMES
    seed: int = 1


class PlayedTraffic(NamedTuple):
    """What a network did with a record or a workload.

    Attributes:
        name: of the network.
        messages: (from, to) -> messages over that link.
        bytes: (from, to) -> bytes over it.
        deliveries: pairs of a message and a broker that delivers it.
        missing: deliveries that did not happen.
        p50_ms, p99_ms: from publication to the broker that delivers.
        busiest_processor: the share of the time for which the busiest broker worked.
    """

    name: str
    messages: dict[tuple[int, int], int]
    bytes: dict[tuple[int, int], int]
    deliveries: int
    missing: int
    p50_ms: float
    p99_ms: float
    busiest_processor: float

    @property
    def total_bytes(self) -> int:
        """Return the bytes over all links."""
        return sum(self.bytes.values())

    @property
    def copies(self) -> int:
        """Return the number of pairs of a message and a link."""
        return sum(self.messages.values())

    @property
    def busiest(self) -> tuple[tuple[int, int], int]:
        """Return the link with the most bytes, and how many."""
        return max(self.bytes.items(), key=lambda one: (one[1], one[0]), default=((0, 0), 0))


class ReplayComparison(NamedTuple):
    """The record, its own network as simulated, and the other network.

    Attributes:
        record: what was played.
        before: the recorded network, simulated.
        after: the network of the plan.
        moved: recorded brokers that the plan does not have -> the broker that replaced them.
    """

    record: RecordedTraffic
    before: PlayedTraffic
    after: PlayedTraffic
    moved: dict[int, int]


def replay(
    record: RecordedTraffic, request: ReplayRequest, tell: Callable[[str, float], None] = lambda *_: None
) -> ReplayComparison:
    """Play a record through its own network, and through another one.

    Args:
        record: from `read_record`.
        request: the other network, and how to play.
        tell: called with which of the two plays, and which share is done.

    Raises:
        LabError: the record names no links, although its messages crossed some.
    """
    brokers = record.brokers
    if len(brokers) > 1 and not record.links and request.recorded is None:
        raise LabError("the trail has no links, so the network it came from is not known; give its plan (--recorded)")
    body = request.message_bytes or round(record.message_bytes) or DEFAULT_MESSAGE_BYTES
    before = request.recorded or Plan.of(Graph(brokers, record.links), "recorded")
    moved = _moved(brokers, request.plan)
    scenarios = {
        name: (
            plan,
            RecordedScenario(
                record, {one: _moved(brokers, plan).get(one, one) for one in brokers}, body, request.speed
            ),
        )
        for name, plan in (("recorded", before), ("planned", request.plan))
    }
    played = {name: _play(name, plan, scenario, request, tell) for name, (plan, scenario) in scenarios.items()}
    return ReplayComparison(record, played["recorded"], played["planned"], moved)


def play_workload(
    scenario: Scenario, request: ReplayRequest, tell: Callable[[str, float], None] = lambda *_: None
) -> PlayedTraffic:
    """Play a workload on the network of a plan.

    Args:
        scenario: the workload.
        request: the network, and how to play.
        tell: is told what plays, and which share is done.

    Raises:
        LabError: the workload has clients at a broker that the plan does not have.
    """
    used = {one.broker for one in scenario.subscribers()} | set(scenario.publications().brokers.tolist())
    planned = {broker.number for broker in request.plan.brokers}
    if missing := sorted(used - planned):
        raise LabError(
            f"the workload has clients at broker {missing[0]}, which the plan does not have; it has "
            f"{', '.join(map(str, sorted(planned)))}"
        )
    return _play("workload", request.plan, scenario, request, tell)


def _moved(brokers: list[int], plan: Plan) -> dict[int, int]:
    """Return recorded brokers that a plan does not have -> those that replace them, in turn."""
    planned = [broker.number for broker in plan.brokers]
    return {broker: planned[place % len(planned)] for place, broker in enumerate(brokers) if broker not in planned}


def _play(
    name: str, plan: Plan, scenario: Scenario, request: ReplayRequest, tell: Callable[[str, float], None]
) -> PlayedTraffic:
    performance = Performance(
        plan,
        scenario,
        request.quality,
        request.service,
        agreed=True,
        seed=request.seed,
        gather_us=1_000,
        sample_ms=60_000,
    )
    events = RawEvents()
    net = play_simulated(performance, events, lambda share: tell(name, share))
    tables = events.tables()
    accepted, delivered = tables["accepted"], tables["delivered"]
    waited = _waits(accepted, delivered)
    wanted = int(accepted.column("wanted").to_numpy().sum())
    use = tables["links"].to_pydict()
    messages: dict[tuple[int, int], int] = {}
    size: dict[tuple[int, int], int] = {}
    for one, other, count, data, control in zip(
        *(use[column] for column in ("source", "target", "messages", "data_bytes", "control_bytes")), strict=True
    ):
        messages[one, other] = messages.get((one, other), 0) + count
        size[one, other] = size.get((one, other), 0) + data + control
    lasted = max(1, net.timeline.now)
    busiest = max((net.host(broker).busy_us / lasted for broker in net.running), default=0.0)
    p50, p99 = (float(np.quantile(waited, share)) / 1e3 if len(waited) else 0.0 for share in (0.5, 0.99))
    return PlayedTraffic(name, messages, size, len(waited), wanted - len(waited), p50, p99, busiest)


def _waits(accepted: pa.Table, delivered: pa.Table) -> NDArray[np.int64]:
    """Return the microseconds from publication to each delivery."""
    names = ["origin", "time", "publisher", "counter"]
    began = accepted.select([*names, "at"]).rename_columns([*names, "began"])
    joined = delivered.select([*names, "at"]).join(began, names, join_type="inner")
    return np.asarray(joined.column("at").to_numpy() - joined.column("began").to_numpy())
