"""Selectors per second: parsing, normal form, and generated functions, all distinct, nothing cached."""

from __future__ import annotations

import json
import platform
from random import Random
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from postroad.selectors import Selector
from postroad.selectors.generated_code import generate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Selectors of one round, and rounds of which the median counts, so that one disturbed round does not matter. Compiling
# source is some fifty times slower than parsing, so fewer do.
COUNT = 20_000
GENERATED = 500
ROUNDS = 5

MIXED: tuple[Callable[[int, Random], str], ...] = (
    lambda n, random: f"stock = 'S{n}' AND price > {random.randrange(100)}",
    lambda n, random: f"price BETWEEN {n} AND {n + random.randrange(9)} AND volume >= {random.random():.4f}",
    lambda n, random: f"region IN ('r{n}', 'eu', 'us') AND (level = {random.randrange(9)} OR urgent)",
    lambda n, random: f"title LIKE 'n{n}%' AND author NOT LIKE '%x\\_%' ESCAPE '\\' AND lang IS NOT NULL",
    lambda n, random: f"NOT (a = {n} OR b <> 'x{random.randrange(9)}') AND c IS NULL",
    lambda n, random: f"price * quantity > {n} AND quantity - {random.randrange(9)} <= 2 * reserve",
    lambda n, random: f"JMSPriority > {random.randrange(9)} AND JMSType = 't{n}' AND user = 'it''s {n}'",
    lambda n, random: f"a = {n} OR b = {n} AND c = {random.randrange(9)} OR d = 'x' OR d = 'y{n}'",
)


def two_clauses(count: int, random: Random) -> list[str]:
    return [f"stock = 'S{number}' AND price > {random.randrange(100)}" for number in range(count)]


def mixed_bag(count: int, random: Random) -> list[str]:
    return [MIXED[number % len(MIXED)](number, random) for number in range(count)]


def per_second(work: Callable[[Any], object], rounds: Iterable[list[Any]]) -> float:
    """The median rate over rounds of distinct things to work on."""
    rates = []
    for things in rounds:
        start = perf_counter()
        for thing in things:
            work(thing)
        rates.append(len(things) / (perf_counter() - start))
    return median(rates)


def measure(make: Callable[[int, Random], list[str]]) -> dict[str, float]:
    texts = [make(COUNT, Random(seed)) for seed in range(ROUNDS)]
    assert all(len(set(round_)) == COUNT for round_ in texts)

    def parsed(count: int = COUNT) -> Iterator[list[Selector]]:
        """Fresh selectors, one round at a time: those of all rounds would keep the garbage collector busy."""
        for round_ in texts:
            yield [Selector.parse(text) for text in round_[:count]]

    return {
        "parse_per_s": per_second(Selector.parse, texts),
        "disjunction_per_s": per_second(lambda selector: selector.disjunction, parsed()),
        "canonical_text_per_s": per_second(str, parsed()),
        "generate_per_s": per_second(generate, parsed(GENERATED)),
    }


def main() -> None:
    print(f"Python {platform.python_version()}, one thread; median of {ROUNDS} rounds of {COUNT:,} distinct selectors")
    print(f"{'':24}{'two clauses':>16}{'mixed bag':>16}")
    simple, mixed = measure(two_clauses), measure(mixed_bag)
    for name, rate in simple.items():
        print(f"{name.replace('_per_s', '/s').replace('_', ' '):24}{rate:>16,.0f}{mixed[name]:>16,.0f}")
    result: dict[str, object] = {"bench": "parsing"}
    result |= {name: round(rate) for name, rate in simple.items()}
    result |= {f"mixed_{name}": round(rate) for name, rate in mixed.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
