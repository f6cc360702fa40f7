"""The corpus of the fuzzer, replayed: accepted or refused, nothing else, and with bounded work."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from fuzz.corpus import MAX_CORPUS_BYTES, MAX_INPUT_BYTES, read_corpus, write_corpus
from fuzz.seeds import seeds
from fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Calls of functions that one input may cause: most cause some hundred, whole trails in a folder some thousand.
CALLS, CALLS_PER_BYTE = 60_000, 600


class EndlessError(Exception):
    """An input caused more work than its size allows."""


def bounded(target: Callable[[bytes], None], data: bytes) -> None:
    """Run a target, and stop it when it calls more functions than its input may cause. Counts, and takes no time."""
    left = CALLS + CALLS_PER_BYTE * len(data)

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        if event == "call":
            left -= 1
            if left < 0:
                raise EndlessError(f"{len(data)} bytes: {data.hex()}")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        target(data)
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("name", TARGETS)
def test_input_of_the_corpus_is_accepted_or_refused(name: str) -> None:
    inputs = [*seeds(name), *read_corpus(name)]
    # What is imported at the first use is no work of an input.
    TARGETS[name](inputs[0])
    for data in inputs:
        bounded(TARGETS[name], data)


@pytest.mark.parametrize("name", ["control_frames", "encoded_messages", "manifests", "selectors"])
def test_cut_seed_is_accepted_or_refused(name: str) -> None:
    for data in seeds(name):
        for end in range(0, len(data), 7):
            bounded(TARGETS[name], data[:end])


def test_endless_work_is_noticed() -> None:
    def endless(data: bytes) -> None:
        while True:
            str.join("", map(str, data))
            Choices()

    class Choices:
        def __init__(self) -> None:
            pass

    with pytest.raises(EndlessError):
        bounded(endless, b"x")


def test_corpus_is_kept_within_its_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.corpus.CORPUS", tmp_path)
    assert write_corpus("one", {b"ab", b"c", b"x" * MAX_CORPUS_BYTES}) == 2
    assert read_corpus("one") == [b"c", b"ab"]
    assert read_corpus("none") == []
    for name in TARGETS:
        assert all(len(data) <= MAX_INPUT_BYTES for data in read_corpus(name))
