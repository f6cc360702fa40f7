"""Bar charts on a logarithmic scale as SVG, in stacked panels over shared labels. Needs no library."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Panel", "bars"]

WIDTH, HEIGHT = 900, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 26, 14
# Room below the last panel for slanted labels.
LABELS = 90
# Most people can tell these apart, also in grey.
COLOURS = ("#1b6ac4", "#c46a1b", "#4c9a4c", "#8c4c9a", "#999999", "#b8a21b")


class Panel(NamedTuple):
    """Bars of several series over the same labels.

    Attributes:
        title: what the heights are.
        series: name -> a height for each label; None if there is none.
    """

    title: str
    series: Mapping[str, Sequence[float | None]]


def bars(labels: Sequence[str], panels: Sequence[Panel]) -> str:
    """Draw the chart. The same figures give the same text."""
    height = len(panels) * HEIGHT + LABELS
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    names = list(dict.fromkeys(name for panel in panels for name in panel.series))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    for place, panel in enumerate(panels):
        lines += _panel(panel, labels, place * HEIGHT, colours)
    for place, name in enumerate(names):
        at = WIDTH - RIGHT - 90 * (len(names) - place)
        lines.append(f'<rect x="{at}" y="8" width="10" height="10" fill="{colours[name]}"/>')
        lines.append(f'<text x="{at + 14}" y="17">{escape(name)}</text>')
    for place, label in enumerate(labels):
        x, y = _middle(place, len(labels)), len(panels) * HEIGHT + 4
        lines.append(
            f'<text x="{x:.1f}" y="{y}" text-anchor="end" transform="rotate(-45 {x:.1f} {y})">{escape(label)}</text>'
        )
    return "\n".join([*lines, "</svg>\n"])


def _middle(place: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / max(1, count)


def _panel(panel: Panel, labels: Sequence[str], top: int, colours: Mapping[str, str]) -> Iterator[str]:
    heights = [value for series in panel.series.values() for value in series if value]
    low = math.floor(math.log10(min(heights, default=1.0)))
    high = max(low + 1, math.ceil(math.log10(max(heights, default=10.0))))
    floor = top + HEIGHT - BOTTOM

    def y(value: float) -> float:
        part = (math.log10(value) - low) / (high - low)
        return floor - (HEIGHT - TOP - BOTTOM) * min(1.0, max(0.0, part))

    yield f'<text x="{LEFT}" y="{top + 17}" font-weight="bold">{escape(panel.title)}</text>'
    for power in range(low, high + 1):
        line = y(10.0**power)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{line:.1f}" y2="{line:.1f}" stroke="#dddddd"/>'
        yield f'<text x="{LEFT - 6}" y="{line + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
    width = 0.8 * (WIDTH - LEFT - RIGHT) / max(1, len(labels)) / max(1, len(panel.series))
    for place, (name, series) in enumerate(panel.series.items()):
        for label, value in enumerate(series):
            if value:
                left = _middle(label, len(labels)) + (place - len(panel.series) / 2) * width
                yield (
                    f'<rect x="{left:.1f}" y="{y(value):.1f}" width="{width:.1f}" height="{floor - y(value):.1f}" '
                    f'fill="{colours[name]}"><title>{escape(labels[label])}, {escape(name)}: {value:.4g}</title></rect>'
                )
