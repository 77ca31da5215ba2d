"""`DataFiles`: the rows of several files of one format, one file after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from hotrow.config import DataConfig, FeaturesConfig
from hotrow.trainer.data.batch import RawBatch
from hotrow.trainer.data.malformed import Malformed
from hotrow.trainer.data.opening import open_data

Paths = str | Path | Sequence[str | Path]
"""One file, or several."""


def each_path(paths: Paths) -> list[Path]:
    """Returns the paths of one file or several."""
    several = [paths] if isinstance(paths, str | Path) else paths
    return [Path(path) for path in several]


class DataFiles:
    """Labelled data files that were found."""

    def __init__(self, paths: Paths, data: DataConfig, features: FeaturesConfig) -> None:
        """Opens the files.

        Args:
            paths: the files, all with labels.
            data: their format.
            features: the features to read.

        Raises:
            NotFoundError, InvalidArgumentError, DataError: as `open_data`.
        """
        self._files = [
            open_data(path, data, features, require_labels=True) for path in each_path(paths)
        ]

    @property
    def malformed(self) -> Malformed:
        """The lines skipped so far by the newest pass over the files."""
        seen = [replace(file.malformed, path=str(file.path)) for file in self._files]
        first = next((one for one in seen if one.count), seen[0])
        return replace(first, count=sum(one.count for one in seen))

    def record_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows of all files; see `DataFile.record_batches`.

        Raises:
            DataError: as there, for each file by itself.
        """
        for file in self._files:
            yield from file.record_batches()

    def to_raw(self, batch: pa.RecordBatch) -> RawBatch:
        """Returns an Arrow batch of these files as a `RawBatch`."""
        return self._files[0].to_raw(batch)
