"""The way of a message inside one broker, without sockets: microseconds per message, by stage."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING

import numpy as np

from bench.stopwatch import Side, best_of
from bench.traffic import MATCHING, cycle, idle_selectors
from postroad.broker import Broker, PublisherNumbers
from postroad.lab.load_frames import Stomp
from postroad.matching import SubscriptionIndex
from postroad.protocols.stomp import StompDecoder, Version, message_prefix, render_messages, render_rows
from postroad.server.memory import keep_freed_memory
from postroad.sessions import Dispatcher, Terms
from postroad.sessions.stomp import StompConversation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroad.messages import Batch
    from postroad.sessions import SharedBytes

TOPIC = "bench.10000"
BODY = 100
# What a busy connection gives in one read, and what one gives whose client writes little at a time.
READS = (256 * 1024, 64 * 1024, 4 * 1024)
IDLE = 10_000
ROUNDS = 15
SECONDS = 0.05

_CONNECT = b"CONNECT\naccept-version:1.2\nhost:bench\n\n\0\n"


class Nowhere:
    """A line that ends here: it counts what is written."""

    peer = "nobody"
    address = "nowhere"
    shares = True

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes | memoryview, shared: SharedBytes | None = None) -> None:
        self.written += len(data)

    def pause_reading(self) -> None:
        raise RuntimeError("the broker asked for a pause; nothing here is slow")

    def resume_reading(self) -> None:
        pass

    def connected(self) -> str:
        return ""

    def wake_at(self, when: int) -> None:
        pass

    def close(self) -> None:
        raise RuntimeError("the broker closed a connection")


def conversation(dispatcher: Dispatcher, selectors: Sequence[str]) -> tuple[StompConversation, Nowhere]:
    """A client that has connected and subscribed."""
    line = Nowhere()
    client = StompConversation(dispatcher, line, Terms())
    client.received(_CONNECT)
    for place, selector in enumerate(selectors):
        wanted = f"\nselector:{selector}" if selector else ""
        client.received(f"SUBSCRIBE\nid:{place}\ndestination:/topic/{TOPIC}{wanted}\n\n\0".encode())
    return client, line


def broker(subscribers: int, selector: str = "", idle: int = 0) -> StompConversation:
    """The publisher of a broker with so many subscribers that get everything, and idle ones that get nothing."""
    dispatcher = Dispatcher(Broker(1, PublisherNumbers(lambda: 1)))
    if idle:
        conversation(dispatcher, idle_selectors(idle))
    lines = [conversation(dispatcher, [selector])[1] for _ in range(subscribers)]
    publisher, _ = conversation(dispatcher, [])
    before = [line.written for line in lines]
    publisher.received(publications())
    assert all(line.written - start > len(publications()) for line, start in zip(lines, before, strict=True))
    return publisher


def publications() -> bytes:
    """The frames of one publisher; they can be sent over and over."""
    return cycle(lambda headers, body: Stomp().publication(TOPIC, headers, body), BODY)[0]


def cut(stream: bytes, size: int) -> list[bytes]:
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def index(idle: int) -> SubscriptionIndex:
    """One subscription by topic alone, or one by content and so many that nothing matches."""
    made = SubscriptionIndex()
    made.add("all", MATCHING if idle else None, TOPIC)
    for place, selector in enumerate(idle_selectors(idle)):
        made.add(place, selector, TOPIC)
    return made


def stages(reads: Sequence[bytes]) -> dict[str, Callable[[], object]]:
    """Each does its part of the work for all reads."""
    decoder = StompDecoder()
    decoder.receive(_CONNECT)
    batches: list[Batch] = [found for read in reads if (found := decoder.receive(read).batch) is not None]
    rows = [np.arange(len(batch)) for batch in batches]
    prefix = message_prefix("0", Version.V1_2)
    topic, content = index(0), index(IDLE)
    rendered = [render_rows(batch, every) for batch, every in zip(batches, rows, strict=True)]
    publishers = {"1_1": broker(1), "1_10": broker(10), "selectors_10000": broker(1, MATCHING, IDLE)}

    def feeding(publisher: StompConversation) -> Callable[[], object]:
        def feed() -> None:
            for read in reads:
                publisher.received(read)

        return feed

    return {
        "decode": lambda: [decoder.receive(read) for read in reads],
        "match, by topic": lambda: [topic.match(batch) for batch in batches],
        "match, 10,000 selectors": lambda: [content.match(batch) for batch in batches],
        "write, for one": lambda: [
            render_messages(batch, every, Version.V1_2, prefix) for batch, every in zip(batches, rows, strict=True)
        ],
        "write, for all": lambda: [render_rows(batch, every) for batch, every in zip(batches, rows, strict=True)],
        "write, for each": lambda: [
            each.for_subscription(prefix, every) for each, every in zip(rendered, rows, strict=True)
        ],
        **{f"all of it, {name}": feeding(publisher) for name, publisher in publishers.items()},
    }


def _call(work: Callable[[], object]) -> None:
    work()


def measure(size: int) -> dict[str, float]:
    """Microseconds per message of each stage, for one size of reads."""
    stream = publications()
    messages = stream.count(b"SEND\n")
    sides = {name: Side(_call, [work], SECONDS) for name, work in stages(cut(stream, size)).items()}
    return {name: 1e6 * seconds / messages for name, seconds in best_of(ROUNDS, sides).items()}


def main() -> None:
    keep_freed_memory()
    print(f"Python {platform.python_version()}, numpy {np.__version__}, one thread; best of {ROUNDS} rounds")
    found = {size: measure(size) for size in READS}
    print(f"{'microseconds per message; reads of':36}" + "".join(f"{size // 1024:>8} KiB" for size in READS))
    for name in found[READS[0]]:
        print(f"{name:36}" + "".join(f"{found[size][name]:12.3f}" for size in READS))
    result = {f"{size // 1024}k": {name: round(value, 4) for name, value in found[size].items()} for size in READS}
    print(json.dumps({"bench": "stages", **result}))


if __name__ == "__main__":
    main()
