"""Changes a trail in a store that no broker ships to: its manifests are copied, changed here, and shipped back.

A store, as pyarrow uses it, cannot refuse a name that somebody else just took. So only one writer may make the next
manifest of a broker there: the broker that ships, or whoever took the trail over from it. The note beside the trail
(`shipped/broker=<number>.json`) says who; a broker looks at it before each manifest that it ships, and stops when the
trail was taken over. The copy here is a trail like any other whose local files were dropped: what is read comes from
the store, and what is new is shipped by the same rules: files before what names them, read back and compared.
"""

from __future__ import annotations

import secrets
import zlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from postroad.trail.durable_files import replace_file
from postroad.trail.errors import TrailError
from postroad.trail.file_reader import Reads
from postroad.trail.ledger import Ledger, refuse_other_version
from postroad.trail.locations import changed_ms, location, put_file, remove_file, store_away
from postroad.trail.manifest import manifest_brokers, manifest_folder, numbers
from postroad.trail.read_ahead import asked_together
from postroad.trail.retention import DEFAULT_GRACE_MS
from postroad.trail.ship_book import PutFile, ShipBook
from postroad.trail.shipped_files import ShippedTo, note_name, shipped_to
from postroad.trail.shipper import Shipper
from postroad.trail.unnamed_files import number_in, stored_manifests, unnamed_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from postroad.trail.locations import StoredPath

__all__ = ["QUIET_MS", "StoredTrail"]

Answer = TypeVar("Answer")

# A broker that ships puts a manifest about every minute (`persist_seconds`), and tries again after at most a minute
# when the store was away. Who has put none for so long does not ship here now.
QUIET_MS = 10 * 60_000


class StoredTrail:
    """A trail in a store, copied into a directory as far as its manifests go; nothing is changed there at first.

    Args:
        place: where the trail is.
        directory: an empty one, for the copy.
        now: the time in Unix ms.
        at_once: what no manifest names any more is deleted at once, not after the grace period that readers have.

    Attributes:
        changed: when a job last changed it, in Unix ms; 0 if none did.

    Raises:
        TrailError: a broker ships to it, or the store does not answer.
    """

    def __init__(self, place: StoredPath, directory: Path, now: int, *, at_once: bool) -> None:
        self._place, self._directory, self._now = place, directory, now
        self._at_once = at_once
        self._brokers = manifest_brokers(place)
        self._owner = secrets.token_hex(16)
        self._notes = dict(zip(self._brokers, self._each(lambda broker: shipped_to(place, broker)), strict=True))
        self._each(self._refuse_shipping)
        self.changed = max((note.changed for note in self._notes.values() if note is not None), default=0)
        self._heads = self._each(self._copy)
        # Where a broker ships, what no manifest names may be on its way.
        is_left = self.changed and (at_once or self.changed + DEFAULT_GRACE_MS <= now)
        self._left = self._unnamed() if is_left else []

    def delete_left(self) -> int:
        """Delete what earlier jobs replaced, or left unfinished; return how many files that were.

        Raises:
            TrailError: the store does not answer, or somebody else changes the trail.
        """
        if self._left:
            self._take_over()
        return self._delete(self._left)

    def ship(self) -> int:
        """Put what was changed here into the store, if anything was; return how many files were deleted there.

        Raises:
            TrailError: the store does not answer, or somebody else changes the trail. What is there is whole: a state
                of before, or one in which some things are stored twice; call for the same change again.
        """
        if self._heads == [Ledger(self._directory, broker).head() for broker in self._brokers]:
            return 0
        self._take_over()
        shippers = [Shipper(self._directory, broker, self._place) for broker in self._brokers]
        # Journeys of one broker stand for passages of others, which go only when all journeys are there: so none waits.
        for shipper in shippers:
            shipper.ship_additions(self._now)
        for shipper in shippers:
            shipper.ship(self._now)
        return self._delete(self._unnamed()) if self._at_once else 0

    # --- before --------------------------------------------------------------------------------------------------

    def _refuse_shipping(self, broker: int) -> None:
        """Refuse a trail to which a broker ships: it has the manifests of before, and goes on from them."""
        note = self._notes[broker]
        if note is None or note.changed or not _names(note, self._place):
            return
        names = sorted(stored_manifests(self._place, broker), key=number_in)
        latest = max((changed_ms(manifest_folder(self._place, broker) / name) for name in names[-2:]), default=0)
        if latest > self._now - QUIET_MS:
            raise TrailError(
                f"{self._place}: broker {broker} ships here, {max(0, self._now - latest) // 1_000} s ago for the last "
                "time; change the directory that it writes its trail to, and what it ships follows. If it is to ship "
                f"elsewhere, or no more, try again {QUIET_MS // 60_000} minutes after it has ended"
            )

    def _copy(self, broker: int) -> int:
        """Copy the manifests of a broker, and note that they and what they name are in the store; return the latest."""
        there, here = manifest_folder(self._place, broker), manifest_folder(self._directory, broker)
        put: dict[str, PutFile] = {}
        for name in stored_manifests(self._place, broker):
            data = (there / name).read_bytes()
            replace_file(here / name, data)
            put[f"manifests/broker={broker}/{name}"] = PutFile(len(data), zlib.crc32(data), -1)
        state = Ledger(self._directory, broker).pin()
        refuse_other_version(state)
        for change in state.changes:
            put |= {entry.path: PutFile(entry.size, entry.crc, entry.time_to) for entry in change.added}
        ShipBook(self._directory, broker).begin_with(put)
        replace_file(self._directory / note_name(broker), self._note())
        return state.number

    def _note(self) -> bytes:
        return msgspec.json.encode(ShippedTo(self._place.uri, self._owner, changed=self._now, is_copy=True)) + b"\n"

    # --- after ---------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Say that no broker ships here any more; none has since the manifests were copied."""
        note = memoryview(self._note())
        self._each(lambda broker: put_file(self._place / note_name(broker), note))
        heads = self._each(lambda broker: max(map(max, filter(None, numbers(manifest_folder(self._place, broker))))))
        if heads != self._heads:
            self._each(self._give_back)
            raise TrailError(f"{self._place}: a broker, or another job, changed the trail meanwhile; nothing was done")

    def _give_back(self, broker: int) -> None:
        note = self._notes[broker]
        if note is None:
            remove_file(self._place / note_name(broker))
        else:
            put_file(self._place / note_name(broker), memoryview(msgspec.json.encode(note) + b"\n"))

    def _unnamed(self) -> list[str]:
        """Files that no manifest names."""
        found = self._each(lambda broker: unnamed_files(self._place, Ledger(self._directory, broker).pin()))
        return [path for paths in found for path in paths]

    def _delete(self, paths: list[str]) -> int:
        self._asked(lambda: asked_together(self._place, paths, lambda one, _: remove_file(self._place / one), Reads()))
        return len(paths)

    def _each(self, ask: Callable[[int], Answer]) -> list[Answer]:
        return self._asked(lambda: asked_together(self._place, self._brokers, lambda one, _: ask(one), Reads()))

    def _asked(self, work: Callable[[], Answer]) -> Answer:
        try:
            return work()
        except OSError as error:
            raise store_away(self._place, error) from error


def _names(note: ShippedTo, place: StoredPath) -> bool:
    """Whether a note is about this place, and did not come here with a copy of another one."""
    try:
        return getattr(location(note.to), "path", None) == place.path
    except TrailError:
        return False
