"""Milliseconds that the loop is held by the worst clients we could construct, one attack for each limit."""

from __future__ import annotations

import argparse
import itertools
import json
import platform
from itertools import zip_longest
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

import numba
import numpy as np

from postroad.broker import Broker, BrokerError, Limits, PublisherNumbers
from postroad.errors import LimitError
from postroad.messages import Batch
from postroad.server.memory import set_apart_what_stays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from postroad.broker import Outbox, Session

# A value of a header line, about as long as one may be, and what one read from a socket holds.
TEXT = 60_000
READ = 256 * 1024


class Held(NamedTuple):
    """What one attack did.

    Attributes:
        subscriptions: how many the broker took before it refused one, or as many as the attack has.
        limit: the limit that ended it; empty for none.
        subscribe_ms: the longest that one SUBSCRIBE took.
        message_ms: the longest that the loop was held without a pause once messages came.
        charged_ms: what the broker took that turn to cost at most.
        turns: how many times the loop was held for them.
    """

    subscriptions: int
    limit: str
    subscribe_ms: float
    message_ms: float
    charged_ms: float
    turns: int


class Attack(NamedTuple):
    """Subscriptions, and what is sent then.

    Attributes:
        title: for the table.
        wanted: topic and selector of each subscription, spread over sessions.
        messages: what one read brings.
        leave: whether the subscriptions end before the messages come.
        per_session: subscriptions of one session.
    """

    title: str
    wanted: Callable[[int], Iterable[tuple[str, str]]]
    messages: Callable[[], Batch]
    leave: bool = False
    per_session: int = 1_000


def starred(number: int) -> str:
    return ".".join("*" if number >> place & 1 else f"l{place}" for place in range(17)) + ".end"


def hidden(number: int, size: int) -> str:
    """A piece of text that differs from others only where no look-up sees it, and is in no text of a alone."""
    unique = f"{number}b"
    return "a" * (size // 4) + unique + "a" * (size - size // 4 - len(unique))


def one(text: str = "", topic: str = "t", body: bytes = b"", **headers: str) -> Batch:
    lines = [*headers.items(), *([("x", text)] if text else [])]
    return Batch.build([(topic, {}, lines, body)])


def small(count: int, topic: str = "t") -> Batch:
    return Batch.build((topic, {}, [("x", str(row % 10))], b"." * 20) for row in range(count))


def grams() -> list[tuple[str, str]]:
    # Any topic: through a topic these would be reached without a look-up.
    return [(">", f"x LIKE '%{'a' * size}%'") for size in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)]


def conjunctions(count: int) -> Iterable[tuple[str, str]]:
    for number in range(count):
        yield "t", " AND ".join(f"x <> {number * 1_024 + term}" for term in range(1_024))


def like_conjunctions(count: int) -> Iterable[tuple[str, str]]:
    for number in range(count):
        yield "t", " AND ".join(f"x LIKE '%{number * 1_024 + term}_a%'" for term in range(1_024))


def lists(count: int) -> Iterable[tuple[str, str]]:
    for number in range(count):
        parts = (", ".join(f"'{number}-{part}-{term}'" for term in range(300)) for part in range(8))
        yield "t", " AND ".join(f"x NOT IN ({part})" for part in parts)


