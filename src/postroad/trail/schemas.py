"""The tables of the trail as Arrow schemas: what every file of a table holds, and how its columns are coded.

Signed integers only: Spark reads unsigned 64-bit columns as decimals. docs/trail.md says what each column means.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from postroad.trail.errors import TrailError

__all__ = [
    "BROKER_KEY",
    "MESSAGE_TABLES",
    "SCHEMAS",
    "STANDING_TABLES",
    "TABLES",
    "TABLE_KEY",
    "VERSION",
    "VERSION_KEY",
    "Table",
    "metadata",
    "table_named",
]

VERSION = 2
VERSION_KEY = b"postroad.version"
TABLE_KEY = b"postroad.table"
BROKER_KEY = b"postroad.broker"

# Measured on 20 brokers: groups of 4 Ki rows cost 24 to 30 % more bytes, and larger ones make a reader of one id decode
# more than it needs.
ROW_GROUP_ROWS = 65_536
# Looked up by name in files that no statistics rule out: small groups, of which one is read.
ALIAS_GROUP_ROWS = 4_096
# A filter is up to hundreds of kilobytes: a reader of one id wants a few of them, not thousands.
FILTER_GROUP_ROWS = 16


class Table(NamedTuple):
    """How one table is laid out.

    Attributes:
        name: of the table and its folder.
        schema: the columns.
        time: the column that says which date a row belongs to.
        origin: the column with the broker of the id, or "" where rows are not about messages of an origin.
        number: the column whose range the manifest keeps so that a number is found without its time, or "".
        sort: the order of the rows in a file.
        delta: columns that are coded as differences: they rise slowly or are close together.
        group_rows: rows in a row group.
    """

    name: str
    schema: Any
    time: str
    origin: str
    number: str
    sort: tuple[str, ...]
    delta: tuple[str, ...]
    group_rows: int = ROW_GROUP_ROWS

    @property
    def statistics(self) -> frozenset[str]:
        """Columns whose least and largest values are in the footers."""
        return frozenset({self.time, self.origin, self.number, self.sort[0], "time_to"}) - {""}


_WIDE, _SHORT, _TEXT, _BYTES = pa.int64(), pa.int32(), pa.string(), pa.binary()

_ID = [("origin", _WIDE), ("time", _WIDE), ("publisher", _WIDE), ("counter", _SHORT)]
_ID_ORDER = ("origin", "time", "publisher", "counter")

# Columns that may be null: packed lists of no numbers, and what a filter does not have.
_NULLABLE = frozenset(["relayed_to", "delivered", "acknowledged", "refused", "queued", "path", "singles", "keys"])


def _schema(*columns: tuple[str, Any]) -> Any:
    return pa.schema([pa.field(name, kind, nullable=name in _NULLABLE) for name, kind in columns])


_ALL = (
    Table(
        "passages",
        _schema(
            *_ID,
            ("arrived_from", _WIDE),
            ("relayed_to", _BYTES),
            ("delivered", _BYTES),
            ("acknowledged", _BYTES),
            ("refused", _BYTES),
            ("queued", _BYTES),
        ),
        time="time",
        origin="origin",
        number="",
        sort=_ID_ORDER,
        delta=("time",),
    ),
    Table(
        "filters",
        _schema(
            ("kind", _SHORT),
            ("origin", _WIDE),
            ("subject", _WIDE),
            ("time_from", _WIDE),
            ("time_to", _WIDE),
            ("singles", _BYTES),
            ("opened", _WIDE),
            ("sealed", _WIDE),
            ("entries", _WIDE),
            ("capacity", _WIDE),
            ("method", _TEXT),
            ("bits", _WIDE),
            ("hashes", _SHORT),
            ("seed", _WIDE),
            ("ones", _WIDE),
            ("data", _BYTES),
            ("keys", _BYTES),
            ("crc", _WIDE),
        ),
        time="time_from",
        origin="origin",
        number="",
        sort=("origin", "kind", "subject", "time_from"),
        delta=(),
        group_rows=FILTER_GROUP_ROWS,
    ),
    Table(
        "journeys",
        _schema(
            *_ID,
            ("path", _BYTES),
            ("delivered", _BYTES),
            ("acknowledged", _BYTES),
            ("refused", _BYTES),
            ("complete", _SHORT),
        ),
        time="time",
        origin="origin",
        number="",
        sort=_ID_ORDER,
        delta=("time",),
    ),
    Table(
        "shed",
        _schema(*_ID, ("subscription", _WIDE), ("link", _WIDE), ("reason", _TEXT), ("at", _WIDE)),
        time="time",
        origin="origin",
        number="",
        sort=_ID_ORDER,
        delta=("time", "at"),
    ),
    Table(
        "subscriptions",
        _schema(
            ("subscription", _WIDE),
            ("at", _WIDE),
            ("begins", _SHORT),
            ("principal", _TEXT),
            ("topic", _TEXT),
            ("selector", _TEXT),
        ),
        time="at",
        origin="",
        number="subscription",
        sort=("at",),
        delta=("at", "subscription"),
    ),
    Table(
        "links",
        _schema(("neighbour", _WIDE), ("at", _WIDE), ("up", _SHORT), ("cost", _SHORT)),
        time="at",
        origin="",
        number="neighbour",
        sort=("at",),
        delta=("at",),
    ),
    Table(
        "names",
        _schema(("kind", _TEXT), ("number", _WIDE), ("at", _WIDE), ("name", _TEXT)),
        time="at",
        origin="",
        number="number",
        sort=("at",),
        delta=("at", "number"),
    ),
    Table(
        "aliases",
        _schema(("alias", _TEXT), *_ID),
        time="time",
        origin="origin",
        number="",
        sort=("alias",),
        delta=(),
        group_rows=ALIAS_GROUP_ROWS,
    ),
    Table(
        "timings",
        _schema(
            ("at", _WIDE),
            ("messages", _SHORT),
            ("subscriptions", _SHORT),
            ("copies", _SHORT),
            ("destinations", _SHORT),
            ("bytes", _WIDE),
            ("nanoseconds", _WIDE),
        ),
        time="at",
        origin="",
        number="",
        sort=("at",),
        delta=("at",),
    ),
    Table(
        "latencies",
        _schema(("since", _WIDE), ("until", _WIDE), ("bucket", _SHORT), ("deliveries", _WIDE)),
        time="since",
        origin="",
        number="",
        sort=("since", "bucket"),
        delta=(),
    ),
    Table(
        "records",
        _schema(*_ID, ("kind", _SHORT), ("subject", _WIDE)),
        time="time",
        origin="origin",
        number="",
        sort=("origin", "kind", "time", "publisher", "counter"),
        delta=("time",),
    ),
)

TABLES: dict[str, Table] = {table.name: table for table in _ALL}
SCHEMAS: dict[str, Any] = {table.name: table.schema for table in _ALL}
# Tables whose files differ wherever the traffic does. Files of links or names may be the same in two trails.
MESSAGE_TABLES = frozenset({"passages", "filters", "records", "journeys", "shed"})
# Tables in which a row counts until another takes it back.
STANDING_TABLES = ("subscriptions", "links")


def table_named(name: str) -> Table:
    """The layout of a table.

    Raises:
        TrailError: there is no such table.
    """
    try:
        return TABLES[name]
    except KeyError:
        raise TrailError(f"the trail has no table {name!r}; it has {', '.join(TABLES)}") from None


def metadata(table: str, broker: int) -> dict[bytes, bytes]:
    """What the Parquet metadata of a file says, beside Parquet's own."""
    return {
        VERSION_KEY: str(VERSION).encode(),
        TABLE_KEY: table_named(table).name.encode(),
        BROKER_KEY: str(broker).encode(),
    }
