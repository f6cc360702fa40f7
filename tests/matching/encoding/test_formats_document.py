"""The vectors and tables of "Encoded predicates" in `docs/formats.md`, run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import postroad.matching.encoding.families as families
from postroad.filters import hash_bytes
from postroad.matching.encoding import (
    ANY_TOPIC,
    EncodedPredicates,
    Scheme,
    decode_exact,
    encode_exact,
    from_bytes,
    to_bytes,
)
from postroad.selectors import Selector, TopicPattern

DOCUMENT = (Path(__file__).parents[3] / "docs" / "formats.md").read_text("utf-8")
VECTORS = [found[1].strip().splitlines() for found in re.finditer(r"^```vector\n(.*?)^```", DOCUMENT, re.M | re.S)]


def chosen(kind: str) -> list[list[str]]:
    return [lines[1:] for lines in VECTORS if lines[0] == kind]


def hexadecimal(lines: list[str]) -> bytes:
    return bytes.fromhex("".join(line.removeprefix("hex ") for line in lines if line.startswith("hex ")))


def word_of(value: str) -> int:
    kind, _, text = value.partition(":")
    return hash_bytes(text.encode()) if kind == "text" else int(text)


def test_document_has_vectors() -> None:
    assert [len(chosen(kind)) for kind in ("categories", "predicates", "exact")] == [1, 2, 1]


@pytest.mark.parametrize("line", [line for lines in chosen("categories") for line in lines])
def test_category_is_that_of_the_document(line: str) -> None:
    family, name, value, expected = line.split()
    if value == "none":
        found = families.base(int(family), name)
    else:
        found = families.category(int(family), name, word_of(value))
    assert f"{found:016x}" == expected


@pytest.mark.parametrize("lines", chosen("predicates"))
def test_predicate_list_is_that_of_the_document(lines: list[str]) -> None:
    subscriptions = []
    for line in lines[:2]:
        topic, text = line.split(" ", 1)
        subscriptions.append((Selector.parse(text), None if topic == "any" else TopicPattern.parse(topic)))
    bits, hashes, gram, *ladder = lines[2].split()[1:]
    scheme = Scheme(int(bits), int(hashes), tuple(map(float, ladder)), int(gram))
    predicates = EncodedPredicates.encode(scheme, subscriptions)
    assert to_bytes(predicates) == hexadecimal(lines)
    assert from_bytes(hexadecimal(lines)) == predicates


@pytest.mark.parametrize("lines", chosen("exact"))
def test_exact_advertisement_is_that_of_the_document(lines: list[str]) -> None:
    rows = {(ANY_TOPIC, conjunction) for conjunction in Selector.parse(lines[0]).disjunction}
    assert encode_exact(rows) == hexadecimal(lines)
    assert set(decode_exact(hexadecimal(lines))) == rows


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("text exists", [families.EXISTS_TEXT]),
        ("equals an integer", [families.EQUAL_INTEGER]),
        ("bytes exist", [families.EXISTS_BYTES]),
        ("number below, above", [families.BELOW, families.ABOVE]),
        ("prefix, suffix, gram", [families.PREFIX, families.SUFFIX, families.GRAM]),
        ("topic's depth", [families.DEPTH]),
    ],
)
def test_numbers_of_families_are_those_of_the_document(text: str, numbers: list[int]) -> None:
    assert f"| {text} | {', '.join(map(str, numbers))} |" in DOCUMENT


def test_example_of_the_guide_prints_what_the_guide_says(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "encoded-predicates.md").read_text("utf-8")
    found = re.search(r"^```python\n(.*?)^```\n\n^```\n(.*?)^```", guide, re.M | re.S)
    assert found is not None
    exec(found[1], {})
    assert capsys.readouterr().out == found[2]
