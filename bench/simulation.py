"""The simulator: broker events per second and core, how that changes from 100 to 1,000 brokers, and memory per broker.

An event is one message accepted, arrived, relayed or delivered at one broker, or one control frame that arrived. The
network is grown by a power law and routed by `drp`. Every sixth broker has a subscriber, and a topic is wanted at eight
brokers whatever the size, so that the same is asked of a message in small and large networks. Publishers send reads of
16 messages to one topic. Links have delay and bandwidth, and brokers take the time that the capacity model
gives. What is timed is the processor time of this process from the first message to the last delivery; the link state
is agreed on before, and not refreshed during the run.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
from random import Random
from time import process_time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import psutil  # type: ignore[import-untyped]

from postroad.broker import make_strategy
from postroad.lab.service_costs import MEASURED_TIMES
from postroad.messages import Batch, Draft
from postroad.simulation import LinkQuality, SimulatedNetwork
from postroad.topology import power_law

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 5
WANTED_AT = 8
SUBSCRIBING = 6
ROWS = 16
BODY = b"x" * 100
QUALITY = LinkQuality(delay_ms=(1, 10), bytes_per_ms=10_000)
LARGE, SMALL = 1_000, 100
# Events to be timed in each network.
EVENTS = 1_000_000
WIDTHS = (8, 11, 12, 11, 10, 11, 12)
TARGETS = {"events_per_s": 50_000, "growth_100_to_1000": 2.0}


class Measured(NamedTuple):
    """What one network took."""

    brokers: int
    events: int
    seconds: float
    setup_seconds: float
    memory_kb: float
    deliveries: int

    @property
    def per_second(self) -> float:
        return self.events / self.seconds


class Counting:
    """Counts deliveries."""

    def __init__(self) -> None:
        self.deliveries = 0

    def accepted(self, broker: int, client: int, batch: Batch, offered: int) -> None:
        pass

    def delivered(self, broker: int, subscription: object, batch: Batch, rows: NDArray[np.int64], now: int) -> None:
        self.deliveries += len(rows)


def measure(brokers: int, rows: int, events: int) -> Measured:
    """Build a network and let messages pass until so many events have happened."""
    gc.collect()
    process = psutil.Process()
    resident, began = process.memory_info().rss, process_time()
    random = Random(SEED)
    counting = Counting()
    net = SimulatedNetwork(
        power_law(brokers, SEED),
        lambda number, now: make_strategy("drp", number, now),
        random,
        quality=QUALITY,
        service=MEASURED_TIMES,
        observer=counting,
        silent=True,
    )
    topics = max(1, brokers // SUBSCRIBING // WANTED_AT)
    wanted = [0] * topics
    for place, broker in enumerate(net.graph.brokers[::SUBSCRIBING]):
        wanted[place % topics] += 1
        net.subscribe(broker, "one", f"topic.{place % topics}")
    net.agree()
    memory = (process.memory_info().rss - resident) / brokers / 1024
    setup = process_time() - began
    expected = 0
    first, began = net.events, process_time()
    while net.events - first < events:
        for broker in random.sample(net.graph.brokers, min(brokers, 100)):
            topic = random.randrange(topics)
            net.offer(broker, Batch.build([Draft(f"topic.{topic}", body=BODY)] * rows))
            expected += rows * wanted[topic]
        net.run(100)
    net.run(2_000)
    seconds = process_time() - began
    if counting.deliveries != expected:
        raise SystemExit(f"{counting.deliveries:,} deliveries, {expected:,} expected: this must never happen")
    return Measured(brokers, net.events - first, seconds, setup, memory, counting.deliveries)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench simulation", description=str(__doc__).splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the events")
    events = EVENTS // 10 if parser.parse_args().quick else EVENTS
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}")
    heads = zip(
        ("brokers", "rows/read", "events", "events/s", "set-up s", "kB/broker", "deliveries"), WIDTHS, strict=True
    )
    print("".join(f"{head:>{width}}" for head, width in heads))
    measure(20, ROWS, events // 20)
    found: dict[tuple[int, int], Measured] = {}
    for brokers, rows in ((SMALL, ROWS), (SMALL, 1), (LARGE, ROWS)):
        one = found[brokers, rows] = measure(brokers, rows, events if rows > 1 else events // 8)
        print(
            f"{brokers:>8,}{rows:>11}{one.events:>12,}{one.per_second:>11,.0f}{one.setup_seconds:>10.1f}"
            f"{one.memory_kb:>11,.0f}{one.deliveries:>12,}",
            flush=True,
        )
    small, large = found[SMALL, ROWS], found[LARGE, ROWS]
    result = {
        "bench": "simulation",
        "events_per_s": round(small.per_second),
        "events_per_s_1000_brokers": round(large.per_second),
        "events_per_s_reads_of_one": round(found[SMALL, 1].per_second),
        "growth_100_to_1000": round(small.per_second / large.per_second, 2),
        "memory_per_broker_kb": round(large.memory_kb),
        "setup_seconds_1000": round(large.setup_seconds, 1),
        "targets": TARGETS,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
