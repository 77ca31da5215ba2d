"""`TextFile`: the whole lines of a file that grows. An offset is `{"at", "first", "end"}`.

`at` is the number of bytes that were read, `first` the number of first bytes that distinguish
it from other files, and `end` whether it had no more then.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hotrow.errors import DataLossError
from hotrow.trainer.data.lines import MAX_LINE_BYTES
from hotrow.trainer.online.decoder import Decoder
from hotrow.trainer.online.partitions import Chunk, Offsets
from hotrow.trainer.online.records import Records
from hotrow.trainer.online.sources.file_marks import FileMark

BLOCK_BYTES = 1 << 20


class TextFile:
    """Reads the lines of a file, which may be renamed meanwhile."""

    def __init__(self, mark: FileMark, decoder: Decoder) -> None:
        """Binds a file."""
        self._mark = mark
        self._decoder = decoder

    def next(self, path: Path, offset: dict[str, Any] | None) -> Chunk | None:
        """Returns the next events; None: there is no whole line, or another file by now.

        Args:
            path: where the file is now.
            offset: how far it was read; None: nothing was.

        Raises:
            DataLossError: a line is too long.
            OSError: it cannot be read.
        """
        at = 0 if offset is None else int(offset["at"])
        with path.open("rb") as file:
            if not self._mark.fits_opened(file):
                return None  # it was renamed a moment ago; the next look finds it
            header = b""
            if self._decoder.needs_header:
                file.seek(0)
                header = file.readline(MAX_LINE_BYTES)
                at = max(at, len(header))
            file.seek(at)
            data = _whole_lines(file, path)
            size = file.seek(0, 2)
        end = at + len(data)
        if not data and (offset is not None and offset["at"] == at):
            return None
        lines = data.split(b"\n")[:-1]
        behind = np.cumsum([len(line) + 1 for line in lines]) + at if lines else np.zeros(0)
        starts = [at, *behind.tolist()]
        full = [index for index, line in enumerate(lines) if line.strip()]
        records = Records(
            [lines[index].removesuffix(b"\r") for index in full],
            np.full(len(full), time.time()),
            lambda index: {"file": str(path), "byte": int(starts[full[index]])},
        )
        decoded = self._decoder.decode(records, header.rstrip(b"\r\n"))
        ends = [starts[full[index] + 1] for index in decoded.kept.tolist()]
        first = self._mark.first

        def offset_at(byte: int) -> dict[str, Any]:
            return {"at": int(byte), "first": first, "end": byte >= size}

        start = None if offset is not None else {"at": 0, "first": first, "end": False}
        return Chunk(decoded.events, Offsets(ends, offset_at), offset_at(end), start)


def _whole_lines(file: BinaryIO, path: Path) -> bytes:
    """Returns about `BLOCK_BYTES` of whole lines from where the file is; b"": there is none."""
    block = BLOCK_BYTES
    while True:
        data = file.read(block)
        cut = data.rfind(b"\n") + 1
        if cut or len(data) < block:
            return data[:cut]
        if block > MAX_LINE_BYTES:
            raise DataLossError(
                f"online.source: {path} has a line of more than {MAX_LINE_BYTES} bytes at byte "
                f"{file.tell() - len(data):,}; is this a text file?"
            )
        file.seek(-len(data), 1)
        block *= 4
