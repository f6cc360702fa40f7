"""Ships the trail of one broker to a store, which has a complete trail at every moment, a little older than this one.

Files go before the change of the manifest that names them, parts before their checkpoint, each under the name it has
here. No two brokers write the same name, nothing is renamed, and a store shows a file only when all of it has come.
What was put is read back and compared with its checksum before anything names it. So a reader there sees an earlier
state, and where an object is missing anyway, the manifest says which.
"""

from __future__ import annotations

import secrets
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from postroad.trail.checkpoint_parts import checkpoint_parts, entries_of
from postroad.trail.columns import DAY_MS
from postroad.trail.durable_files import replace_file
from postroad.trail.errors import TrailDamageError, TrailError
from postroad.trail.expected_brokers import noted_brokers, noted_name
from postroad.trail.file_reader import Reads
from postroad.trail.ledger import Ledger
from postroad.trail.locations import StoredPath, is_there, put_file, remove_file, size_of, store_away
from postroad.trail.manifest import Change, Checkpoint, change_name, checkpoint_name, decoded, manifest_folder, numbers
from postroad.trail.manifest_needs import waits_for_others
from postroad.trail.paths import delete_below, refuse_links
from postroad.trail.retention import DEFAULT_GRACE_MS
from postroad.trail.ship_book import PutFile, ShipBook, ShipStatistics
from postroad.trail.shipped_files import ShippedTo, note_name, refuse_changed, shipped_to
from postroad.trail.snapshot import pin
from postroad.trail.unnamed_files import number_in, stored_manifests, unnamed_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from postroad.trail.files import FileEntry
    from postroad.trail.locations import Location

__all__ = ["ShipStatistics", "Shipper"]

Result = TypeVar("Result")
# How often the parts of the manifest are read for local copies that may be dropped: they are kept for days.
DROP_EVERY_MS = 10 * 60_000


