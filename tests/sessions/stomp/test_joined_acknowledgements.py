"""ACK and NACK frames that come in one read are carried out together, and mean what they mean one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.protocols.stomp import encode_frame
from tests.server.scene import Scene

if TYPE_CHECKING:
    from tests.server.scene import Talker


def told(talker_headers: list[dict[str, str]], commands: list[str], receipts: bool = False) -> bytes:
    frames = []
    for number, (headers, command) in enumerate(zip(talker_headers, commands, strict=True)):
        asked = {"receipt": str(number)} if receipts else {}
        frames.append(encode_frame(command, {"id": headers["ack"], **asked}))
    return b"".join(frames)


def unacknowledged(count: int, ack: str = "client-individual") -> tuple[Scene, Talker, list[dict[str, str]]]:
    """A client that has got messages and not answered, and the headers of these."""
    scene = Scene()
    talker = scene.client("1.2")
    talker.subscribe("s", "a", ack=ack)
    for number in range(count):
        talker.send("a", b"%d" % number)
    return scene, talker, [message.headers for message in talker.heard()]


@pytest.mark.parametrize("together", [True, False])
def test_answers_of_one_read_count_as_those_of_many(together: bool) -> None:
    scene, talker, headers = unacknowledged(10)
    commands = ["ACK", "NACK"] * 5
    if together:
        talker.conversation.received(told(headers, commands, receipts=True))
    else:
        for one, command in zip(headers, commands, strict=True):
            talker.conversation.received(told([one], [command], receipts=True))
    assert [frame.command for frame in talker.heard()] == ["RECEIPT"] * 10
    counts = scene.core.statistics()
    assert (counts.acknowledged, counts.refused, counts.unacknowledged_now) == (5, 5, 0)


def test_answers_before_a_wrong_one_count_and_it_ends_the_session() -> None:
    scene, talker, headers = unacknowledged(4)
    talker.conversation.received(told([headers[0], headers[1], headers[1], headers[2]], ["ACK"] * 4))
    assert "each counts once" in talker.error()
    assert scene.core.statistics().acknowledged == 2


def test_answers_of_one_read_reach_the_core_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, talker, headers = unacknowledged(6, ack="client")
    monkeypatch.setattr(scene.core, "acknowledge", None)
    talker.conversation.received(told([headers[1], headers[4]], ["ACK", "ACK"]))
    assert scene.core.statistics().acknowledged == 5
