"""Every recorder against a plain list of what happened: nothing that happened is ever denied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.filters import Shape, hash_ids
from postroad.messages import Batch, MessageId
from postroad.tracking import (
    NUMBERED,
    BloomRecorder,
    FilterSegment,
    HistoryKind,
    HistorySettings,
    LogRecorder,
    LogRecords,
    Presence,
    SealedRecorder,
    Shed,
    evidence_of,
    probe,
)
from postroad.tracking.chronicle import FORGOTTEN

if TYPE_CHECKING:
    from postroad.tracking import Findings, Job, Segment, TrackingRecorder

HERE, START = 3, 1_700_000_000_000
SUBSCRIPTIONS, NEIGHBOURS, ORIGINS = (1, 2, 5), (4, 5), (3, 4, 9)
SMALL = Shape(4096, 5, 40)
# How often a broker asks a recorder for what is ready.
LOOK = 25
RECORDERS: dict[str, Any] = {"log": LogRecorder, "bloom": BloomRecorder, "sealed": SealedRecorder}
FIELDS = {
    HistoryKind.ARRIVED_FROM: "arrived_from",
    HistoryKind.RELAYED: "relayed_to",
    HistoryKind.DELIVERED: "delivered",
    HistoryKind.ACKNOWLEDGED: "acknowledged",
    HistoryKind.REFUSED: "refused",
    HistoryKind.QUEUED: "queued",
}

Event = tuple[int, int, MessageId]


def batch_of(identities: list[MessageId]) -> Batch:
    batch = Batch.build([("t",)] * len(identities))
    batch.ids[:] = np.array([(one.head, one.tail) for one in identities], np.uint64).reshape(-1, 2)
    return batch


def recorder_of(name: str, **changes: Any) -> TrackingRecorder:
    chosen = {"shape": SMALL, "capacity": 50, "interval": 100, "linger": 0, "tolerance": 20, "jitter": 10, **changes}
    recorder: TrackingRecorder = RECORDERS[name](HERE, HistorySettings(**chosen), START)
    for subscription in SUBSCRIPTIONS:
        recorder.subscribed(subscription, "someone", "t", "", START)
    for neighbour in NEIGHBOURS:
        recorder.linked(neighbour, 1, START)
    return recorder


def events_in(findings: Findings, identity: MessageId) -> set[Event]:
    found: set[Event] = set()
    if findings.accepted:
        found.add((HistoryKind.ACCEPTED, 0, identity))
    if findings.arrived:
        found.add((HistoryKind.ARRIVED, 0, identity))
    for kind, field in FIELDS.items():
        found |= {(kind, hit.number, identity) for hit in getattr(findings, field)}
    return found


def stored_events(segments: list[Segment], identities: list[MessageId]) -> set[Event]:
    """What is in store of some ids, asked filter by filter."""
    hashes = hash_ids(np.array([(one.head, one.tail) for one in identities], np.uint64))
    times, wanted, found = np.array([one.time for one in identities]), set(identities), set()
    for segment in segments:
        if isinstance(segment, FilterSegment):
            numbers = (*SUBSCRIPTIONS, *NEIGHBOURS) if segment.kind in NUMBERED else (0,)
            for number in (segment.subject,) if segment.subject else numbers:
                hits = np.flatnonzero(probe(segment, hashes, times, number))
                found |= {(segment.kind, number, identities[hit]) for hit in hits}
        elif isinstance(segment, LogRecords):
            for kind, subject, origin, time, publisher, counter in zip(*(c.tolist() for c in segment), strict=True):
                identity = MessageId(publisher, origin, time, counter)
                if identity in wanted:
                    found.add((kind, subject, identity))
    return found


class Scribe:
    """Does random things to a recorder, and writes down what was done."""

    def __init__(self, recorder: TrackingRecorder, seed: int) -> None:
        self.recorder = recorder
        self.random = np.random.default_rng(seed)
        self.now = START
        self.truth: set[Event] = set()
        self.when: list[tuple[int, Event]] = []
        self.identities: list[MessageId] = []

    def tell(self, kind: int, number: int, identities: list[MessageId]) -> None:
        for identity in identities:
            self.truth.add((kind, number, identity))
            self.when.append((self.now, (kind, number, identity)))

    def publish(self, origins: tuple[int, ...]) -> list[MessageId]:
        made = []
        for index in range(int(self.random.integers(1, 30))):
            counter = len(self.identities) + index
            lag = int(self.random.integers(0, 2_000 if self.random.random() < 0.1 else 20))
            origin = int(self.random.choice(origins))
            made.append(MessageId(1 + counter % 5, origin, self.now - lag, counter))
        self.identities += made
        return made

    def act(self) -> None:
        self.now += int(self.random.integers(0, 15))
        entry = self.random.random() < 0.5
        identities = self.publish((HERE,) if entry else ORIGINS)
        batch = batch_of(identities)
        if entry:
            self.recorder.accepted(batch, self.now)
            self.tell(HistoryKind.ACCEPTED, 0, identities)
        else:
            self.recorder.arrived(batch, 4, self.now)
            self.tell(HistoryKind.ARRIVED, 0, identities)
            self.tell(HistoryKind.ARRIVED_FROM, 4, identities)
        kind = self.random.choice(["int32", "int64"])
        rows = np.flatnonzero(self.random.random(len(identities)) < 0.6).astype(kind)
        chosen = [identities[row] for row in rows]
        subscription, link = int(self.random.choice(SUBSCRIPTIONS)), int(self.random.choice(NEIGHBOURS))
        self.recorder.delivered(batch, rows, subscription, self.now)
        self.tell(HistoryKind.DELIVERED, subscription, chosen)
        self.recorder.relayed(batch, rows, link, self.now)
        self.tell(HistoryKind.RELAYED, link, chosen)
        self.recorder.queued(batch, rows, 5, self.now)
        self.tell(HistoryKind.QUEUED, 5, chosen)
        # Some refused, and then many acknowledged at once.
        for kind, answered in ((HistoryKind.REFUSED, chosen[1:2]), (HistoryKind.ACKNOWLEDGED, chosen[::2])):
            words = np.array([(each.head, each.tail) for each in answered], np.uint64).reshape(-1, 2)
            if len(words):
                self.recorder.acknowledged(words, subscription, kind == HistoryKind.ACKNOWLEDGED, self.now)
                self.tell(kind, subscription, answered)


@pytest.mark.parametrize("layout", ["shared", "paper"])
@pytest.mark.parametrize("name", list(RECORDERS))
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 15), budget=st.sampled_from([2_000, 1 << 20]))
@settings(max_examples=8)
def test_recorder_never_denies_what_happened(name: str, layout: str, seed: int, steps: int, budget: int) -> None:
    recorder = recorder_of(name, layout=layout, budget=budget)
    scribe = Scribe(recorder, seed)
    stored: list[Segment] = []
    pending: list[Job] = []
    for _ in range(steps):
        scribe.act()
        pending += recorder.due(scribe.now)
        if pending and scribe.random.random() < 0.5:
            job = pending.pop(0)
            stored += job.make()
            recorder.release(job.number)
            # All that was told up to `through` is in the jobs up to this one.
            covered = {event for at, event in scribe.when if at <= job.through}
            assert covered <= stored_events(stored, scribe.identities)
    known = stored_events(stored, scribe.identities)
    for one in scribe.identities[:: len(scribe.identities) // 20 + 1]:
        told = {event for event in scribe.truth if event[2] == one}
        assert told <= known | events_in(recorder.findings(one, scribe.now), one)
    pending += recorder.due(scribe.now, force=True)
    for job in pending:
        stored += job.make()
        recorder.release(job.number)
    known = stored_events(stored, scribe.identities)
    assert scribe.truth <= known
    if name == "log":
        assert scribe.truth == known
    figures = recorder.statistics()
    assert (figures.open_entries, figures.pending_jobs) == (0, 0)
    assert figures.recorded == len(scribe.when)
    entries = [one.entries for one in stored if isinstance(one, FilterSegment)]
    assert sum(entries) == (0 if name == "log" else len(scribe.when))


@pytest.mark.parametrize("name", list(RECORDERS))
def test_recorder_hands_over_at_each_interval_also_in_silence(name: str) -> None:
    recorder = recorder_of(name)
    assert recorder.due(START + 99) == []
    (first,) = recorder.due(START + 100)
    assert first.through == START + 99
    assert {type(segment).__name__ for segment in first.make()} == {"SubscriptionChanges", "LinkChanges"}
    (second,) = recorder.due(START + 200)
    assert (second.through, second.make()) == (START + 199, [])


@pytest.mark.parametrize("hold", [0, 700])
@pytest.mark.parametrize("name", list(RECORDERS))
@given(seed=st.integers(0, 10**6), linger=st.integers(0, 60))
@settings(max_examples=8)
def test_nothing_stays_in_memory_alone_for_longer_than_interval_and_linger(
    name: str, hold: int, seed: int, linger: int
) -> None:
    recorder = recorder_of(name, linger=linger, hold=hold, shape=SMALL._replace(n=400))
    scribe = Scribe(recorder, seed)
    through = START - 1
    for look in range(START + LOOK, START + 1_000, LOOK):
        while scribe.random.random() < 0.5 and scribe.now < look - 15:
            scribe.act()
        scribe.now = look
        for job in recorder.due(look):
            through = job.through
            recorder.release(job.number)
        # One look later is the next occasion.
        assert look - through <= 100 + linger + LOOK


@pytest.mark.parametrize("name", ["bloom", "sealed"])
def test_histories_that_are_full_all_the_time_do_not_make_a_job_of_every_look(name: str) -> None:
    recorder = recorder_of(name, interval=3_000, linger=250, shape=SMALL._replace(n=50))
    jobs, stored = 0, []
    for look in range(250, 20_001, 250):
        now = START + look
        ids = [MessageId(1, HERE, now, counter) for counter in range(70)]
        recorder.accepted(batch_of(ids), now)
        for job in recorder.due(now):
            jobs += 1
            stored += [segment for segment in job.make() if isinstance(segment, FilterSegment)]
            recorder.release(job.number)
    assert 18 <= jobs <= 20
    assert len(stored) >= 20_000 // 250 * 70 // 50 - 5
    assert all(segment.sealed - segment.opened <= 3_000 + 250 for segment in stored)


@pytest.mark.parametrize("name", list(RECORDERS))
def test_recorder_knows_what_was_shed_and_who_its_neighbours_are(name: str) -> None:
    recorder = recorder_of(name)
    identity = MessageId(1, HERE, START, 0)
    batch = batch_of([identity])
    recorder.accepted(batch, START)
    recorder.shed(batch, np.array([0]), 2, "queue full", START + 1)
    found = recorder.findings(identity, START + 2)
    assert [drop.subscription for drop in found.dropped] == [2]
    assert found.neighbours == NEIGHBOURS
    assert found.accepted is not None
    assert found.accepted.doubt < 0.001
    assert found.arrived is None
    (job,) = recorder.due(START + 2, force=True)
    assert any(isinstance(segment, Shed) for segment in job.make())


@pytest.mark.parametrize("name", ["bloom", "sealed"])
def test_recorder_that_forgot_subscribers_does_not_deny_deliveries_to_them(name: str) -> None:
    recorder = recorder_of(name)
    recorder.chronicle.subscriptions = Presence(most=2)
    identity = MessageId(1, HERE, START + 1, 0)
    batch = batch_of([identity])
    recorder.accepted(batch, START + 1)
    for subscription in (6, 7, 8):
        recorder.subscribed(subscription, "someone", "t", "", START)
        recorder.delivered(batch, np.array([0]), subscription, START + 1)
        recorder.unsubscribed(subscription, START + 2)
    found = recorder.findings(identity, START + 3)
    assert [hit.number for hit in found.delivered] == [7, 8]
    assert [gap.reason for gap in found.gaps] == [FORGOTTEN]
    later = MessageId(1, HERE, START + 2_000, 1)
    recorder.accepted(batch_of([later]), START + 2_000)
    assert recorder.findings(later, START + 2_000).gaps == ()


@pytest.mark.parametrize("name", list(RECORDERS))
def test_recorder_hands_over_early_when_much_is_shed(name: str) -> None:
    recorder = recorder_of(name, budget=20_000)
    batch = batch_of([MessageId(1, HERE, START, n) for n in range(100)])
    assert recorder.due(START) == []
    for _ in range(3):
        recorder.shed(batch, np.arange(100), 2, "queue full", START)
    (job,) = recorder.due(START)
    (shed,) = (one for one in job.make() if isinstance(one, Shed))
    assert len(shed.at) == 300
    assert recorder.due(START) == []


@pytest.mark.parametrize("name", ["bloom", "sealed"])
def test_late_ids_stay_out_of_the_range(name: str) -> None:
    recorder = recorder_of(name)
    times = [START, START - 20, START - 21, START + 21, START + 15, START - 21]
    recorder.accepted(batch_of([MessageId(1, HERE, time, n) for n, time in enumerate(times)]), START)
    assert recorder.statistics().singles == 3
    (job,) = recorder.due(START + 1, force=True)
    (segment,) = (one for one in job.make() if isinstance(one, FilterSegment))
    assert (segment.time_from, segment.time_to) == (START - 20, START + 15)
    assert segment.singles.tolist() == [START - 21, START + 21]
    assert (segment.opened, segment.sealed, segment.entries) == (START, START + 1, 6)


@pytest.mark.parametrize("name", ["bloom", "sealed"])
@given(links=st.lists(st.sets(st.sampled_from((4, 5, 6, 7))), min_size=1, max_size=6))
@settings(max_examples=30)
def test_keys_of_sets_tell_every_link_of_every_message(name: str, links: list[set[int]]) -> None:
    recorder = recorder_of(name, relay_keys="sets", shape=Shape(1 << 20, 12, 1000))
    for neighbour in (6, 7):
        recorder.linked(neighbour, 1, START)
    identities = [MessageId(1, HERE, START, n) for n in range(len(links))]
    batch = batch_of(identities)
    recorder.accepted(batch, START)
    for link in (7, 4, 6, 5, 4):  # one of them twice, as after a fault
        rows = np.array([row for row, chosen in enumerate(links) if link in chosen], np.int32)
        recorder.relayed(batch, rows, link, START)
    for identity, expected in zip(identities, links, strict=True):
        hits = recorder.findings(identity, START).relayed_to
        assert {hit.number for hit in hits} == expected
        assert all(hit.doubt < 1e-9 for hit in hits)
    (job,) = recorder.due(START + 1, force=True)
    filters = [one for one in job.make() if isinstance(one, FilterSegment)]
    sets = [one for one in filters if one.kind == HistoryKind.RELAYED_SET]
    # One key for each message that went anywhere.
    assert sum(one.entries for one in sets) == sum(bool(chosen) for chosen in links)
    for identity, expected in zip(identities, links, strict=True):
        evidence = evidence_of(filters, identity, (4, 5, 6, 7), ())
        assert {hit.number for hit in evidence.hits(HistoryKind.RELAYED)} == expected


def test_downstream_recorder_stores_early_and_keeps_open() -> None:
    recorder = recorder_of("bloom", interval=100, hold=1000, capacity=40)
    stored: list[Segment] = []
    identities = []
    for step in range(1, 6):
        now = START + 100 * step
        identity = MessageId(1, 9, now, step)
        identities.append(identity)
        recorder.arrived(batch_of([identity]), 4, now)
        for job in recorder.due(now + 99):
            stored += job.make()
            recorder.release(job.number)
    filters = [one for one in stored if isinstance(one, FilterSegment) and one.kind == HistoryKind.ARRIVED]
    assert [one.entries for one in filters] == [2, 3, 4, 5]
    assert {one.opened for one in filters} == {START + 100}
    evidence = evidence_of(filters, identities[0], (), ())
    assert evidence.probes == 1  # the last state stands for all
    assert all(evidence_of(filters, one, (), ()).hits(HistoryKind.ARRIVED) for one in identities)


def test_sealed_recorder_holds_memory_for_its_traffic_not_for_its_histories() -> None:
    recorder = recorder_of("sealed", interval=10**6, capacity=10**6)
    for origin in range(1, 2001):
        recorder.arrived(batch_of([MessageId(1, origin, START, 0)]), 4, START)
    figures = recorder.statistics()
    assert figures.open_histories == 4000
    assert figures.held_bytes < 400_000


def test_sealed_recorder_seals_the_largest_when_memory_is_short() -> None:
    recorder = recorder_of("sealed", interval=10**6, capacity=10**6, budget=100 * 1024)
    quiet = batch_of([MessageId(1, 9, START, n) for n in range(10)])
    recorder.arrived(quiet, 4, START)
    busy = batch_of([MessageId(1, HERE, START, 2 * n) for n in range(1000)])  # no run: hashes are kept
    for _ in range(13):
        recorder.accepted(busy, START)
    assert recorder.statistics().early_seals == 1
    (job,) = recorder.due(START + 1)
    (segment,) = (one for one in job.make() if isinstance(one, FilterSegment))
    assert (segment.kind, segment.origin) == (HistoryKind.ACCEPTED, HERE)
    assert recorder.statistics().open_histories == 2
