"""The tracking paper, built as it describes: Table 2, its strategies, and its scenario in virtual time."""

from __future__ import annotations

__all__: list[str] = []
