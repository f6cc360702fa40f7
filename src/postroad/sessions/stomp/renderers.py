"""How each version of STOMP renders messages, and how STOMP travels in WebSocket messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from postroad.protocols.stomp import Version, render_messages, render_rows
from postroad.protocols.stomp.limits import MAX_FRAME_BYTES
from postroad.sessions.contract import WebSocketProfile
from postroad.sessions.shared_bytes import Piece, SharedBytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.messages.columns import Bytes
    from postroad.protocols.stomp import Rendered

__all__ = ["RENDERERS", "WEBSOCKET", "StompRenderer"]

# Limit of one WebSocket message to a client, unless a single STOMP frame is larger. Clients limit the size of a
# message, some to 1 MiB by default.
MESSAGE_BYTES = 64 * 1024
_FRAME_END = b"\0\n"


class _Prepared(NamedTuple):
    """What sessions share of a batch, and who of them still has it to write."""

    rendered: Rendered
    shared: SharedBytes


class StompRenderer:
    """Writes MESSAGE frames of one version."""

    def __init__(self, version: Version) -> None:
        self._version = version

    def prepare(self, batch: Batch, rows: NDArray[np.int64]) -> _Prepared:
        """Return the part of the frames that all subscriptions share."""
        rendered = render_rows(batch, rows, self._version)
        return _Prepared(rendered, SharedBytes(rendered.buffer.nbytes))

    def render(
        self, batch: Batch, rows: NDArray[np.int64], prefix: bytes, number: int | None, prepared: object | None
    ) -> Bytes:
        """Return the frames for one subscription.

        Args:
            batch: where the rows are.
            rows: which ones.
            prefix: how the subscription's frames begin, from `message_prefix`.
            number: the subscription's number for the `ack` header; None for none.
            prepared: from `prepare`, for at least these rows; None if only this subscription gets them.
        """
        if prepared is None:
            return render_messages(batch, rows, self._version, prefix, number)
        return cast("_Prepared", prepared).rendered.for_subscription(prefix, rows, number)

    def pieces(self, rows: NDArray[np.int64], prefix: bytes, number: int | None, prepared: object) -> list[Piece]:
        """Return the same in pieces: for each row what only its subscription gets, and what is shared."""
        rendered, shared = cast("_Prepared", prepared)
        found: list[Piece] = []
        for head, common in rendered.parts(prefix, rows, number):
            found += (Piece(head), Piece(common, shared))
        return found


# One object per version: sessions of the same version share what it prepares.
RENDERERS = {version: StompRenderer(version) for version in Version}


def _pieces(data: bytes) -> Iterator[bytes]:
    """Cut between frames. If a body looks like the end of a frame, the cut is inside it; clients read a stream."""
    at = 0
    while len(data) - at > MESSAGE_BYTES:
        end = data.rfind(_FRAME_END, at, at + MESSAGE_BYTES)
        if end < 0:
            end = data.find(_FRAME_END, at + MESSAGE_BYTES - 1)
        if end < 0:
            break
        yield data[at : end + len(_FRAME_END)]
        at = end + len(_FRAME_END)
    if at < len(data):
        yield data[at:]


# A message from a client may hold many frames, each with the limits of the settings.
WEBSOCKET = WebSocketProfile(("v12.stomp", "v11.stomp", "v10.stomp"), MAX_FRAME_BYTES, _pieces)
