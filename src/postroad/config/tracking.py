"""The settings of tracking: where messages went, and by which names people know them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from postroad.broker import DEFAULT_SKEW_TOLERANCE_MS
from postroad.filters import MAX_HASHES, MAX_POSITIONS, MAX_RIBBON_COLUMNS, MAX_RIBBON_KEYS, Shape
from postroad.messages.limits import MAX_NAME_BYTES
from postroad.tracking import HistorySettings, TrackingError, shape_of
from postroad.tracking.filter_shape import MAX_EFFECTIVE

__all__ = ["RecorderName", "TrackingConfig"]

# This is where a new recorder gets its name; `recording/recorders.py` says how it is made.
RecorderName = Literal["none", "log", "exact", "bloom", "sealed"]

# A filter begins at one word, which also is as many bits as it may have positions for a key.
_LEAST_BITS = 64
_DEFAULT = HistorySettings()
# At most one part in this many of `persist_seconds` goes by while a history waits for others.
_LINGER_SHARE = 4
# About a hundred times what a busy broker writes, and less than a tenth of a gigabit line.
DEFAULT_SHIP_RATE = 8 << 20


class TrackingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a broker keeps of the messages that passed.

    Attributes:
        recorder: docs/tracking.md says when to choose which.
        trail: the directory of the record; by default `trail` in the broker's data directory.
        persist_seconds: the record is written at least so often; a crash loses no more, without a journal.
        memory_bytes: what the recorder may hold; above, it writes sooner. As much again may wait for a disk.
        effective_error: the error rate of filters, for all that cover one id together. Without, 1e-5; or, with
            `bits`, `hashes` and `keys`, the one that they give.
        matching_set: how many filters are expected to cover one id; their error rates add up to effective_error.
        keys: the most keys in one filter. Without, 1,048,576 for "sealed"; for "bloom" what its bits hold.
        bits: "bloom": the bits of a filter; without, as many as its keys need.
        hashes: "bloom": the positions of a key in a filter; without, the best number.
        keep_keys: "sealed": store the hashes of a ribbon filter beside it, so that it can be merged; 8 bytes per key.
        method: what a sealed history becomes.
        layout: "paper" keeps a history for each subscription and neighbour, as the paper does, at far more bytes.
        relay_keys: "sets" keeps one key for all neighbours that a message was relayed to, instead of one for each; a
            question then probes every set of neighbours.
        hold_seconds: `bloom`: how long the brokers that messages come from keep their filters open. Where that is
            longer than persist_seconds, a filter is stored, kept open, and stored again.
        journal: write the record down before a receipt is given, so that a crash loses nothing that has one.
        keep_days: delete records older than this; 0 keeps all.
        keep_bytes: delete the oldest records above this size; 0 keeps all.
        ship: where what is written is copied to, such as "s3://bucket/trail"; nowhere without.
        ship_bytes_per_second: the bandwidth that this may take, with what is read back to compare; 0 for no bound.
        keep_local_days: delete local copies of shipped records older than this; 0 keeps all.
        skew_tolerance_ms: how far the time of an id that a client gives may be from the broker's clock. Beyond it the
            message is accepted, the id is recorded by itself, and the client gets the time.
        jitter_ms: how much later than at its entry a message may pass a broker, or be delivered, and still be in time.
            Beyond it the id is recorded by itself.
        broker_skew_ms: how far the clocks of brokers may differ: what the record says about an id is looked up this
        much
            around its time.
        alias_attribute: the attribute, or header, that holds the name a message has in another system, such as
            "correlation-id"; none without.
    """

    recorder: RecorderName = "exact"
    trail: str | None = None
    persist_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=86_400)] = 60.0
    memory_bytes: Annotated[int, msgspec.Meta(ge=1 << 16)] = 64 << 20
    effective_error: Annotated[float, msgspec.Meta(gt=0, le=MAX_EFFECTIVE)] | None = None
    matching_set: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = _DEFAULT.matching_set
    keys: Annotated[int, msgspec.Meta(ge=1, le=MAX_RIBBON_KEYS)] | None = None
    bits: Annotated[int, msgspec.Meta(ge=_LEAST_BITS, le=MAX_POSITIONS)] | None = None
    hashes: Annotated[int, msgspec.Meta(ge=1, le=MAX_HASHES)] | None = None
    keep_keys: bool = False
    method: Literal["smallest", "bloom", "ribbon"] = "smallest"
    layout: Literal["shared", "paper"] = "shared"
    relay_keys: Literal["each", "sets"] = "each"
    hold_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    journal: bool = False
    keep_days: Annotated[int, msgspec.Meta(ge=0)] = 0
    keep_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    ship: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    ship_bytes_per_second: Annotated[int, msgspec.Meta(ge=0)] = DEFAULT_SHIP_RATE
    keep_local_days: Annotated[int, msgspec.Meta(ge=0)] = 0
    skew_tolerance_ms: Annotated[int, msgspec.Meta(ge=0)] = DEFAULT_SKEW_TOLERANCE_MS
    jitter_ms: Annotated[int, msgspec.Meta(ge=0)] = _DEFAULT.jitter
    broker_skew_ms: Annotated[int, msgspec.Meta(ge=0)] = _DEFAULT.skew
    alias_attribute: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_BYTES)] | None = None

    def histories(self) -> HistorySettings:
        """The part of the settings that recorders of histories take.

        Raises:
            TrackingError: bits, hashes, keys and error rate contradict each other, no filter can be as sure, or one
                does not fit in memory.
        """
        # What has been open long may wait for others to be written with: both together are the time a crash can take.
        persist = int(self.persist_seconds * 1_000)
        linger = 0 if self.recorder == "log" else min(_DEFAULT.linger, persist // _LINGER_SHARE)
        chosen = HistorySettings(
            tolerance=self.skew_tolerance_ms,
            jitter=self.jitter_ms,
            interval=persist - linger,
            hold=int(self.hold_seconds * 1_000),
            linger=linger,
            effective=_DEFAULT.effective if self.effective_error is None else self.effective_error,
            matching_set=self.matching_set,
            capacity=_DEFAULT.capacity if self.keys is None else self.keys,
            shape=self._shape() if self.recorder == "bloom" else _DEFAULT.shape,
            method=self.method,
            layout=self.layout,
            relay_keys=self.relay_keys,
            budget=self.memory_bytes,
            skew=self.broker_skew_ms,
            keep_keys=self.keep_keys,
        )
        least = 2.0 ** (1 - MAX_RIBBON_COLUMNS)
        if self.recorder == "sealed" and self.method != "bloom" and chosen.rate <= least:
            raise TrackingError(
                f"an error rate of {chosen.effective:g} over {self.matching_set} filters is less than a ribbon filter "
                f'can have ({least:.2g} for each): choose a larger effective_error, or method = "bloom"'
            )
        return chosen

    def _shape(self) -> Shape:
        shape = shape_of(self.bits, self.hashes, self.keys, self.effective_error, self.matching_set)
        if shape.m > 8 * self.memory_bytes:
            raise TrackingError(
                f"one filter has {shape.m:,} bits, which is more than the {self.memory_bytes:,} bytes of memory_bytes: "
                "choose fewer bits, fewer keys, or more memory"
            )
        return shape
