"""The corpus: for each target a text file with one input in each line, as hexadecimal digits.

Text keeps the repository free of binary files, and shows in a review what was added. The runner keeps what adds
coverage; `scripts/test` replays all of it.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["CORPUS", "MAX_CORPUS_BYTES", "MAX_INPUT_BYTES", "read_corpus", "write_corpus"]

CORPUS = Path(__file__).parent / "corpus"
# Inputs that the fuzzer may try. Limits of formats that are larger are tested beside the formats themselves.
MAX_INPUT_BYTES = 4_096
# Of one target, in bytes of input: enough for some hundred short ones, little enough to live in a repository.
MAX_CORPUS_BYTES = 24_576


def read_corpus(target: str) -> list[bytes]:
    """The inputs of a target; none when it has no file yet."""
    path = CORPUS / f"{target}.txt"
    if not path.exists():
        return []
    return [bytes.fromhex(line) for line in path.read_text("ascii").splitlines()]


def write_corpus(target: str, inputs: set[bytes]) -> int:
    """Keep inputs, short ones first, as many as fit; returns how many those are."""
    kept: list[bytes] = []
    size = 0
    for one in sorted(inputs, key=lambda one: (len(one), one)):
        size += len(one)
        if size > MAX_CORPUS_BYTES:
            break
        kept.append(one)
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / f"{target}.txt").write_text("".join(f"{one.hex()}\n" for one in kept), "ascii")
    return len(kept)
