"""When a frame counts as settled, against a model that keeps everything."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from postroad.broker.consignments import QUEUE_WAIT_MS, Consignment, Consignments

steps = st.lists(
    st.tuples(
        st.sampled_from(["take", "hold", "release", "queued", "unqueued", "tick"]),
        st.integers(0, 9),
        st.integers(0, 900),
    ),
    max_size=60,
)


@dataclass
class Modelled:
    """One frame, as a list of what is open and since when queues have it."""

    parts: int = 1
    queued_since: list[int] = field(default_factory=list)
    first_queued: int | None = None
    settled: bool = False

    def is_done(self, looked_at: int) -> bool:
        late = self.first_queued is not None and looked_at - self.first_queued >= QUEUE_WAIT_MS
        return self.parts == 0 and (not self.queued_since or late)


@given(steps)
def test_a_frame_is_settled_once_when_all_parts_are_done_and_queues_have_had_their_time(
    actions: list[tuple[str, int, int]],
) -> None:
    book, real, model = Consignments(), list[Consignment](), list[Modelled]()
    now = looked_at = 0
    for action, which, elapsed in actions:
        if action == "take" or not real:
            real.append(book.take(which, 7, len(real)))
            model.append(Modelled())
            continue
        one, other = real[which % len(real)], model[which % len(real)]
        if action == "tick":
            now += elapsed
            looked_at = now
            book.tick(now)
        elif action == "release" and other.parts:
            one.release()
            other.parts -= 1
        elif action == "hold" and other.parts:
            # Only what is still open can be sent on.
            one.hold(2)
            other.parts += 2
        elif action == "queued" and other.parts:
            one.queued(now)
            other.queued_since.append(now)
            other.first_queued = now if other.first_queued is None else other.first_queued
        elif action == "unqueued" and other.queued_since:
            one.unqueued()
            other.queued_since.pop()
        newly = {number for number, each in enumerate(model) if not each.settled and each.is_done(looked_at)}
        for number in newly:
            model[number].settled = True
        assert sorted(each.number for each in book.take_settled()) == sorted(newly)
        assert [each.settled for each in real] == [each.settled for each in model]
        assert book.statistics().open_now == sum(not each.settled for each in model)


def test_a_consignment_knows_the_frame_it_stands_for() -> None:
    book = Consignments()
    one = book.take(3, 1_000, 17)
    one.release()
    assert [(each.link, each.epoch, each.number) for each in book.take_settled()] == [(3, 1_000, 17)]
    assert book.take_settled() == []


def test_rows_that_stay_in_a_queue_hold_a_frame_for_a_while_only() -> None:
    book = Consignments()
    one = book.take(1, 1, 1)
    one.queued(0)
    one.release()
    book.tick(QUEUE_WAIT_MS - 1)
    assert book.take_settled() == []
    book.tick(QUEUE_WAIT_MS)
    assert book.take_settled() == [one]
    assert book.statistics().overdue == 1
