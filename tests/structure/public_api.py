"""The public names of every room, one per line.

After a change of a room's `__all__`, write the list anew and read the difference before committing it:

    .venv/bin/python -m tests.structure.public_api > tests/structure/public_api.txt
"""

from __future__ import annotations

import importlib
import sys

from tests.structure.repository import foundations, rooms


def public_names() -> list[str]:
    """`module.name` of everything in the `__all__` of the rooms and foundations."""
    modules = [f"postroad.{module}" for module in sorted({*rooms(), *foundations()})]
    return [f"{module}.{name}" for module in modules for name in importlib.import_module(module).__all__]


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}\n" for name in public_names())
