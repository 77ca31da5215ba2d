"""Blocks of whole lines from a plain, gzip, zstd or bzip2 file."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hotrow.errors import HotrowError, NotFoundError
from hotrow.trainer.data.errors import DataError, EmptyFileError
from hotrow.trainer.data.piece import Span
from hotrow.trainer.data.read_share import ReadShare
from hotrow.trainer.data.row_count import count_newlines
from hotrow.trainer.data.row_skip import RowSkip

BLOCK_BYTES = 2 << 20  # a block and its columns fit in a core's cache
COUNTED_BLOCK_BYTES = 256 << 10
"""Of lines that are only counted: allocating larger blocks takes longer than counting."""
MAX_LINE_BYTES = 64 << 20
_LOOKED_AT_BYTES = 64 << 10  # at a time, for the end of a line

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_SUFFIX = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")  # what Arrow takes as the end of a line


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file.

    Attributes:
        data: the lines; all but the last of a file end in a newline.
        first_line: the 1-based number of the first of them.
    """

    data: bytes
    first_line: int

    def rows(self) -> list[tuple[int, bytes]]:
        """Returns number and text of every line that is not empty, in order."""
        lines = _LINE_END.split(self.data)
        return [(self.first_line + i, line) for i, line in enumerate(lines) if line]


def line_blocks(
    path: Path,
    skip_lines: int = 0,
    block_bytes: int = BLOCK_BYTES,
    share: ReadShare | None = None,
    skip: RowSkip | None = None,
    *,
    span: Span | None = None,
) -> Iterator[LineBlock]:
    """Yields the lines of `path` in blocks of about `block_bytes`, after the first `skip_lines`.

    Lines are numbered from 1, with `span` from its first line; see `lines_before`.

    Args:
        path: the file.
        skip_lines: number of lines to skip.
        block_bytes: approximate bytes of text in a block.
        share: updated with the share of the file that was read.
        skip: while it has rows left, blocks have about `COUNTED_BLOCK_BYTES`, if that is less.
        span: only the lines that begin in these bytes; the file is not compressed. None: all.

    Raises:
        NotFoundError: the file does not exist.
        DataError: it cannot be read, its compression is damaged or cut off, or a line is longer
            than `MAX_LINE_BYTES`.
    """
    number = 1
    skip = RowSkip() if skip is None else skip
    for data in _whole_lines(path, block_bytes, share, skip, span):
        count = count_newlines(data)
        first = number
        number += count
        while skip_lines and data:
            data = data.partition(b"\n")[2]
            first += 1
            skip_lines -= 1
        if data:
            yield LineBlock(data, first)


def first_line(path: Path) -> str:
    """Returns the first line of `path` without its line end.

    Raises:
        NotFoundError, DataError: as `line_blocks`.
        EmptyFileError: the file has no line.
    """
    for data in _whole_lines(path, 1 << 16, None, RowSkip()):
        line = data.partition(b"\n")[0].rstrip(b"\r")
        return line.decode("utf-8", errors="replace")
    raise EmptyFileError(f"{path} is empty; a data file has at least one line")


def lines_before(path: Path, offset: int) -> int:
    """Returns how many lines a file that is not compressed has before a span; counts them.

    Args:
        path: the file.
        offset: where the span starts.

    Raises:
        NotFoundError, DataError: as `line_blocks`.
    """
    lines = 0
    with _opened(path) as (file, _):
        left = _line_start(file, offset)
        file.seek(0)
        while chunk := file.read(min(left, COUNTED_BLOCK_BYTES)):
            lines += count_newlines(chunk)
            left -= len(chunk)
    return lines


def text_size(path: Path) -> tuple[int, bool]:
    """Returns the bytes of a file on disk, and whether it is compressed.

    Raises:
        NotFoundError, DataError: as `line_blocks`.
    """
    with _opened(path) as (file, stream):
        return int(file.size()), stream is not file


