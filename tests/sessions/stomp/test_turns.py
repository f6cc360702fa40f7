"""Reads that are full of control frames are carried out in turns, and mean the same."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from postroad.protocols.stomp import encode_frame
from postroad.sessions.stomp import conversation, subscriptions
from tests.server.scene import Client, Scene, run, service

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def stream(count: int) -> bytes:
    """SUBSCRIBEs, with a SEND now and then that all subscriptions so far get, UNSUBSCRIBEs, and a DISCONNECT."""
    parts = []
    for number in range(count):
        headers = {"id": str(number), "destination": "/topic/a.*", "receipt": f"s{number}"}
        parts.append(encode_frame("SUBSCRIBE", headers))
        if number % 7 == 0:
            parts.append(encode_frame("SEND", {"destination": "/topic/a.b"}, b"%d" % number))
        if number % 11 == 10:
            parts.append(encode_frame("UNSUBSCRIBE", {"id": str(number - 10), "receipt": f"u{number}"}))
    return b"".join([*parts, encode_frame("DISCONNECT", {"receipt": "bye"})])


@pytest.mark.parametrize("reads", [1, 3])
def test_a_read_of_many_control_frames_is_carried_out_in_turns_with_the_same_result(
    reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "CONTROLS_PER_TURN", 20)
    data = stream(100)
    heard = []
    for in_turns in (False, True):
        scene = Scene()
        soon: deque[Callable[[], None]] = deque()
        if in_turns:
            scene.dispatcher.soon = soon.append
        talker = scene.client()
        for part in range(reads):
            # A transport may hand over more although it was told to pause.
            talker.conversation.received(data[part * len(data) // reads : (part + 1) * len(data) // reads])
        if in_turns:
            assert len(scene.core.sessions()[0].subscriptions) <= 20
            assert not talker.line.is_reading
            turns = 0
            while soon:
                soon.popleft()()
                turns += 1
            assert turns >= 4
        assert talker.line.is_closed
        heard.append([(frame.command, without_ids(frame.headers), frame.body) for frame in talker.heard()])
    assert heard[0] == heard[1]
    assert heard[1][-1] == ("RECEIPT", {"receipt-id": "bye"}, b"")


def without_ids(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name != "message-id"}


def test_a_client_that_is_gone_before_its_next_turn_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "CONTROLS_PER_TURN", 20)
    scene = Scene()
    soon: deque[Callable[[], None]] = deque()
    scene.dispatcher.soon = soon.append
    talker = scene.client()
    talker.conversation.received(stream(100))
    talker.conversation.lost("gone")
    soon.popleft()()
    assert not soon
    assert scene.core.sessions() == []
    assert scene.core.statistics().subscriptions_now == 0


def test_slow_control_frames_end_a_turn_before_many_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    soon: deque[Callable[[], None]] = deque()
    scene.dispatcher.soon = soon.append
    talker = scene.client()
    subscribe = scene.core.subscribe

    def slow(*given: Any) -> object:
        scene.clock.now += 15
        return subscribe(*given)

    monkeypatch.setattr(scene.core, "subscribe", slow)
    talker.conversation.received(stream(10))
    assert len(scene.core.sessions()[0].subscriptions) == 2


def test_others_are_served_while_a_client_subscribes_thousands_of_times(tmp_path: Path) -> None:
    async def flood() -> None:
        async with service(tmp_path) as broker:
            attacker, honest = await Client.connect(broker.port), await Client.connect(broker.port)
            for number in range(3_000):
                attacker.send("SUBSCRIBE", id=str(number), destination=f"/topic/{number}.*.a.*", receipt=str(number))
            assert (await attacker.frame()).headers["receipt-id"] == "0"
            honest.send("SEND", destination="/topic/other", receipt="through")
            assert (await honest.frame()).headers["receipt-id"] == "through"
            assert broker.statistics().subscriptions_now < 3_000
            for number in range(1, 3_000):
                assert (await attacker.frame()).headers["receipt-id"] == str(number)
            await attacker.close()
            await honest.close()

    run(flood)


def test_a_session_of_the_first_version_has_few_subscriptions_that_are_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SEARCHED_SUBSCRIPTIONS", 3)
    scene = Scene()
    old, new = scene.client("1.0"), scene.client("1.1")
    for client in (old, new):
        for number in range(5):
            client.say("SUBSCRIBE", {"id": f"auto {number}", "destination": "/topic/a", "ack": "auto"})
        for number in range(3):
            client.say("SUBSCRIBE", {"id": str(number), "destination": "/topic/b", "ack": "client"})
        client.say("UNSUBSCRIBE", {"id": "1"})
        client.say("SUBSCRIBE", {"id": "3", "destination": "/topic/b", "ack": "client"})
        assert client.heard() == []
        client.say("SUBSCRIBE", {"id": "4", "destination": "/topic/b", "ack": "client"})
    assert "STOMP 1.0 has at most 3 subscriptions that acknowledge" in old.error()
    assert new.heard() == []
