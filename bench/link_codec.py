"""Link frames: encoding and decoding, µs per message, by the size of batches and bodies."""

from __future__ import annotations

import argparse
import json
import platform
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bench.stopwatch import Side, best_of
from postroad.messages import Batch, Draft, MessageId
from postroad.protocols.link import LinkDecoder, LinkSender, LinkStanding, Progress, encode_data

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = (1, 16, 256, 1_000)
BODIES = (100, 1_000)
# Enough different batches that the caches hold no single one by heart, as under real traffic.
BATCHES = 8
ROUNDS = 7
SECONDS = 0.02

Parcel: TypeAlias = tuple[Batch, Any, Any, Any, int]


def batch_of(rows: int, body: int, seed: int) -> Batch:
    """Messages as a market sends them: a topic, three attributes, a header line."""
    random = np.random.default_rng(seed)
    drafts = [
        Draft(
            f"trades.{int(random.integers(50))}",
            {"stock": f"S{row}", "price": float(random.random()), "volume": row},
            [("exchange", "ams")],
            random.bytes(body),
            MessageId(7, 1, 1_700_000_000_000, row),
            source=1,
        )
        for row in range(rows)
    ]
    return Batch.build(drafts)


def parcel(rows: int, body: int, seed: int) -> Parcel:
    """What `encode_data` takes: all rows, four distinct sets of two words."""
    sets = np.arange(1, 9, dtype=np.uint64).reshape(4, 2)
    return batch_of(rows, body, seed), np.arange(rows), sets, np.arange(rows) % 4, 1


def work(parcels: list[Parcel]) -> dict[str, tuple[Callable[[Any], object], list[Any]]]:
    """What is measured, and on what."""
    frames = [bytes(encode_data(*each, 1)) for each in parcels]
    decoder = LinkDecoder()
    decoder.open()
    sender = LinkSender(1)
    sender.attach(2, LinkStanding(), sender.first)

    def encode(each: Parcel) -> None:
        encode_data(*each, 1)

    def send(each: Parcel) -> None:
        """Number, encode, hold, and let go when the neighbour has it."""
        sender.send(*each)
        number = sender.statistics().sent_frames
        sender.progress(Progress(number, number))

    return {
        "encode": (encode, parcels),
        "decode": (decoder.receive, frames),
        "send": (send, parcels),
    }


def measure(rows: int, body: int, rounds: int) -> dict[str, float]:
    """µs per message of each kind of work."""
    parcels = [parcel(rows, body, seed) for seed in range(BATCHES)]
    sides = {name: Side(do, things * 20, SECONDS) for name, (do, things) in work(parcels).items()}
    return {name: seconds / rows * 1e6 for name, seconds in best_of(rounds, sides).items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=ROUNDS, help="the best of so many counts")
    rounds = arguments.parse_args().rounds
    print(f"Python {platform.python_version()}, numpy {np.__version__}, one thread, best of {rounds} rounds")
    print("µs per message: encode_data, LinkDecoder.receive, and LinkSender.send with the progress that frees")
    print(f"{'rows':>6}{'body':>7}{'encode':>10}{'decode':>10}{'send':>10}")
    result: dict[str, object] = {"bench": "link_codec"}
    for body in BODIES:
        for rows in ROWS:
            found = measure(rows, body, rounds)
            print(f"{rows:>6,}{body:>7,}" + "".join(f"{found[name]:>10.3f}" for name in ("encode", "decode", "send")))
            result |= {f"{name}_us_{rows}x{body}": round(value, 3) for name, value in found.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
