"""The demonstration: a network from nothing, real subscribers, some thousand messages, and where each of them went.

python -m examples.demo [--messages N] [--keep DIR] [--json]

Every step is a command that a user could type; it is shown before it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.client import Subscription
    from postroad.messages import MessageId

__all__ = ["main"]

MESSAGES = 3_000
# The bulk trace needs ids that nobody sent, too.
NEVER_SENT = 100
SEED = 1
TOPICS = ("stocks.acme", "stocks.globex", "buildings.heat")
INTERRUPTED = 130
# A network of four comes up in some seconds; a machine that compiles kernels first may take minutes.
COMMAND_SECONDS = 600.0
# Nothing more comes when nothing came for so long; deliveries take milliseconds.
QUIET_SECONDS = 1.0

_PROGRAM = (sys.executable, "-c", "from postroad.cli import main; main()")


class Wish(NamedTuple):
    """A subscriber of the demonstration."""

    name: str
    topic: str
    where: str


WISHES = (
    Wish("trader", "stocks.>", "price > 90"),
    Wish("auditor", "stocks.acme", ""),
    Wish("collector", "stocks.*", "price BETWEEN 20 AND 22"),
    Wish("heating", "buildings.>", "price < 12"),
)


class Failure(Exception):
    """A step did not do what it should."""


def say(text: str = "") -> None:
    """Tell what happens, on stderr: the report alone goes to stdout."""
    print(text, file=sys.stderr, flush=True)


def command(*words: object, show: bool = True, allowed: tuple[int, ...] = (0,)) -> str:
    """Run `postroad …` as a user would; answers what it printed."""
    texts = [str(word) for word in words]
    if show:
        say(f"\n$ postroad {shlex.join(texts)}")
    done = subprocess.run([*_PROGRAM, *texts], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    if done.returncode not in allowed:
        raise Failure(f"`postroad {shlex.join(texts)}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


# --- traffic ----------------------------------------------------------------------------------------------------------


class DemoTraffic(NamedTuple):
    """What clients saw: the ids that were published, and who got which."""

    published: list[MessageId]
    received: dict[str, set[str]]


async def exchange(directory: str, messages: int) -> DemoTraffic:
    """Subscribe at several brokers, publish at several, and count what arrives."""
    from postroad.client import connect

    draw = random.Random(SEED)
    received: dict[str, set[str]] = {wish.name: set() for wish in WISHES}
    published: list[MessageId] = []
    async with asyncio.TaskGroup() as group:
        clients = [connect(directory=directory, login=wish.name) for wish in WISHES]
        publishers = [connect(directory=directory, login=f"feed-{number}") for number in (1, 2)]
        for client in (*clients, *publishers):
            await client.__aenter__()
        subscriptions = [client.subscribe(wish.topic, wish.where) for client, wish in zip(clients, WISHES, strict=True)]
        readers = []
        for wish, subscription in zip(WISHES, subscriptions, strict=True):
            await subscription.__aenter__()
            readers.append(group.create_task(_read(subscription, received[wish.name])))
        # Interest spreads between brokers in moments; a message published before it arrives matches nobody elsewhere.
        await asyncio.sleep(2.0)
        drafts = [(draw.choice(TOPICS), {"price": draw.randint(1, 100)}) for _ in range(messages)]
        for number, (topic, attributes) in enumerate(drafts):
            sent = await publishers[number % len(publishers)].publish(topic, attributes, receipt=number % 100 == 0)
            assert sent is not None
            published.append(sent)
        await _quiet(received)
        for reader in readers:
            reader.cancel()
        for client in (*clients, *publishers):
            await client.__aexit__(None, None, None)
    return DemoTraffic(published, received)


async def _read(subscription: Subscription, got: set[str]) -> None:
    async for message in subscription:
        got.add(str(message.id))


async def _quiet(received: dict[str, set[str]]) -> None:
    """Wait until nothing more comes."""
    count, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        now = sum(len(ids) for ids in received.values())
        if now != count:
            count, since = now, time.monotonic()
        await asyncio.sleep(0.1)


# --- the story --------------------------------------------------------------------------------------------------------


def demonstrate(folder: Path, messages: int) -> dict[str, Any]:
    """Run the whole thing in a folder; answers the figures."""
    plan, network, out = folder / "plan.toml", folder / "network", folder / "reports"
    say("A network of four brokers, linked as a square with a diagonal.")
    write_plan(plan)
    say(f"\n$ postroad network up {plan} --detach")
    up = ("network", "up", plan, "--data", network, "--detach", "--directory-port", 0, "--json")
    state = json.loads(command(*up, show=False).splitlines()[-1])
    try:
        say(f"{len(state['brokers'])} brokers are up; their directory is {state['directory']}")
        say(f"\n{len(WISHES)} subscribers, 2 publishers, {messages:,} messages over the directory ...")
        traffic = asyncio.run(exchange(state["directory"], messages))
        one = examples(traffic)
        say("\nAsked while the network runs:")
        print(command("trace", one["delivered"], "--network", network), flush=True)
    finally:
        say(f"\n$ postroad network stop {network}")
        say(command("network", "stop", network, show=False).strip())
    say("\nAsked after the fact, from the trail on disk:")
    for kind in ("delivered", "matched nobody", "never existed"):
        say(f"\nA message that {'was ' if kind == 'delivered' else ''}{kind}:")
        print(command("trace", one[kind], "--trail", network / "trail", allowed=(0, 1)).rstrip(), flush=True)
    return {**reports(network / "trail", out, traffic), "examples": one}


def write_plan(path: Path) -> None:
    """Four brokers on ports that are free now."""
    from postroad.network.ports import free_ports
    from postroad.topology import Plan, square_with_diagonal

    plan = Plan.of(square_with_diagonal(), "demo")
    ports = free_ports(2 * len(plan.brokers), set())
    text = plan.to_toml()
    for old, new in zip(sorted({p for b in plan.brokers for p in (b.port, b.link_port)}), ports, strict=True):
        text = text.replace(f"= {old}\n", f"= {new}\n")
    path.write_text(Plan.parse(text).to_toml(), "utf-8")


def examples(traffic: DemoTraffic) -> dict[str, str]:
    """An id of each kind: the one that most subscribers got, one that nobody did, and one that was never given."""
    from postroad.messages import MessageId

    texts = [str(id) for id in traffic.published]
    copies = {text: sum(text in got for got in traffic.received.values()) for text in texts}
    last = traffic.published[-1]
    return {
        "delivered": max(texts, key=lambda text: copies[text]),
        "matched nobody": next(text for text in texts if not copies[text]),
        "never existed": str(MessageId(last.publisher, last.broker, last.time, last.counter + 7)),
    }


def reports(trail: Path, out: Path, traffic: DemoTraffic) -> dict[str, Any]:
    """Spark over the same trail: every message at once, and the books balanced."""
    from postroad.messages import MessageId

    last = traffic.published[-1]
    never = [MessageId(last.publisher, last.broker, last.time, last.counter + 100 + n) for n in range(NEVER_SENT)]
    ids = out.parent / "ids.txt"
    ids.write_text("\n".join(str(id) for id in (*traffic.published, *never)) + "\n", "utf-8")
    say("\nThe same question for every message at once, on Spark:")
    traced = json.loads(command("pipeline", "trace", "--ids", ids, "--trail", trail, "--out", out, "--json"))
    say("\nAnd the books: published, delivered, matched nobody, lost:")
    audited = json.loads(command("pipeline", "audit", "--trail", trail, "--out", out, "--json"))
    received = sum(len(got) for got in traffic.received.values())
    check(traffic, traced, audited)
    return {
        "messages": len(traffic.published),
        "deliveries_seen_by_clients": received,
        "trace": traced,
        "audit": audited,
    }


def check(traffic: DemoTraffic, traced: dict[str, Any], audited: dict[str, Any]) -> None:
    """What Spark found on the trail is what the clients saw, or the demonstration has failed."""
    wanted = len(set[str]().union(*traffic.received.values()))
    expected = {"delivered": wanted, "matched nobody": len(traffic.published) - wanted}
    for name, found in (("trace", traced), ("audit", audited)):
        told = {verdict: found.get(verdict, 0) for verdict in expected}
        if told != expected:
            raise Failure(f"clients saw {expected}, but `pipeline {name}` found {found}")
    if traced.get("never accepted") != NEVER_SENT:
        raise Failure(f"{NEVER_SENT} ids were never sent, but `pipeline trace` found {traced}")


def text_of(figures: dict[str, Any]) -> str:
    """The report for people."""
    traced, audited = figures["trace"], figures["audit"]
    lines = [
        "",
        f"{figures['messages']:,} messages published; clients got {figures['deliveries_seen_by_clients']:,} copies.",
        f"Bulk trace on Spark, {figures['messages'] + NEVER_SENT:,} ids of which {NEVER_SENT} were never sent:",
    ]
    lines += [f"  {name.replace('_', ' ')}: {value}" for name, value in traced.items() if name != "written"]
    lines.append("Reconciliation:")
    lines += [f"  {name.replace('_', ' ')}: {value}" for name, value in audited.items() if name != "written"]
    lines += ["", "The books balance: what Spark found on the trail is what the clients saw."]
    return "\n".join(lines)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Run a network, publish, trace, and read the trail with Spark. "
        "`scripts/demo matching` shows the subscription index alone.",
    )
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help=f"how many ({MESSAGES:,})")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave everything there; deleted by default")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object at the end")
    chosen = parser.parse_args(given)
    if not 100 <= chosen.messages <= 1_000_000:
        parser.error(f"--messages takes 100 to 1,000,000, not {chosen.messages:,}")
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    """Run the demonstration; answers the exit status."""
    given = sys.argv[1:] if given is None else given
    if given and given[0] == "matching":
        from examples import matching_demo

        return matching_demo.main(given[1:])
    chosen = arguments(given)
    folder = chosen.keep or Path(tempfile.mkdtemp(prefix="postroad-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        figures = demonstrate(folder, chosen.messages)
    except KeyboardInterrupt:
        say("\nstopped")
        return INTERRUPTED
    except Failure as failure:
        say(f"\nthe demonstration failed: {failure}")
        return 1
    finally:
        if chosen.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"demo": "network", **figures}) if chosen.json else text_of(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
