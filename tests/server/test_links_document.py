"""What docs/links.md says is true."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from postroad.broker.consignments import QUEUE_WAIT_MS
from postroad.broker.held_messages import HELD_MS, MAX_HELD, MAX_HELD_BYTES
from postroad.config import read_config
from postroad.protocols.link import SenderLimits
from postroad.protocols.link.limits import (
    CROWDED,
    HANDSHAKE_TIMEOUT_MS,
    MAX_HANDSHAKE_FRAME_BYTES,
    MAX_HELD_FRAMES,
    MAX_LINK_FRAME_BYTES,
    RELAXED,
)
from postroad.routing.seen_ids import REMEMBER_MS
from postroad.server.counts import LinkStatistics
from postroad.server.link_connection import CLOSE_SECONDS, MAX_UNREAD_BYTES
from postroad.server.quarantine import FIRST_MS, FORGIVEN_MS, LONGEST_MS
from postroad.server.strangers import MOST_STRANGERS
from postroad.topology import Settings
from tests.structure.markdown import blocks
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = ROOT / "docs" / "links.md"
TEXT = DOCUMENT.read_text("utf-8")
MIB = 1024 * 1024


def test_the_settings_can_be_read(tmp_path: Path) -> None:
    shown = [block.text for block in blocks(DOCUMENT) if block.language == "toml"]
    file = tmp_path / "broker.toml"
    file.write_text("\n".join(shown))
    network = read_config(file).network
    assert network is not None
    assert (network.delivery, network.settings.heartbeat_ms, network.neighbours[0].port) == ("custody", 1_000, 61_701)
    assert network.tls is not None
    assert network.key is not None
    assert [member.number for member in network.members] == [1, 2]


def test_limits_are_those_of_the_code() -> None:
    held = SenderLimits()
    for said in (
        f"| {held.bytes // MIB} MiB, {held.rows:,} messages, {held.frames:,} frames |",
        f"| {MAX_HELD_FRAMES:,} frames |",
        f"| {HELD_MS // 1_000} s, {MAX_HELD_BYTES // MIB} MiB, {MAX_HELD:,} messages |",
        f"| {MAX_LINK_FRAME_BYTES // MIB} MiB; {MAX_HANDSHAKE_FRAME_BYTES // 1024} KiB before the handshake is done |",
        f"| {MOST_STRANGERS}, and {MOST_STRANGERS} from neighbours' addresses; "
        f"{HANDSHAKE_TIMEOUT_MS // 1_000} s for TLS and {HANDSHAKE_TIMEOUT_MS // 1_000} s for the rest |",
        f"| {MAX_UNREAD_BYTES // MIB} MiB | in quarantine |",
        f"from {FIRST_MS // 1_000} s, twice as long each time, up to {LONGEST_MS // 60_000} minutes",
        f"after {FORGIVEN_MS // 60_000} minutes without another",
        f"| {CLOSE_SECONDS:.0f} s | cut |",
        f"every id of the last {REMEMBER_MS // 1_000} s",
        f"waited {QUEUE_WAIT_MS // 1_000} s in a queue",
    ):
        assert said in " ".join(TEXT.split())
    assert (CROWDED, RELAXED) == (3 / 4, 1 / 2)
    assert Settings().hold_ms == HELD_MS


def test_every_count_of_a_link_is_explained() -> None:
    section = TEXT.split("| field of a link |")[1]
    assert set(re.findall(r"`(\w+)`", section)) == set(LinkStatistics.__struct_fields__) - {"neighbour"}
