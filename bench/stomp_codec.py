"""The STOMP codec: microseconds per message to decode reads, and per delivery to render MESSAGE frames."""

from __future__ import annotations

import json
import platform
from random import Random
from typing import TYPE_CHECKING

import numba
import numpy as np

from bench.stopwatch import Side, best_of
from postroad.messages import Batch, IdGenerator
from postroad.protocols.stomp import StompDecoder, Version, message_prefix, render_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

# Distinct header blocks: identical frames flatter branch predictors and caches.
FRAMES = 4_000
BODIES = (100, 1_000)
READS = (64 * 1024, 256 * 1024)
FAN_OUT = (1, 10)
ROUNDS = 15
SECONDS = 0.05


def frames(body: int, random: Random) -> list[bytes]:
    """SEND frames with five header lines besides their own, no two alike."""
    made = [
        b"SEND\ndestination:/topic/stocks.%d.%d\ncontent-length:%d\nsymbol:S%d\nprice:%d.%02d\nvolume:%d\nregion:eu-%d\n"
        b"kind:trade\n\n%b\0\n"
        % (
            random.randrange(20),
            random.randrange(50),
            body,
            number,
            random.randrange(1000),
            random.randrange(100),
            random.randrange(100_000),
            random.randrange(20),
            random.randbytes(body),
        )
        for number in range(FRAMES)
    ]
    assert len({frame[: frame.index(b"\n\n")] for frame in made}) == FRAMES
    return made


def connected() -> StompDecoder:
    decoder = StompDecoder()
    decoder.receive(b"CONNECT\naccept-version:1.2\nhost:bench\n\n\0")
    return decoder


def cut(made: Sequence[bytes], size: int) -> list[bytes]:
    """The stream in reads of a size, from its first frame to its last: most reads split a frame at both ends."""
    stream = b"".join(made)
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def count(reads: Sequence[bytes]) -> int:
    decoder = connected()
    found = [decoder.receive(read).batch for read in reads]
    return sum(len(batch) for batch in found if batch is not None)


def deliver(batch: Batch, rows: np.ndarray[tuple[int], np.dtype[np.int64]], prefixes: Sequence[bytes]) -> int:
    """Render for so many subscribers; the bytes written."""
    rendered = render_rows(batch, rows)
    return sum(len(rendered.for_subscription(prefix, rows)) for prefix in prefixes)


def measure(body: int, size: int) -> dict[str, float]:
    """Microseconds per message, or per delivery, for one size of body and of read."""
    made = frames(body, Random(body))
    reads = cut(made, size)
    assert count(reads) == FRAMES
    decoder = connected()
    batch = connected().receive(b"".join(made)[:size]).batch
    assert batch is not None
    batch.ids = IdGenerator(1, 2).take(1_700_000_000_000, len(batch))
    rows = np.arange(len(batch))
    prefixes = [message_prefix(f"sub-{number}", Version.V1_2) for number in range(max(FAN_OUT))]

    def decode(_: None) -> None:
        for read in reads:
            decoder.receive(read)

    sides = {"decode": Side(decode, [None], SECONDS)}
    for fan in FAN_OUT:
        sides[f"render_1_{fan}"] = Side(lambda few: deliver(batch, rows, few), [prefixes[:fan]], SECONDS)
    best = best_of(ROUNDS, sides)
    per = {"decode": FRAMES} | {f"render_1_{fan}": len(batch) * fan for fan in FAN_OUT}
    return {name: 1e6 * seconds / per[name] for name, seconds in best.items()}


def measure_one() -> dict[str, float]:
    """Microseconds for reads of one frame, and for one delivery of one message."""
    made = frames(100, Random(1))
    decoder = connected()
    batch = connected().receive(made[0]).batch
    assert batch is not None
    rows, prefix = np.arange(1), [message_prefix("sub-1", Version.V1_2)]
    sides = {
        "decode_single": Side(decoder.receive, made, SECONDS),
        "render_single": Side(lambda few: deliver(batch, rows, few), [prefix], SECONDS),
    }
    return {name: 1e6 * seconds for name, seconds in best_of(ROUNDS, sides).items()}


def main() -> None:
    print(
        f"Python {platform.python_version()}, numpy {np.__version__}, numba {numba.__version__}, one thread; "
        f"best of {ROUNDS} rounds, {FRAMES:,} frames with distinct headers"
    )
    print(f"{'body':>8}{'read':>10}{'decode µs':>12}" + "".join(f"{f'render 1→{fan} µs':>18}" for fan in FAN_OUT))
    result: dict[str, object] = {"bench": "stomp_codec"}
    for body in BODIES:
        for size in READS:
            found = measure(body, size)
            print(
                f"{body:>8,}{size // 1024:>6} KiB{found['decode']:>12.3f}"
                + "".join(f"{found[f'render_1_{fan}']:>18.3f}" for fan in FAN_OUT)
            )
            result |= {f"{name}_{body}_{size // 1024}k_us": round(value, 3) for name, value in found.items()}
    single = measure_one()
    print(f"a read of one frame: {single['decode_single']:.1f} µs; one delivery: {single['render_single']:.1f} µs")
    result |= {f"{name}_us": round(value, 2) for name, value in single.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
