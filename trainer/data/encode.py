"""`encode`: converts the columns of a file to the keys of a model.

The rules, which an exported graph repeats with TensorFlow's ops:

- a hashed text is the FarmHash Fingerprint64 of `key_prefix + text`; a missing text is "";
- a bucketized number `x` is the count of its boundaries `<= x`, both float32; a missing one is
  `hotrow.config.MISSING_BUCKET`;
- an integer is its own key; a missing one is `MISSING_KEY`;
- a text with a separator is cut at each separator, empty parts are dropped, and the rest is
  treated like texts or integers: a row may have no key;
- the values of a list are treated like texts or integers, empty texts are dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotrow import _native
from hotrow.config import MISSING_BUCKET, FeaturesConfig, SparseColumn
from hotrow.trainer.data.batch import Batch, Floats, Ints, Keys, Ragged, RawBatch


def encode(raw: RawBatch, features: FeaturesConfig) -> Batch:
    """Returns the dense matrix and the keys of a raw batch.

    Args:
        raw: B rows with the columns that `features` names.
        features: dense and sparse columns.
    """
    dense = features.dense_columns()
    matrix = np.empty((raw.size, len(dense)), dtype=np.float32)
    for i, number in enumerate(dense):
        matrix[:, i] = raw.array(number.name)
    sparse = {column.name: _keys(raw, column) for column in features.sparse_columns()}
    return Batch(matrix, sparse, raw.labels, weights=raw.weights)


def fingerprint_keys(text: pa.Array, prefix: bytes) -> Ints:
    """Returns int64 [N], the Fingerprint64 of `prefix` + each of N texts; null counts as ""."""
    if text.null_count:
        text = text.fill_null("")
    wide = pa.types.is_large_string(text.type) or pa.types.is_large_binary(text.type)
    if not len(text):
        return np.empty(0, dtype=np.int64)
    _, offset_buffer, data_buffer = text.buffers()
    offsets: Any = np.frombuffer(offset_buffer, dtype=np.int64 if wide else np.int32)
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", dtype=np.uint8)
    keys: Ints = _native.fingerprint64_arrow(
        offsets[text.offset : text.offset + len(text) + 1], data, prefix
    )
    return keys


def bucket_keys(numbers: Floats, boundaries: tuple[float, ...]) -> Ints:
    """Returns int64 [N]: boundaries <= x, compared as float32; `MISSING_BUCKET` where x is NaN.

    Numbers below float32's smallest normal one are 0, as TensorFlow's threads take them.
    """
    bounds = np.asarray(boundaries, dtype=np.float32)
    flushed = np.where(np.abs(numbers) < np.finfo(np.float32).tiny, np.float32(0), numbers)
    keys = np.searchsorted(bounds, flushed, side="right").astype(np.int64)
    keys[np.isnan(numbers)] = MISSING_BUCKET
    return keys


def _keys(raw: RawBatch, column: SparseColumn) -> Keys:
    values = raw.arrays[column.name]
    if isinstance(values, Ragged):
        keys = values.values
        if not isinstance(keys, np.ndarray):
            keys = fingerprint_keys(keys, column.key_prefix)
        return Keys(keys, values.row_splits, values.weights)
    if column.boundaries is not None:
        return Keys(bucket_keys(raw.array(column.name), column.boundaries))
    if column.separator is not None:
        text = raw.text(column.name)
        if column.hash:
            parts, row_splits = split_parts(text, column.separator)
            return Keys(fingerprint_keys(parts, column.key_prefix), row_splits)
        # Blanks around an integer are ignored; blanks inside a text are not.
        text = pc.replace_substring(text, " ", "")
        parts, row_splits = split_parts(text, column.separator)
        return Keys(pc.cast(parts, pa.int64()).to_numpy(), row_splits)
    if column.hash:
        return Keys(fingerprint_keys(raw.text(column.name), column.key_prefix))
    return Keys(raw.array(column.name).astype(np.int64, copy=False))


def split_parts(text: pa.Array, separator: str) -> tuple[pa.Array, Ints]:
    """Returns the parts of B texts that are not empty, string [N], and int64 [B + 1] row splits."""
    lists = pc.split_pattern(text, separator)
    parts = lists.flatten()
    kept = pc.not_equal(parts, "")
    before = np.concatenate([[0], np.cumsum(kept.to_numpy(zero_copy_only=False), dtype=np.int64)])
    offsets = lists.offsets.to_numpy()
    return parts.filter(kept), before[offsets - offsets[0]]
