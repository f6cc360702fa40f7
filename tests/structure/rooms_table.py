"""The table of rooms in docs/design.md."""

from __future__ import annotations

from functools import cache

from tests.structure.repository import ROOT


@cache
def table() -> dict[str, str]:
    """Room -> the last column of its row, from the table in docs/design.md whose first heading is `room`."""
    lines = (ROOT / "docs" / "design.md").read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| room |"))
    found: dict[str, str] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found[cells[0].strip("`/")] = cells[-1]
    return found


def may_import(room: str) -> set[str]:
    """The rooms named for `room`, and what those may import."""
    column = table()[room]
    if column == "everything":
        return set(table())
    if column == "nothing of ours":
        return set()
    # "all of the above" is every row before the room's own.
    if column == "all of the above":
        names = list(table())
        named = set(names[: names.index(room)])
    else:
        named = {word.strip() for word in column.split(",")}
    return named.union(*(may_import(other) for other in named))
