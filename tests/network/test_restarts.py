"""Brokers that die are started again, after growing pauses and not for ever; their network goes back to its plan."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import msgspec

from postroad.network import NetworkRun, Place, RunOptions, restarts
from postroad.network import run as network_run
from postroad.network.ports import free_ports
from postroad.network.restarts import MOST_RESTARTS, WITHIN_SECONDS, Restarts
from postroad.topology import Plan, Settings, tree
from tests.cli.programs import here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pytest

    from postroad.network import BrokerView, NetworkState, RestartProgress
    from tests.cli.programs import Outcome

# A bound for a process that hangs. Kernels may have to be compiled first, on a busy machine.
SECONDS = 280
# No other pause is as long.
PAUSE_SECONDS = 4.25


def test_pauses_grow_until_a_broker_died_too_often() -> None:
    counted = Restarts()
    pauses = [counted.died(1, now) for now in range(MOST_RESTARTS)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert counted.died(1, 100) is None
    # Another broker is another matter.
    assert counted.died(2, 100) == 1.0


def test_deaths_of_long_ago_do_not_count() -> None:
    counted = Restarts()
    for now in range(MOST_RESTARTS):
        counted.died(1, now)
    assert counted.died(1, WITHIN_SECONDS - 0.1) is None
    assert counted.died(1, WITHIN_SECONDS) == 16.0
    assert [counted.died(1, day * 86_400) for day in range(1, 9)] == [1.0] * 8


class News:
    """What a network says, and a bell that rings with it."""

    def __init__(self) -> None:
        self.views: dict[int, BrokerView] = {}
        self.events: list[tuple[Any, ...]] = []
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def _tell(self, *event: Any) -> None:
        self.events.append(event)
        self._changed.set()

    def looked(self, state: NetworkState, views: Sequence[BrokerView]) -> None:
        self.views = {view.broker: view for view in views}
        self._changed.set()

    def came_up(self, state: NetworkState, views: Sequence[BrokerView]) -> None:
        self._tell("up", [(view.parent, view.planned_parent) for view in views])

    def died(self, broker: int, how: str, tail: str, command: str) -> None:
        self._tell("died", broker, how)

    def restarts(self, broker: int, seconds: float) -> None:
        self._tell("restarts", broker, seconds)

    def restarted(self, broker: int, pid: int) -> None:
        self._tell("restarted", broker)

    def gave_up(self, broker: int, restarts: int, seconds: float) -> None:
        self._tell("gave up", broker, restarts)

    def rolled(self, progress: RestartProgress) -> None:
        self._tell("rolled", progress.done)

    def stopping(self) -> None:
        self._tell("stopping")

    def stopped(self, brokers: int, killed: int) -> None:
        self._tell("stopped", brokers)


def by_number(shown: Outcome) -> dict[int, dict[str, Any]]:
    """The brokers of a status in JSON."""
    return {one["broker"]: one for one in json.loads(shown.out)["brokers"]}


def plan_of_a_chain(path: Path) -> tuple[Plan, Path]:
    """Brokers 1, 2 and 3, each below the one before."""
    plan = Plan.of(tree(3, 1), "chain", strategy="tree", delivery="custody", settings=Settings(heartbeat_ms=400))
    ports = iter(free_ports(6, set()))
    replace = msgspec.structs.replace
    brokers = tuple(replace(one, port=next(ports), link_port=next(ports)) for one in plan.brokers)
    plan, file = replace(plan, brokers=brokers), path / "plan.toml"
    file.write_text(plan.to_toml())
    return plan, file


def test_a_killed_broker_is_started_again_its_children_return_and_at_last_it_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "MOST_RESTARTS", 1)
    monkeypatch.setattr(restarts, "FIRST_SECONDS", PAUSE_SECONDS)
    # The pause before the restart is over when its child was seen at its grandparent, however long that takes.
    seen, real = asyncio.Event(), vars(network_run)["_set_within"]

    async def set_within(event: asyncio.Event, seconds: float) -> bool:
        if seconds != PAUSE_SECONDS:
            return bool(await real(event, seconds))
        await seen.wait()
        return event.is_set()

    monkeypatch.setattr(network_run, "_set_within", set_within)
    plan, file = plan_of_a_chain(tmp_path)
    place = Place(file.with_suffix(".network"))

    def kill(broker: int) -> None:
        state = place.read()
        assert state is not None
        process = next(each.process for each in state.brokers if each.number == broker)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)

    async def status(*options: str, until: Callable[[Outcome], bool]) -> Outcome:
        """What the command shows; a broker that is slow to answer is asked again."""
        async with asyncio.timeout(SECONDS):
            while True:
                shown = await asyncio.to_thread(here, monkeypatch, "network", "status", str(file), *options)
                if until(shown):
                    return shown

    async def talk() -> None:
        news = News()
        run = NetworkRun(plan, file, place, news, RunOptions(directory_port=0, wait_seconds=SECONDS))
        running = asyncio.create_task(run.run())
        await news.until(lambda: bool(news.events) or running.done())
        # Up means: in the planned shape.
        assert news.events == [("up", [(0, 0), (1, 1), (2, 2)])]
        kill(2)
        await news.until(lambda: news.views[3].parent == 1)
        shown = await status(until=lambda shown: "1 (planned 2)" in shown.out)
        assert shown.code == 1
        seen.set()
        await news.until(lambda: {one.condition for one in news.views.values()} == {"ready"})
        assert news.views[3].parent == 2
        assert news.events[1:] == [("died", 2, "ended by SIGKILL"), ("restarts", 2, PAUSE_SECONDS), ("restarted", 2)]
        assert (news.views[2].restarts, news.views[2].given_up) == (1, False)
        kill(2)
        await news.until(lambda: ("gave up", 2, 1) in news.events)
        await news.until(lambda: (news.views[3].parent, news.views[3].condition) == (1, "degraded"))
        shown = await status("--json", until=lambda shown: by_number(shown)[3]["parent"] is not None)
        told = by_number(shown)
        assert (told[2]["condition"], told[2]["restarts"], told[2]["given_up"]) == ("dead", 1, True)
        assert (told[3]["parent"], told[3]["planned_parent"]) == (1, 2)
        run.stop()
        await running
        assert news.events[-1] == ("stopped", 2)

    asyncio.run(talk())
