"""Workloads for networks: the same from the same seed, wanted as often as they say, refused where they are wrong."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.lab.errors import LabError
from postroad.lab.scenarios import (
    SCENARIOS,
    ContentScenario,
    FewNamesScenario,
    FilterGridScenario,
    FloodScenario,
    TrackedScenario,
    Truth,
    read_workload,
    scenario_of,
)
from postroad.lab.scenarios.scenario import poisson_times
from postroad.messages import Batch
from postroad.selectors import Selector, TopicPattern
from postroad.topology import Plan, line, ring
from tests.cli.programs import here

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.lab.scenarios import Scenario

SMALL: dict[str, Scenario] = {
    "content": ContentScenario(clients=16, rates=(5.0, 20.0), seconds=2.0, seed=3),
    "few-names": FewNamesScenario(rates=(50.0, 200.0), seconds=1.0),
    "tracked": TrackedScenario(seconds=0.1),
    "filter-grid": FilterGridScenario(others=7, copies=3, seconds=0.1),
    "flood": FloodScenario(subscriptions=30, publications_each=40.0),
}

DESCRIBED = """
version = 1
kind = "described"
brokers = 3
seconds = 2.0
seed = 5

[values]
stock = { choices = ["A", "B", "C"] }
price = { from = 1, to = 100 }

[[subscribers]]
count = 12
topic = "quotes.{stock}"
selector = "price > {price}"

