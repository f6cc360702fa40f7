"""Encoded predicates on B-DRP's workload: brokers selected, bytes advertised, microseconds per message.

Every selection is checked against exact matching: a broker that wants a message and is not selected stops the
benchmark. False-match rate: of the pairs of a message and a broker that does not want it, those selected anyway.
"""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.lab.bdrp import BdrpWorkload, Messages, Predicates, matches
from postroad.matching.encoding import (
    ANY_TOPIC,
    EncodedPredicates,
    PredicateMatrix,
    Scheme,
    conjunction_categories,
    encode_exact,
    even_ladder,
    message_categories,
    to_bytes,
)
from postroad.selectors import Selector

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.selectors.constraints import Conjunction

    Selected = NDArray[np.bool_]

PER_BROKER = 200  # ten clients with twenty conjunctions each
MESSAGES = 500
SEEDS = 40
BLOOM_SEEDS = 4
LARGE_SEEDS = 4
SIZES = (192, 256, 384, 512, 768, 1024, 1536, 2048, 4096)
HASHES = (1, 2, 3, 4, 6, 8, 10)
NEAR = 1.005  # a larger k costs bytes: take none that selects hardly better
BATCHES = (1, 16, 256)
ROUNDS = 15

SEVEN, FIFTEEN = even_ladder(0, 100, 7), even_ladder(0, 100, 15)
# All messages have one topic and no subscription asks for one: topics are left out, as in the paper.
CATEGORIES = {
    "paper": Scheme(4096, 6, topics=False),
    "ladder of 7 only": Scheme(4096, 6, SEVEN, topics=False),
    "text pieces only": Scheme(4096, 6, gram=3, topics=False),
    "sharp, ladder of 7": Scheme(4096, 6, SEVEN, gram=3, topics=False),
    "sharp, ladder of 15": Scheme(4096, 6, FIFTEEN, gram=3, topics=False),
}
PAPER, SHARP, SHARP_15 = CATEGORIES["paper"], CATEGORIES["sharp, ladder of 7"], CATEGORIES["sharp, ladder of 15"]


@dataclass(frozen=True)
class Setting:
    """One seed's messages and subscriptions, and which brokers want which messages."""

    batch: Batch
    conjunctions: list[list[Conjunction]]  # by broker
    truth: Selected

    @classmethod
    def draw(cls, seed: int, brokers: int, most: int = 1, messages: int = MESSAGES) -> Setting:
        workload = BdrpWorkload(seed)
        predicates = workload.predicates(brokers * PER_BROKER, 1, most)
        drawn = workload.messages(messages)
        flat = [conjunction for text in predicates.texts() for conjunction in Selector.parse(text).disjunction]
        groups = [flat[start : start + PER_BROKER] for start in range(0, len(flat), PER_BROKER)]
        return cls(drawn.batch(), groups, wanted(predicates, drawn, brokers))

    def category_sets(self, scheme: Scheme) -> list[list[frozenset[int]]]:
        """The category sets of each broker's conjunctions."""
        return [
            [held for conjunction in group for held in conjunction_categories(conjunction, scheme)]
            for group in self.conjunctions
        ]


def wanted(predicates: Predicates, messages: Messages, brokers: int) -> Selected:
    held = matches(predicates, messages).reshape(len(messages), brokers, PER_BROKER)
    return np.asarray(held.any(axis=2))


def by_categories(setting: Setting, scheme: Scheme) -> tuple[Selected, float]:
    """The brokers that the categories select before any bits are shared, and the categories of a message."""
    offsets, words = message_categories(setting.batch, scheme)
    rows = np.repeat(np.arange(len(setting.batch)), np.diff(offsets))
    sets = setting.category_sets(scheme)
    known = np.unique(np.array([word for group in sets for held in group for word in held], np.uint64))
    column = {word: place for place, word in enumerate(known.tolist())}
    place = np.minimum(np.searchsorted(known, words), len(known) - 1)
    present = np.zeros((len(setting.batch), len(known)), np.bool_)
    hit = known[place] == words
    present[rows[hit], place[hit]] = True
    selected = np.zeros_like(setting.truth)
    for broker, group in enumerate(sets):
        for held in group:
            selected[:, broker] |= present[:, [column[word] for word in held]].all(axis=1)
    distinct = len(np.unique(np.stack([rows.astype(np.uint64), words]), axis=1)[0])
    return checked(selected, setting), distinct / len(setting.batch)


