"""Publishers that give their own ids: what enters, what is refused, and what is known to have entered before."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.broker import Broker, BrokerError, Limits, NoRecorder, PublisherNumbers
from postroad.broker.given_ids import FAR_MS
from postroad.messages import Batch, Draft, MessageId
from postroad.trail import DEFAULT_SKEW_MS, DEFAULT_TOLERANCE_MS
from postroad.trail.coverage import RESENT_MS

if TYPE_CHECKING:
    from postroad.tracking.contract import Rows

BROKER = 7
TOLERANCE = 500
NOW = 1_000_000


class Kept(NoRecorder):
    """Keeps which ids entered, and which publishers there were."""

    def __init__(self) -> None:
        self.ids: list[MessageId] = []
        self.publishers: list[tuple[int, str]] = []
        self.out_of_time: list[MessageId] = []

    def dropped(self, batch: Batch, rows: Rows, link: int, reason: str, now: int) -> None:
        assert (link, reason) == (0, "out of time")
        self.out_of_time += [batch.message(row).id for row in rows.tolist()]

    def accepted(self, batch: Batch, now: int) -> None:
        self.ids += [message.id for message in batch]

    def publishes(self, publisher: int, principal: str, now: int) -> None:
        self.publishers.append((publisher, principal))


def broker(recorder: Kept, **limits: int) -> Broker:
    blocks = itertools.count(1, 1_000)
    numbers = PublisherNumbers(lambda: next(blocks))
    return Broker(BROKER, numbers, Limits(**limits), recorder=recorder, skew_tolerance_ms=TOLERANCE)


def batch_of(ids: list[MessageId]) -> Batch:
    return Batch.build(Draft("a", {}, {}, b"", id=given) for given in ids)


def tails(publisher: int, *numbers: int) -> list[MessageId]:
    return [MessageId.of(MessageId(publisher, BROKER, 0, 0).head, number) for number in numbers]


near = st.integers(-3 * TOLERANCE, 3 * TOLERANCE).map(lambda off: (NOW + off) << 16)
given_tails = st.builds(lambda base, counter: base + counter, near, st.integers(0, 3)) | st.sampled_from([0, 2**64 - 1])
heads = st.sampled_from([(1, BROKER)] * 12 + [(2, BROKER), (1, BROKER + 1)])
one_id = st.builds(lambda head, tail: MessageId.of(head[0] << 32 | head[1], tail), heads, given_tails)
batches = st.lists(one_id, min_size=1, max_size=6).flatmap(
    lambda ids: st.sampled_from([ids, sorted(ids), sorted(set(ids))])
)


@given(connections=st.lists(st.lists(batches, max_size=3), min_size=1, max_size=3))
def test_what_enters_is_what_a_slow_reading_of_the_rules_lets_in(connections: list[list[list[MessageId]]]) -> None:
    recorder = Kept()
    core = broker(recorder)
    entered: list[MessageId] = []
    skewed = resent = 0
    was = None
    for connection in connections:
        session = core.attached("ann")
        publisher, _ = core.assigns_ids(session, "token", NOW, was)
        was = (publisher.number, "token")
        assert publisher.number == 1
        before = set(entered)
        heard: MessageId | None = None
        for ids in connection:
            _, admission = core.receive_identified(batch_of(ids), session, NOW)
            count = 0
            for given_id in ids:
                own = (given_id.publisher, given_id.broker) == (1, BROKER)
                if not own or (heard is not None and given_id <= heard):
                    break
                heard = given_id
                count += 1
                if before and given_id <= max(before):
                    resent += 1
                    continue
                entered.append(given_id)
                skewed += abs(given_id.time - NOW) > TOLERANCE
            assert admission.end == count
            assert (admission.refusal is None) == (count == len(ids))
            if count < len(ids):
                break
        core.detached(session, NOW)
    assert recorder.ids == entered
    assert entered == sorted(set(entered))
    counts = core.statistics()
    assert (counts.ids_skewed, counts.resent, counts.accepted) == (skewed, resent, len(entered))


def test_a_foreign_id_is_refused_and_the_reason_names_what_is_right() -> None:
    core = broker(Kept())
    session = core.attached("")
    core.assigns_ids(session, "t", NOW)
    foreign = MessageId(9, BROKER, NOW, 0)
    _, admission = core.receive_identified(batch_of([*tails(1, 5), foreign]), session, NOW)
    assert admission.end == 1
    assert admission.refusal == (
        f"message-id {foreign} is not this publisher's own; its ids have publisher 1 and broker 7, and begin with "
        "00000001-00000007"
    )


def test_an_id_that_does_not_rise_is_refused_also_in_a_later_batch() -> None:
    core = broker(Kept())
    session = core.attached("")
    core.assigns_ids(session, "t", NOW)
    assert core.receive_identified(batch_of(tails(1, 5, 6)), session, NOW)[1].refusal is None
    _, admission = core.receive_identified(batch_of(tails(1, 6)), session, NOW)
    assert admission.refusal is not None
    assert admission.refusal.startswith(f"message-id {tails(1, 6)[0]} does not follow {tails(1, 6)[0]}: ")


def test_together_all_rows_enter_or_none() -> None:
    recorder = Kept()
    core = broker(recorder)
    session = core.attached("")
    core.assigns_ids(session, "t", NOW)
    _, admission = core.receive_identified(batch_of(tails(1, 5, 4)), session, NOW, together=True)
    assert admission.refusal is not None
    assert recorder.ids == []


def test_only_who_shows_the_token_under_the_same_name_is_the_same_publisher() -> None:
    recorder = Kept()
    core = broker(recorder)
    first = core.attached("ann")
    core.assigns_ids(first, "right", NOW)
    core.receive_identified(batch_of(tails(1, 5)), first, NOW)
    core.detached(first, NOW)
    for principal, was in (("ann", (1, "wrong")), ("bob", (1, "right")), ("ann", (99, "right")), ("ann", None)):
        session = core.attached(principal)
        assert core.assigns_ids(session, "new", NOW, was)[0].number != 1
    again = core.attached("ann")
    publisher, _ = core.assigns_ids(again, "unused", NOW, (1, "right"))
    assert (publisher.number, publisher.last_id) == (1, tails(1, 5)[0])
    assert [principal for _, principal in recorder.publishers] == ["ann", "ann", "bob", "ann", "ann"]


def test_an_earlier_connection_of_a_publisher_that_comes_back_is_closed() -> None:
    core = broker(Kept())
    first, second = core.attached("ann"), core.attached("ann")
    core.assigns_ids(first, "t", NOW)
    core.receive_identified(batch_of(tails(1, 5)), first, NOW)
    _, outbox = core.assigns_ids(second, "u", NOW, (1, "t"))
    assert outbox.closes == [(first.number, "this publisher has connected again")]
    with pytest.raises(BrokerError, match="does not give ids"):
        core.receive_identified(batch_of(tails(1, 6)), first, NOW)
    core.detached(first, NOW)
    _, admission = core.receive_identified(batch_of(tails(1, 5, 6)), second, NOW)
    assert (admission.resent, admission.end) == (1, 2)


def test_who_takes_leave_is_forgotten_and_of_the_others_the_oldest_when_there_are_too_many() -> None:
    core = broker(Kept(), publishers_kept=2)
    for _ in range(4):
        session = core.attached("")
        publisher, _ = core.assigns_ids(session, "t", NOW)
        core.detached(session, NOW, for_good=publisher.number == 4)
    assert core.statistics().publishers_away_now == 2
    known = [core.assigns_ids(core.attached(""), "t", NOW, (number, "t"))[0].number for number in (1, 2, 3, 4)]
    assert known == [5, 2, 3, 6]
    assert core.statistics().publishers_away_now == 0


@given(
    sent=st.sets(st.integers(1, 2**64 - 1), min_size=1, max_size=12),
    cuts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4),
)
def test_what_is_sent_again_after_lost_connections_enters_once(sent: set[int], cuts: list[tuple[int, int]]) -> None:
    recorder = Kept()
    core = broker(recorder)
    ids = tails(1, *sorted(sent))
    was = None
    confirmed = 0
    for most, told in [*cuts, (len(ids), len(ids))]:
        session = core.attached("")
        publisher, _ = core.assigns_ids(session, "t", NOW, was)
        was = (publisher.number, "t")
        # What is sent reaches the broker up to some message; the client hears of that, or of less.
        reached = max(confirmed, min(most, len(ids)))
        for part in range(confirmed, reached, 3):
            core.receive_identified(batch_of(ids[part : min(part + 3, reached)]), session, NOW)
        confirmed = max(confirmed, min(told, reached))
        core.detached(session, NOW)
    assert recorder.ids == ids


def test_publisher_is_known_again_after_a_restart_by_its_token_and_only_so() -> None:
    def life(first: int, secret: bytes = b"of the data directory") -> Broker:
        core = Broker(BROKER, PublisherNumbers(lambda: first), skew_tolerance_ms=TOLERANCE)
        core.know_publishers_again(lambda: secret)
        return core

    before = life(1)
    publisher, _ = before.assigns_ids(before.attached("ann"), "unused", NOW)
    core = life(1_001)
    for principal, was in (("ann", (1, "wrong")), ("bob", (1, publisher.token)), ("ann", (2, publisher.token))):
        assert core.assigns_ids(core.attached(principal), "new", NOW, was)[0].number >= 1_001
    again, _ = core.assigns_ids(core.attached("ann"), "new", NOW, (1, publisher.token))
    assert (again.number, again.last_id, again.restored) == (1, None, True)
    other = life(1_001, b"of another directory")
    assert other.assigns_ids(other.attached("ann"), "new", NOW, (1, publisher.token))[0].number == 1_001
    # A number of this process that was forgotten is not restored: what entered is known no longer.
    new, _ = core.assigns_ids(session := core.attached("ann"), "new", NOW)
    core.detached(session, NOW, for_good=True)
    assert core.assigns_ids(core.attached("ann"), "new", NOW, (new.number, new.token))[0].number != new.number


def test_ids_far_from_the_time_at_which_they_enter_are_on_record_as_such() -> None:
    recorder = Kept()
    core = broker(recorder)
    session = core.attached("feed")
    core.publications.assigns_ids(session, "token", NOW)
    offsets = [-60_000, -FAR_MS - 1, -FAR_MS, -TOLERANCE - 1, 0, FAR_MS, FAR_MS + 1, 60_000]
    for offset in offsets:
        given = tails(1, (NOW + offset) << 16)
        _, admission = core.receive_identified(batch_of(given), session, NOW)
        assert admission.is_far == (abs(offset) > FAR_MS)
    assert [given.time - NOW for given in recorder.out_of_time] == [-60_000, -FAR_MS - 1, FAR_MS + 1, 60_000]
    # All others are where readers of the record look for them.
    assert min(DEFAULT_SKEW_MS, DEFAULT_TOLERANCE_MS, RESENT_MS) >= FAR_MS
