"""The vectors and tables of `docs/formats.md`, run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from postroad.messages import (
    Batch,
    DecodeError,
    Draft,
    MessageId,
    Untyped,
    Value,
    decode_batch,
    decode_envelopes,
    encode,
    encode_envelopes,
    encode_metadata,
    limits,
    number_of,
)

DOCUMENT = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
# What other rooms add at the end, with vectors and tests of their own, begins at this heading.
OWN = DOCUMENT.split("\n## Hash and positions\n", 1)[0]
VECTORS = [found[1].strip().splitlines() for found in re.finditer(r"^```vector\n(.*?)^```", OWN, re.M | re.S)]
KINDS = ("id", "block", "lines", "message", "envelope", "refused")


def vectors(kind: str) -> list[Any]:
    chosen = [lines[1:] for lines in VECTORS if lines[0] == kind]
    return [pytest.param(lines, id=f"{kind}-{number}") for number, lines in enumerate(chosen)]


def hexadecimal(lines: list[str]) -> bytes:
    return bytes.fromhex("".join(line.removeprefix("hex ") for line in lines if line.startswith("hex ")))


def field(lines: list[str], name: str) -> str:
    return next(line.removeprefix(name + " ") for line in lines if line.startswith(name + " "))


def number(lines: list[str], name: str) -> int:
    return int(field(lines, name))


def identity(lines: list[str]) -> MessageId:
    return MessageId(*(number(lines, name) for name in ("publisher", "broker", "time", "counter")))


def value(kind: str, text: str) -> Value:
    if kind in ("text", "untyped"):
        return Untyped(json.loads(text)) if kind == "untyped" else str(json.loads(text))
    if kind == "bytes":
        return bytes.fromhex(text)
    if kind == "boolean":
        return text == "true"
    return int(text) if kind == "integer" else float(text)


def attributes(lines: list[str]) -> dict[str, Value]:
    found = {}
    for line in lines:
        kind, *rest = line.split(" ", 2)
        if kind in ("text", "untyped", "integer", "float", "boolean", "bytes"):
            found[rest[0]] = value(kind, rest[1])
    return found


def headers(lines: list[str]) -> list[tuple[str, str]]:
    pairs = [re.findall(r'"(?:[^"\\]|\\.)*"', line) for line in lines if line.startswith("header ")]
    return [(json.loads(name), json.loads(text)) for name, text in pairs]


def test_every_vector_is_of_a_kind_this_file_runs() -> None:
    assert {lines[0] for lines in VECTORS} == set(KINDS)


@pytest.mark.parametrize("lines", vectors("id"))
def test_id_is_written_as_documented(lines: list[str]) -> None:
    assert bytes(identity(lines)) == hexadecimal(lines)
    assert str(identity(lines)) == field(lines, "text")


@pytest.mark.parametrize("lines", vectors("block"))
def test_attribute_block_is_written_as_documented(lines: list[str]) -> None:
    batch = Batch.build([("a", attributes(lines))])
    assert batch.buffer.tobytes() == b"a" + hexadecimal(lines)
    assert repr(batch.message(0).attributes) == repr(attributes(lines))


@pytest.mark.parametrize("lines", vectors("lines"))
def test_header_block_is_written_as_documented(lines: list[str]) -> None:
    batch = Batch.build([("a", {}, headers(lines))])
    assert batch.buffer.tobytes() == b"a" + hexadecimal(lines)
    assert batch.message(0).headers == dict(headers(lines))


@pytest.mark.parametrize("lines", vectors("message"))
def test_message_is_written_and_read_as_documented(lines: list[str]) -> None:
    topic = field(lines, "topic")
    body = json.loads(next((line[5:] for line in lines if line.startswith("body ")), '""')).encode()
    encoded = hexadecimal(lines)
    assert encode(topic, attributes(lines), headers(lines), body) == encoded
    message = decode_batch(encoded, [len(encoded)]).message(0)
    assert (message.topic, message.body) == (topic, body)
    assert message.attributes == {**dict(headers(lines)), **attributes(lines)}


@pytest.mark.parametrize("lines", vectors("refused"))
def test_message_is_refused_as_documented(lines: list[str]) -> None:
    encoded = hexadecimal(lines)
    with pytest.raises(DecodeError, match=field(lines, "because")):
        decode_batch(encoded, [len(encoded)])


@pytest.mark.parametrize("lines", vectors("envelope"))
def test_envelope_is_written_and_read_as_documented(lines: list[str]) -> None:
    names = ("source", "hop_limit", "flags", "priority", "expiry")
    fields: dict[str, Any] = {name: number(lines, name) for name in names}
    metadata = attributes([line.removeprefix("metadata ") for line in lines if line.startswith("metadata ")])
    batch = Batch.build([Draft("a", id=identity(lines), metadata=metadata, **fields)])
    blocks, lengths = encode_metadata(batch)
    assert encode_envelopes(batch).tobytes() + blocks.tobytes() == hexadecimal(lines)
    ids, envelopes, sizes = decode_envelopes(hexadecimal(lines), 1)
    assert ids.tolist() == batch.ids.tolist()
    assert envelopes.tolist() == [list(fields.values())]
    assert sizes.tolist() == lengths.tolist()


def rows(heading: str) -> list[list[str]]:
    section = DOCUMENT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(("text", "stands_for"), rows("When untyped text is a number"))
def test_untyped_text_is_the_documented_number(text: str, stands_for: str) -> None:
    found = number_of(text)
    assert stands_for == ("none" if found is None else f"{'float' if isinstance(found, float) else 'integer'} {found}")


@pytest.mark.parametrize(("name", "limit"), [row[:2] for row in rows("Limits")])
def test_limit_is_the_documented_one(name: str, limit: str) -> None:
    assert f"{getattr(limits, name):,}" == limit


def test_every_limit_is_documented() -> None:
    assert {row[0] for row in rows("Limits")} == {name for name in limits.__all__ if name.startswith("MAX_")}


def test_derived_names_are_the_documented_ones() -> None:
    batch = Batch.build([("a", {"type": "x", "correlation-id": 7})])
    derived = batch.message(0).selectable().keys() - {"type", "correlation-id"}
    assert {row[0] for row in rows("Attributes a selector sees")} == derived
