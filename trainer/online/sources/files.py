"""`FilePartitions`: a log that grows, or a folder of files that grow or appear.

A file is a partition. Files that were rotated, cut, replaced or removed are noticed by what they
hold; see `FileList`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from hotrow.config import DataConfig
from hotrow.errors import UnavailableError
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.decoder import Decoder
from hotrow.trainer.online.partitions import Chunk, Offset, Offsets, Polled
from hotrow.trainer.online.source import Events, Lag
from hotrow.trainer.online.sources.file_list import FileList
from hotrow.trainer.online.sources.row_file import RowFile
from hotrow.trainer.online.sources.text_file import TextFile

_LOOK_SECONDS = 0.02
_MOST_FILES = 64
"""Files that are merged at once: the first ones by name that have events."""


class FilePartitions:
    """See the module. An offset is one of `TextFile`; or of `RowFile`, with `bytes`."""

    def __init__(
        self,
        path: Path,
        data: DataConfig,
        decoder: Decoder,
        dead_letters: DeadLetters,
        report: Callable[[str], None],
    ) -> None:
        """Binds a path.

        Args:
            path: a folder, or a text file that grows.
            data: format of Parquet files' columns.
            decoder: of the run.
            dead_letters: for bad rows of Parquet files.
            report: called with a line for who runs the trainer.

        Raises:
            InvalidArgumentError: the folder of the path does not exist.
        """
        self._files = FileList(path, report)
        self._data = data
        self._decoder = decoder
        self._dead_letters = dead_letters
        self._chunks: dict[str, tuple[Offset, Iterator[Chunk]]] = {}

    def poll(
        self, offsets: Mapping[str, Offset], busy: Collection[str], wait_seconds: float
    ) -> Polled:
        """See `Partitions`."""
        deadline = time.monotonic() + wait_seconds
        while True:
            found, gone = self._files.look(offsets, busy)
            chunks: dict[str, Chunk] = {}
            for key in sorted(found.keys() - set(busy)):
                if len(chunks) + len(busy) >= _MOST_FILES:
                    break
                chunk = self._next(key, found[key], offsets.get(key))
                if chunk is not None:
                    chunks[key] = chunk
            left = deadline - time.monotonic()
            if chunks or gone or left <= 0:
                return Polled(chunks, gone)
            time.sleep(min(_LOOK_SECONDS, left))

    def no_events(self) -> Events:
        """See `Partitions`."""
        return self._decoder.no_events()

    def lag(self, offsets: Mapping[str, Offset]) -> Lag:
        """Returns whether anything was not read when the files were last looked at."""
        left = [
            key
            for key, size in self._files.sizes().items()
            if key not in offsets or size > offsets[key].get("at", size) or not offsets[key]["end"]
        ]
        return Lag(events=None if left else 0, seconds=None if left else 0.0)

    def note_saved(self, offsets: Mapping[str, Offset]) -> None:
        """Does nothing: files have no consumers."""

    def close(self) -> None:
        """Closes files."""
        self._chunks.clear()

    def _next(self, key: str, path: Path, offset: Offset | None) -> Chunk | None:
        mark = self._files.mark(key)
        try:
            if mark.first is not None:
                if offset is not None and self._files.size_of(key) == offset["at"]:
                    return None
                return TextFile(mark, self._decoder).next(path, offset)
            if offset is not None and offset["end"]:
                return None
            return self._next_rows(key, path, offset)
        except FileNotFoundError:  # it was renamed a moment ago
            return None
        except OSError as err:
            raise UnavailableError(f"online.source: {path}: {err.strerror}") from err

    def _next_rows(self, key: str, path: Path, offset: Offset | None) -> Chunk | None:
        """Returns the next rows of a Parquet file; the last chunk has none."""
        size = self._files.mark(key).size
        at, chunks = self._chunks.pop(key, (None, iter(())))
        if at != offset or offset is None:
            file = RowFile(path, self._data, self._decoder, self._dead_letters)
            chunks = file.chunks(offset)
        chunk = next(chunks)

        def with_size(rows: dict[str, Any]) -> dict[str, Any]:
            return {**rows, "bytes": size}

        end = with_size(chunk.end)
        self._chunks[key] = end, chunks
        numbers = range(len(chunk.behind))
        behind = Offsets(numbers, lambda i: with_size(chunk.behind[i]))
        start = with_size({"row": 0, "bad": 0, "end": False}) if offset is None else None
        return Chunk(chunk.events, behind, end, start)
