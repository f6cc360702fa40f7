"""Header lines in each version of STOMP, for the few frames that are handled one by one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from postroad.messages.headers import escape, unescape
from postroad.protocols.stomp.versions import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["header_lines", "part", "read_lines"]

_NOT_IN_1_0 = re.compile(r"[\n\r]")


def part(text: str, version: Version | None, *, name: bool = False) -> str:
    r"""Return a name or a value, escaped for a version; None is for CONNECT and CONNECTED, which escape nothing.

    Without escapes, a line end becomes a blank, and so does a colon in a name. NUL becomes a blank in every version. So
    no header can end its line or its frame.
    """
    text = text.replace("\0", " ")
    if version is None or version is Version.V1_0:
        text = _NOT_IN_1_0.sub(" ", text)
        return text.replace(":", " ") if name else text
    written = escape(text)
    # 1.1 has no escape for CR, which stays as it is.
    return re.sub(r"\\(.)", _bare_return, written) if version is Version.V1_1 and "\r" in text else written


def _bare_return(found: re.Match[str]) -> str:
    return "\r" if found[1] == "r" else found[0]


def header_lines(pairs: Iterable[tuple[str, str]], version: Version | None) -> bytes:
    """Return the header lines of these pairs."""
    lines = [f"{part(name, version, name=True)}:{part(value, version)}\n" for name, value in pairs]
    return "".join(lines).encode("utf-8", "replace")


def read_lines(block: bytes, version: Version | None) -> dict[str, str]:
    """Return the headers of a block of lines, the first of each name; None is for CONNECT and CONNECTED.

    Raises:
        ValueError: a line has no colon, an escape is not valid, or it is not UTF-8.
    """
    found: dict[str, str] = {}
    for line in block.split(b"\n")[:-1]:
        if version is not Version.V1_1:
            line = line.removesuffix(b"\r")
        name, colon, value = line.partition(b":")
        if not colon:
            raise ValueError("a header line has no colon")
        if version is Version.V1_0:
            value = value.lstrip(b" ")
        elif version is not None:
            name, value = unescape(name), unescape(value)
        found.setdefault(name.decode(), value.decode())
    return found
