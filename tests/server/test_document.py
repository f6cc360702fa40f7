"""docs/server-behaviour.md tells the truth: its settings, limits and examples are those of the code."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from postroad.broker import BrokerStatistics, Limits, OverflowPolicy
from postroad.config import BrokerConfig, TrackingConfig, read_config
from postroad.filters import TABLE_2
from postroad.server import ServerStatistics
from postroad.server.capacity_watch import CapacityStatus
from postroad.server.status import SessionStatus, Status, SubscriptionStatus
from postroad.store import StoreStatistics
from postroad.tracking import TrackingStatistics
from postroad.trail import BacklogStatistics
from tests.server.scene import Scene
from tests.structure.markdown import blocks
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = ROOT / "docs" / "server-behaviour.md"
BLOCKS = blocks(DOCUMENT)

# Has a document of its own.
ELSEWHERE = {"network"}


def rows(heading: str) -> dict[str, str]:
    """First column -> second column of the table under a heading."""
    section = DOCUMENT.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    return {row[1].strip(" `"): row[2].strip() for row in cells}


def test_every_setting_has_a_row_with_its_default() -> None:
    config = BrokerConfig()
    told = rows("Settings")
    assert set(told) == set(BrokerConfig.__struct_fields__) - ELSEWHERE
    for name, default in told.items():
        value = getattr(config, name)
        if name in ("limits", "frames", "tracking", "store", "queues"):
            continue
        assert default == ("none" if value is None else f"`{json.dumps(value)}`"), name


def test_the_settings_of_tracking_are_told_with_their_defaults() -> None:
    settings = msgspec.structs.asdict(TrackingConfig())
    assert rows("The record") == {
        name: "none" if value is None else f"`{json.dumps(value)}`" for name, value in settings.items()
    }


def test_the_page_on_tracking_speaks_of_settings_that_a_broker_has(tmp_path: Path) -> None:
    page = ROOT / "docs" / "tracking.md"
    (example,) = [block for block in blocks(page) if block.language == "toml"]
    path = tmp_path / "broker.toml"
    path.write_text(example.text)
    assert read_config(path).tracking.histories().shape == TABLE_2["10K 99.999%"]
    section = page.read_text("utf-8").split("Filters of `bloom` have one shape")[1].split("Where ")[0]
    named = {name for line in section.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    assert (
        named == {"bits", "hashes", "keys", "effective_error", "matching_set"} <= set(TrackingConfig.__struct_fields__)
    )


def test_the_example_of_a_client_with_ids_of_its_own_is_granted_them() -> None:
    (example,) = [block for block in BLOCKS if block.text.startswith("CONNECT\n")]
    talker = Scene().talker()
    talker.conversation.received(example.text.encode() + b"\n\0")
    (connected,) = talker.heard()
    granted = {name for name in connected.headers if name not in ("version", "heart-beat", "server", "session")}
    # A publisher that is new has no last id.
    section = DOCUMENT.read_text("utf-8").split("\n## Ids that clients give\n")[1]
    lines = [line for line in section.splitlines() if line.startswith("| CONNECTED |")]
    documented = {name for line in lines for name in re.findall(r"`([a-z-]+)`", line.split("|")[2])}
    assert granted == documented - {"postroad-last"}


def test_every_limit_has_a_row_with_its_default() -> None:
    limits = msgspec.structs.asdict(Limits())
    assert rows("Limits") == {name: f"{value:,}" for name, value in limits.items()}


def test_the_example_of_settings_is_read(tmp_path: Path) -> None:
    (example,) = [block for block in BLOCKS if block.language == "toml"]
    path = tmp_path / "broker.toml"
    path.write_text(example.text)
    config = read_config(path)
    assert (config.number, config.limits.queue_messages, config.users_file) == (7, 50_000, "users.toml")


def test_the_example_of_status_has_the_fields_of_the_code() -> None:
    (example,) = [block for block in BLOCKS if block.language == "json"]
    told: dict[str, Any] = json.loads(example.text)
    assert set(told) == set(Status.__struct_fields__)
    assert set(told["statistics"]) == set(BrokerStatistics.__struct_fields__)
    assert set(told["server"]) == set(ServerStatistics.__struct_fields__)
    assert set(told["capacity"]) == set(CapacityStatus.__struct_fields__)
    assert told["limits"] == msgspec.structs.asdict(Limits())
    assert set(told["store"]) == {"trouble", *StoreStatistics.__struct_fields__}
    held = {"open_histories", "open_entries", "held_bytes", "pending_jobs"}
    recorded = {f"{name}_now" if name in held else name for name in TrackingStatistics._fields}
    assert set(told["tracking"]) == {"trouble", "aliases_left_out", *recorded, *BacklogStatistics._fields}
    assert set(told["sessions"][0]) == set(SessionStatus.__struct_fields__)
    assert set(told["sessions"][0]["subscriptions"][0]) == set(SubscriptionStatus.__struct_fields__)


def test_the_example_of_a_subscription_is_taken() -> None:
    (example,) = [block for block in BLOCKS if block.text.startswith("SUBSCRIBE")]
    scene = Scene()
    talker = scene.client()
    talker.conversation.received(example.text.encode() + b"\n\0")
    assert talker.heard() == []
    (session,) = scene.core.sessions()
    (subscription,) = session.subscriptions.values()
    assert (subscription.topic, subscription.policy.value) == ("orders.>", "push-back")


def test_every_overflow_policy_is_explained() -> None:
    told = rows("Flow control: a subscriber that reads too slowly")
    assert list(told) == ["overflow", *(policy.value for policy in OverflowPolicy)]