class Shipper:
    """Ships what one broker writes. One thread uses it, beside the one that writes.

    Args:
        root: the trail.
        broker: whose part of it.
        to: where it goes.
        rate: bytes per second, sent and read back, on average; 0 for no bound.
        keep_local_ms: local copies of messages older than this are dropped once they are shipped; None keeps all.
        pause: waits for a number of seconds.
    """

    def __init__(
        self,
        root: Path,
        broker: int,
        to: Location,
        rate: int = 0,
        keep_local_ms: int | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._root, self._broker, self._to = root, broker, to
        self._rate = rate
        self._keep_local_ms = keep_local_ms
        self._pause = pause
        self._folder = manifest_folder(root, broker)
        self._book: ShipBook | None = None
        self._is_ours = self._resumed = False
        self._owner = ""
        # Manifests, and other files, that cannot be read here.
        self._unread: set[str] = set()
        self._damaged: set[str] = set()
        # Parts of the manifest all of whose files were dropped, or looked at and kept for good.
        self._dropped: set[str] = set()
        self._look_again_at = 0
        self._counts = ShipStatistics()

    def statistics(self) -> ShipStatistics:
        """What was shipped."""
        return self._counts._replace(damaged=len(self._damaged) + len(self._unread))

    def behind(self) -> int:
        """How many manifests are not shipped yet.

        Raises:
            OSError: the trail cannot be read.
        """
        known = self._opened().put
        return sum(self._name(name) not in known for _, name in self._manifests())

    def ship_additions(self, now: int) -> None:
        """Ship manifests up to the first that takes files out, with what they name.

        Raises:
            TrailError: as `ship`.
        """
        book = self._opened()
        self._claim(book)
        for kind, name in self._manifests():
            if self._name(name) in book.put:
                continue
            path = self._folder / name
            manifest = _decoded(path.read_bytes(), kind, path, self._broker)
            if isinstance(manifest, Checkpoint) or manifest.removed:
                return
            self._ship_manifest(book, kind, name, now)

    def ship(self, now: int) -> None:
        """Ship all there is, then delete and drop what may go.

        Raises:
            TrailError: the store does not answer or refuses, or another trail is there. Call again later.
        """
        book = self._opened()
        self._claim(book)
        for kind, name in self._manifests():
            if self._name(name) not in book.put and not self._ship_manifest(book, kind, name, now):
                break
        self._ship_noted(book)
        if not self._resumed:
            self._resume(book, now)
            self._resumed = True
        self._delete(book, now)
        self._drop(book, now)

    # --- whose it is -----------------------------------------------------------------------------------------------

    def _opened(self) -> ShipBook:
        if self._book is None:
            self._book = ShipBook(self._root, self._broker)
        return self._book

    def _claim(self, book: ShipBook) -> None:
        """Make sure that what is there is of this trail, or that nothing is."""
        if self._is_ours:
            return
        uri = self._to.uri if isinstance(self._to, StoredPath) else str(self._to)
        here = shipped_to(self._root, self._broker)
        there = self._asked(lambda: shipped_to(self._to, self._broker))
        if here is not None and here.to != uri:
            self._moves(book, here)
        owner = None if here is None else here.owner
        if there is None:
            self._refuse_others()
            there = ShippedTo(uri, owner or secrets.token_hex(16), is_copy=True)
            data = msgspec.json.encode(there) + b"\n"
            self._asked(lambda: put_file(self._to / note_name(self._broker), memoryview(data)))
            found = self._asked(lambda: shipped_to(self._to, self._broker))
            if found is None:
                raise TrailError(f"{self._to}: the store does not keep what is put there, though it refused nothing")
            if found != there:
                raise TrailError(f"{self._to}: another broker {self._broker} has begun to ship to the same place")
        elif owner != there.owner:
            refuse_changed(self._to, there, owner)
            self._refuse_others()
        self._owner = there.owner
        earlier = () if here is None else (*here.before, here.to)
        before = tuple(place for place in dict.fromkeys(earlier) if place != uri)
        note = ShippedTo(uri, there.owner, before, there.changed)
        if here != note:
            data = msgspec.json.encode(note) + b"\n"
            replace_file(refuse_links(self._root, note_name(self._broker)), data)
        self._is_ours = True

    def _moves(self, book: ShipBook, here: ShippedTo) -> None:
        """Another place than before: what is only in the old one must be in the new one first."""
        entries, _ = Ledger(self._root, self._broker).pin().all_entries()
        for entry in sorted(entries, key=lambda one: one.path):
            gone = entry.path not in book.lacking and not (self._root / entry.path).exists()
            if gone and not self._has(entry):
                raise TrailError(
                    f"{self._to / entry.path} is not there, and its local copy was dropped: copy it from {here.to}, "
                    "or set tracking.ship back"
                )
        book.forget()

    def _refuse_others(self) -> None:
        """Refuse a place that has manifests of this broker's number, none of which is this trail's.

        Raises:
            TrailError: it has.
        """
        there = manifest_folder(self._to, self._broker)
        changes, checkpoints = numbers(there)
        names = [change_name(number) for number in changes] + [checkpoint_name(number) for number in checkpoints]
        for name in reversed(names):
            try:
                if (self._folder / name).read_bytes() == self._asked((there / name).read_bytes):
                    return
            except FileNotFoundError:
                continue
        if names:
            raise TrailError(
                f"{self._to} has another trail of a broker {self._broker}: ship to another place, or move that one away"
            )

    # --- manifests and what they name --------------------------------------------------------------------------------

    def _manifests(self) -> list[tuple[type[Change] | type[Checkpoint], str]]:
        """The manifests that are here, in the order in which they may be shipped."""
        changes, checkpoints = numbers(self._folder)
        found: list[tuple[int, type[Change] | type[Checkpoint], str]] = []
        found += [(number, Change, change_name(number)) for number in changes]
        found += [(number, Checkpoint, checkpoint_name(number)) for number in checkpoints]
        return [(kind, name) for _, kind, name in sorted(found, key=lambda one: (one[0], one[1] is Checkpoint))]

    def _name(self, name: str) -> str:
        return f"manifests/broker={self._broker}/{name}"

    def _ship_manifest(self, book: ShipBook, kind: type[Change] | type[Checkpoint], name: str, now: int) -> bool:
        """Ship a manifest with what it names; returns whether later ones may follow, or wait for other brokers."""
        path = self._folder / name
        try:
            data = path.read_bytes()
            manifest = _decoded(data, kind, path, self._broker)
        except FileNotFoundError:
            return True  # summed up in the meantime
        except TrailDamageError:
            # Without it the manifest there lacks it, and says so, as this one does.
            self._unread.add(name)
            return True
        if isinstance(manifest, Change) and self._asked(lambda: waits_for_others(self._to, manifest, now)):
            return False
        refuse_changed(self._to, self._asked(lambda: shipped_to(self._to, self._broker)), self._owner)
        self._refuse_another(kind, name, data)
        if isinstance(manifest, Change):
            if manifest.lost:
                self._refuse_loss(book)
            for entry in manifest.added:
                self._ship_file(book, entry)
            self._put(book, self._name(name), data, -1)
            gone = [one.path for one in manifest.removed]
        elif self._ship_parts(book, manifest):
            self._put(book, self._name(name), data, -1)
            gone = [one.path for one in manifest.doomed]
        else:
            return True
        # Readers there may have pinned the manifest before until now, whenever the files were taken out here.
        for one in gone:
            book.dooms(one, now)
        return True

    def _refuse_another(self, kind: type[Change] | type[Checkpoint], name: str, data: bytes) -> None:
        """Refuse to write over a manifest of this number that says something else.

        That happens where this trail was replaced by an older copy while its broker was stopped.
        """
        place = self._to / self._name(name)
        try:
            there = self._asked(place.read_bytes)
            _decoded(there, kind, place, self._broker)
        except (FileNotFoundError, TrailDamageError):
            return
        if there != data:
            raise TrailError(
                f"{place} is there and says something else: this trail is not the one that was shipped so far. "
                "Ship to another place, or put the trail back"
            )

    def _refuse_loss(self, book: ShipBook) -> None:
        """Refuse to ship a trail that has lost what the store has: readers there would not find it any more."""
        state = Ledger(self._root, self._broker).pin()
        entries, _ = state.all_entries()
        named = {entry.path for entry in entries} | state.removed()
        there = self._asked(lambda: pin(self._to, self._broker).all_entries()[0])
        missing = sum(entry.path not in named and entry.path not in book.doomed for entry in there)
        if missing:
            raise TrailError(
                f"the trail in {self._root} has lost its manifests of {missing:,} files that are in {self._to}: "
                "nothing is shipped, so that they are found there. Put the manifests back, or ship to another place"
            )

    def _ship_parts(self, book: ShipBook, checkpoint: Checkpoint) -> bool:
        """The parts of a checkpoint, and what they name: a part is shipped after its files, and never changes.

        Answers whether the checkpoint may follow: not when parts of it went because a later one has been made.
        """
        is_latest = checkpoint.number == max(numbers(self._folder)[1], default=0)
        fresh = [part for part in checkpoint.parts if self._name(part.path) not in book.put]
        known = self._shipped_names(book, {part.day for part in fresh})
        for part in fresh:
            name = self._name(part.path)
            try:
                entries = entries_of(self._folder, part, self._broker)
                data = (self._folder / part.path).read_bytes()
            except (TrailDamageError, FileNotFoundError):
                if not is_latest:
                    return False
                self._unread.add(name)
                continue
            for entry in entries:
                if entry.path not in known:
                    self._ship_file(book, entry, may_be_there=True)
            self._put(book, name, data, -1)
            known.update(entry.path for entry in entries)
        book.sums_up(known)
        return True

    def _shipped_names(self, book: ShipBook, days: set[int]) -> set[str]:
        """The files that parts of some days name which are in the store: they are there, or known to be lacking."""
        shipped = [one for one in numbers(self._folder)[1] if self._name(checkpoint_name(one)) in book.put]
        known: set[str] = set()
        for part in checkpoint_parts(self._folder, shipped[-1], self._broker) or () if shipped else ():
            if part.day in days and self._name(part.path) in book.put:
                # What cannot be read is compared in the store.
                with suppress(OSError, TrailDamageError):
                    known.update(entry.path for entry in entries_of(self._folder, part, self._broker))
        return known

    def _ship_noted(self, book: ShipBook) -> None:
        """Which brokers the trail should hold: under a name of this broker's own, since others ship theirs."""
        try:
            noted = noted_brokers(self._root)
        except TrailDamageError:
            return
        data = msgspec.json.encode(sorted(noted)) + b"\n"
        name = noted_name(self._broker)
        known = book.put.get(name)
        if noted and (known is None or known.crc != zlib.crc32(data)):
            self._put(book, name, data, -1)

    def _ship_file(self, book: ShipBook, entry: FileEntry, *, may_be_there: bool = False) -> None:
        if entry.path in book.put or entry.path in self._damaged:
            return
        try:
            data = refuse_links(self._root, entry.path).read_bytes()
        except FileNotFoundError:
            # Taken out in the meantime, dropped when it was shipped, or missing here too.
            if not self._has(entry):
                book.lacks(entry.path)
            return
        except (OSError, TrailDamageError):
            data = b""
        if len(data) != entry.size or (entry.crc and zlib.crc32(data) != entry.crc):
            self._damaged.add(entry.path)
            book.lacks(entry.path)
            return
        self._put(book, entry.path, data, entry.time_to, may_be_there=may_be_there)

    def _put(self, book: ShipBook, path: str, data: bytes, time_to: int, *, may_be_there: bool = False) -> None:
        put = PutFile(len(data), zlib.crc32(data), time_to)
        if (may_be_there or not self._resumed) and self._is_whole(path, put):
            self._counts = self._counts._replace(resumed=self._counts.resumed + 1)
        else:
            self._asked(lambda: put_file(self._to / path, memoryview(data), self._waits))
            if not self._is_whole(path, put):
                raise TrailError(f"{self._to / path}: what came is not what was sent; it is sent again")
            counts = self._counts
            self._counts = counts._replace(files=counts.files + 1, bytes=counts.bytes + len(data))
        book.has_put(path, put)

    def _has(self, entry: FileEntry) -> bool:
        """Whether a file that is not here is in the store."""
        if entry.crc:
            return self._is_whole(entry.path, PutFile(entry.size, entry.crc, -1))
        return self._size_there(entry.path) == entry.size

    def _size_there(self, path: str) -> int:
        """Bytes of a file of the store; -1 if there is none."""
        try:
            return self._asked(lambda: size_of(self._to / path))
        except FileNotFoundError:
            return -1

    def _is_whole(self, path: str, put: PutFile) -> bool:
        """Whether a file is in the store as it is here, byte for byte."""
        place = self._to / path
        return self._asked(lambda: is_there(place, put.size, put.crc, self._waits))

    def _waits(self, size: int) -> None:
        if self._rate:
            self._pause(size / self._rate)

    def _asked(self, work: Callable[[], Result]) -> Result:
        """Ask the store; what it does not do is an error of ours."""
        try:
            return work()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise store_away(self._to, error) from error

    # --- what may go -------------------------------------------------------------------------------------------------

    def _resume(self, book: ShipBook, now: int) -> None:
        """At the start: files that could not be shipped before; and those there that no manifest names any more.

        Such files were taken out while nobody shipped, or came with a copy of the place that was shipped to before.
        """
        state = Ledger(self._root, self._broker).pin()
        if state.other_version or not state.number:
            return
        gone = state.removed()
        for part in state.checkpoint.parts if state.checkpoint else ():
            entries, _ = state.from_parts([part], Reads())
            # Books of earlier versions list the files of parts that are there, and not those that are lacking.
            listed = any(entry.path in book.put for entry in entries)
            for entry in entries:
                if (listed or entry.path in book.lacking) and entry.path not in gone:
                    self._ship_file(book, entry, may_be_there=True)
            if self._name(part.path) in book.put:
                book.sums_up(entry.path for entry in entries)
        for entry in (entry for change in state.changes for entry in change.added if entry.path not in gone):
            self._ship_file(book, entry)
        if self._unread:
            return
        for path in self._asked(lambda: unnamed_files(self._to, state)):
            book.dooms(path, now)
        for name in self._asked(lambda: stored_manifests(self._to, self._broker)):
            if self._name(name) not in book.put:
                # What it says does not matter: it goes when manifests of its number go here.
                book.has_put(self._name(name), PutFile(0, 0, -1))

    def _delete(self, book: ShipBook, now: int) -> None:
        gone = [path for path, at in book.doomed.items() if at + DEFAULT_GRACE_MS <= now]
        _, checkpoints = numbers(self._folder)
        if checkpoints and self._name(checkpoint_name(checkpoints[0])) in book.put:
            # Manifests that were summed up and deleted here, after a grace period; not what is missing here by mistake.
            named = self._named_parts(checkpoints)
            for path in book.put if named is not None else ():
                ours = path.startswith(self._name("")) and number_in(path) <= checkpoints[0]
                if ours and path not in (named or ()) and not (self._root / path).exists():
                    gone.append(path)
        for path in gone:
            self._asked(lambda path=path: remove_file(self._to / path))  # type: ignore[misc]
            book.deleted(path)
            self._counts = self._counts._replace(deleted=self._counts.deleted + 1)

    def _named_parts(self, checkpoints: Sequence[int]) -> set[str] | None:
        """The parts of these checkpoints; None where one of them cannot be read."""
        named: set[str] = set()
        for number in checkpoints:
            parts = checkpoint_parts(self._folder, number, self._broker)
            if parts is None:
                return None
            named |= {self._name(part.path) for part in parts}
        return named

    def _drop(self, book: ShipBook, now: int) -> None:
        if self._keep_local_ms is None:
            return
        before = now - self._keep_local_ms
        for path, put in list(book.put.items()):
            if 0 <= put.time_to < before and path not in book.doomed:
                self._drop_copy(book, path, put.size)
        if self._look_again_at <= now:
            self._look_again_at = now + DROP_EVERY_MS
            self._drop_summed_up(book, before)

    def _drop_summed_up(self, book: ShipBook, before: int) -> None:
        """Drop what parts of the manifest name that are in the store."""
        checkpoints = numbers(self._folder)[1]
        parts = (checkpoint_parts(self._folder, checkpoints[-1], self._broker) or ()) if checkpoints else ()
        self._dropped &= {part.path for part in parts}
        for part in parts:
            if part.day * DAY_MS >= before or part.path in self._dropped or self._name(part.path) not in book.put:
                continue
            try:
                entries = entries_of(self._folder, part, self._broker)
            except (OSError, TrailDamageError):
                continue
            for entry in entries:
                if entry.time_to < before and entry.path not in book.doomed and entry.path not in book.lacking:
                    self._drop_copy(book, entry.path, entry.size)
            if all(entry.time_to < before for entry in entries):
                self._dropped.add(part.path)

    def _drop_copy(self, book: ShipBook, path: str, size: int) -> None:
        """Delete a local copy; who finds it gone looks where the trail is shipped to."""
        if not (self._root / path).exists():
            return
        if self._size_there(path) != size:
            # Gone there since it was put: it stays here, and is put again after the next start.
            book.deleted(path)
            book.lacks(path)
        elif delete_below(self._root, path):
            self._counts = self._counts._replace(dropped=self._counts.dropped + 1)


def _decoded(data: bytes, kind: type[Change] | type[Checkpoint], path: Location, broker: int) -> Change | Checkpoint:
    return decoded(data, Change, path, broker) if kind is Change else decoded(data, Checkpoint, path, broker)
