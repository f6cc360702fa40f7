"""docs/stomp.md tells the truth: its examples run, its limits are the limits."""

from __future__ import annotations

import itertools

import pytest

from postroad.protocols.stomp import ProtocolError, StompDecoder, limits
from tests.protocols.stomp.outcomes import connected, outcome
from tests.structure.markdown import Block, blocks
from tests.structure.repository import ROOT

DOCUMENT = ROOT / "docs" / "stomp.md"
BLOCKS = blocks(DOCUMENT)
TAKEN = [block for block in BLOCKS if block.language == "client"]
REFUSED = [pair for pair in itertools.pairwise(BLOCKS) if pair[0].language == "refused"]


def stream(block: Block) -> bytes:
    return block.text.encode().replace(b"^@", b"\0")


@pytest.mark.parametrize("block", TAKEN, ids=lambda block: block.text.partition("\n")[0])
def test_examples_of_frames_are_taken(block: Block) -> None:
    decoder = StompDecoder() if block.text.startswith("CONNECT") else connected()
    found = outcome(decoder, [stream(block)])
    assert len(found) == block.text.count("^@")
    assert not [item for item in found if isinstance(item, ProtocolError)]


@pytest.mark.parametrize(("block", "text"), REFUSED, ids=lambda block: block.text.partition("\n")[0][:20])
def test_examples_of_errors_are_refused_with_this_text(block: Block, text: Block) -> None:
    error = outcome(connected(), [stream(block)])[-1]
    assert isinstance(error, ProtocolError)
    assert (text.language, text.text) == ("text", error.text + "\n")


@pytest.mark.parametrize("name", [name for name in limits.__all__ if name.isupper()])
def test_limits_are_those_of_the_code(name: str) -> None:
    (line,) = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith(f"| `{name}`")]
    assert line.split("|")[2].strip() == f"{getattr(limits, name):,}"


def test_document_has_examples_of_both_kinds() -> None:
    assert len(TAKEN) >= 2
    assert len(REFUSED) >= 5
