"""Ships the trail of one broker to a store: what is there is a whole trail at each moment, a little behind this one.

Files go before the change of the manifest that names them, parts before their checkpoint, each under the name it has
here. No two brokers write the same name, nothing is renamed, and a store shows a file only when all of it has come.
What was put is read back and compared with its checksum before anything names it. So a reader there sees an earlier
state, and where an object is missing all the same, the manifest says which.
"""

from __future__ import annotations

import secrets
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from postroad.trail.durable import replace_file
from postroad.trail.errors import TrailDamageError, TrailError
from postroad.trail.expected_brokers import noted_brokers, noted_name
from postroad.trail.file_reader import Reads
from postroad.trail.ledger import Ledger
from postroad.trail.locations import PORTION_BYTES, StoredPath, put_file, remove_file, size_of, store_away
from postroad.trail.manifest import Change, Checkpoint, change_name, checkpoint_name, decoded, manifest_folder, numbers
from postroad.trail.parts import open_part, read_part
from postroad.trail.paths import delete_below, refuse_links
from postroad.trail.retention import DEFAULT_GRACE_MS
from postroad.trail.ship_book import PutFile, ShipBook
from postroad.trail.shipped import ShippedTo, note_name, shipped_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroad.trail.files import FileEntry
    from postroad.trail.locations import Location

__all__ = ["ShipStatistics", "Shipper"]

Result = TypeVar("Result")


