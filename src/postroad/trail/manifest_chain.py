"""The changes of a broker's manifest as a chain: which of its files can be read, and which belong to it.

Each change names the checksum of the one before, and a checkpoint that of the last change in it. A file that was copied
from another trail, or from another time of this one, breaks that. Where the neighbours that would show it are damaged
too, the files of the trail decide: what a manifest names must be there as it was written.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from postroad.trail.checkpoint_parts import open_part
from postroad.trail.errors import TrailDamageError
from postroad.trail.file_reader import Reads, TrailFile
from postroad.trail.manifest import Change, Checkpoint, Kind, change_name, checkpoint_name, decoded
from postroad.trail.schemas import MESSAGE_TABLES

if TYPE_CHECKING:
    from postroad.trail.files import FileEntry
    from postroad.trail.locations import Location
    from postroad.trail.manifest import Part

__all__ = ["Chain", "Link", "is_as_written"]

FOREIGN = "belongs to another trail: it does not fit the manifests beside it"
UNCONFIRMED = "cannot be told from one of another trail: neither the manifests nor the files beside it confirm it"


class Link(NamedTuple):
    """A change as its file has it: None if that cannot be read; `crc` is the checksum of the whole file."""

    number: int
    change: Change | None
    crc: int


class Chain:
    """The manifest files of one broker, to be read.

    Args:
        root: of the trail.
        folder: of the broker's manifests.
        broker: whose.
        reads: counts what is read; None for no counts.

    Attributes:
        troubles: what is damaged or does not belong here, in the order it was found.
    """

    def __init__(self, root: Location, folder: Location, broker: int, reads: Reads | None) -> None:
        self._root = root
        self._folder = folder
        self._broker = broker
        self._reads = reads
        self.troubles: list[TrailDamageError] = []

    def latest_checkpoint(self, numbers: list[int]) -> Checkpoint | None:
        """The last checkpoint that can be read and belongs here."""
        for number in reversed(numbers):
            path = self._folder / checkpoint_name(number)
            found, _ = self._read(path, Checkpoint, number)
            if found is None:
                continue
            problem = self._checkpoint_problem(found)
            if not problem:
                return found
            self.troubles.append(TrailDamageError(path, problem))
        return None

    def links(self, checkpoint: Checkpoint | None, numbers: list[int]) -> list[Link]:
        """The changes after a checkpoint, in order; unreadable where they are damaged or do not belong here."""
        after = checkpoint.number if checkpoint else 0
        links = [
            Link(number, *self._read(self._folder / change_name(number), Change, number))
            for number in numbers
            if number > after
        ]
        return self._confirmed(self._without_foreign(links), after)

    def breaks(self, after: int, links: list[Link], head: int) -> set[int]:
        """How many readable changes are before each place where some are missing that is not noted yet."""
        broken: set[int] = set()
        lost = [(link.change.lost, link.number) for link in links if link.change is not None and link.change.lost]
        readable, expected = 0, after + 1
        for number, change in [*((link.number, link.change) for link in links), (head + 1, None)]:
            if number > expected and not any(first <= expected and number <= last for first, last in lost):
                more = f", and {number - expected - 1:,} after it" if number > expected + 1 else ""
                self.troubles.append(TrailDamageError(self._folder / change_name(expected), f"is missing{more}"))
                broken.add(readable)
            if change is not None:
                readable += 1
            elif number <= head:
                broken.add(readable)
            expected = number + 1
        return broken

    # --- what belongs here -----------------------------------------------------------------------------------------

    def _checkpoint_problem(self, checkpoint: Checkpoint) -> str:
        """Why a checkpoint does not count; empty if it fits what is beside it."""
        if not checkpoint.previous:
            # Of an earlier version, which did not say.
            return ""
        number = checkpoint.number
        summed, crc = self._read(self._folder / change_name(number), Change, number, quiet=True)
        if summed is not None:
            return "" if crc == checkpoint.previous else FOREIGN
        following, _ = self._read(self._folder / change_name(number + 1), Change, number + 1, quiet=True)
        if following is not None and following.previous:
            return "" if following.previous == checkpoint.previous else FOREIGN
        return "" if any(self._opens(part) for part in checkpoint.parts) else UNCONFIRMED

    def _opens(self, part: Part) -> bool:
        try:
            open_part(self._folder, part, Reads())
        except TrailDamageError:
            return False
        return True

    def _without_foreign(self, links: list[Link]) -> list[Link]:
        """Leave out changes that do not follow the one before.

        Where two do not fit, the one that fits no other is foreign; if both fit others, the earlier one is: the writer
        of what follows the later one knew what came before it.
        """
        fits = [None, *(_fits(before, link) for before, link in pairwise(links)), None]
        strangers: set[int] = set()
        for place, fit in enumerate(fits):
            if fit is False:
                later_fits, earlier_fits = fits[place + 1], fits[place - 1]
                strangers |= {place - 1} if later_fits else {place} if earlier_fits else {place - 1, place}
        return self._without(links, strangers, FOREIGN)

    def _confirmed(self, links: list[Link], after: int) -> list[Link]:
        """Leave out changes that nothing connects with the rest, and that name no file which is here.

        What follows a change that cannot be read may be of another trail, and the manifests do not show it.
        """
        strangers: set[int] = set()
        for places in _stretches(links):
            first = links[places[0]].change
            assert first is not None
            if links[places[0]].number != after + 1 and not first.lost and first.previous:
                entries = [entry for place in places for entry in _added(links[place])]
                if not any(is_as_written(self._root, entry, self._broker) for entry in entries):
                    strangers.update(places)
        return self._without(links, strangers, UNCONFIRMED)

    def _without(self, links: list[Link], strangers: set[int], why: str) -> list[Link]:
        paths = [self._folder / change_name(links[place].number) for place in sorted(strangers)]
        self.troubles += [TrailDamageError(path, why) for path in paths]
        return [link._replace(change=None) if place in strangers else link for place, link in enumerate(links)]

    def _read(self, path: Location, kind: type[Kind], number: int, *, quiet: bool = False) -> tuple[Kind | None, int]:
        """A manifest file and its checksum; None if it is not there, damaged, or of another number than its name.

        What is wrong with it is noted, unless `quiet`.
        """
        try:
            data = path.read_bytes()
            found = decoded(data, kind, path, self._broker)
            if found.number != number:
                raise TrailDamageError(path, f"is manifest {found.number:,}, under the name of another")
        except OSError as error:
            trouble = TrailDamageError(path, error.strerror or error)
        except TrailDamageError as error:
            trouble = error
        else:
            if self._reads is not None and not quiet:
                self._reads.count(len(data))
            return found, zlib.crc32(data)
        if not quiet:
            self.troubles.append(trouble)
        return None, 0


def _fits(before: Link, link: Link) -> bool | None:
    """Whether a change follows the one before it; None if that cannot be determined."""
    if before.change is None or link.change is None or not link.change.previous or link.number != before.number + 1:
        return None
    return link.change.previous == before.crc


def _stretches(links: list[Link]) -> list[list[int]]:
    """The places of readable changes, in stretches in which each is known to follow the one before."""
    found: list[list[int]] = []
    for place, link in enumerate(links):
        if link.change is None:
            continue
        if place and found and found[-1][-1] == place - 1 and _fits(links[place - 1], link):
            found[-1].append(place)
        else:
            found.append([place])
    return found


def _added(link: Link) -> list[FileEntry]:
    # Files of links or names may be the same in two trails.
    return [] if link.change is None else [entry for entry in link.change.added if entry.table in MESSAGE_TABLES]


def is_as_written(root: Location, entry: FileEntry, broker: int) -> bool:
    """Whether a file is there, as far as its size and its footer tell."""
    try:
        TrailFile(root, entry, broker, Reads())
    except TrailDamageError:
        return False
    return True