ATTACKS = {
    "like_20": Attack(
        "20 LIKE of 1,000 characters, a text of 60 KB of a",
        lambda scale: [("t", f"x LIKE '%{hidden(n, 960)}%a%'") for n in range(20)],
        lambda: one("a" * TEXT),
    ),
    "holes_20": Attack(
        "20 LIKE of 1,000 characters with a hole, the same text",
        lambda scale: [("t", f"x LIKE '%{hidden(n, 960)}_%a%'") for n in range(20)],
        lambda: one("a" * TEXT),
    ),
    "like_most": Attack(
        "as many LIKE of two parts as are taken",
        lambda scale: (("t", f"x LIKE '%{hidden(n, 240)}%a%'") for n in range(scale)),
        lambda: one("a" * TEXT),
    ),
    "holes_most": Attack(
        "as many LIKE of 1,000 characters with a hole as are taken",
        lambda scale: (("t", f"x LIKE '%{hidden(n, 960)}_%'") for n in range(scale)),
        lambda: one("a" * TEXT),
    ),
    "substring_most": Attack(
        "as many substrings as are taken",
        lambda scale: (("t", f"x LIKE '%{hidden(n, 240)}%'") for n in range(scale)),
        lambda: one("a" * TEXT),
    ),
    "programs_most": Attack(
        "as many ORs of 1,000 LIKE as are taken",
        lambda scale: (
            ("t", " OR ".join(f"x LIKE '%a_{n * 1_000 + term}b%'" for term in range(1_000))) for n in range(scale)
        ),
        lambda: one("a" * TEXT),
    ),
    "conjunctions_most": Attack(
        "as many ANDs of 1,024 conditions as are taken",
        conjunctions,
        lambda: one("5"),
    ),
    "like_conjunctions": Attack("as many ANDs of 1,024 LIKE as are taken", like_conjunctions, lambda: one("a" * TEXT)),
    "lists_most": Attack("as many lists of 2,400 texts as are taken", lists, lambda: one("5")),
    "grams": Attack(
        "substrings of every looked-up length, a text of 60 KB of a", lambda scale: grams(), lambda: one("a" * TEXT)
    ),
    "shapes_left": Attack(
        "topic patterns of all shapes, subscribed and unsubscribed",
        lambda scale: ((starred(n), "") for n in range(1, 6 * scale)),
        lambda: small(1_000, ".".join(f"l{place}" for place in range(17)) + ".end"),
        leave=True,
    ),
    "shapes_stay": Attack(
        "topic patterns of all shapes, and 1,000 messages",
        lambda scale: ((starred(n), "") for n in range(1, scale)),
        lambda: small(1_000, ".".join(f"k{place}" for place in range(17)) + ".end"),
    ),
    "names": Attack(
        "1,000 names in each message, each asked for by many",
        lambda scale: (("t", f"n{n % 4_000:07d} = '{n}'") for n in range(scale)),
        lambda: Batch.build([("t", {}, [(f"n{n:07d}", "1") for n in range(1_000)], b"")] * 20),
    ),
    "numbers": Attack(
        "1,000 numbers that only Python can round, in each of 4 messages",
        lambda scale: (("t", f"n{n} > 1") for n in range(1_000)),
        lambda: Batch.build([("t", {}, [(f"n{n}", "0." + "1" * 40) for n in range(1_000)], b"")] * 4),
    ),
    "everybody": Attack(
        "subscriptions that want everything, one message",
        lambda scale: (("t", "") for _ in range(scale)),
        lambda: small(1),
    ),
    "everything": Attack(
        "subscriptions that want everything, a full read",
        lambda scale: (("t", "") for _ in range(scale)),
        lambda: small(READ // 64),
    ),
    "large_body": Attack(
        "1,000 subscriptions of one session, one message of 1 MB",
        lambda scale: (("t", "") for _ in range(1_000)),
        lambda: one(body=b"." * 1_000_000),
    ),
    "long_texts": Attack(
        "as many selectors of full length as are taken",
        lambda scale: (("t", f"b = '{n:07d}{'x' * 32_000}'") for n in range(scale)),
        lambda: one(b="0000007" + "x" * 32_000),
    ),
}


def run(attack: Attack, scale: int) -> Held:
    blocks = itertools.count(1, 1_000)
    core = Broker(1, PublisherNumbers(lambda: next(blocks)), Limits(), in_turns=True, index_secret=12_345)
    publisher = core.attached("publisher")
    sessions: list[Session] = []
    taken, limit, longest = 0, "", 0.0
    for number, (topic, selector) in enumerate(attack.wanted(scale)):
        if number % attack.per_session == 0:
            sessions.append(core.attached("attacker"))
        start = thread_time()
        try:
            core.subscribe(sessions[-1], str(number), topic, selector)
            taken += 1
            if attack.leave:
                core.unsubscribe(sessions[-1], str(number), 0)
        except (BrokerError, LimitError) as error:
            limit = str(error).rpartition("(")[2].partition(")")[0]
        longest = max(longest, thread_time() - start)
        if limit and not limit.startswith("session_"):
            break
        if limit and number % attack.per_session:
            # This session has its share: the attacker opens another connection.
            sessions.append(core.attached("attacker"))
        if len(sessions) > 200:
            break
    # The least of three rounds: the broker's own code and arrays are not in the caches the first time.
    rounds = [deliver(core, publisher, attack.messages()) for _ in range(3)]
    message, charged = min(max(turns) for turns in rounds)
    return Held(taken, limit, longest * 1_000, message * 1_000, charged / 1e6, len(rounds[0]))


def deliver(core: Broker, publisher: Session, batch: Batch) -> list[tuple[float, int]]:
    """How long each turn took that the messages needed, in seconds, and what it was charged, in nanoseconds."""
    start = thread_time()
    read(core.receive(batch, publisher, 0))
    seconds = [thread_time() - start]
    while core.unfinished:
        start = thread_time()
        read(core.proceed(0))
        seconds.append(thread_time() - start)
    # Turns that only deliver match nothing.
    return list(zip_longest(seconds, charges(core, batch), fillvalue=0))


def charges(core: Broker, batch: Batch) -> Iterator[int]:
    """What each turn that matches some of the batch is charged, in nanoseconds."""
    at = 0
    while at < len(batch):
        offsets, _, charged = core.index.match_charged(batch.take(np.arange(at, len(batch))), core.turn_budget)
        at += len(offsets) - 1
        yield charged


def read(outbox: Outbox) -> int:
    """What a driver would write, without writing it."""
    return sum(len(delivery.rows) for delivery in outbox.deliveries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the subscriptions")
    parser.add_argument("--only", choices=ATTACKS, help="one attack")
    arguments = parser.parse_args()
    scale = 1_000 if arguments.quick else 10_000
    print(
        f"Python {platform.python_version()}, numpy {np.__version__}, numba {numba.__version__}; processor time of one"
        f" thread; up to {scale:,} subscriptions"
    )
    print(f"{'attack':62}{'subscr.':>9}{'SUBSCRIBE ms':>14}{'message ms':>12}{'charged ms':>12}{'turns':>7}  ended by")
    # As a broker does when it starts (`server/memory.py`): otherwise Python's collector looks at all code now and then.
    set_apart_what_stays()
    result: dict[str, object] = {"bench": "worst_cases", "scale": scale}
    worst = 0.0
    for name, attack in ATTACKS.items():
        if arguments.only in (None, name):
            held = run(attack, scale)
            worst = max(worst, held.message_ms, held.subscribe_ms)
            print(
                f"{attack.title:62}{held.subscriptions:>9,}{held.subscribe_ms:>14.2f}{held.message_ms:>12.2f}"
                f"{held.charged_ms:>12.2f}{held.turns:>7}  {held.limit}",
                flush=True,
            )
            result[f"{name}_ms"] = round(held.message_ms, 2)
            result[f"{name}_charged_ms"] = round(held.charged_ms, 2)
            result[f"{name}_subscribe_ms"] = round(held.subscribe_ms, 2)
    result["worst_ms"] = round(worst, 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
