"""The public names of every room, one per line.

After a change of a room's `__all__`, write the list anew and read the difference before committing it:

    .venv/bin/python -m tests.structure.public_api > tests/structure/public_api.txt
"""

from __future__ import annotations

import importlib
import sys

from tests.structure.repository import offering


def public_names() -> list[str]:
    """`module.name` of everything in the `__all__` of the rooms, the packages inside them, and the foundations."""
    return [f"{module}.{name}" for module in offering() for name in importlib.import_module(module).__all__]


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}\n" for name in public_names())
