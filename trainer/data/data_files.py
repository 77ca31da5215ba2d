"""`DataFiles`: the rows of several files of one format, one file after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from hotrow.config import DataConfig, FeaturesConfig
from hotrow.trainer.data.batch import RawBatch
from hotrow.trainer.data.data_file import DataFile
from hotrow.trainer.data.errors import DataError, EmptyFileError
from hotrow.trainer.data.malformed import Malformed, all_malformed
from hotrow.trainer.data.opening import open_data
from hotrow.trainer.data.parquet import is_parquet, parquet_rows
from hotrow.trainer.data.pass_check import PassCheck, no_row
from hotrow.trainer.data.piece import Piece
from hotrow.trainer.data.row_skip import RowSkip

Paths = str | Path | Sequence[str | Path]
"""One file, or several."""


def each_path(paths: Paths) -> list[Path]:
    """Returns the paths of one file or several."""
    several = [paths] if isinstance(paths, str | Path) else paths
    return [Path(path) for path in several]


def with_rows(paths: Sequence[Path]) -> Iterator[Path]:
    """Yields the paths without the Parquet files that have no row: these may lack their types."""
    return (path for path in paths if not is_parquet(path) or parquet_rows(path))


class DataFiles:
    """Labelled data files that were found; one of several may be empty.

    Attributes:
        passed: the rows and positive labels of the newest pass, so far.
    """

    def __init__(
        self,
        paths: Paths,
        data: DataConfig,
        features: FeaturesConfig,
        pieces: Sequence[Piece] | None = None,
    ) -> None:
        """Opens the files.

        Args:
            paths: the files, all with labels.
            data: their format.
            features: the features to read.
            pieces: read these parts of them only; there may be none. None: all.

        Raises:
            NotFoundError, InvalidArgumentError, DataError: as `open_data`.
        """
        self._paths = each_path(paths)
        self._data = data
        self._is_whole = pieces is None
        self.passed = PassCheck(self._paths, data)
        if pieces is not None:
            self._files = _open_pieces(pieces, data, features)
            return
        self._files = []
        several = len(self._paths) > 1
        for path in with_rows(self._paths) if several else self._paths:
            try:
                self._files.append(open_data(path, data, features, require_labels=True))
            except EmptyFileError:
                if not several:
                    raise
        if not self._files:
            raise DataError(no_row(self._paths))

    @property
    def malformed(self) -> Malformed:
        """The lines skipped so far by the newest pass over the files."""
        seen = [replace(file.malformed, path=str(file.path)) for file in self._files]
        return all_malformed(seen)

    def require_rows(self) -> None:
        """Reads the first rows of each file.

        Raises:
            DataError: no file has a row, or one cannot be read that far.
        """
        check = PassCheck(self._paths, self._data.model_copy(update={"positive": None}))
        for file in self._files:
            first = next((batch for batch in file.rows() if batch.num_rows), None)
            if first is not None:
                check.add(first, file.has_labels)
        check.end(self.malformed)

    def record_batches(self, skip_rows: int = 0) -> Iterator[pa.RecordBatch]:
        """Yields the rows of all files; see `DataFile.record_batches`.

        Args:
            skip_rows: leave out this many first rows, which an earlier pass has read; see
                `DataFile.rows`.

        Raises:
            DataError: as there, for all files together. A pass that leaves out rows, or reads
                parts of files, may have none, with any label.
        """
        check = self.passed = PassCheck(self._paths, self._data)
        skip = RowSkip(skip_rows)
        for file in self._files:
            for batch in file.rows(skip):
                check.add(batch, file.has_labels)
                yield batch
        if not skip_rows and self._is_whole:
            check.end(self.malformed)

    def to_raw(self, batch: pa.RecordBatch) -> RawBatch:
        """Returns an Arrow batch of these files as a `RawBatch`."""
        return self._files[0].to_raw(batch)


def _open_pieces(
    pieces: Sequence[Piece], data: DataConfig, features: FeaturesConfig
) -> list[DataFile]:
    opened: dict[Path, DataFile] = {}
    files = []
    for piece in pieces:
        if piece.path not in opened:
            try:
                opened[piece.path] = open_data(piece.path, data, features, require_labels=True)
            except EmptyFileError:
                continue
        file = opened[piece.path]
        files.append(file if piece.span is None else file.part(piece.span))
    return files