def by_vectors(setting: Setting, scheme: Scheme, sets: list[list[frozenset[int]]]) -> Selected:
    """The brokers that the predicate matrix selects."""
    matrix = PredicateMatrix(scheme)
    for broker, group in enumerate(sets):
        matrix.replace(broker, EncodedPredicates.of_categories(scheme, group))
    bits = np.unpackbits(matrix.match(setting.batch).astype("<u8").view(np.uint8), axis=1, bitorder="little")
    return checked(bits[:, : len(sets)].astype(np.bool_), setting)


def checked(selected: Selected, setting: Setting) -> Selected:
    if (setting.truth & ~selected).any():
        raise SystemExit("a broker that wants a message was not selected: this must never happen")
    return selected


def mean_selected(selected: list[Selected]) -> float:
    return float(np.mean([held.sum(axis=1).mean() for held in selected]))


def false_match_rate(selected: list[Selected], settings: list[Setting]) -> float:
    wrong = sum(int((held & ~setting.truth).sum()) for held, setting in zip(selected, settings, strict=True))
    return wrong / sum(int((~setting.truth).sum()) for setting in settings)


def compare_categories(brokers: int, seeds: int, most: int = 1) -> dict[str, float]:
    """Mean brokers selected by the truth and by each scheme's categories."""
    settings = [Setting.draw(seed, brokers, most) for seed in range(seeds)]
    width = "one constraint" if most == 1 else f"1 to {most} constraints"
    print(f"\n{brokers} brokers, {PER_BROKER} conjunctions each, {width}; {seeds} seeds, {MESSAGES} messages each")
    print(f"{'categories':24}{'brokers selected':>18}{'false-match rate':>18}{'per message':>14}")
    means = {"truth": mean_selected([setting.truth for setting in settings])}
    print(f"{'truth':24}{means['truth']:>18.2f}{0:>18.1%}")
    for name, scheme in CATEGORIES.items():
        selected, counts = zip(*(by_categories(setting, scheme) for setting in settings), strict=True)
        means[name] = mean_selected(list(selected))
        rate = false_match_rate(list(selected), settings)
        print(f"{name:24}{means[name]:>18.2f}{rate:>18.1%}{np.mean(counts):>14.0f}")
    return means


def compare_sizes(name: str, scheme: Scheme, settings: list[Setting]) -> dict[int, dict[str, float]]:
    """For each M and a good k: mean brokers selected, and the false-match rate."""
    print(
        f"\nBloom-encoded, {name}, 8 brokers, {len(settings)} seeds; the least k of {HASHES} within 0.5 % of the best"
    )
    print(f"{'M':>6}{'k':>4}{'brokers selected':>18}{'false-match rate':>18}{'bytes/subscription':>20}")
    sets = [setting.category_sets(scheme) for setting in settings]
    table = {}
    for bits in SIZES:
        tried = []
        for hashes in HASHES:
            sized = Scheme(bits, hashes, scheme.thresholds, scheme.gram, topics=False)
            selected = [by_vectors(setting, sized, held) for setting, held in zip(settings, sets, strict=True)]
            tried.append((mean_selected(selected), hashes, false_match_rate(selected, settings)))
        best = min(tried)[0]
        mean, hashes, rate = next(row for row in tried if row[0] <= NEAR * best)
        size = advertised(settings[0], Scheme(bits, hashes, scheme.thresholds, scheme.gram, topics=False))
        print(f"{bits:>6}{hashes:>4}{mean:>18.2f}{rate:>18.1%}{size:>20.1f}")
        table[bits] = {
            "k": hashes,
            "selected": rounded(mean),
            "false_match_rate": round(rate, 4),
            "bytes": rounded(size),
        }
    return table


def advertised(setting: Setting, scheme: Scheme) -> float:
    """Bytes on the wire per conjunction, encoded."""
    lists = [EncodedPredicates.of_categories(scheme, group) for group in setting.category_sets(scheme)]
    return sum(len(to_bytes(held)) for held in lists) / sum(map(len, setting.conjunctions))


def advertised_exactly(groups: list[list[Conjunction]]) -> float:
    """Bytes on the wire per conjunction, exact, each broker with dictionaries of its own."""
    sizes = [len(encode_exact((ANY_TOPIC, conjunction) for conjunction in group)) for group in groups]
    return sum(sizes) / sum(map(len, groups))


def marginal_bits() -> float:
    """Bits that one more constraint takes in a list so long that its dictionaries hardly grow."""
    many = list(chain(*Setting.draw(0, 160, messages=1).conjunctions))
    sizes = [len(encode_exact((ANY_TOPIC, conjunction) for conjunction in many[:count])) for count in (16_000, 32_000)]
    # Conjunctions drawn twice are advertised once.
    distinct = [len(set(many[:count])) for count in (16_000, 32_000)]
    return 8 * (sizes[1] - sizes[0]) / (distinct[1] - distinct[0])


