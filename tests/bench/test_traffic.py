"""The traffic of the load test, in every protocol it is sent in."""

from __future__ import annotations

import pytest
from bench.dialects import DIALECTS
from bench.traffic import HEADER_BLOCKS, MARKER, MATCHING, body, cycle, header_lines, idle_selectors

from postroad.messages import Untyped
from postroad.selectors import Selector


def attributes(number: int) -> dict[str, Untyped]:
    pairs = (line.split(":") for line in header_lines(number).decode().splitlines())
    return {name: Untyped(value) for name, value in pairs}


def test_header_blocks_are_all_different() -> None:
    assert len({header_lines(number) for number in range(HEADER_BLOCKS)}) == HEADER_BLOCKS >= 2_000


def test_messages_match_the_one_selector_and_none_of_the_idle_ones() -> None:
    matching = Selector.parse(MATCHING)
    idle = [Selector.parse(text) for text in idle_selectors(60)]
    for number in range(0, HEADER_BLOCKS, 16):
        message = attributes(number)
        assert matching.matches(message)
        assert not any(selector.matches(message) for selector in idle)


def test_half_of_the_idle_selectors_name_a_traded_stock() -> None:
    traded = {f"'{attributes(number)['stock']}'" for number in range(HEADER_BLOCKS)}
    named = [selector.split()[2] in traded for selector in idle_selectors(100)]
    assert sum(named) == 50


@pytest.mark.parametrize("size", [100, 1_000])
@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_frames_of_a_protocol_are_equally_long_with_one_marker_each(name: str, size: int) -> None:
    def publication(headers: bytes, content: bytes) -> bytes:
        return DIALECTS[name].publication("bench.1", headers, content)

    frames, length = cycle(publication, size)
    assert len(frames) == HEADER_BLOCKS * length
    assert frames.count(MARKER) == HEADER_BLOCKS


def test_traffic_refuses_frames_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="equally long"):
        cycle(lambda headers, content: headers + content + b"x" * (int(headers[-3:]) % 2), 20)


@pytest.mark.parametrize("size", [9, 40, 41, 1_000, 20_000])
def test_mqtt_packet_says_how_long_it_is(size: int) -> None:
    packet = DIALECTS["mqtt"].publication("bench.1", header_lines(0), body(0, size))
    assert packet[0] == 0x30
    length, place, shift = 0, 1, 0
    while True:
        length |= (packet[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if packet[place - 1] < 0x80:
            break
    assert packet[place:] == b"\x00\x07bench.1" + header_lines(0) + body(0, size)
    assert length == len(packet) - place


def test_nats_frame_says_how_long_its_payload_is() -> None:
    line, _, rest = DIALECTS["nats"].publication("bench.1", header_lines(0), body(0, 100)).partition(b"\r\n")
    assert line == b"PUB bench.1 %d" % (len(rest) - 2)
