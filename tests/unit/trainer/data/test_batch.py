"""Raw batches, as numpy and as Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hotrow.trainer.data import Batch, Ragged, RawBatch

RAW = RawBatch(
    arrays={
        "x": np.array([1.0, np.nan], np.float32),
        "t": pa.array(["a", None]),
        "b": np.array([b"\xff", b""], dtype=object),
        "ids": Ragged(np.array([3, 4]), np.array([0, 2, 2])),
    },
    labels=None,
    size=2,
)


def test_columns_are_numpy_and_strings_are_bytes() -> None:
    assert RAW.columns["t"] is RAW.columns["t"], "made once"
    assert RAW.array("t").tolist() == [b"a", b""]
    assert RAW.array("x") is RAW.arrays["x"]
    assert isinstance(RAW.columns["ids"], Ragged)


def test_text_of_a_client_is_taken_as_it_is() -> None:
    text = RAW.text("b").cast(pa.binary())
    assert text.to_pylist() == [b"\xff", b""]


def test_a_ragged_column_is_no_array() -> None:
    with pytest.raises(TypeError, match="column 'ids' is ragged; read it from `columns`"):
        RAW.array("ids")


def test_a_batch_without_any_dense_column_has_its_size() -> None:
    assert Batch(np.empty((7, 0), np.float32), {}, None).size == 7