[[publishers]]
count = 4
brokers = [1, 3]
topic = "quotes.{stock}"
attributes = ["stock", "price"]
rate = 20.0
rate_end = 40.0
body = 50
"""


def described(tmp_path: Path, text: str = DESCRIBED) -> Scenario:
    path = tmp_path / "workload.toml"
    path.write_text(text)
    return read_workload(path)


def test_every_kind_of_workload_is_tried_here() -> None:
    assert SMALL.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("kind", SMALL)
def test_a_workload_is_the_same_from_the_same_seed_and_another_from_another(kind: str) -> None:
    one, again = SMALL[kind], scenario_of(kind, {k: v for k, v in SMALL[kind].settings().items() if k != "kind"})
    assert one == again
    assert one.subscribers() == again.subscribers()
    drawn, redrawn = one.publications(), again.publications()
    assert (drawn.at == redrawn.at).all()
    assert (drawn.brokers == redrawn.brokers).all()
    rows = range(min(20, len(drawn)))
    assert [drawn.draft(row) for row in rows] == [redrawn.draft(row) for row in rows]
    other = dataclasses.replace(one, seed=99).publications()  # type: ignore[type-var]
    assert drawn.at[:5].tolist() != other.at[:5].tolist()


@pytest.mark.parametrize("kind", SMALL)
def test_times_rise_and_brokers_and_clients_are_there(kind: str) -> None:
    drawn = SMALL[kind].publications()
    assert len(drawn) > 10
    assert (np.diff(drawn.at) >= 0).all()
    assert drawn.brokers.min() >= 1
    assert drawn.clients.min() >= 0


def test_who_wants_a_message_is_what_evaluating_every_selector_says(tmp_path: Path) -> None:
    scenario = described(tmp_path)
    subscribers, publications = scenario.subscribers(), scenario.publications()
    rows = range(len(publications))
    batch = publications.batch(rows)
    clients, brokers = Truth(subscribers).counts(batch)
    for row in rows:
        draft = publications.draft(row)
        wanting = [
            one
            for one in subscribers
            if TopicPattern.parse(one.topic).matches(draft.topic)
            and Selector.parse(one.selector).matches(draft.attributes)
        ]
        assert (clients[row], brokers[row]) == (len(wanting), len({one.broker for one in wanting}))
    assert clients.max() > 1


def test_content_workload_states_the_replication_of_the_paper() -> None:
    found = [ContentScenario(rates=(10.0, 10.0), seconds=2.0, seed=seed).replication() for seed in range(1, 6)]
    assert np.mean([one.clients for one in found]) == pytest.approx(4.2, abs=0.3)
    assert np.mean([one.brokers for one in found]) == pytest.approx(3.3, abs=0.2)


def test_few_names_reach_about_27_of_50_clients() -> None:
    for seed in range(5):
        found = FewNamesScenario(rates=(500.0, 500.0), seconds=1.0, seed=seed).replication()
        assert found.clients == pytest.approx(27, abs=1)


def test_filter_grid_gives_exactly_its_copies() -> None:
    found = FilterGridScenario(others=40, copies=5).replication()
    assert (found.clients, found.brokers, found.variance, found.unwanted) == (5.0, 1.0, 0.0, 0.0)


def test_a_rising_rate_rises() -> None:
    times = poisson_times(np.random.default_rng(1), (10.0, 1_000.0), 10.0)
    counts = np.bincount(times // 1_000_000, minlength=10)
    expected = [10 + 99 * (second + 0.5) for second in range(10)]
    assert counts == pytest.approx(expected, rel=0.25, abs=15)


def test_a_described_workload_draws_what_its_file_says(tmp_path: Path) -> None:
    scenario = described(tmp_path)
    assert {one.broker for one in scenario.subscribers()} == {1, 2, 3}
    publications = scenario.publications()
    assert set(publications.brokers.tolist()) == {1, 3}
    assert 60 < len(publications) < 400
    batch = Batch.build([publications.draft(row) for row in range(50)])
    for message in batch:
        assert message.topic.removeprefix("quotes.") == message.attributes["stock"]
        assert 1 <= int(str(message.attributes["price"])) <= 100
        assert len(message.body) == 50
    assert scenario.settings()["publishers"][0]["rate_end"] == 40.0


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("version = 1", "version = 2", "version: this is for workloads of version 1"),
        ('kind = "described"', 'kind = "nonsense"', "brokers: only a workload of kind 'described'"),
        ("count = 12", "count = 0", "subscribers[0].count: this has to be 1 or more"),
        ("count = 12", "number = 12", "subscribers[0]: there is no number here"),
        ("price > {price}", "price > {prize}", "subscribers[0].selector: {prize} is not described"),
        ("price > {price}", "price > > {price}", "subscribers[0]: "),
        ("brokers = [1, 3]", "brokers = [1, 4]", "publishers[0].brokers: there is no broker 4"),
        ("from = 1, to = 100", "from = 100, to = 1", "values.price: give either choices, or from and to"),
        ("rate = 20.0", "rate = 9_000_000.0", "a workload publishes at most 10,000,000"),
        ("seconds = 2.0", "seconds = 'long'", "seconds: this is a text in quotes, and has to be a number"),
        ("[values]", "[values", "not TOML"),
    ],
)
def test_a_wrong_workload_file_is_refused_with_its_field(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in DESCRIBED
    with pytest.raises(LabError) as caught:
        described(tmp_path, DESCRIBED.replace(old, new, 1))
    assert told in str(caught.value)
    assert "workload.toml" in str(caught.value)


def test_a_named_workload_takes_its_settings_from_a_file(tmp_path: Path) -> None:
    text = 'version = 1\nkind = "flood"\n[settings]\nbrokers = 4\ntopics = 7\n'
    assert described(tmp_path, text) == FloodScenario(brokers=4, topics=7)
    with pytest.raises(LabError, match=r"settings.colour: 'flood' has no such setting"):
        described(tmp_path, text + "colour = 3\n")
    with pytest.raises(LabError, match=r"settings.topics: this is a text in quotes, and has to be a whole number"):
        described(tmp_path, text.replace("topics = 7", "topics = 'many'"))


@pytest.mark.parametrize(
    ("kind", "settings", "told"),
    [
        ("flood", "brokers = 0", "settings.brokers: above 0, not 0"),
        ("flood", "body = -1", "settings.body: 0 or more, not -1"),
        ("flood", "topics = -3", "settings.topics: above 0, not -3"),
        ("few-names", "names = 0", "settings.names: above 0, not 0"),
        ("tracked", "seconds = nan", "settings.seconds: above 0, not nan"),
        ("filter-grid", "copies = -1", "settings.copies: 0 or more, not -1"),
        ("content", "constraints = [1, 200]", "settings.constraints: the fewest and the most, from 1 to 10"),
        ("content", "clients = 1_000_000", "settings.filters: 20,000,000 in all"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(tmp_path: Path, kind: str, settings: str, told: str) -> None:
    with pytest.raises(LabError) as caught:
        described(tmp_path, f'version = 1\nkind = "{kind}"\n[settings]\n{settings}\n')
    assert told in str(caught.value)


def test_more_messages_than_memory_holds_are_refused() -> None:
    with pytest.raises(LabError, match="a workload publishes at most 10,000,000"):
        FloodScenario(publications_each=1e12).publications()


def test_a_workload_is_played_on_a_network_that_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described(tmp_path)
    (tmp_path / "plan.toml").write_text(Plan.of(ring(3), "try").to_toml())
    command = ("lab", "workload", str(tmp_path / "workload.toml"), "--plan", str(tmp_path / "plan.toml"))
    told = json.loads(here(monkeypatch, *command, "--json").out)
    assert told["missing_deliveries"] == 0
    assert told["deliveries"] == round(told["clients_per_message"] * told["messages"]) > 100
    assert sum(told["bytes_by_link"].values()) == told["bytes_on_links"] > 0
    assert 0 < told["p50_ms"] <= told["p99_ms"]
    assert "1 to 2" in here(monkeypatch, *command).out


def test_a_workload_for_more_brokers_than_the_plan_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(tmp_path)
    (tmp_path / "plan.toml").write_text(Plan.of(line(2), "try").to_toml())
    command = ("lab", "workload", str(tmp_path / "workload.toml"), "--plan", str(tmp_path / "plan.toml"))
    refused = here(monkeypatch, *command)
    assert refused.code == 2
    assert "clients at broker 3, which the plan does not have; it has 1, 2" in refused.err
    narrow = here(monkeypatch, *command, "--bandwidth", "10")
    assert narrow.code == 2
    assert "--bandwidth is 1,000 bytes per second or more" in narrow.err


def test_a_missing_workload_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="cannot be read"):
        read_workload(tmp_path / "none.toml")
