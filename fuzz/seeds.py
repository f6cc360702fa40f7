"""Good inputs to begin with, made by the encoders themselves: what a fuzzer would take hours to come upon."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from postroad.broker.channel_items import (
    Consume,
    ConsumerAnswer,
    Forget,
    Informed,
    Leave,
    Put,
    StandingPart,
    encode_item,
)
from postroad.filters import BloomFilter, RibbonFilter
from postroad.matching.encoding import Scheme, encode_exact, to_bytes
from postroad.matching.encoding.predicates import EncodedPredicates
from postroad.messages import Batch, encode_batch, encode_envelopes
from postroad.messages.columns import SOURCE
from postroad.pipeline.commit_note import Note
from postroad.protocols.link import HEART_BEAT, encode_bye, encode_control, encode_data
from postroad.routing.control_frames import Attach, Digest, Interest, LinkRecord, Topics, encode_frame
from postroad.selectors import Selector
from postroad.store import Log, SimulatedDisk, StoreSettings, carry_out, rows_payload
from postroad.store.records import Kind, Record, frames_in
from postroad.tracking import ExactRecorder
from postroad.tracking.journaled_recorder import Journaled
from postroad.trail import SCHEMAS, FileEntry, Group, Run
from postroad.trail.files import render
from postroad.trail.manifest import Change, Checkpoint, Part, Removal

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker.channel_items import Item

__all__ = ["seeds"]

_SELECTORS = (
    "price > 20 AND stock = 'S1'",
    "a BETWEEN 1 AND 2 OR b NOT IN ('x', 'y') OR NOT c LIKE '%\\_%' ESCAPE '\\'",
    "größe IS NOT NULL AND (a + 1) * -2 <= 3.5e2 / b",
    "((a = TRUE))",
    "JMSPriority >= 4 AND a <> 0x1F",
)
_PATH = "passages/broker=1/date=2023-11-14/000000000001-000001.parquet"
_DAY = 19_675
_TIME = _DAY * 86_400_000
_MESSAGES: list[tuple[str, dict[str, object]]] = [
    ("quotes.a", {"price": 7, "stock": "S1", "big": 1.5, "on": True}),
    ("t", {}),
]


def _batch() -> Batch:
    batch = Batch.build(_MESSAGES)
    batch.ids[:] = np.array([[1, 2], [3, 4]], np.uint64)
    return batch


def _frames() -> list[bytes]:
    send = b"SEND\ndestination:/topic/quotes.a\nreceipt:r1\nprice:7\ncontent-length:2\n\nhi\0"
    more = b"SUBSCRIBE\nid:s\ndestination:/topic/a.>\nselector:a \\c 1\nack:client\n\n\0\n\nBEGIN\ntransaction:t\n\n\0"
    rest = b"COMMIT\ntransaction:t\n\n\0ACK\nid:1\n\n\0UNSUBSCRIBE\nid:s\n\n\0DISCONNECT\nreceipt:d\n\n\0"
    return [bytes([version, step]) + send + more + rest for version in range(4) for step in (0, 7)]


def _websocket_frames() -> list[bytes]:
    text, mask = b"SEND\ndestination:/topic/a\n\n\0", bytes(4)
    first = b"\x01" + bytes([0x80 | len(text)]) + mask + text
    ping = b"\x89\x82" + mask + b"hi"
    last = b"\x80\xfe\x00\x80" + mask + bytes(128)
    binary = b"\x82\xff" + (200).to_bytes(8, "big") + mask + bytes(200)
    return [bytes([step]) + first + ping + last + binary + b"\x88\x82" + mask + b"\x03\xe8" for step in (0, 5)]


def _records() -> list[bytes]:
    frames: list[LinkRecord | Interest | Digest | Attach | Topics] = [
        LinkRecord(2, 1_000, 1, 0, ((1, 1), (3, 2))),
        Interest(2, 1_000, 1, b"xyz"),
        Digest(((2, 1, 1, 1, 1),)),
        Attach(1, False, 2, ("a.>",)),
        Topics(("a",), ("b",)),
    ]
    return [encode_frame(frame) for frame in frames]


def _link_frames() -> list[bytes]:
    batch = _batch()
    rows, lines = np.arange(2, dtype=np.int64), np.zeros(2, np.int64)
    data = bytes(encode_data(batch, rows, np.array([[6]], np.uint64), lines, 0, 1))
    control = b"".join(bytes(encode_control(1, record)) for record in _records())
    everything = data + control + bytes(HEART_BEAT) + bytes(encode_bye(1, "enough"))
    return [bytes([1, step]) + everything for step in (0, 11)]


def _packets() -> list[bytes]:
    batch = _batch()
    batch.envelopes[:, SOURCE] = 2
    said: list[Item] = [
        Put(1, 0, "work", "ann", False, rows_payload(batch)),
        StandingPart(7, True, True, False, encode_exact([("a.>", ())]), b""),
        StandingPart(7, True, False, True, encode_exact([("b", ())]), encode_exact([("a.>", ())])),
        Put(2, 0, "", "", False, rows_payload(batch), 1, 2),
        Informed(2, 2),
        Consume(5, "work", "bob", "n > 1", 10, False),
        ConsumerAnswer(1, 5, True, True, batch.ids.astype(">u8").tobytes()),
        Forget(1),
        Leave(5),
    ]
    coded = [encode_item(each) for each in said]
    return [b"".join(len(each).to_bytes(2, "little") + each for each in coded)]


def _manifests() -> list[bytes]:
    entry = FileEntry(_PATH, "passages", _DAY, 7, 99, 5, (Group(0, 1, _TIME, _TIME + 9, 7),))
    change = Change(1, _TIME, (entry,), (Removal(_PATH, (_DAY,)),), Run(1, _TIME, _TIME + 9))
    part = Part(_DAY, "parts/2023-11-14-000000000001.parquet", {"passages": 1}, 9, 9, {})
    checkpoint = Checkpoint(1, _TIME, (Run(1, _TIME, _TIME + 9),), parts=(part,))
    return [b"\x01\x00" + msgspec.json.encode(change), b"\x01\x01" + msgspec.json.encode(checkpoint)]


def _notes() -> list[bytes]:
    entry = FileEntry(_PATH, "passages", _DAY, 7, 99, 5, (Group(0, 1, _TIME, _TIME + 9, 7),))
    return [msgspec.json.encode(Note(_TIME, {1: [entry]}, {1: [entry]}))]


def _journals() -> list[bytes]:
    entries: list[bytes] = []

    def append(entry: bytes) -> int:
        entries.append(entry)
        return len(entries)

    recorder = ExactRecorder(1, _TIME)
    told = Journaled(recorder, append)
    batch, rows = _batch(), np.arange(2, dtype=np.int64)
    told.publishes(7, "bob", _TIME)
    told.subscribed(5, "ann", "a.>", "a = 1", _TIME)
    told.linked(2, 1, _TIME)
    told.accepted(batch, _TIME)
    told.relayed(batch, rows, 2, _TIME)
    told.delivered(batch, rows, 5, _TIME)
    told.shed(batch, rows, 5, "queue full", _TIME)
    told.acknowledged(batch.ids[:1], 5, True, _TIME)
    told.unsubscribed(5, _TIME)
    return [b"\x01" + b"".join(bytes([len(entry)]) + entry for entry in entries if len(entry) < 256)]


def _filters() -> list[bytes]:
    keys = np.arange(40, dtype=np.uint64) * np.uint64(2**60 + 7)
    bloom = BloomFilter(512, 4)
    bloom.add(keys)
    fixed = bytes([0, 0, 40, 0, 40, 0])
    ribbon = bytes(RibbonFilter.build(keys, 0.01))
    return [b"\x02\x00\x02\x04\x00" + fixed + bytes(bloom), b"\x02\x00\x02\x04\x01" + fixed + ribbon]


def _files() -> list[bytes]:
    names = pa.table({"kind": ["publisher"], "number": [7], "at": [_TIME], "name": ["bob"]})
    return [b"\x02" + bytes(render("names", 1, names.cast(SCHEMAS["names"])))]


def _drawn(seed: int) -> list[bytes]:
    """For targets that read choices: any bytes are structure."""
    rng = random.Random(seed)
    return [rng.randbytes(size) for size in (40, 120, 300)]


def _predicates() -> list[bytes]:
    scheme = Scheme.sharp(64, 2)
    return [b"\x01" + to_bytes(EncodedPredicates(scheme, rows))[:-8] for rows in ([], [(1, 5), (2,)])]


def _exact() -> list[bytes]:
    selector = Selector.parse("a = 1 AND b LIKE 'x%' OR c > 2.5")
    return [b"\x00" + encode_exact([("t.>", conjunction) for conjunction in selector.disjunction])]


def _interests() -> list[bytes]:
    said = _exact()[0]
    exact = b"\x00" + b"".join(bytes([broker, 2, len(said)]) + said for broker in (0, 1))
    vectors = _predicates()[1]
    return [exact, b"\x01" + bytes([0, 2, len(vectors)]) + vectors]


def _segments() -> list[bytes]:
    log, disk = Log(StoreSettings(segment_bytes=4096)), SimulatedDisk()
    cursors = [log.open_cursor(number, b"terms") for number in (1, 2)]
    batch, rows = _batch(), np.arange(2, dtype=np.int64)
    for _ in range(12):
        log.append(batch, [(cursors[0], rows), (cursors[1], rows[:1])], _TIME)
        commit = log.take_commit(_TIME)
        assert commit is not None
        carry_out(commit, disk)
        log.committed(commit)
    for taken in log.pull(cursors[0], 7):
        log.settle(cursors[0], taken.places[1:])
    log.detach(cursors[0])
    commit = log.take_commit(_TIME)
    assert commit is not None
    carry_out(commit, disk)
    made = []
    for segment in disk.segments():
        data = memoryview(disk.read(segment))
        parts = []
        for each in frames_in(data, segment):
            assert isinstance(each, Record)
            payload = bytes(each.payload(data))
            kind = bytes([tuple(Kind).index(each.kind)])
            parts.append(kind + len(payload).to_bytes(2, "little") + payload + b"\x00")
        made.append(b"".join(parts))
    return made


def seeds(target: str) -> list[bytes]:
    """The good inputs of a target."""
    made: dict[str, Callable[[], list[bytes]]] = {
        "broker_frames": _frames,
        "client_frames": lambda: [b"\x01\x00MESSAGE\nmessage-id:1\nsubscription:s\ndestination:/topic/a\n\nhi\0\n"],
        "control_frames": _records,
        "encoded_messages": lambda: [b"\x00" + bytes(encode_batch(Batch.build([one]))[0]) for one in _MESSAGES],
        "encoded_predicates": _predicates,
        "envelopes": lambda: [b"\x02\x00" + bytes(encode_envelopes(_batch()))],
        "exact_interests": _exact,
        "filters": _filters,
        "index": lambda: _drawn(1),
        "interests": _interests,
        "journals": _journals,
        "link_frames": _link_frames,
        "link_state": lambda: _drawn(2),
        "manifests": _manifests,
        "notes": _notes,
        "packed_lists": lambda: [b"\x02\x08\x00\x00\x00\x01\x00\x00\x00\x02\x04\x00\x00\x00\x07"],
        "parquet_files": _files,
        "queue_packets": _packets,
        "selectors": lambda: [text.encode() for text in _SELECTORS],
        "store_segments": _segments,
        "topics": lambda: [b"a.*.>\na.b.c", b">\na", b"a..b\n"],
        "websocket_frames": _websocket_frames,
    }
    return made[target]()
