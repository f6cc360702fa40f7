"""Bits of mixed widths and numbers of variable length, written and read one by one, low bit first."""

from __future__ import annotations

from postroad.matching.encoding.errors import EncodingError

__all__ = ["BitReader", "ByteReader", "index_width", "varint", "zigzag"]

_MAX_VARINT_BYTES = 10  # 64 bits in groups of seven


def index_width(count: int) -> int:
    """Bits of an index into `count` things."""
    return max(count - 1, 0).bit_length()


def varint(number: int) -> bytes:
    """An unsigned number in groups of seven bits, low group first; the top bit says that more follow."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> int:
    """A signed number as an unsigned one that is small when its magnitude is."""
    return number << 1 if number >= 0 else (-number << 1) - 1


class ByteReader:
    """Reads bytes, variable numbers and texts; refuses to read past the end."""

    def __init__(self, data: bytes, end: int) -> None:
        self.data = data
        self.at = 0
        self.end = end

    def take(self, size: int, what: str) -> bytes:
        """The next bytes."""
        if size > self.end - self.at:
            raise EncodingError(f"offset {self.at}: {what} needs {size} bytes, {self.end - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, what: str) -> int:
        """The next variable number."""
        total = 0
        for group in range(_MAX_VARINT_BYTES):
            byte = self.take(1, what)[0]
            total |= (byte & 0x7F) << (7 * group)
            if byte < 0x80:
                if group and not byte:
                    raise EncodingError(f"offset {self.at}: {what} is longer than necessary: not canonical")
                return total
        raise EncodingError(f"offset {self.at}: {what} has more than {_MAX_VARINT_BYTES} bytes")

    def signed(self, what: str) -> int:
        """The next variable number, back from `zigzag`."""
        number = self.number(what)
        return -((number + 1) >> 1) if number & 1 else number >> 1

    def text(self, what: str) -> str:
        """The next text: its length, then UTF-8."""
        raw = self.take(self.number(what), what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise EncodingError(f"offset {self.at - len(raw)}: {what} is not UTF-8") from None


class BitReader:
    """Reads numbers of given widths from the bits of some bytes; `start` names their place in errors."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self.at = 0
        self._start = start

    def take(self, width: int, what: str) -> int:
        """The next number of `width` bits."""
        if self.at + width > 8 * len(self._data):
            raise EncodingError(f"{self.place()}: {what} reaches past the end")
        self.at += width
        return self.peek(self.at - width, width)

    def peek(self, at: int, width: int) -> int:
        """The number of `width` bits at a place that was read before."""
        bits = int.from_bytes(self._data[at // 8 : (at + width + 7) // 8], "little") >> at % 8
        return bits & ((1 << width) - 1)

    def ends_here(self) -> bool:
        """Whether nothing is left but zeros to a whole byte."""
        left = 8 * len(self._data) - self.at
        return left < 8 and not self.peek(self.at, left)

    def place(self) -> str:
        """The offset of the reader."""
        return f"offset {self._start + self.at // 8}, bit {self.at % 8}"
