"""The vectors of "Hash and positions" in `docs/formats.md`, run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from postroad.filters import derived_key, hash_bytes, hash_ids, mix64, positions

DOCUMENT = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
VECTORS = [found[1].strip().splitlines() for found in re.finditer(r"^```vector\n(.*?)^```", DOCUMENT, re.M | re.S)]
HASHES = [lines[1:] for lines in VECTORS if lines[0] == "hash"]
MIXES = [line.split() for lines in VECTORS if lines[0] == "mix" for line in lines[1:]]


def test_document_has_vectors() -> None:
    assert len(HASHES) >= 2
    assert len(MIXES) >= 3


@pytest.mark.parametrize("lines", HASHES)
def test_hash_is_that_of_the_document(lines: list[str]) -> None:
    data = bytes.fromhex(lines[0].removeprefix("hex "))
    word = hash_bytes(data)
    assert f"word {word:016x}" == lines[1]
    assert hash_ids(np.frombuffer(data, ">u8").astype(np.uint64).reshape(1, 2)).tolist() == [word]
    number, key = lines[2].split()[1:]
    assert f"{derived_key(word, int(number)):016x}" == key
    for line in lines[3:]:
        m, *expected = map(int, line.split()[1:])
        assert positions(np.array([word], np.uint64), len(expected), m).tolist() == [expected]


@pytest.mark.parametrize(("word", "mixed"), MIXES)
def test_mixing_is_that_of_the_document(word: str, mixed: str) -> None:
    assert f"{mix64(int(word, 16)):016x}" == mixed
