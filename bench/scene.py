"""The paper's scenario, live: a broker with each recorder under 200 publishers, 500 subscribers and 500 topics.

Over sockets of this machine, at the paper's 5,000 messages/s for latency, disk forces and bytes, and flooded for
throughput. Turns of a broker without a recorder stand in between, and what is told as a ratio is against those nearest.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import scene_load
from bench.broker import tell
from bench.helpers import helping
from bench.peers import stage
from postroad.lab.papers.table_2 import BASE, RecorderSetup, setups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.helpers import Helper

__all__ = ["Shown", "live_scene", "show_scene"]

# A turn of `none` before every so many others, and one at the end.
OTHERS_BETWEEN = 3
PACED_SECONDS = 3.0
FLOOD_SECONDS = 1.5
# Long enough to see a force, whatever the interval.
PAST_INTERVAL_SECONDS = 1.5
HEADING = (
    f"{'recorder':9}{'row':15}{'Tp s':>5}{'commits/s':>11}{'fsyncs/s':>10}{'raw B':>8}{'stored B':>10}{'trail B':>9}"
    f"{'held B':>11}{'mean ms':>9}{'p50 ms':>8}{'p99 ms':>8}{'p50 ratio':>11}{'CPU us':>8}{'flood/s':>10}{'ratio':>7}"
)


class Shown(NamedTuple):
    """What a turn showed; bytes are per message, and so is the broker's processor time.

    Attributes:
        setup: of the broker.
        commits_per_s: buffers or sets of filters that were stored: the paper's disk forces.
        fsyncs_per_s: calls that force the disk: for the files, their directories, and the manifest.
        raw_bytes, stored_bytes: columns of the record before and after compression.
        trail_bytes: everything on disk, with names, times, footers and manifests.
        held_bytes: the most that the recorder held in memory, what waits for the disk included.
        mean_ms, p50_ms, p99_ms: latency at the paper's rate.
        cpu_us: processor time of the broker per message, at that rate.
        lost: deliveries.
        p50_ratio: of p50 to that of `none`.
        flood_per_s: messages a second when flooded; 0 where that was not measured.
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
    lost: int
    p50_ratio: float = 1.0
    flood_per_s: float = 0.0
    flood_ratio: float = 1.0

    def line(self) -> str:
        """For a table with `HEADING`."""
        recorder, row, interval = self.setup
        flood = f"{self.flood_per_s:>10,.0f}{self.flood_ratio:>7.2f}" if self.flood_per_s else f"{'-':>10}{'-':>7}"
        return (
            f"{recorder:9}{row:15}{interval:>5}{self.commits_per_s:>11.2f}{self.fsyncs_per_s:>10.1f}"
            f"{self.raw_bytes:>8.2f}{self.stored_bytes:>10.2f}{self.trail_bytes:>9.2f}{self.held_bytes:>11,}"
            f"{self.mean_ms:>9.2f}{self.p50_ms:>8.2f}{self.p99_ms:>8.2f}{self.p50_ratio:>11.2f}{self.cpu_us:>8.1f}{flood}"
        )


def live_scene(quick: bool = False) -> list[Shown]:
    """All turns, those of `none` among them, in order."""
    order = _with_base(setups(quick))
    with helping(stage.PROGRAM, "the broker") as broker, helping(scene_load.PROGRAM, "the clients") as clients:
        # The first broker of the process has memory to get and kernels to load.
        _turn(broker, clients, BASE, 1.0, flood=True)
        shown = []
        for place, setup in enumerate(order):
            tell(f"turn {place + 1} of {len(order)} {' '.join(map(str, setup))}")
            seconds = max(1.0 if quick else PACED_SECONDS, setup.interval_s + PAST_INTERVAL_SECONDS)
            shown.append(_turn(broker, clients, setup, seconds, flood=setup.interval_s == 1))
    tell("")
    return _against_base(shown)


