"""Matching an archive in Spark: by the index over Arrow batches, and by a Python function for each row."""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from bench.link_codec import batch_of
from postroad.archive import archive_table
from postroad.pipeline import session
from postroad.pipeline.jobs.match import match_archive
from postroad.selectors import Selector

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

# One of each kind of condition; some 8 % of the messages match.
WHERE = "stock LIKE 'S1%' AND price < 0.25 AND volume BETWEEN 100 AND 900 AND exchange = 'ams'"
ROWS = 1_000
# Batches that differ; the archive repeats them.
BATCHES = 50
FILES = 4


def write_archive(folder: Path, messages: int, body: int) -> None:
    """An archive of messages as a market sends them."""
    tables = [archive_table(batch_of(ROWS, body, seed)) for seed in range(BATCHES)]
    following = itertools.cycle(tables)
    for number in range(FILES):
        with pq.ParquetWriter(folder / f"part-{number}.parquet", tables[0].schema, compression="zstd") as writer:
            for _ in range(messages // ROWS // FILES):
                writer.write_table(next(following))


def by_rows(rows: DataFrame) -> DataFrame:
    """The same by a Python function for each row, over the attributes as a map of texts."""
    from pyspark.sql.functions import udf

    from postroad.messages import Untyped

    text = WHERE

    @udf("boolean")  # type: ignore[untyped-decorator,unused-ignore]
    def wanted(attributes: dict[str, str]) -> bool:
        if text not in _parsed:
            _parsed[text] = Selector.parse(text)
        return bool(_parsed[text].matches({name: Untyped(value) for name, value in attributes.items()}))

    return rows.where(wanted("attributes")).select("id", "time", "topic")


# One selector for each worker process, as somebody would write it who does not want to parse it for each row.
_parsed: dict[str, Selector] = {}


def timed(work: Callable[[], int], rounds: int) -> tuple[float, int]:
    """Seconds of the median round, and what the last one gave; the first warms up."""
    seconds, found = [], 0
    for _ in range(rounds + 1):
        began = perf_counter()
        found = work()
        seconds.append(perf_counter() - began)
    return median(seconds[1:]), found


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench match", description=__doc__)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="100,000 messages, one round")
    chosen = parser.parse_args()
    messages, rounds = (100_000, 1) if chosen.quick else (chosen.messages, chosen.rounds)
    folder = Path(tempfile.mkdtemp(prefix="postroad-match-"))
    spark = session("local[2]", name="bench match")
    try:
        print(f"Python {platform.python_version()}, Spark {spark.version}, 2 cores; {messages:,} messages; {WHERE}")
        write_archive(folder, messages, 100)
        rows = spark.read.parquet(f"file://{folder}")
        bulk, found = timed(lambda: match_archive(rows, WHERE).count(), rounds)
        slow, again = timed(lambda: by_rows(rows).count(), rounds)
        scan, _ = timed(
            lambda: (
                rows.select("envelope", "encoded")
                .mapInArrow(lambda batches: batches, rows.select("envelope", "encoded").schema)
                .count()
            ),
            rounds,
        )
    finally:
        spark.stop()
        shutil.rmtree(folder)
    if found != again:
        raise SystemExit(f"the index finds {found:,} and one by one {again:,}: the figures prove nothing")
    print(f"{found:,} match; index {messages / bulk:,.0f}/s, per row {messages / slow:,.0f}/s, {slow / bulk:.1f} times")
    print(f"handing the columns to Python and back, and no more: {messages / scan:,.0f}/s")
    result = {"index_per_s": messages / bulk, "rows_per_s": messages / slow, "scan_per_s": messages / scan}
    print(
        json.dumps(
            {
                "bench": "match",
                "messages": messages,
                "matched": found,
                "factor": round(slow / bulk, 2),
                **{name: round(value) for name, value in result.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
