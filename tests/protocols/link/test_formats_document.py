"""The vectors and tables of "Link frames" in `docs/formats.md`, run."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from postroad.messages import Batch, Draft, MessageId
from postroad.protocols.link import (
    Bye,
    Control,
    Handshake,
    HeartBeat,
    Identity,
    LinkDecoder,
    LinkStanding,
    Progress,
    Reason,
    decode_data,
    encode_bye,
    encode_control,
    encode_data,
    encode_progress,
    frames,
    limits,
)

DOCUMENT = (Path(__file__).parents[3] / "docs" / "formats.md").read_text("utf-8")
SECTION = DOCUMENT.split("\n## Link frames\n", 1)[1].split("\n## ", 1)[0]
VECTORS = {
    lines[0]: lines[1:]
    for lines in (
        found[1].strip().splitlines() for found in re.finditer(r"^```vector\n(.*?)^```", SECTION, re.M | re.S)
    )
}


def rest(line: str) -> str:
    return line.partition(" ")[2]


def test_every_vector_is_of_a_kind_this_file_runs() -> None:
    assert set(VECTORS) == {"link-handshake", "link-data", "link-frames"}


def test_handshake_is_that_of_the_document() -> None:
    lines = dict(line.split(" ", 1) for line in VECTORS["link-handshake"] if not line.startswith(("frame", "more")))
    text = "\n".join(line for line in VECTORS["link-handshake"] if line.startswith(("frame", "more")))
    expected = [bytes.fromhex(part.replace("more", "")) for part in text.split("frame")[1:]]
    ends = []
    for role in ("dialler", "listener"):
        broker, epoch, network, *numbers = lines[role].split()
        membership, capabilities, beat = map(int, numbers)
        secret = bytes.fromhex(lines["secret"])
        identity = Identity(int(broker), int(epoch), network, membership, secret, capabilities, beat)
        nonce = bytes.fromhex(lines[f"{role}-nonce"])
        standings: dict[int, LinkStanding] = defaultdict(
            partial(LinkStanding, *map(int, lines[f"{role}-stands"].split()))
        )
        ends.append(Handshake(identity, standings.__getitem__, dialling=role == "dialler", nonce=nonce))
    dialler, listener = ends
    sent = [dialler.begin()]
    for end in (listener, dialler, listener, dialler):
        (frame,) = LinkDecoder().receive(sent[-1])
        sent.append(end.receive(frame))
    assert sent == [*expected, b""]
    assert dialler.done
    assert listener.done


def row(line: str) -> tuple[Draft, set[int]]:
    topic, body, identity, *brokers = rest(line).split()
    found = Draft(topic, body=json.loads(body).encode(), id=MessageId.parse(identity), source=2, hop_limit=16)
    return found, set(map(int, brokers))


def test_data_frame_is_that_of_the_document() -> None:
    lines = VECTORS["link-data"]
    (first, one), (second, two) = (row(line) for line in lines if line.startswith("row "))
    name, text = rest(next(line for line in lines if line.startswith("metadata "))).split()
    batch = Batch.build([first._replace(metadata={name: json.loads(text)}), second])
    number, epoch = (int(rest(line)) for line in lines[:2])
    sets = np.array([[sum(1 << broker for broker in brokers)] for brokers in (one, two)], np.uint64)
    expected = bytes.fromhex("".join(rest(line) for line in lines if line.startswith("hex ")))
    assert bytes(encode_data(batch, np.arange(2), sets, np.arange(2), epoch, number)) == expected
    found = decode_data(expected)
    assert (found.number, found.epoch, found.lines.tolist()) == (number, epoch, [0, 1])
    assert [message.body for message in found.batch] == [first.body, second.body]


def small(line: str) -> tuple[Any, bytes]:
    """A frame of the document, as an object and as our encoder writes it."""
    name, *words = line.split()
    if name == "control":
        return Control(int(words[0]), words[1].encode()), encode_control(int(words[0]), words[1].encode())
    if name == "progress":
        received, settled, *early = map(int, words)
        told = Progress(received, settled, tuple(zip(early[::2], early[1::2], strict=True)))
        return told, encode_progress(told)
    if name == "bye":
        return Bye(int(words[0]), words[1]), encode_bye(int(words[0]), words[1])
    return HeartBeat(), frames.HEART_BEAT


SMALL = VECTORS["link-frames"]


@pytest.mark.parametrize(("line", "hexadecimal"), list(zip(SMALL[::2], SMALL[1::2], strict=True)))
def test_small_frame_is_that_of_the_document(line: str, hexadecimal: str) -> None:
    frame, encoded = small(line)
    data = bytes.fromhex(rest(hexadecimal))
    assert encoded == data
    decoder = LinkDecoder()
    assert decoder.receive(data) == [frame]


def test_types_and_reasons_are_those_of_the_document() -> None:
    types = {int(kind): name for kind, name in re.findall(r"^\| (\d) \| ([A-Z_]+) \|", SECTION, re.M)}
    assert types == frames.KINDS
    table = SECTION.split("| reason | number |", 1)[1].split("\n\n", 1)[0]
    reasons = {
        name.replace(" ", "_").upper(): int(number) for name, number in re.findall(r"\| (.+?) \| (\d+) \|", table)
    }
    assert reasons == {reason.name: reason.value for reason in Reason}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MAX_LINK_FRAME_BYTES", "at most {:,} bytes"),
        ("MAX_HANDSHAKE_FRAME_BYTES", "at most {:,} before the handshake"),
        ("MAX_ROWS_PER_FRAME", "rows r, u32 | 1 to {:,} |"),
        ("MAX_WORDS_PER_SET", "words per set w, u32 | 1 to {:,} |"),
        ("MAX_HEART_BEAT_MS", "ms, 1 to {:,} |"),
        ("MAX_BYE_BYTES", "at most {:,} bytes, for people"),
        ("MAX_NETWORK_NAME_BYTES", "name, u16 | 1 to {:,} |"),
    ],
)
def test_limit_is_that_of_the_document(name: str, text: str) -> None:
    assert text.format(getattr(limits, name)) in " ".join(SECTION.split())