def _with_base(others: Sequence[RecorderSetup]) -> list[RecorderSetup]:
    order: list[RecorderSetup] = []
    for place, setup in enumerate(others):
        order += [BASE, setup] if place % OTHERS_BETWEEN == 0 else [setup]
    return [*order, BASE]


def _turn(broker: Helper, clients: Helper, setup: RecorderSetup, seconds: float, flood: bool) -> Shown:
    clients.ask("connect", port=broker.ask("start", tracking=setup.tracking)["port"])
    # What joining costs, such as the names of subscribers, is not what messages cost.
    clients.ask("pace", seconds=0.2, warm_up=1.0)
    before = broker.ask("count")
    paced = clients.ask("pace", seconds=seconds, warm_up=0.0)
    after = broker.ask("count")
    clients.ask("close")
    stored = broker.ask("stop")
    if after["trouble"]:
        raise RuntimeError(f"{' '.join(map(str, setup))}: {after['trouble']}")
    elapsed = after["at"] - before["at"]
    # The trail has the messages of the warm-up too.
    kept = paced["messages"] + WARM_UP_MESSAGES
    shown = Shown(
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
        abs(paced["lost"]),
    )
    if not flood:
        return shown
    clients.ask("connect", port=broker.ask("start", tracking=setup.tracking)["port"])
    flooded = clients.ask("flood", seconds=FLOOD_SECONDS)
    clients.ask("close")
    broker.ask("stop")
    return shown._replace(flood_per_s=flooded["messages_per_s"], lost=shown.lost + abs(flooded["lost"]))


# Of the 1.2 s before anything counts.
WARM_UP_MESSAGES = int(1.2 * scene_load.RATE)


def _against_base(shown: list[Shown]) -> list[Shown]:
    """With ratios to the turns of `none` right before and right after."""
    bases = [place for place, one in enumerate(shown) if one.setup == BASE]
    found = []
    for place, one in enumerate(shown):
        if one.setup != BASE:
            before = shown[max(base for base in bases if base < place)]
            after = shown[min(base for base in bases if base > place)]
            p50 = (before.p50_ms + after.p50_ms) / 2
            flood = (before.flood_per_s + after.flood_per_s) / 2
            one = one._replace(p50_ratio=one.p50_ms / p50, flood_ratio=one.flood_per_s / flood)
        found.append(one)
    return found


def show_scene(shown: Sequence[Shown]) -> dict[str, Any]:
    """The table on the screen, and its chief figures."""
    print(f"the paper's scenario live, {scene_load.RATE:,} messages/s; bytes and processor time per message")
    print(HEADING)
    for one in shown:
        print(one.line())
    live: dict[str, Any] = {}
    for name in dict.fromkeys(one.setup.recorder for one in shown):
        some = [one for one in shown if one.setup.recorder == name]
        floods = [one for one in some if one.flood_per_s]
        live[name] = {
            "p50_ms": round(median(one.p50_ms for one in some), 3),
            "p99_ms": round(median(one.p99_ms for one in some), 3),
            "p50_ratio": round(median(one.p50_ratio for one in some), 3),
            "cpu_us": round(median(one.cpu_us for one in some), 1),
            "flood_per_s": round(median(one.flood_per_s for one in floods)),
            "flood_ratio": round(median(one.flood_ratio for one in floods), 3),
        }
    rows = {
        " ".join(map(str, one.setup)): {
            name: round(value, 3) for name, value in one._asdict().items() if name != "setup"
        }
        for one in shown
        if one.setup != BASE
    }
    return {"live": live, "live_rows": rows, "live_lost": sum(one.lost for one in shown)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench scene", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="one row for each recorder, shorter turns")
    chosen = parser.parse_args()
    # Told to end, it ends as after Ctrl-C: both processes are stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(json.dumps({"bench": "scene", "quick": chosen.quick, **show_scene(live_scene(chosen.quick))}))


if __name__ == "__main__":
    main()
