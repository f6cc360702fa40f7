"""docs/queues.md tells the truth: its settings and limits are those of the code, and its example is taken."""

from __future__ import annotations

import json

import msgspec

from postroad.broker import QueueSettings
from postroad.broker.consumers import MAX_PROFILES
from postroad.broker.message_groups import BUCKETS, GROUP_ATTRIBUTE
from postroad.broker.queue_names import MAX_NAME_BYTES
from postroad.broker.queue_quota import MAX_QUEUES, MAX_QUEUES_PER_PRINCIPAL
from postroad.protocols.stomp import StompDecoder, Subscribe
from tests.structure.markdown import blocks
from tests.structure.repository import ROOT

DOCUMENT = ROOT / "docs" / "queues.md"
TEXT = DOCUMENT.read_text("utf-8")


def test_every_setting_has_a_row_with_its_default() -> None:
    section = TEXT.split("\n## Settings\n")[1].split("\n## ")[0]
    cells = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    told = {row[1].strip(" `"): row[2].strip() for row in cells}
    settings = {name: f"`{json.dumps(value)}`" for name, value in msgspec.structs.asdict(QueueSettings()).items()}
    assert told == settings


def test_limits_are_those_of_the_code() -> None:
    words = " ".join(TEXT.split())
    assert f"at most {MAX_QUEUES:,} queues, a login makes at most {MAX_QUEUES_PER_PRINCIPAL:,}" in words
    assert f"at most {MAX_PROFILES} different selectors" in words
    assert f"at most {MAX_NAME_BYTES} bytes" in words
    assert f"a hash of {BUCKETS.bit_length() - 1} bits" in words
    assert f"`{GROUP_ATTRIBUTE}`" in words


def test_the_example_is_taken() -> None:
    (example,) = [block.text for block in blocks(DOCUMENT) if block.language == "client"]
    decoder = StompDecoder()
    decoder.receive(b"CONNECT\naccept-version:1.2\nhost:here\n\n\0")
    received = decoder.receive(example.replace("^@", "\0").encode())
    assert received.has_queues
    (subscribe,) = received.events
    assert isinstance(subscribe, Subscribe)
    assert (subscribe.queue, subscribe.destination) == (True, "/queue/orders")