def compare_bytes(paper: Scheme, sharp: Scheme) -> dict[str, float]:
    chosen = f"paper M={paper.bits} k={paper.hashes}, sharp M={sharp.bits} k={sharp.hashes}"
    print(f"\nbytes advertised per subscription; {chosen}")
    print(f"{'':34}{'1 constraint':>14}{'1 to 5':>10}")
    ones, more = Setting.draw(0, 8, messages=1), Setting.draw(0, 8, most=5, messages=1)
    rows: dict[str, Callable[[Setting], float]] = {
        "paper, a vector of M bits": lambda _: paper.bits / 8,
        "paper, packed positions": lambda setting: advertised(setting, paper),
        "sharp, a vector of M bits": lambda _: sharp.bits / 8,
        "sharp, packed positions": lambda setting: advertised(setting, sharp),
        "exact, own dictionaries": lambda setting: advertised_exactly(setting.conjunctions),
        "exact, one dictionary for all 8": lambda setting: advertised_exactly([list(chain(*setting.conjunctions))]),
    }
    for name, size in rows.items():
        print(f"{name:34}{size(ones):>14.1f}{size(more):>10.1f}")
    bits = marginal_bits()
    print(f"exact, one more constraint in a long list: {bits:.1f} bits")
    return {
        "bytes_per_subscription_paper": rounded(advertised(ones, paper)),
        "bytes_per_subscription_sharp": rounded(advertised(ones, sharp)),
        "bytes_per_subscription_exact": rounded(advertised_exactly(ones.conjunctions)),
        "bits_per_constraint_exact": rounded(bits),
    }


def compare_times(paper: Scheme, sharp: Scheme) -> dict[str, dict[int, float]]:
    print(f"\nmicroseconds per message, categories + matching from the encoded batch on; best of {ROUNDS}")
    print(f"{'':24}{'conjunctions':>14}" + "".join(f"{f'batch of {size}':>14}" for size in BATCHES))
    table: dict[str, dict[int, float]] = {}
    for brokers in (8, 42):
        setting = Setting.draw(0, brokers, messages=1024)
        for name, scheme in (("paper", paper), ("sharp", sharp)):
            matrix = PredicateMatrix(scheme)
            for broker, group in enumerate(setting.category_sets(scheme)):
                matrix.replace(broker, EncodedPredicates.of_categories(scheme, group))
            times = {size: time_per_message(matrix, setting.batch, size) for size in BATCHES}
            label = f"{name}, M={scheme.bits}"
            count = brokers * PER_BROKER
            print(f"{label:24}{count:>14,}" + "".join(f"{times[size]:>14.2f}" for size in BATCHES))
            table[f"{name}_{count}"] = {size: rounded(times[size]) for size in BATCHES}
    return table


def time_per_message(matrix: PredicateMatrix, batch: Batch, size: int) -> float:
    batches = [batch.take(np.arange(start, start + size)) for start in range(0, len(batch) - size + 1, size)]
    matrix.match(batches[0])
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        for held in batches:
            matrix.match(held)
        times.append(perf_counter() - start)
    return min(times) / (size * len(batches)) * 1e6


def rounded(number: float) -> float:
    return round(number, 2)


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}, one thread")
    small = compare_categories(8, SEEDS)
    compare_categories(8, BLOOM_SEEDS, most=5)
    large = compare_categories(42, LARGE_SEEDS)
    settings = [Setting.draw(seed, 8) for seed in range(BLOOM_SEEDS)]
    tables = {
        name: compare_sizes(name.replace("_", ", "), scheme, settings)
        for name, scheme in (("paper", PAPER), ("sharp", SHARP), ("sharp_15", SHARP_15))
    }
    paper, sharp = Scheme(512, 6, topics=False), Scheme(4096, 6, SEVEN, gram=3, topics=False)
    sizes = compare_bytes(paper, sharp)
    times = compare_times(paper, sharp)
    result: dict[str, Any] = {
        "bench": "encoding",
        "truth": rounded(small["truth"]),
        "categories_paper": rounded(small["paper"]),
        "categories_sharp": rounded(small["sharp, ladder of 7"]),
        "categories_sharp_15": rounded(small["sharp, ladder of 15"]),
        "truth_42": rounded(large["truth"]),
        "categories_paper_42": rounded(large["paper"]),
        "categories_sharp_42": rounded(large["sharp, ladder of 7"]),
        **sizes,
        "us_per_message_1600": times["sharp_1600"][256],
        "us_per_message_8400": times["sharp_8400"][256],
        "us_per_message": times,
        "bloom": tables,
    }
    print()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
