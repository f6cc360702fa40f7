"""Metrics by Prometheus's conventions, and the dashboard and alerts that name them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from postroad.config import Neighbouring, NetworkConfig
from postroad.server.metric_help import CAPACITY, HELP
from tests.server.http_client import get
from tests.server.scene import Client, run, service, until
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import Metric

DEPLOY = ROOT / "examples" / "deploy"
NAME = re.compile(r"\b(?:postroad|process)_[a-z0-9_]+")
# Units that are not base units, as parts of names.
OTHER_UNITS = {"ms", "milliseconds", "minutes", "hours", "kb", "mb", "kilobytes", "percent"}
KINDS = {"counter", "gauge", "histogram"}


async def scraped(port: int) -> dict[str, Metric]:
    code, body = await get(port, "/metrics")
    assert code == 200
    return {family.name: family for family in text_string_to_metric_families(body)}


def in_a_network() -> NetworkConfig:
    # Nobody is there: the metrics of the link are, anyway.
    return NetworkConfig(neighbours=[Neighbouring(number=2, port=1)])


def test_every_metric_keeps_to_the_conventions(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0, network=in_a_network()) as broker:
            families = await scraped(broker.admin_port)
            assert len(families) > 80
            for name, family in families.items():
                assert name.startswith(("postroad_", "process_")), name
                assert family.type in KINDS, name
                assert family.documentation, name
                assert not OTHER_UNITS & set(name.split("_")), name
                assert all(not sample.name.endswith("_now") for sample in family.samples)
                if name.startswith("postroad_"):
                    assert family.documentation.endswith("."), name
                    assert all(sample.labels["broker"] == "1" for sample in family.samples), name
            assert {"process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds"} <= set(families)
            told = {f"postroad_{name.removesuffix('_now')}" for name in HELP}
            told |= {f"postroad_capacity_{name}{ending}" for name, ending, _ in CAPACITY}
            assert told <= set(families), "a sentence for a metric that there is not"

    run(talk)


def test_bytes_and_latencies_are_counted(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            before = await scraped(broker.admin_port)
            client = await Client.connect(broker.port)
            await client.subscribe("mine", "a")
            for _ in range(3):
                client.publish("a", b"x" * 10_000)
            for _ in range(3):
                assert (await client.frame()).command == "MESSAGE"
            after = await scraped(broker.admin_port)
            for name in ("postroad_received_bytes", "postroad_sent_bytes"):
                assert value(after, f"{name}_total") - value(before, f"{name}_total") > 30_000
            latency = after["postroad_delivery_latency_seconds"]
            assert latency.type == "histogram"
            counts = {sample.labels.get("le"): sample.value for sample in latency.samples if "le" in sample.labels}
            assert counts["+Inf"] >= 1
            assert list(counts.values()) == sorted(counts.values())
            assert value(after, "postroad_delivery_latency_seconds_count") == counts["+Inf"]
            await client.close()

    run(talk)


def test_whoever_is_not_scraped_pays_nothing_for_latencies(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            timer = broker.dispatcher.timing
            await get(broker.admin_port, "/status")
            assert broker.dispatcher.timing is timer
            await get(broker.admin_port, "/metrics")
            assert broker.dispatcher.timing is broker.observation
            client = await Client.connect(broker.port)
            broker.observation.clock = lambda: broker.dispatcher.clock() + 3_600_000
            client.publish("a", receipt="r")
            await client.frame()
            await until(lambda: broker.dispatcher.timing is timer)
            await client.close()

    run(talk)


def value(families: dict[str, Metric], name: str) -> float:
    (found,) = [sample.value for family in families.values() for sample in family.samples if sample.name == name]
    return float(found)


def names_in_files() -> dict[str, set[str]]:
    """Metric -> the files for operators that name it."""
    found: dict[str, set[str]] = {}
    for file in ("grafana-dashboard.json", "alerts.yaml"):
        for name in NAME.findall((DEPLOY / file).read_text("utf-8")):
            found.setdefault(name, set()).add(file)
    return found


def test_every_metric_that_the_dashboard_and_the_alerts_name_is_there(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0, network=in_a_network()) as broker:
            _, body = await get(broker.admin_port, "/metrics")
            there = set(re.findall(r"^# TYPE (\S+) ", body, re.MULTILINE))
            there |= {f"{name}_bucket" for name in there if name.endswith("_seconds")}
            named = names_in_files()
            assert len(named) > 30
            assert {name: files for name, files in named.items() if name not in there} == {}

    run(talk)


def test_the_dashboard_is_one() -> None:
    dashboard: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 15
    for panel in panels:
        assert panel["title"]
        assert panel["targets"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for target in panel["targets"]:
            for opening, closing in ("()", "{}", "[]"):
                assert target["expr"].count(opening) == target["expr"].count(closing), target["expr"]


@pytest.mark.parametrize("key", ["expr:", "severity:", "summary:", "action:"])
def test_every_alert_says_when_how_bad_what_and_what_to_do(key: str) -> None:
    text = (DEPLOY / "alerts.yaml").read_text("utf-8")
    rules = text.split("- alert: ")[1:]
    assert len(rules) > 10
    assert [rule.splitlines()[0] for rule in rules if key not in rule] == []
