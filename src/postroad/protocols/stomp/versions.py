"""The three versions of STOMP, and how client and server agree on one."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["SUPPORTED", "Version", "negotiate"]


class Version(IntEnum):
    """A version as a number that kernels can compare; `str()` gives the text of the protocol."""

    V1_0 = 10
    V1_1 = 11
    V1_2 = 12

    def __str__(self) -> str:
        return f"{self // 10}.{self % 10}"


SUPPORTED = ",".join(str(version) for version in Version)
"""The `version` header of an ERROR if there is no common version."""

_BY_TEXT = {str(version): version for version in Version}


def negotiate(accepted: str | None) -> Version | None:
    """Return the highest version of an `accept-version` header that is known here, or None.

    Without the header the client speaks 1.0, which does not have it.
    """
    if accepted is None:
        return Version.V1_0
    known = [_BY_TEXT[text] for part in accepted.split(",") if (text := part.strip()) in _BY_TEXT]
    return max(known, default=None)
