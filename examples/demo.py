"""The demonstration: five brokers, orders and sensor readings, one broker killed, and where each message went.

python -m examples.demo [--messages N] [--keep DIR] [--json]

Every step is a command that a user could type; it is shown before it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from examples.demo_spark import SparkHelper, java_is_there
from examples.demo_traffic import TRICKLE_SECONDS, WISHES, DemoClients, DemoTraffic
from examples.demo_view import DemoView

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

BROKERS = 5
# The one that is killed: it has no clients, and lies between those of 2 and those of 4.
VICTIM = 3
MESSAGES = 3_000
# Published while the victim is dead, one after the other.
ROUND_MESSAGES = 100
# The bulk trace needs ids that nobody sent, too.
NEVER_SENT = 100
# The verdict on messages that passed a broker which died before it had written that, and how many there may be: those
# of its last moments.
IN_PART = "recorded in part"
MOST_IN_PART = 50
INTERRUPTED = 130
# A network comes up in some seconds; a machine that compiles kernels first may take minutes.
COMMAND_SECONDS = 600.0

_PROGRAM = (sys.executable, "-c", "from postroad.cli import main; main()")

NEXT = """\
What to try next:
  . .venv/bin/activate                                               `postroad` is a command of this shell then
  postroad network plan square --out plan.toml                       a network of your own
  postroad network up plan.toml --detach
  export POSTROAD_DIRECTORY=http://127.0.0.1:8160
  postroad subscribe 'orders.>' --where "amount > 100" &
  postroad publish orders.fr hello --attribute amount=250 --receipt
  postroad trace ID --network plan.network                           where it went
  postroad network stop plan.network
  scripts/demo --keep DIR                                            leave all files there to look at
  docs/tutorial.md                                                   the same step by step, and on from there"""


class Failure(Exception):
    """A step did not do what it should."""


class Story(NamedTuple):
    """One run of the demonstration: where its files are, and who tells it."""

    view: DemoView
    folder: Path

    @property
    def plan(self) -> Path:
        return self.folder / "plan.toml"

    @property
    def network(self) -> Path:
        return self.folder / "network"

    @property
    def trail(self) -> Path:
        return self.network / "trail"

    @property
    def out(self) -> Path:
        return self.folder / "reports"

    def command(self, *words: object, shown: str | None = None, allowed: tuple[int, ...] = (0,)) -> str:
        """Run `postroad …` as a user would; returns what it printed.

        Args:
            words: the arguments.
            shown: the line that is shown instead, where some arguments are of no interest.
            allowed: exit codes that are no failure.
        """
        texts = [str(word) for word in words]
        line = shlex.join(texts)
        self.view.command(f"postroad {line if shown is None else shown}")
        done = subprocess.run([*_PROGRAM, *texts], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
        if done.returncode not in allowed:
            raise Failure(f"`postroad {line}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def trace(self, what: str, message: object, *where: object) -> None:
        """Ask where a message went, and show it."""
        self.view.say(f"\n{what}:")
        print(self.command("trace", message, *where, allowed=(0, 1)).rstrip(), flush=True)


# --- the story --------------------------------------------------------------------------------------------------------


def demonstrate(view: DemoView, folder: Path, messages: int, without_spark: str) -> dict[str, Any]:
    """Run the whole thing in a folder; returns the figures."""
    story = Story(view, folder)
    compile_kernels(story)
    spark = None if without_spark else SparkHelper()
    try:
        view.chapter(f"A network of {BROKERS} brokers in a ring")
        write_plan(story.plan)
        up = ("network", "up", story.plan, "--data", story.network, "--detach", "--directory-port", 0, "--journal")
        with view.busy("starting the brokers"):
            told = story.command(*up, "--json", shown=f"network up {story.plan} --detach --journal")
        state = json.loads(told.splitlines()[-1])
        try:
            view.say(f"{len(state['brokers'])} brokers are up; their directory is {state['directory']}")
            traffic, kinds = asyncio.run(exchange(story, state, messages))
        finally:
            view.say(story.command("network", "stop", story.network).strip())
        view.chapter("Asked afterwards, from the files that the brokers left")
        for what, message in kinds.items():
            story.trace(what, message, "--trail", story.trail)
        return reports(story, spark, traffic, without_spark)
    finally:
        if spark is not None:
            spark.close()


def compile_kernels(story: Story) -> None:
    """What is compiled once is compiled first, and told."""
    with story.view.busy("making sure that all kernels are compiled; the first time that takes half a minute"):
        done = subprocess.run([*_PROGRAM, "warm"], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    if done.returncode:
        raise Failure(f"`postroad warm` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    if not done.stdout.startswith("all "):
        story.view.say(done.stdout.strip())


def write_plan(path: Path) -> None:
    """Five brokers on ports that are free now, under custody: what a broker that dies had is sent another way."""
    from postroad.network.ports import free_ports
    from postroad.topology import Plan, ring

    plan = Plan.of(ring(BROKERS), "demo", delivery="custody")
    ports = free_ports(2 * len(plan.brokers), set())
    text = plan.to_toml()
    for old, new in zip(sorted({p for b in plan.brokers for p in (b.port, b.link_port)}), ports, strict=True):
        text = text.replace(f"= {old}\n", f"= {new}\n")
    path.write_text(Plan.parse(text).to_toml(), "utf-8")


async def exchange(story: Story, state: dict[str, Any], messages: int) -> tuple[DemoTraffic, dict[str, str]]:
    """Subscribe, publish, kill a broker and publish on; returns what clients saw, and a message of each kind."""
    view = story.view
    addresses = {each["broker"]: each["address"] for each in state["brokers"]}
    pids = {each["broker"]: each["pid"] for each in state["brokers"]}
    view.chapter(f"{len(WISHES)} subscribers, 2 publishers, {messages:,} orders and sensor readings")
    for wish in WISHES:
        where = f" where {wish.where}" if wish.where else ""
        view.say(f"  {wish.name:<11} at broker {wish.broker}: {wish.topic}{where}")
    async with DemoClients(addresses) as clients:
        with view.busy("publishing"):
            published = await clients.publish(messages)
        traffic = clients.traffic
        copies = sum(len(got) for got in traffic.received.values())
        view.say(f"published {len(published):,} messages; subscribers got {copies:,} copies")
        most = max(published, key=traffic.copies)
        await asyncio.to_thread(story.trace, "Asked while the network runs", most, "--network", story.network)

        view.chapter(f"Broker {VICTIM} is killed; messages go round it")
        view.command(f"kill -9 {pids[VICTIM]}")
        os.kill(pids[VICTIM], signal.SIGKILL)
        with view.busy("publishing on"):
            after = await clients.publish(ROUND_MESSAGES, TRICKLE_SECONDS)
        arrived = [message for message in after if traffic.copies(message)]
        view.say(
            f"published {len(after)} more while it was dead: {len(arrived)} were wanted, and arrived. "
            f"Those who watch the network start it again."
        )
        # From the shop at broker 2 to the warehouse at broker 4: before, all of these went over broker 3.
        across = [message for message in arrived if str(message) in traffic.received["warehouse"]]
        round_it = across[min(1, len(across) - 1)] if across else arrived[0]
        await asyncio.to_thread(story.trace, "One that went round", round_it, "--network", story.network)
    unwanted = next(message for message in traffic.published if not traffic.copies(message))
    last = traffic.published[-1]
    never = type(last)(last.publisher, last.broker, last.time, last.counter + 7)
    return traffic, {
        "A message that was delivered": str(most),
        "One that nobody wanted": str(unwanted),
        "One that was never published": str(never),
    }


# --- Spark ------------------------------------------------------------------------------------------------------------


def reports(story: Story, spark: SparkHelper | None, traffic: DemoTraffic, without_spark: str) -> dict[str, Any]:
    """Spark over the same trail: every message at once, and the books balanced."""
    view = story.view
    figures: dict[str, Any] = {
        "messages": len(traffic.published),
        "deliveries_seen_by_clients": sum(len(got) for got in traffic.received.values()),
    }
    view.chapter("The same question for every message at once, on Spark")
    if spark is None:
        view.say(f"left out: {without_spark}")
        return figures
    last = traffic.published[-1]
    never = [type(last)(last.publisher, last.broker, last.time, last.counter + 100 + n) for n in range(NEVER_SENT)]
    ids = story.folder / "ids.txt"
    ids.write_text("\n".join(str(id) for id in (*traffic.published, *never)) + "\n", "utf-8")
    try:
        view.command(f"postroad pipeline trace --ids {ids} --trail {story.trail} --out {story.out}")
        with view.busy("Spark traces"):
            traced = spark.run("trace", story.trail, story.out, ids)
        view.command(f"postroad pipeline audit --trail {story.trail} --out {story.out}")
        with view.busy("Spark audits"):
            audited = spark.run("audit", story.trail, story.out)
    except RuntimeError as error:
        raise Failure(str(error)) from None
    check(traffic, traced, audited)
    return {**figures, "trace": traced, "audit": audited}


def check(traffic: DemoTraffic, traced: dict[str, Any], audited: dict[str, Any]) -> None:
    """What Spark found on the trail is what the clients saw, or the demonstration has failed.

    The broker that was killed had not written its last records: a message that was delivered and had just passed it
    may be recorded in part, and then the trace says so.
    """
    wanted = len(set[str]().union(*traffic.received.values()))
    expected = {"delivered": wanted, "matched nobody": len(traffic.published) - wanted}
    for name, found in (("trace", traced), ("audit", audited)):
        told, in_part = {verdict: found.get(verdict, 0) for verdict in expected}, found.get(IN_PART, 0)
        told["delivered"] += in_part
        if told != expected or in_part > MOST_IN_PART:
            raise Failure(f"clients saw {expected}, but `pipeline {name}` found {found}")
    if traced.get("never accepted") != NEVER_SENT:
        raise Failure(f"{NEVER_SENT} ids were never sent, but `pipeline trace` found {traced}")


def text_of(figures: dict[str, Any]) -> str:
    """The report for people."""
    lines = [
        "",
        f"{figures['messages']:,} messages published; clients got {figures['deliveries_seen_by_clients']:,} copies.",
    ]
    if "trace" in figures:
        lines.append(f"Spark, {figures['messages'] + NEVER_SENT:,} ids of which {NEVER_SENT} were never sent:")
        lines += [f"  {name.replace('_', ' ')}: {value}" for name, value in figures["trace"].items()]
        lines.append("Reconciliation:")
        lines += [f"  {name.replace('_', ' ')}: {value}" for name, value in figures["audit"].items()]
        lines.append("The books balance: what Spark found on the trail is what the clients saw.")
        if in_part := figures["trace"].get(IN_PART, 0):
            lines.append(f"{in_part} of them had just passed the broker that was killed, and are recorded in part.")
    return "\n".join([*lines, "", NEXT])


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Run a network, publish, kill a broker, trace, and read the trail with Spark. "
        "`scripts/demo matching` shows the subscription index alone.",
    )
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help=f"how many ({MESSAGES:,})")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave everything there; deleted by default")
    parser.add_argument("--without-spark", action="store_true", help="leave Spark out")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object at the end")
    chosen = parser.parse_args(given)
    if not 100 <= chosen.messages <= 1_000_000:
        parser.error(f"--messages takes 100 to 1,000,000, not {chosen.messages:,}")
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns the exit status."""
    given = sys.argv[1:] if given is None else given
    if given and given[0] == "matching":
        from examples import matching_demo

        return matching_demo.main(given[1:])
    chosen = arguments(given)
    view = DemoView()
    without_spark = "you asked for it" if chosen.without_spark else java_is_there()
    folder = chosen.keep or Path(tempfile.mkdtemp(prefix="postroad-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        figures = demonstrate(view, folder, chosen.messages, without_spark)
    except KeyboardInterrupt:
        view.say("\nstopped")
        return INTERRUPTED
    except Failure as failure:
        view.say(f"\nthe demonstration failed: {failure}")
        return 1
    finally:
        if chosen.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"demo": "network", **figures}) if chosen.json else text_of(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
