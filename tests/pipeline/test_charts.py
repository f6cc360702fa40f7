"""Pictures of what the record costs: every figure is a bar, and the heights are in proportion to the logarithms."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from postroad.pipeline.charts import COLOURS, Panel, bars
from postroad.pipeline.jobs.storage import MAX_DAYS, figures

SVG = "{http://www.w3.org/2000/svg}"


def drawn(picture: str) -> dict[str, float]:
    """What each bar says -> its height."""
    found = {}
    for bar in ElementTree.fromstring(picture).iter(f"{SVG}rect"):
        title = bar.find(f"{SVG}title")
        if title is not None:
            found[str(title.text)] = float(bar.attrib["height"])
    return found


def test_bars_stand_on_a_logarithmic_scale() -> None:
    found = drawn(bars(["a", "b <&>"], [Panel("bytes", {"one": [1.0, 10.0], "two": [100.0, None]})]))
    assert list(found) == ["a, one: 1", "b <&>, one: 10", "a, two: 100"]
    low, middle, high = found.values()
    assert low == 0
    assert abs(high - 2 * middle) < 0.2


def test_nothing_and_one_height_can_be_drawn() -> None:
    assert drawn(bars([], [])) == {}
    assert drawn(bars(["a"], [Panel("bytes", {"one": [None]})])) == {}
    assert len(drawn(bars(["a"], [Panel("bytes", {"one": [0.5]})]))) == 1


def test_series_have_colours_of_their_own() -> None:
    picture = bars(["a"], [Panel("bytes", {str(place): [1.0 + place] for place in range(len(COLOURS))})])
    assert all(picture.count(f'fill="{colour}"') == 2 for colour in COLOURS)


def test_storage_is_drawn_by_day_and_recorder() -> None:
    rows = [
        {"date": f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}", "recorder": name, "messages": 10 * brokers,
         "raw_bytes": 200 * brokers, "bytes": 50 * brokers}
        for day in range(MAX_DAYS + 3)
        for name, brokers in (("exact", 1), ("bloom", 2))
    ]  # fmt: skip
    rows.append({"date": "2026-03-01", "recorder": "ribbon", "messages": 0, "raw_bytes": 7, "bytes": 7})
    found = drawn(figures(rows))
    assert len(found) == 2 * 2 * MAX_DAYS
    assert {text.partition(": ")[2] for text in found} == {"20", "5"}
    assert not any(text.startswith("2026-01-01,") for text in found)
