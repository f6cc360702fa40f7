"""pyarrow in a process that has no use for pandas.

To find out whether it was given an object of pandas, pyarrow imports pandas where that is installed: at the first array
or scalar that it makes of anything. A broker would pay for that with most of a second and a hundred megabytes on its
first write, and `postroad trace` with half of its time. pyarrow tries once: an attempt that finds no pandas settles it.
What asks for pandas outright (`to_pandas`) imports it anyway.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["keep_pandas_out"]

LIBRARY = "pandas"


class _NotFound(MetaPathFinder):
    """Lets an import find no pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == LIBRARY:
            raise ModuleNotFoundError(f"{LIBRARY} is not looked for now", name=LIBRARY)


def keep_pandas_out() -> None:
    """Let pyarrow do without pandas in this process, unless it is there already.

    For processes that are ours from the start, before they have threads: the attempt hides pandas for a moment.
    """
    if LIBRARY in sys.modules:
        return
    hidden = _NotFound()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)