def expected_lines(path: Path, read_bytes: int = 4 * BLOCK_BYTES) -> float:
    """Returns about how many lines a file has, from its beginning and size; exact for small files.

    Args:
        path: the file.
        read_bytes: bytes of text to read.

    Raises:
        NotFoundError, DataError: as `line_blocks`.
    """
    lines = size = 0
    with _opened(path) as (file, stream):
        while chunk := stream.read(BLOCK_BYTES):
            lines += chunk.count(b"\n")
            size += len(chunk)
            if size >= read_bytes:
                # The decompressor has read up to here, and one buffer more.
                return max(float(lines * file.size() / file.tell()), float(lines))
    return float(lines)


def _whole_lines(
    path: Path,
    block_bytes: int,
    share: ReadShare | None,
    skip: RowSkip,
    span: Span | None = None,
) -> Iterator[bytes]:
    """Yields the bytes of `path` cut after line ends, without a byte order mark."""
    tail = b""
    start = span is None or span[0] == 0
    for read in _chunks(path, block_bytes, share, skip, span):
        chunk = read.removeprefix(_BOM) if start else read
        start = False
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join((tail, memoryview(chunk)[:cut]))
            tail = chunk[cut:]
            continue
        tail += chunk
        if len(tail) > MAX_LINE_BYTES:
            raise DataError(
                f"{path}: a line is longer than {MAX_LINE_BYTES} bytes; is this a text file?"
            )
    if tail:
        yield tail


def _chunks(
    path: Path,
    block_bytes: int,
    share: ReadShare | None,
    skip: RowSkip,
    span: Span | None,
) -> Iterator[bytes]:
    with _opened(path) as (file, stream):
        begin, end = 0, file.size()
        left: float = math.inf  # of the text
        if span is not None:
            begin, end = (_line_start(file, offset) for offset in span)
            left = end - begin
            file.seek(begin)
        counted_bytes = min(block_bytes, COUNTED_BLOCK_BYTES)
        while chunk := stream.read(int(min(left, counted_bytes if skip.left else block_bytes))):
            left -= len(chunk)
            if share is not None:
                share.set(file.tell() - begin, end - begin)
            yield chunk


def _line_start(file: pa.OSFile, offset: int) -> int:
    """Returns where the first line begins that begins at `offset` or later."""
    size = int(file.size())
    if offset <= 0 or offset >= size:
        return min(max(offset, 0), size)
    position = offset - 1
    file.seek(position)
    while chunk := file.read(_LOOKED_AT_BYTES):
        found = chunk.find(b"\n")
        if found >= 0:
            return position + int(found) + 1
        position += len(chunk)
    return size


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[pa.OSFile, pa.NativeFile]]:
    """Opens a file; yields it and its text, which is the file itself unless it is compressed."""
    try:
        compression = _compression(path)
        with pa.OSFile(str(path)) as file:
            stream = file if compression is None else pa.CompressedInputStream(file, compression)
            with stream:
                yield file, stream
    except HotrowError:
        raise
    except FileNotFoundError as err:
        raise NotFoundError(f"data file {path} does not exist") from err
    except IsADirectoryError as err:
        raise DataError(f"{path} is a directory; give a data file") from err
    except (OSError, pa.ArrowException) as err:
        reason = (getattr(err, "strerror", None) or str(err)).rstrip(".")
        raise DataError(f"{path} cannot be read: {reason}; is it cut off or damaged?") from err


def _compression(path: Path) -> str | None:
    """Returns the compression of a file by its first bytes; None: not compressed.

    Raises:
        DataError: the name implies a compression that the content does not have.
    """
    with path.open("rb") as file:
        head = file.read(4)
    found = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    promised = _SUFFIX.get(path.suffix)
    if promised and head and found != promised:
        raise DataError(f"{path} is named {path.suffix} but is not {promised} data; rename it")
    return found
