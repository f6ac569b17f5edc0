"""Reading a .tar.gz that anybody may have made.

A small reader of its own: it takes plain files and folders and the one extension that long names need, and refuses all
else before a byte of it is used.  Nothing it reads into memory is larger than `MANIFEST_LIMIT`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from jackfield.errors import VerificationFailed

__all__ = ["MANIFEST_LIMIT", "Member", "members"]

MANIFEST_LIMIT: Final = 128 << 20
_BLOCK: Final = 512
_CHUNK: Final = 256 * 1024
_EXTENSION_LIMIT: Final = 64 * 1024
_MOST_MEMBERS: Final = 5_000_000
_TAIL_LIMIT: Final = 1 << 20
_KINDS: Final = {
    b"1": "a hard link", b"2": "a link", b"3": "a device", b"4": "a device", b"6": "a named pipe",
    b"S": "a sparse file", b"L": "a name as GNU tar writes it", b"K": "a link as GNU tar writes it",
    b"g": "settings for all that follows",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """A file or folder.  `chunks` must be read to its end before the next member; `mtime` in whole seconds."""

    name: str
    folder: bool
    size: int
    mode: int
    mtime: int
    chunks: Iterator[bytes]


def members(file: BinaryIO, *, limit: int) -> Iterator[Member]:
    """The members one after the other; at the end, the archive is known to be whole.

    `limit`: bytes that all files together may have; an archive that claims more is refused where it does.

    Raises:
        VerificationFailed: it is cut off, damaged, no archive, or holds what none of ours does.
    """
    with gzip.GzipFile(fileobj=file, mode="rb") as stream:
        yield from _members(_Source(stream), limit)


class _Source:
    """The unpacked bytes.  Its methods raise `VerificationFailed` for whatever is wrong with them."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream

    def exactly(self, size: int) -> bytes:
        return b"".join(self._pieces(size))

    def content(self, size: int) -> Iterator[bytes]:
        yield from self._pieces(size)
        self.exactly(-size % _BLOCK)

    def only_zeros_follow(self) -> None:
        """Read to the very end, which is where the checksum of the compression lies."""
        read = 0
        while chunk := self._some(_CHUNK):
            read += len(chunk)
            if read > _TAIL_LIMIT or chunk.strip(b"\0"):
                raise VerificationFailed("something follows the archive's end", fix="use another backup")

    def _pieces(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            chunk = self._some(min(left, _CHUNK))
            if not chunk:
                raise _cut_off()
            left -= len(chunk)
            yield chunk

    def _some(self, most: int) -> bytes:
        try:
            return self._stream.read(most)
        except EOFError:
            raise _cut_off() from None
        except (gzip.BadGzipFile, zlib.error) as problem:
            text = f"the archive is damaged, or none: {problem}"
            raise VerificationFailed(text, fix="use another backup") from None


def _cut_off() -> VerificationFailed:
    return VerificationFailed("the archive is cut off", fix="use another backup, or copy it again")


def _members(source: _Source, limit: int) -> Iterator[Member]:
    total = count = 0
    while True:
        header = source.exactly(_BLOCK)
        if not header.strip(b"\0"):
            break
        extended: dict[str, str] = {}
        if header[156:157] == b"x":
            size = _number(_checked(header)[124:136])
            if size > _EXTENSION_LIMIT:
                raise VerificationFailed(f"the archive describes a file by {size:,} bytes", fix="use another backup")
            extended = _extended(b"".join(source.content(size)))
            header = source.exactly(_BLOCK)
        member = _member(_checked(header), extended, source)
        total += member.size
        count += 1
        if total > limit or count > _MOST_MEMBERS:
            raise VerificationFailed(
                f"the archive holds more than there is room for: over {total:,} bytes in {count:,} files; "
                f"{limit:,} bytes are free",
                fix="make room, or use another backup",
            )
        yield member
        for _ in member.chunks:  # whatever the caller left
            pass
    source.only_zeros_follow()


def _checked(header: bytes) -> bytes:
    try:
        stored = _number(header[148:156])
    except VerificationFailed:
        stored = -1
    if stored != sum(header[:148]) + 8 * 32 + sum(header[156:]) or header[257:262] != b"ustar":
        raise VerificationFailed("the archive is damaged: a header's checksum differs", fix="use another backup")
    return header


def _member(header: bytes, extended: dict[str, str], source: _Source) -> Member:
    name, kind = _string(header[:100]), header[156:157]
    if prefix := _string(header[345:500]):
        name = f"{prefix}/{name}"
    name = extended.get("path", name)
    if kind not in (b"0", b"\0", b"5"):
        what = _KINDS.get(kind, f"of kind {kind!r}")
        raise VerificationFailed(f"{name!r} in the archive is {what}, which no backup holds", fix="use another backup")
    folder = kind == b"5"
    size = _decimal(extended["size"]) if "size" in extended else _number(header[124:136])
    if folder and size:
        raise VerificationFailed(f"{name!r} in the archive is a folder with content", fix="use another backup")
    return Member(
        name=name.removesuffix("/") if folder else name,
        folder=folder,
        size=size,
        mode=_number(header[100:108]) & 0o777,
        mtime=_number(header[136:148]),
        chunks=source.content(size),
    )


def _extended(data: bytes) -> dict[str, str]:
    """The records `length key=value\\n` of a pax header."""
    found: dict[str, str] = {}
    while data:
        length, _, _ = data.partition(b" ")
        end = int(length) if length.isdigit() and len(length) < 8 else 0
        record = data[len(length) + 1 : end]
        key, equals, value = record[:-1].partition(b"=")
        if not end or end > len(data) or not record.endswith(b"\n") or not equals:
            raise VerificationFailed(
                "the archive is damaged: a file's description can't be read", fix="use another one"
            )
        found[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        data = data[end:]
    return found


def _string(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _number(field: bytes) -> int:
    text = field.strip(b" \0")
    if text.strip(b"01234567"):
        raise VerificationFailed(f"the archive is damaged: {field!r} is no number", fix="use another backup")
    return int(text or b"0", 8)


def _decimal(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise VerificationFailed(f"the archive is damaged: {text!r} is no size", fix="use another backup")
    return int(text)
