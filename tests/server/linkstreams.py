"""Byte streams that are almost what a broker says on a link, the same in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages import Batch, Draft
from postroad.protocols.link import (
    HEART_BEAT,
    Hello,
    Progress,
    Welcome,
    encode_bye,
    encode_control,
    encode_data,
    encode_hello,
    encode_progress,
    encode_welcome,
)
from postroad.routing.control_frames import Digest, Interest, LinkRecord, encode_frame

if TYPE_CHECKING:
    import random

# Who the streams say they are, and whom they talk to.
STRANGER, BROKER = 1, 5


def hello(epoch: int, broker: int = STRANGER, custody: bool = False) -> bytes:
    return encode_hello(Hello(1, 1, broker, epoch, 0, "postroad", bytes(32), 0, int(custody), 1_000))


def handshake(epoch: int, custody: bool = False) -> bytes:
    """All that the dialler says until the link is open; without a secret it need not listen for that."""
    return hello(epoch, custody=custody) + encode_welcome(Welcome(1, 0, 0, 0, 1))


def data(number: int, random: random.Random) -> bytes:
    rows = random.randrange(1, 5)
    batch = Batch.build([Draft(f"fuzz.{random.choice('ab')}", {"price": row}, body=bytes(row)) for row in range(rows)])
    batch.ids[:, 0] = STRANGER << 32 | STRANGER
    batch.ids[:, 1] = [random.randrange(2**60) for _ in range(rows)]
    sets = np.array([[1 << BROKER], [1 << BROKER | 1 << 2], [random.randrange(2**64)]], np.uint64)[:rows]
    lines = np.array([random.randrange(len(sets)) for _ in range(rows)])
    return bytes(encode_data(batch, np.arange(rows), sets, lines, random.randrange(3), number))


def control(random: random.Random) -> bytes:
    """What routing says, of the stranger only: a neighbour that lies about others is believed, and that is no fuzz."""
    said = [
        encode_frame(LinkRecord(STRANGER, 1, random.randrange(9), 0, ((BROKER, 10),))),
        encode_frame(Interest(STRANGER, 1, random.randrange(9), random.randbytes(20))),
        encode_frame(Digest(((STRANGER, 1, 1, 1, 1),))),
        random.randbytes(random.randrange(60)),
    ]
    return encode_control(random.choice([1, 1, 1, 2, 9]), random.choice(said))


def changed(frame: bytes, random: random.Random) -> bytes:
    """A frame with some bytes wrong, missing, or too many."""
    found = bytearray(frame)
    for _ in range(random.randrange(1, 3)):
        at = random.randrange(len(found))
        how = random.randrange(4)
        if how == 0:
            found[at] = random.randrange(256)
        elif how == 1:
            del found[at : at + random.randrange(1, 9)]
        elif how == 2:
            found[at:at] = random.randbytes(random.randrange(1, 9))
        else:
            del found[at + 1 :]
        if not found:
            break
    return bytes(found)


def stream(random: random.Random) -> bytes:
    """One connection: noise; a handshake that goes wrong; or frames behind one that does not."""
    kind = random.random()
    epoch = random.randrange(1, 2**40)
    if kind < 0.1:
        return random.randbytes(random.randrange(1, 300))
    begin = handshake(epoch, custody=random.random() < 0.5)
    if kind < 0.3:
        return changed(begin, random)
    pieces = [begin]
    for number in range(1, random.randrange(2, 8)):
        roll = random.random()
        if roll < 0.2:
            pieces.append(control(random))
            continue
        frame = data(number, random)
        if roll > 0.6:
            progress = encode_progress(Progress(random.randrange(3), 0, ((1, 1),) if roll > 0.9 else ()))
            others = [progress, HEART_BEAT, encode_bye(random.randrange(20), "bye"), hello(epoch)]
            frame = random.choice(others)
        pieces.append(changed(frame, random) if random.random() < 0.4 else frame)
    return b"".join(pieces)
