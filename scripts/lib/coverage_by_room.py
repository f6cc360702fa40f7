"""Prints the branch coverage of each room that was measured, from `coverage json`: the least covered first.

python scripts/lib/coverage_by_room.py REPORT.json... ROOM...

Each file of the package is in one of the reports at most.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

PACKAGE = "src/postroad/"


def by_room(files: dict[str, dict[str, dict[str, int]]], rooms: list[str]) -> list[tuple[float, str, int]]:
    """(share of lines and branches that ran, room, how many did not), the least covered first."""
    ran: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for path, found in files.items():
        room = path.removeprefix(PACKAGE).split("/")[0]
        if room in rooms:
            summary = found["summary"]
            ran[room] += summary["covered_lines"] + summary["covered_branches"]
            total[room] += summary["num_statements"] + summary["num_branches"]
    return sorted((100 * ran[room] / total[room], room, total[room] - ran[room]) for room in total if total[room])


def main() -> None:
    """Print the table."""
    reports = [each for each in sys.argv[1:] if each.endswith(".json")]
    files = {
        name: found for each in reports for name, found in json.loads(Path(each).read_text("utf-8"))["files"].items()
    }
    print("lines and branches that ran in the tests of each room that is measured, kernels left out:")
    for share, room, missed in by_room(files, sys.argv[1 + len(reports) :]):
        print(f"  {room:12} {share:6.1f} %  {missed:5} did not")


if __name__ == "__main__":
    main()
