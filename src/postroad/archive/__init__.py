"""The archive: messages that a broker retains, as a Parquet dataset for others (`docs/durability.md`)."""

from __future__ import annotations

from postroad.archive.errors import ArchiveError
from postroad.archive.export import ExportReport, export_archive
from postroad.archive.tables import ARCHIVE_SCHEMA, archive_table

__all__ = ["ARCHIVE_SCHEMA", "ArchiveError", "ExportReport", "archive_table", "export_archive"]
