"""Matching an archive in Spark: by the index over Arrow batches, and by a Python function for each row."""

from __future__ import annotations

import argparse
import json
import math
import platform
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.link_codec import batch_of
from postroad.archive import archive_table
from postroad.pipeline import session
from postroad.pipeline.jobs.match import match_archive
from postroad.selectors import Selector

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

# One of each kind of condition; some 8 % of the messages match.
WHERE = "stock LIKE 'S1%' AND price < 0.25 AND volume BETWEEN 100 AND 900 AND exchange = 'ams'"
ROWS = 1_000
# Batches that differ; the archive repeats them.
BATCHES = 50
FILES = 4
BODY = 100


def write_archive(folder: Path, messages: int, body: int) -> None:
    """An archive of messages as a market sends them."""
    tables = [archive_table(batch_of(ROWS, body, seed)) for seed in range(min(BATCHES, messages // ROWS))]
    for number in range(FILES):
        with pq.ParquetWriter(folder / f"part-{number}.parquet", tables[0].schema, compression="zstd") as writer:
            for first in range(0, messages // ROWS // FILES, BATCHES):
                # As large as row groups of an export are.
                group = pa.concat_tables(tables[: messages // ROWS // FILES - first])
                writer.write_table(group, row_group_size=group.num_rows)


def by_rows(rows: DataFrame) -> DataFrame:
    """The same by a Python function for each row, over the attributes as a map of texts."""
    from pyspark.sql.functions import udf

    from postroad.messages import Untyped

    text = WHERE

    def wanted(attributes: Any) -> bool:
        if text not in _parsed:
            _parsed[text] = Selector.parse(text)
        return bool(_parsed[text].matches({name: Untyped(value) for name, value in attributes.items()}))

    return rows.where(udf(wanted, "boolean")("attributes")).select("id", "time", "topic")


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


def measured(spark: SparkSession, messages: int, rounds: int) -> dict[str, float]:
    """Seconds of each way, and how many messages each has found."""
    folder = Path(tempfile.mkdtemp(prefix="postroad-match-"))
    try:
        write_archive(folder, messages, BODY)
        rows = spark.read.parquet(f"file://{folder}")
        pair = rows.select("envelope", "encoded")
        index, found = timed(lambda: match_archive(spark, folder, WHERE).count(), rounds)
        one_by_one, again = timed(lambda: by_rows(rows).count(), rounds)
        scan, _ = timed(lambda: pair.mapInArrow(lambda batches: batches, pair.schema).count(), rounds)
    finally:
        shutil.rmtree(folder)
    if found != again:
        raise SystemExit(f"the index finds {found:,} and one by one {again:,}: the figures prove nothing")
    return {"index": index, "rows": one_by_one, "scan": scan, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench match", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="200,000 messages, one round")
    chosen = parser.parse_args()
    messages, rounds = (200_000, 1) if chosen.quick else (chosen.messages, chosen.rounds)
    spark = session("local[2]", name="bench match")
    try:
        print(f"Python {platform.python_version()}, Spark {spark.version}, 2 cores; {messages:,} messages; {WHERE}")
        # What every run costs, however little there is.
        least = measured(spark, FILES * ROWS, rounds)
        whole = measured(spark, messages, rounds)
    finally:
        spark.stop()
    each = {name: (whole[name] - least[name]) / messages * 1e6 for name in ("index", "rows", "scan")}
    print(f"{whole['found']:,} match")
    for name, text in (("index", "by the index"), ("rows", "row by row"), ("scan", "only to Python and back")):
        print(f"{text:26}{whole[name]:8.2f} s in all, {least[name]:6.2f} s before the first; {each[name]:7.2f} us each")
    result = {
        "factor": whole["rows"] / whole["index"],
        # What the start of a run varies by may be more than all messages take.
        "factor_per_message": each["rows"] / each["index"] if each["index"] > 0 else math.inf,
        "index_us": each["index"],
        "rows_us": each["rows"],
        "scan_us": each["scan"],
    }
    rounded = {name: round(value, 3) if math.isfinite(value) else None for name, value in result.items()}
    print(json.dumps({"bench": "match", "messages": messages, "matched": whole["found"], **rounded}))


if __name__ == "__main__":
    main()
