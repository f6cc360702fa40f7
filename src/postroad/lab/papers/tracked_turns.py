"""The tracking paper's scenario, live: turns of a broker with each recorder under 200 publishers and 500 subscribers.

It uses sockets of this machine: at the paper's 5,000 messages/s for latency, disk forces and bytes, and flooded for
throughput. Turns of a broker without a recorder lie between the others, which are reported as ratios to these.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from postroad.lab.errors import LabError
from postroad.lab.helper_processes import helping
from postroad.lab.papers import tracked_clients, tracked_stage
from postroad.lab.papers.table_2 import BASE, RecorderSetup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from postroad.lab.helper_processes import Helper

__all__ = ["LiveTurns", "ShownTurn", "against_base", "live_turns", "with_base"]

# A turn of `none` before every this many others, and one at the end.
OTHERS_BETWEEN = 3
FLOOD_SECONDS = 1.5
# Before anything counts: the cost of joining, such as the names of subscribers, is not a cost of messages.
WARM_UP_SECONDS = 1.2
WARM_UP_MESSAGES = int(WARM_UP_SECONDS * tracked_clients.RATE)


class ShownTurn(NamedTuple):
    """The result of a turn; bytes are per message, and so is the broker's processor time.

    Attributes:
        setup: of the broker.
        commits_per_s: buffers or sets of filters that were stored: the paper's disk forces.
        fsyncs_per_s: calls that force the disk: for the files, their directories, and the manifest.
        raw_bytes, stored_bytes: columns of the record before and after compression.
        trail_bytes: everything on disk, with names, times, footers and manifests.
        held_bytes: the most that the recorder held in memory, including what waited for the disk.
        mean_ms, p50_ms, p99_ms: latency at the paper's rate.
        cpu_us: processor time of the broker per message, at that rate.
        p50_ratio: of p50 to that of `none`.
        flood_per_s: messages a second when flooded; 0 if that was not measured.
        flood_ratio: of that to `none`.
    """

    setup: RecorderSetup
    commits_per_s: float
    fsyncs_per_s: float
    raw_bytes: float
    stored_bytes: float
    trail_bytes: float
    held_bytes: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    p50_ratio: float = 1.0
    flood_per_s: float = 0.0
    flood_ratio: float = 1.0


class LiveTurns:
    """A process for brokers and one for their clients; kernels are loaded once for all turns."""

    def __init__(self, broker: Helper, clients: Helper) -> None:
        self._broker = broker
        self._clients = clients

    def play(self, setup: RecorderSetup, seconds: float, flood: bool) -> ShownTurn:
        """Run one broker under the paper's load for this long; with `flood` also under all that gets through.

        Raises:
            LabError: the broker is in trouble, or deliveries are missing: such a turn shows nothing.
        """
        broker, clients = self._broker, self._clients
        clients.ask("connect", port=broker.ask("start", tracking=setup.tracking)["port"])
        clients.ask("pace", seconds=0.2, warm_up=WARM_UP_SECONDS - 0.2)
        before = broker.ask("count")
        paced = clients.ask("pace", seconds=seconds, warm_up=0.0)
        after = broker.ask("count")
        clients.ask("close")
        stored = broker.ask("stop")
        self._check(setup, after["trouble"], paced["lost"])
        elapsed = after["at"] - before["at"]
        # The trail has the messages of the warm-up too.
        kept = paced["messages"] + WARM_UP_MESSAGES
        shown = ShownTurn(
            setup,
            (after["commits"] - before["commits"]) / elapsed,
            (after["fsyncs"] - before["fsyncs"]) / elapsed,
            stored["raw_bytes"] / kept,
            stored["compressed_bytes"] / kept,
            stored["trail_bytes"] / kept,
            after["held_most"],
            paced["mean_ms"],
            paced["p50_ms"],
            paced["p99_ms"],
            (after["cpu_seconds"] - before["cpu_seconds"]) / paced["messages"] * 1e6,
        )
        return shown._replace(flood_per_s=self._flood(setup)) if flood else shown

    def _flood(self, setup: RecorderSetup) -> float:
        self._clients.ask("connect", port=self._broker.ask("start", tracking=setup.tracking)["port"])
        flooded = self._clients.ask("flood", seconds=FLOOD_SECONDS)
        self._clients.ask("close")
        self._broker.ask("stop")
        self._check(setup, "", flooded["lost"])
        return float(flooded["messages_per_s"])

    @staticmethod
    def _check(setup: RecorderSetup, trouble: object, lost: int) -> None:
        named = " ".join(map(str, setup))
        if trouble:
            raise LabError(f"the broker with the recorder {named} is in trouble: {trouble}")
        if lost:
            raise LabError(f"{lost} deliveries of the broker with the recorder {named} did not come as sent")


@contextmanager
def live_turns() -> Iterator[LiveTurns]:
    """Both processes, as long as the context lasts."""
    with (
        helping(tracked_stage.PROGRAM, "the broker") as broker,
        helping(tracked_clients.PROGRAM, "the clients") as clients,
    ):
        turns = LiveTurns(broker, clients)
        # The first broker of a process has to get memory and load kernels.
        turns.play(BASE, 1.0, flood=True)
        yield turns


def with_base(others: Sequence[RecorderSetup]) -> list[RecorderSetup]:
    """Return the turns with those of `none` around them, in order."""
    order: list[RecorderSetup] = []
    for place, setup in enumerate(others):
        order += [BASE, setup] if place % OTHERS_BETWEEN == 0 else [setup]
    return [*order, BASE]


def against_base(shown: Sequence[ShownTurn]) -> list[ShownTurn]:
    """Add ratios to the turns of `none` right before and right after."""
    bases = [place for place, one in enumerate(shown) if one.setup == BASE]
    found = []
    for place, one in enumerate(shown):
        if one.setup != BASE:
            before = shown[max(base for base in bases if base < place)]
            after = shown[min(base for base in bases if base > place)]
            p50 = (before.p50_ms + after.p50_ms) / 2
            flood = (before.flood_per_s + after.flood_per_s) / 2
            one = one._replace(
                p50_ratio=one.p50_ms / p50, flood_ratio=one.flood_per_s / flood if one.flood_per_s else 0.0
            )
        found.append(one)
    return found
