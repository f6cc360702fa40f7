"""Subscriptions and messages that need no explanation: share prices, sensors in buildings, headlines. Seeded."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from postroad.lab.news_words import NEWS_WORDS
from postroad.lab.workloads import SubscriptionSpec
from postroad.messages import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.messages import Value

__all__ = ["messages", "subscriptions"]

_MARKETS = ("tokyo", "london", "newyork", "frankfurt", "mumbai")
_SYMBOLS = tuple(
    f"{first}{second}{third}" for first in "ABCDEFGHKLMNPRST" for second in "AEIOU" for third in "KLMNRSTX"
)
_QUANTITIES = ("temperature", "humidity", "power", "smoke")
_BUILDINGS = 400
_FLOORS = 30
_SECTIONS = ("business", "politics", "science", "sport", "weather", "world")


def subscriptions(seed: int) -> Iterator[SubscriptionSpec]:
    """An endless stream: half of them traders, three in ten watch buildings, the others read headlines."""
    random = Random(f"{seed} subscriptions")
    while True:
        chance = random.random()
        if chance < 0.5:
            yield _trader(random)
        elif chance < 0.8:
            yield _watcher(random)
        else:
            yield _reader(random)


def _trader(random: Random) -> SubscriptionSpec:
    symbol, price = random.choice(_SYMBOLS), random.randrange(10, 500)
    market = random.choice(_MARKETS)
    return random.choice(
        (
            SubscriptionSpec(f"symbol = '{symbol}' AND price > {price}", None),
            SubscriptionSpec(f"symbol = '{symbol}' AND price BETWEEN {price} AND {price + 50}", f"stocks.{market}.*"),
            SubscriptionSpec(f"change < -{random.randrange(40, 95) / 10} AND volume > 45000", f"stocks.*.{symbol}"),
            SubscriptionSpec(f"symbol IN ('{symbol}', '{random.choice(_SYMBOLS)}') AND price * volume > 9000000", None),
        )
    )


def _watcher(random: Random) -> SubscriptionSpec:
    building, floor = random.randrange(_BUILDINGS), random.randrange(_FLOORS)
    return random.choice(
        (
            SubscriptionSpec(f"value > {random.randrange(600, 990) / 10}", f"buildings.b{building}.*.temperature"),
            SubscriptionSpec(None, f"buildings.b{building}.floor{floor}.>"),
            SubscriptionSpec("battery < 5 OR fault = TRUE", f"buildings.b{building}.>"),
            SubscriptionSpec(
                f"value >= {random.randrange(20, 95)} AND fault = FALSE", f"buildings.*.floor{floor}.smoke"
            ),
        )
    )


def _reader(random: Random) -> SubscriptionSpec:
    word, other = random.sample(NEWS_WORDS, 2)
    section = random.choice(_SECTIONS)
    return random.choice(
        (
            SubscriptionSpec(f"headline LIKE '%{word}%' AND headline LIKE '%{other}%'", "news.>"),
            SubscriptionSpec(f"headline LIKE '{word}%' AND words > {random.randrange(500, 1500)}", f"news.{section}"),
            SubscriptionSpec(f"headline LIKE '%{word}' AND urgent = TRUE", f"news.{section}"),
        )
    )


def messages(seed: int) -> Iterator[Draft]:
    """An endless stream: trades, readings and headlines, and now and then a heartbeat that concerns nobody."""
    random = Random(f"{seed} messages")
    while True:
        chance = random.random()
        if chance < 0.5:
            yield _trade(random)
        elif chance < 0.8:
            yield _reading(random)
        elif chance < 0.98:
            yield _headline(random)
        else:
            host = f"gateway{random.randrange(40)}"
            yield Draft(f"system.heartbeat.{host}", {"host": host, "uptime": random.randrange(10**6)})


def _trade(random: Random) -> Draft:
    symbol, price = random.choice(_SYMBOLS), round(random.uniform(10, 500), 2)
    change, volume = round(random.uniform(-9.5, 9.5), 1), random.randrange(100, 50_000)
    attributes: dict[str, Value] = {"symbol": symbol, "price": price, "change": change, "volume": volume}
    return Draft(f"stocks.{random.choice(_MARKETS)}.{symbol}", attributes)


def _reading(random: Random) -> Draft:
    place = f"b{random.randrange(_BUILDINGS)}.floor{random.randrange(_FLOORS)}"
    attributes: dict[str, Value] = {
        "value": round(random.uniform(0, 100), 1),
        "battery": random.randrange(101),
        "fault": random.random() < 0.01,
    }
    return Draft(f"buildings.{place}.{random.choice(_QUANTITIES)}", attributes)


def _headline(random: Random) -> Draft:
    attributes: dict[str, Value] = {
        "headline": " ".join(random.sample(NEWS_WORDS, 5)),
        "words": random.randrange(100, 2_000),
        "urgent": random.random() < 0.1,
    }
    return Draft(f"news.{random.choice(_SECTIONS)}", attributes)