class ShipStatistics(NamedTuple):
    """What was shipped since the start.

    Attributes:
        files: put and read back, manifests included.
        bytes: of these.
        resumed: found in the store at the start, whole.
        deleted: in the store, because a manifest took them out.
        dropped: local copies that went.
        damaged: here, and therefore not shipped.
    """

    files: int = 0
    bytes: int = 0
    resumed: int = 0
    deleted: int = 0
    dropped: int = 0
    damaged: int = 0


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
        self._damaged: set[str] = set()
        self._counts = ShipStatistics()

    def statistics(self) -> ShipStatistics:
        """What was shipped."""
        return self._counts._replace(damaged=len(self._damaged))

    def behind(self) -> int:
        """How many manifests are not shipped yet.

        Raises:
            OSError: the trail cannot be read.
        """
        known = self._opened().put
        return sum(self._name(name) not in known for _, name in self._manifests())

    def ship(self, now: int) -> None:
        """Ship all there is, then delete and drop what may go.

        Raises:
            TrailError: the store does not answer or refuses, or another trail is there. Call again later.
        """
        book = self._opened()
        self._claim(book)
        for kind, name in self._manifests():
            if self._name(name) not in book.put:
                self._ship_manifest(book, kind, name)
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
            self._moves(book, here, uri)
            here = None
        if there is None:
            self._refuse_others()
            there = ShippedTo(uri, secrets.token_hex(16) if here is None else here.owner)
            data = msgspec.json.encode(there) + b"\n"
            self._asked(lambda: put_file(self._to / note_name(self._broker), memoryview(data)))
            if self._asked(lambda: shipped_to(self._to, self._broker)) != there:
                raise TrailError(f"{self._to}: another broker {self._broker} has begun to ship to the same place")
        elif here is None or here.owner != there.owner:
            self._refuse_others()
        if here is None or here.owner != there.owner:
            note = msgspec.json.encode(ShippedTo(uri, there.owner)) + b"\n"
            replace_file(refuse_links(self._root, note_name(self._broker)), note)
        self._is_ours = True

    def _moves(self, book: ShipBook, here: ShippedTo, uri: str) -> None:
        """Another place than before: what is only in the old one must be in the new one first."""
        for path in sorted(book.dropped):
            put = book.put.get(path)
            if put is not None and not self._is_whole(path, put):
                raise TrailError(
                    f"{self._to / path} is not there, and its local copy was dropped: copy it from {here.to}, "
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

    def _ship_manifest(self, book: ShipBook, kind: type[Change] | type[Checkpoint], name: str) -> None:
        path = self._folder / name
        try:
            data = path.read_bytes()
            manifest = _decoded(data, kind, path, self._broker)
        except FileNotFoundError:
            return  # summed up in the meantime
        except TrailDamageError:
            # Without it the manifest there lacks it, and says so, as this one does.
            self._damaged.add(name)
            return
        self._refuse_another(kind, name, data)
        if isinstance(manifest, Change):
            if manifest.lost:
                self._refuse_loss(book)
            for entry in manifest.added:
                self._ship_file(book, entry)
            for gone in manifest.removed:
                book.dooms(gone.path, manifest.at)
        elif not self._ship_parts(book, manifest):
            return
        self._put(book, self._name(name), data, -1)

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
        missing = sum(
            put.time_to >= 0 and path not in named and path not in book.doomed for path, put in book.put.items()
        )
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
        for part in checkpoint.parts:
            name = self._name(part.path)
            if name in book.put:
                continue
            try:
                file = open_part(self._folder, part, Reads())
                entries = read_part(file, self._broker)
                data = (self._folder / part.path).read_bytes()
            except (TrailDamageError, FileNotFoundError):
                if not is_latest:
                    return False
                self._damaged.add(name)
                continue
            for entry in entries:
                self._ship_file(book, entry)
            self._put(book, name, data, -1)
        for one in checkpoint.doomed:
            book.dooms(one.path, one.since)
        return True

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

    def _ship_file(self, book: ShipBook, entry: FileEntry) -> None:
        if entry.path in book.put or entry.path in self._damaged:
            return
        try:
            data = refuse_links(self._root, entry.path).read_bytes()
        except FileNotFoundError:
            return  # taken out in the meantime, or missing here too
        except (OSError, TrailDamageError):
            self._damaged.add(entry.path)
            return
        if len(data) != entry.size or (entry.crc and zlib.crc32(data) != entry.crc):
            self._damaged.add(entry.path)
            return
        self._put(book, entry.path, data, entry.time_to)

    def _put(self, book: ShipBook, path: str, data: bytes, time_to: int) -> None:
        put = PutFile(len(data), zlib.crc32(data), time_to)
        if not self._resumed and self._is_whole(path, put):
            self._counts = self._counts._replace(resumed=self._counts.resumed + 1)
        else:
            self._asked(lambda: put_file(self._to / path, memoryview(data), self._waits))
            if not self._is_whole(path, put):
                raise TrailError(f"{self._to / path}: what came is not what was sent; it is sent again")
            counts = self._counts
            self._counts = counts._replace(files=counts.files + 1, bytes=counts.bytes + len(data))
        book.has_put(path, put)

    def _is_whole(self, path: str, put: PutFile) -> bool:
        """Whether a file is in the store as it is here, byte for byte."""
        place = self._to / path

        def found() -> bool:
            try:
                if size_of(place) != put.size:
                    return False
                crc = 0
                with place.open("rb") as file:
                    while data := file.read(PORTION_BYTES):
                        self._waits(len(data))
                        crc = zlib.crc32(data, crc)
            except FileNotFoundError:
                return False
            return crc == put.crc

        return bool(self._asked(found))

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
        """At the start: files that could not be read before; and those that were taken out while shipping was off."""
        state = Ledger(self._root, self._broker).pin()
        entries, unread = state.all_entries()
        for entry in entries:
            self._ship_file(book, entry)
        if unread or state.warnings or state.other_version or not state.number or self._damaged:
            return
        named = {entry.path for entry in entries} | state.removed()
        named |= {one.path for one in (state.checkpoint.doomed if state.checkpoint else ())}
        for path in [path for path, put in book.put.items() if put.time_to >= 0]:
            if path not in named:
                book.dooms(path, now)

    def _delete(self, book: ShipBook, now: int) -> None:
        gone = [path for path, at in book.doomed.items() if at + DEFAULT_GRACE_MS <= now]
        _, checkpoints = numbers(self._folder)
        if checkpoints and self._name(checkpoint_name(checkpoints[0])) in book.put:
            # Manifests that were summed up and deleted here, after a grace period; not what is missing here by mistake.
            named = self._named_parts(checkpoints)
            for path in book.put if named is not None else ():
                ours = path.startswith(self._name("")) and _number(path) <= checkpoints[0]
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
            path = self._folder / checkpoint_name(number)
            try:
                manifest = decoded(path.read_bytes(), Checkpoint, path, self._broker)
            except (OSError, TrailDamageError):
                return None
            named |= {self._name(part.path) for part in manifest.parts}
        return named

    def _drop(self, book: ShipBook, now: int) -> None:
        if self._keep_local_ms is None:
            return
        for path, put in list(book.put.items()):
            if 0 <= put.time_to < now - self._keep_local_ms and path not in book.dropped and path not in book.doomed:
                # Noted first: who finds a file gone looks where it was shipped to.
                book.drops(path)
                delete_below(self._root, path)
                self._counts = self._counts._replace(dropped=self._counts.dropped + 1)


def _decoded(data: bytes, kind: type[Change] | type[Checkpoint], path: Location, broker: int) -> Change | Checkpoint:
    return decoded(data, Change, path, broker) if kind is Change else decoded(data, Checkpoint, path, broker)


def _number(path: str) -> int:
    """The number of a manifest, or of the checkpoint that a part was made for."""
    digits = Path(path).name.partition(".")[0].rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 1 << 62
