"""What a compaction would change: files to remove and files to add, proven on a sample before the commit."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroad.pipeline.commit_note import Note, commit

if TYPE_CHECKING:
    from postroad.pipeline.sources import SourceFile, Sources
    from postroad.trail import FileEntry

__all__ = ["Changes"]


@dataclass
class Changes:
    """Files to remove from the manifests and files to add, by broker."""

    removed: dict[int, list[FileEntry]] = field(default_factory=lambda: defaultdict(list))
    added: dict[int, list[FileEntry]] = field(default_factory=lambda: defaultdict(list))

    def remove(self, source: SourceFile) -> None:
        """Remove a file."""
        self.removed[source.broker].append(source.entry)

    def add(self, entry: FileEntry) -> None:
        """Add a file; its path names its broker."""
        self.added[broker_of(entry)].append(entry)

    def __bool__(self) -> bool:
        return any(self.removed.values()) or any(self.added.values())

    def applied(self, sources: Sources) -> Sources:
        """Return the trail as it would be after the changes."""
        return sources.changed(
            {broker: {entry.path for entry in entries} for broker, entries in self.removed.items()}, self.added
        )

    def commit(self, sources: Sources, at: int, name: str) -> None:
        """Write the next manifest of every broker concerned: all of them or none.

        Raises:
            TrailConflictError: somebody else removed one of the files meanwhile; nothing changed.
            TrailWriteError: the disk refuses the write.
        """
        commit(sources.directory, name, Note(at, dict(self.removed), dict(self.added)))

    def paths(self) -> list[str]:
        """Return the new files, to delete them if they are not committed."""
        return [entry.path for entries in self.added.values() for entry in entries]


def broker_of(entry: FileEntry) -> int:
    """Return whose file it is: the second part of its path is `broker=<number>`."""
    return int(entry.path.split("/")[1].partition("=")[2])
