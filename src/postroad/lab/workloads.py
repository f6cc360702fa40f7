"""Four seeded workloads for matching: endless streams of subscriptions, and messages as brokers get them.

(a) `stocks`      one equality and one range, `stock = 'S123' AND price > 50`: few match, whatever the size
(b) `news`        B-DRP's conjunctions of one to five constraints (`lab.bdrp`): many shapes, many attributes
(c) `ranges`      one range each: about a third of all subscriptions match, so that the output itself is the cost
(d) `wildcards`   wildcard topics, prefixes, suffixes and substrings: about 0.005 % match

The vocabularies of (b), (c) and (d) do not grow with the number of subscriptions, so neither does the fraction that
matches; in (a) the number of stocks grows instead, and the matches stay about five.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from postroad.lab import bdrp
from postroad.messages import Batch, Draft, decode_batch, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.messages import Value

__all__ = ["WORKLOADS", "News", "Ranges", "Stocks", "SubscriptionSpec", "Wildcards", "Workload"]

# Subscriptions are drawn as columns, this many at a time: large enough for numpy, small enough for memory.
_BLOCK = 8192
_BODY_BYTES = 100


class SubscriptionSpec(NamedTuple):
    """What one subscriber asks for; None is anything."""

    selector: str | None
    topic: str | None


class Workload(ABC):
    """A seeded workload for an index of a given size: the same arguments give the same draws.

    Args:
        size: how many subscriptions the index is to hold.
        seed: of everything drawn.
    """

    letter: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, size: int, seed: int = 1) -> None:
        self.size = size
        self.seed = seed

    def subscriptions(self) -> Iterator[SubscriptionSpec]:
        """Yield an endless stream, the same from its beginning at each call; take as many as the size says, or more."""
        random = np.random.default_rng((self.seed, 0))
        while True:
            yield from self._block(random, _BLOCK)

    def batch(self, count: int) -> Batch:
        """Return this many messages with `_BODY_BYTES` of body, encoded and decoded again, all in one batch."""
        random = np.random.default_rng((self.seed, 1))
        bodies = random.bytes(count * _BODY_BYTES)
        drafts = [
            draft._replace(body=bodies[place * _BODY_BYTES : (place + 1) * _BODY_BYTES])
            for place, draft in enumerate(self._drafts(random, count))
        ]
        return decode_batch(*encode_batch(Batch.build(drafts)))

    @abstractmethod
    def _block(self, random: np.random.Generator, count: int) -> Iterator[SubscriptionSpec]: ...

    @abstractmethod
    def _drafts(self, random: np.random.Generator, count: int) -> Iterator[Draft]: ...


class Stocks(Workload):
    """(a) Ten subscriptions per stock, each above a price; of prices 0 to 99, a message is above half of them."""

    letter = "a"
    title = "stock = 'S123' AND price > 50"

    PER_STOCK = 10
    PRICES = 100

    def _stocks(self, random: np.random.Generator, count: int) -> list[int]:
        drawn: list[int] = random.integers(0, max(1, self.size // self.PER_STOCK), count).tolist()
        return drawn

    def _block(self, random: np.random.Generator, count: int) -> Iterator[SubscriptionSpec]:
        prices = random.integers(0, self.PRICES, count).tolist()
        for stock, price in zip(self._stocks(random, count), prices, strict=True):
            yield SubscriptionSpec(f"stock = 'S{stock}' AND price > {price}", None)

    def _drafts(self, random: np.random.Generator, count: int) -> Iterator[Draft]:
        prices = random.integers(0, self.PRICES, count).tolist()
        for stock, price in zip(self._stocks(random, count), prices, strict=True):
            yield Draft("trades", {"stock": f"S{stock}", "price": price})


class News(Workload):
    """(b) Conjunctions of one to five constraints on words and counts, as B-DRP's experiments have them."""

    letter = "b"
    title = "B-DRP, one to five constraints"

    def _block(self, random: np.random.Generator, count: int) -> Iterator[SubscriptionSpec]:
        for text in self._drawing(random).predicates(count).texts():
            yield SubscriptionSpec(text, None)

    def _drafts(self, random: np.random.Generator, count: int) -> Iterator[Draft]:
        for attributes in self._drawing(random).messages(count).attributes():
            yield Draft("news", attributes)

    @staticmethod
    def _drawing(random: np.random.Generator) -> bdrp.BdrpWorkload:
        return bdrp.BdrpWorkload(int(random.integers(2**63)))


