"""What a compaction would change: files out, files in; looked at, proven on a sample, and then committed."""

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
    """Files to take out of the manifests and to put in, by broker."""

    removed: dict[int, list[FileEntry]] = field(default_factory=lambda: defaultdict(list))
    added: dict[int, list[FileEntry]] = field(default_factory=lambda: defaultdict(list))

    def remove(self, source: SourceFile) -> None:
        """Take a file out."""
        self.removed[source.broker].append(source.entry)

    def add(self, entry: FileEntry) -> None:
        """Put a file in; its path says whose it is."""
        self.added[broker_of(entry)].append(entry)

    def __bool__(self) -> bool:
        return any(self.removed.values()) or any(self.added.values())

    def applied(self, sources: Sources) -> Sources:
        """The trail as it would be."""
        return sources.changed(
            {broker: {entry.path for entry in entries} for broker, entries in self.removed.items()}, self.added
        )

    def commit(self, sources: Sources, at: int, name: str) -> None:
        """Make the next manifest of every broker concerned, all of them or none.

        Raises:
            TrailConflictError: somebody else took one of the files out meanwhile; nothing changed.
            TrailWriteError: the disk does not take it.
        """
        commit(sources.directory, name, Note(at, dict(self.removed), dict(self.added)))

    def paths(self) -> list[str]:
        """The new files, for sweeping them up when they are not committed."""
        return [entry.path for entries in self.added.values() for entry in entries]


def broker_of(entry: FileEntry) -> int:
    """Whose file it is: the second part of its path is `broker=<number>`."""
    return int(entry.path.split("/")[1].partition("=")[2])
