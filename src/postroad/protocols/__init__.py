"""Protocols: codecs without I/O, one package each. Bytes in, batches and events out, and the other way round."""

from __future__ import annotations

__all__: list[str] = []
