"""The targets by name. A target takes any bytes and returns; whatever it raises is a defect.

The contract of each: accept the bytes, or raise the error that its room has for bad input, which the target catches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz import language_targets, stored_targets, wire_targets

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TARGETS"]

TARGETS: dict[str, Callable[[bytes], None]] = {
    "broker_frames": wire_targets.broker_frames,
    "client_frames": wire_targets.client_frames,
    "control_frames": wire_targets.control_frames,
    "encoded_messages": wire_targets.encoded_messages,
    "encoded_predicates": wire_targets.encoded_predicates,
    "envelopes": wire_targets.envelopes,
    "exact_interests": wire_targets.exact_interests,
    "filters": stored_targets.filters,
    "index": language_targets.index,
    "interests": wire_targets.interests,
    "journals": stored_targets.journals,
    "link_frames": wire_targets.link_frames,
    "link_state": wire_targets.link_state,
    "manifests": stored_targets.manifests,
    "notes": stored_targets.notes,
    "packed_lists": stored_targets.packed_lists,
    "parquet_files": stored_targets.parquet_files,
    "queue_packets": wire_targets.queue_packets,
    "selectors": language_targets.selectors,
    "store_segments": stored_targets.store_segments,
    "topics": language_targets.topics,
    "websocket_frames": wire_targets.websocket_frames,
}
