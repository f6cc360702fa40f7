"""Numbers on disk: whatever happens to the process, none is handed out twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.broker import PublisherNumbers, SubscriptionNumbers
from postroad.broker.numbers import BLOCK, SUBSCRIPTION_BLOCK, NumbersExhaustedError
from postroad.server import ReservationError
from postroad.server.reservation import Reservation
from tests.server.scene import Client, run, service

if TYPE_CHECKING:
    from pathlib import Path


@settings(max_examples=20)
@given(runs=st.lists(st.integers(0, 2_500), min_size=1, max_size=5))
def test_no_number_is_handed_out_in_two_runs(tmp_path_factory: pytest.TempPathFactory, runs: list[int]) -> None:
    path = tmp_path_factory.mktemp("numbers")
    taken: list[int] = []
    for count in runs:
        numbers = PublisherNumbers(Reservation(path, "publisher", BLOCK).reserve)
        taken += [numbers.take() for _ in range(count)]
    assert len(set(taken)) == len(taken)
    assert all(number > 0 for number in taken)


def test_kinds_of_numbers_are_counted_apart(tmp_path: Path) -> None:
    publishers = PublisherNumbers(Reservation(tmp_path, "publisher", BLOCK).reserve)
    subscriptions = SubscriptionNumbers(Reservation(tmp_path, "subscription", SUBSCRIPTION_BLOCK).reserve)
    assert (publishers.take(), subscriptions.take(), publishers.take()) == (1, 1, 2)
    assert (tmp_path / "publisher-numbers").read_text() == f"{1 + BLOCK}\n"
    assert (tmp_path / "subscription-numbers").read_text() == f"{1 + SUBSCRIPTION_BLOCK}\n"


def test_the_last_numbers_are_handed_out_and_then_an_error_names_their_kind(tmp_path: Path) -> None:
    (tmp_path / "subscription-numbers").write_text(str(2**32 - 1))
    numbers = SubscriptionNumbers(Reservation(tmp_path, "subscription", SUBSCRIPTION_BLOCK).reserve)
    assert numbers.take() == 2**32 - 1
    with pytest.raises(NumbersExhaustedError, match="no subscription numbers left"):
        numbers.take()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    reservation = Reservation(tmp_path / "data", "subscription", SUBSCRIPTION_BLOCK)
    (tmp_path / "data").rmdir()
    with pytest.raises(ReservationError, match="subscription-numbers: cannot reserve subscription numbers"):
        reservation.reserve()


def test_a_subscription_after_a_restart_has_a_new_number(tmp_path: Path) -> None:
    numbers: list[int] = []

    async def test() -> None:
        for _ in range(2):
            async with service(tmp_path) as running:
                client = await Client.connect(running.port)
                await client.subscribe("1", "news")
                await client.subscribe("2", "news")
                (session,) = running.dispatcher.core.sessions()
                numbers.extend(each.number for each in session.subscriptions.values())
                await client.close()

    run(test)
    assert numbers == [1, 2, 1 + SUBSCRIPTION_BLOCK, 2 + SUBSCRIPTION_BLOCK]


def test_a_publisher_for_whom_no_number_can_be_reserved_is_told_why_and_others_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with service(tmp_path) as running:
            early = await Client.connect(running.port)
            await early.subscribe("1", "news")
            early.publish("news", b"first")
            assert (await early.frame()).body == b"first"
            # The rest of the block is used up, and the next one cannot be written.
            numbers = running.dispatcher.core.publications.numbers
            for _ in range(BLOCK - 1):
                numbers.take()
            (tmp_path / "publisher-numbers.new").mkdir()
            late = await Client.connect(running.port)
            late.publish("news", b"refused")
            refusal = await late.frame()
            assert refusal.command == "ERROR"
            assert "make the data directory writable" in refusal.headers["message"]
            assert running.server_statistics().internal_errors == 0
            early.publish("news", b"second")
            assert (await early.frame()).body == b"second"
            for client in (early, late):
                await client.close()

    run(test)
