"""Where the files of a broker are that its disk does not keep: a trail may be shipped, and local copies dropped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from postroad.trail.errors import TrailDamageError, TrailError
from postroad.trail.locations import location
from postroad.trail.lock_owner import lock_path
from postroad.trail.paths import refuse_links

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.trail.locations import Location

__all__ = ["FOLDER", "ShippedTo", "earlier_places", "may_lag", "note_name", "place_of", "refuse_changed", "shipped_to"]

FOLDER = "shipped"


class ShippedTo(msgspec.Struct, frozen=True):
    """Where a broker ships to, as its trail says; the same file lies there, so that each knows whose it is.

    Attributes:
        to: the URI.
        owner: drawn by who ships first; another trail of the same broker has another.
        before: where it shipped to earlier; what is erased or expires is not deleted there. Only in the trail itself.
        changed: when a job changed the trail there, in Unix ms; from then on no broker ships there. 0 if none did.
        is_copy: this note lies in the place that is shipped to, not in the trail itself.
    """

    to: str
    owner: str
    before: tuple[str, ...] = ()
    changed: int = 0
    is_copy: bool = False


def note_name(broker: int) -> str:
    return f"{FOLDER}/broker={broker}.json"


def shipped_to(root: Location, broker: int) -> ShippedTo | None:
    """Where a broker ships to, or who ships here; None if it does not ship.

    Raises:
        TrailDamageError: the note cannot be read.
        OSError: the store does not answer.
    """
    path = root / note_name(broker)
    try:
        return msgspec.json.decode(path.read_bytes(), type=ShippedTo)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise TrailDamageError(path, f"does not say where a broker ships to: {error}") from error


def may_lag(root: Location, broker: int) -> bool:
    """Whether a trail is a copy, which may lack what its broker has recorded since.

    Brokers write to directories alone, and have their locks there. A note that cannot be read may be that of a copy.
    """
    if not isinstance(root, Path):
        return True
    if lock_path(root, broker).exists():
        return False
    try:
        note = shipped_to(root, broker)
    except (OSError, TrailError):
        return True
    return note is not None and (note.is_copy or _is_same_directory(note.to, root))


def _is_same_directory(uri: str, root: Path) -> bool:
    """Whether a URI names a directory; notes of earlier versions do not say whose side they lie on."""
    try:
        place = location(uri)
    except TrailError:
        return False
    return isinstance(place, Path) and place.absolute() == root.absolute()


def refuse_changed(place: Location, there: ShippedTo | None, owner: str | None) -> None:
    """Refuse to ship to a place whose trail a job has changed: a broker would bring back what was erased there.

    Raises:
        TrailError: a job has changed it, and it is not the owner who ships.
    """
    if there is not None and there.changed and there.owner != owner:
        raise TrailError(
            f"{place} was changed there by `pipeline compact` or `erase`, and no broker ships there any more: "
            "ship to another place (tracking.ship)"
        )


def earlier_places(root: Location, brokers: Iterable[int]) -> list[str]:
    """Where brokers shipped to before they got another place: nobody deletes anything there any more.

    Raises:
        TrailDamageError: a note cannot be read.
        OSError: the store does not answer.
    """
    notes = [shipped_to(root, broker) for broker in brokers]
    return sorted({place for note in notes if note is not None for place in note.before})


def place_of(root: Location, path: str, broker: int) -> Location:
    """Where a file of a broker is: below the trail, or where it was shipped to if it is not there any more.

    Raises:
        TrailDamageError: a symbolic link is on the way.
    """
    place = refuse_links(root, path)
    if not isinstance(place, Path) or place.exists():
        return place
    try:
        note = shipped_to(root, broker)
        return place if note is None else location(note.to) / path
    except (OSError, TrailError):
        # Then it is missing here, and reported as missing.
        return place