class Ranges(Workload):
    """(c) One range each over eight readings, of which a message carries six.

    Half of the readings and of the thresholds are integers, half floats. A one-sided range holds for half of all values
    and `BETWEEN` for a third, so 0.75 * 0.47 of all subscriptions match. More would not be practical: the matches of
    256 messages at a million subscriptions take 360 megabytes.
    """

    letter = "c"
    title = "one range each, a third matches"

    READINGS = 8
    CARRIED = 6
    TOP = 1000  # values lie below it
    FORMS = ("{0} > {1}", "{0} > {1}", "{0} < {1}", "{0} < {1}", "{0} BETWEEN {1} AND {2}")

    def _block(self, random: np.random.Generator, count: int) -> Iterator[SubscriptionSpec]:
        forms = random.integers(0, len(self.FORMS), count).tolist()
        names = random.integers(0, self.READINGS, count).tolist()
        bounds = np.sort(random.random((count, 2)) * self.TOP, axis=1)
        # The lesser of a sorted pair leans to the low end; a single threshold is drawn evenly.
        between = np.array(forms) == len(self.FORMS) - 1
        bounds[:, 0] = np.where(between, bounds[:, 0], random.random(count) * self.TOP)
        whole = (random.random(count) < 0.5).tolist()
        for form, name, (low, high), integral in zip(forms, names, bounds.tolist(), whole, strict=True):
            pair = (int(low), int(high)) if integral else (f"{low:.3f}", f"{high:.3f}")
            yield SubscriptionSpec(self.FORMS[form].format(f"reading_{name}", *pair), None)

    def _drafts(self, random: np.random.Generator, count: int) -> Iterator[Draft]:
        carried = random.permuted(np.tile(np.arange(self.READINGS), (count, 1)), axis=1)[:, : self.CARRIED]
        values = random.random((count, self.CARRIED)) * self.TOP
        for names, numbers in zip(carried.tolist(), values.tolist(), strict=True):
            pairs = zip(names, numbers, strict=True)
            yield Draft("plant", {f"reading_{name}": _reading(name, number) for name, number in pairs})


def _reading(name: int, number: float) -> Value:
    """Even readings are integers, odd ones floats."""
    return round(number, 3) if name % 2 else int(number)


class Wildcards(Workload):
    """(d) A quarter each of wildcard topics, prefixes, suffixes and substrings.

    Topics have four levels; titles have six syllables out of a hundred and come as a header line, which is untyped
    text. A third of those who search the title also name a part of the topics, and then search for only one syllable:
    neither condition is rare by itself. A pattern matches about one message in 22,000, the average of its kind.
    """

    letter = "d"
    title = "wildcard topics, prefixes, suffixes, substrings"

    LEVELS = (20, 40, 100, 10)
    LEVEL_NAMES = ("land{}", "town{}", "sensor{}", "kind{}")
    # Which levels a pattern spells out; the others are stars.
    PATTERNS = ((0, 1, 2), (0, 2, 3), (1, 2, 3), (0, 1, 3))
    SYLLABLES = tuple(consonant + vowel for consonant in "bcdfghjklmnprstvwxyz" for vowel in "aeiou")
    TITLE = 6
    LIKES = ("{}%", "%{}", "%{}%")

    def _syllables(self, random: np.random.Generator, count: int, width: int) -> list[str]:
        drawn = random.integers(0, len(self.SYLLABLES), (count, width)).tolist()
        return ["".join([self.SYLLABLES[number] for number in row]) for row in drawn]

    def _topics(self, random: np.random.Generator, count: int) -> list[list[str]]:
        columns = [random.integers(0, size, count).tolist() for size in self.LEVELS]
        return [
            [name.format(number) for name, number in zip(self.LEVEL_NAMES, row, strict=True)]
            for row in zip(*columns, strict=True)
        ]

    def _block(self, random: np.random.Generator, count: int) -> Iterator[SubscriptionSpec]:
        kinds = random.integers(0, 1 + len(self.LIKES), count).tolist()
        shapes = random.integers(0, 1 + len(self.PATTERNS), count).tolist()
        chances = random.random(count).tolist()
        pieces = self._syllables(random, count, 3)
        for kind, shape, chance, piece, topic in zip(
            kinds, shapes, chances, pieces, self._topics(random, count), strict=True
        ):
            if kind == len(self.LIKES):
                yield SubscriptionSpec(None, self._pattern(topic, shape))
            elif chance < 1 / 3:
                yield SubscriptionSpec(f"title LIKE '{self.LIKES[kind].format(piece[:2])}'", f"{topic[0]}.{topic[1]}.>")
            else:
                # Three syllables for half of the prefixes and suffixes, and for nine in ten substrings, which have more
                # positions to match; two for the others. The probability lies between 1/3 and 1 here.
                long = chance > (0.4 if self.LIKES[kind] == "%{}%" else 2 / 3)
                yield SubscriptionSpec(f"title LIKE '{self.LIKES[kind].format(piece if long else piece[:4])}'", None)

    def _pattern(self, topic: list[str], shape: int) -> str:
        if shape == len(self.PATTERNS):
            return ".".join([*topic[:3], ">"])
        return ".".join([level if place in self.PATTERNS[shape] else "*" for place, level in enumerate(topic)])

    def _drafts(self, random: np.random.Generator, count: int) -> Iterator[Draft]:
        titles = self._syllables(random, count, self.TITLE)
        for topic, title in zip(self._topics(random, count), titles, strict=True):
            yield Draft(".".join(topic), headers={"title": title})


WORKLOADS: dict[str, type[Workload]] = {kind.letter: kind for kind in (Stocks, News, Ranges, Wildcards)}
