"""A file of ids or aliases, read by the driver itself: faster than by Spark while the driver can hold them all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from postroad.messages.limits import MAX_FOREIGN_ID_BYTES
from postroad.pipeline.ids import ID_COLUMN
from postroad.pipeline.tables import ID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["ASKED_SCHEMA", "BROUGHT", "SMALL", "is_small_file", "never_recorded", "read_few"]

# How many ids there may be, and how large their file: of questions that the driver answers itself, and of those that it
# divides among workers. Texts of two million ids take some 500 MB while they are parsed.
SMALL = (50_000, 4 << 20)
BROUGHT = (2_000_000, 96 << 20)
ASKED_SCHEMA = pa.schema(
    [("asked", pa.string()), *((name, pa.int32() if name == "counter" else pa.int64()) for name in ID)]
)
_LINES = re.compile(r"\r\n|\n|\r")
# Where the parts of an id stand in its text, and how many digits they have.
_PLACES = {"origin": (9, 8), "time": (18, 12), "publisher": (0, 8), "counter": (31, 4)}
_DASHES = (8, 17, 30)
_TEXT_BYTES = 35
_NO_DIGIT = 255


def is_small_file(ids: Path | None) -> bool:
    """Return whether a file of ids, if any, has few."""
    try:
        return ids is None or ids.stat().st_size <= SMALL[1]
    except OSError:
        return True  # The file does not exist; Spark reports that.


def read_few(path: Path, limits: tuple[int, int]) -> Any:
    """Return what a file asks for, as `ids.read_asked` does; None if it is larger, or better read by Spark.

    It reads Parquet, lines, and CSV without quotes.

    Args:
        path: of the file.
        limits: the most ids, and the most bytes.
    """
    most, size = limits
    try:
        if not path.is_file() or path.stat().st_size > size or path.name.endswith(".gz"):
            return None
        if path.name.endswith(".parquet"):
            found = _of_table(pq.read_table(path))
        else:
            found = _of_lines(path.read_bytes().decode(errors="replace"), is_csv=path.name.endswith(".csv"))
    except (OSError, pa.ArrowException):
        return None  # Spark reports what is wrong with it.
    return None if found is None or found.num_rows > most else found


def never_recorded(asked: Any) -> Any:
    """Return for each text whether brokers record no name as long as it is, as `ids.is_never_recorded` does."""
    texts = pc.replace_substring(asked.column("asked"), "\ufffd", "?")
    return pc.greater(pc.binary_length(texts), MAX_FOREIGN_ID_BYTES)


def _of_lines(text: str, *, is_csv: bool) -> Any:
    lines = [line for line in _LINES.split(text) if line]
    if is_csv:
        if not lines or '"' in text or "\\" in text:
            return None
        names, *rows = (line.split(",") for line in lines)
        place = names.index(ID_COLUMN) if ID_COLUMN in names else 0 if len(names) == 1 else None
        if place is None or any(len(row) != len(names) for row in rows):
            return None
        lines = [row[place] for row in rows]
    return _of_texts(lines)


def _of_table(rows: Any) -> Any:
    if set(ID) <= set(rows.column_names):
        known = rows.select(list(ID)).drop_null()
        known = known.cast(pa.schema([ASKED_SCHEMA.field(name) for name in ID])).group_by(list(ID)).aggregate([])
        return known.select(list(ID)).add_column(0, "asked", pa.nulls(known.num_rows, pa.string())).cast(ASKED_SCHEMA)
    names = rows.column_names
    name = ID_COLUMN if ID_COLUMN in names else names[0] if len(names) == 1 else None
    if name is None or not pa.types.is_string(rows.schema.field(name).type):
        return None
    return _of_texts(rows.column(name).drop_null().to_pylist())


def _of_texts(texts: Sequence[str]) -> Any:
    asked = pa.array([text for text in dict.fromkeys(text.strip(" ") for text in texts) if text], pa.string())
    is_id, numbers = _parsed(asked)
    columns = [pa.array(numbers[name], mask=~is_id).cast(ASKED_SCHEMA.field(name).type) for name in ID]
    return pa.Table.from_arrays([asked, *columns], schema=ASKED_SCHEMA)


def _parsed(texts: Any) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.int64]]]:
    """Return which texts are ids, and the numbers of those that are; 0 for the others."""
    is_id = pc.equal(pc.binary_length(texts), _TEXT_BYTES).to_numpy(zero_copy_only=False)
    numbers = {name: np.zeros(len(texts), np.int64) for name in _PLACES}
    long = texts.filter(pa.array(is_id))
    if not len(long):
        return is_id, numbers
    body = b"".join(text.encode() for text in long.to_pylist())
    digits = np.full(256, _NO_DIGIT, np.uint8)
    digits[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
    letters = np.frombuffer(body, np.uint8).reshape(-1, _TEXT_BYTES)
    values = digits[letters]
    right = (letters[:, _DASHES] == ord("-")).all(axis=1)
    rows = np.flatnonzero(is_id)
    for name, (start, count) in _PLACES.items():
        part = values[:, start : start + count]
        right &= (part != _NO_DIGIT).all(axis=1)
        total = np.zeros(len(rows), np.int64)
        for place in range(count):
            total = total << 4 | part[:, place]
        numbers[name][rows] = total
    is_id[rows] = right
    return is_id, numbers
