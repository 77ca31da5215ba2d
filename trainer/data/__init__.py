"""Data files in, batches of keys out: readers, encoding, shuffled streams, the generator.

Nothing here imports TensorFlow.  Symbols in this package: `B` rows of a batch, `N` values of a
column in a batch (`N == B` unless the column is ragged).
"""

from __future__ import annotations

from hotrow.trainer.data.batch import Batch, Keys, Ragged, RawBatch
from hotrow.trainer.data.columns import Column, ColumnKind
from hotrow.trainer.data.data_file import DataFile
from hotrow.trainer.data.data_files import Paths, each_path
from hotrow.trainer.data.encode import encode
from hotrow.trainer.data.errors import DataError
from hotrow.trainer.data.malformed import Malformed
from hotrow.trainer.data.opening import open_data
from hotrow.trainer.data.part import WHOLE, Part
from hotrow.trainer.data.row_estimate import expected_rows
from hotrow.trainer.data.stream import BatchStream

__all__ = [
    "WHOLE",
    "Batch",
    "BatchStream",
    "Column",
    "ColumnKind",
    "DataError",
    "DataFile",
    "Keys",
    "Malformed",
    "Part",
    "Paths",
    "Ragged",
    "RawBatch",
    "each_path",
    "encode",
    "expected_rows",
    "open_data",
]
