"""Encoding raw columns into keys, against TensorFlow's own ops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow.config import CRITEO_DENSE, CRITEO_SPARSE, MISSING_BUCKET, DataConfig, FeaturesConfig
from hotrow.trainer.data import RawBatch, encode, open_data
from hotrow.trainer.data.encode import bucket_keys, fingerprint_keys, split_parts

Write = Callable[..., Path]
LOG_BOUNDARIES = (
    FeaturesConfig.model_validate({"sparse": {"columns": ["x"], "dim": 1, "buckets": "log"}})
    .sparse_columns()[0]
    .boundaries
)


def tf_fingerprint(texts: list[bytes], prefix: bytes) -> list[int]:
    """Returns the keys of texts as an exported graph computes them."""
    if not texts:
        return []
    prefixed = tf.strings.join([tf.constant(prefix), tf.constant(texts)])
    keys: list[int] = tf.bitcast(tf.fingerprint(prefixed), tf.int64).numpy().tolist()
    return keys


@settings(deadline=None)
@given(
    texts=st.lists(st.one_of(st.none(), st.binary(max_size=100))),
    start=st.integers(0, 3),
    wide=st.booleans(),
)
def test_texts_become_the_fingerprints_of_a_graph(
    texts: list[bytes | None], start: int, wide: bool
) -> None:
    array = pa.array(texts, pa.large_binary() if wide else pa.binary()).slice(start)
    expected = tf_fingerprint([text or b"" for text in texts[start:]], b"C1\x1f")
    if not wide:
        array = array.cast(pa.string(), safe=False)
    else:
        array = array.cast(pa.large_string(), safe=False)
    assert fingerprint_keys(array, b"C1\x1f").tolist() == expected


def test_criteo_rows_become_the_keys_of_a_graph(shared: Path) -> None:
    features = FeaturesConfig.model_validate(
        {
            "dense": {"columns": list(CRITEO_DENSE), "transform": "log"},
            "sparse": {"columns": list(CRITEO_SPARSE), "dim": 8},
        }
    )
    path = shared / "data/criteo_head10k/criteo_head10k.tsv.gz"
    raw = next(open_data(path, DataConfig(format="criteo", train="-"), features).raw_batches(500))
    batch = encode(raw, features)
    assert batch.size == 500
    assert batch.dense.shape == (500, 13)
    np.testing.assert_array_equal(batch.dense[:, 12], raw.array("I13"))
    assert np.isnan(batch.dense).any()
    for name in CRITEO_SPARSE:
        keys = batch.sparse[name]
        assert keys.row_splits is None
        expected = tf_fingerprint(list(raw.array(name)), name.encode() + b"\x1f")
        assert keys.keys.tolist() == expected


FLOATS = st.one_of(
    st.floats(width=32, allow_infinity=False),
    st.sampled_from([np.float32(b) for b in LOG_BOUNDARIES or ()]).map(float),
    st.integers(-5, 10**6).map(float),
)


@settings(deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=50))
def test_buckets_of_a_graph_are_the_same_bit_for_bit(numbers: list[float]) -> None:
    values = np.array(numbers, np.float32)
    boundaries = LOG_BOUNDARIES or ()
    bounds = tf.constant(boundaries, tf.float32)
    # Threads of TensorFlow flush denormals, others do not; the exported graph leaves it to neither.
    values_there = tf.constant(np.where(np.abs(values) < np.finfo(np.float32).tiny, 0, values))
    graph = tf.where(
        tf.math.is_nan(values),
        tf.constant(MISSING_BUCKET, tf.int64),
        tf.searchsorted(bounds, values_there, side="right", out_type=tf.int64),
    )
    assert bucket_keys(values, boundaries).tolist() == graph.numpy().tolist()


def test_log_buckets_are_the_counts_of_boundaries_below() -> None:
    values = np.array([np.nan, -3, 0, 0.5, 1, 2, 3, 1000, 1e30], np.float32)
    keys = bucket_keys(values, LOG_BOUNDARIES or ())
    assert keys.tolist() == [-1, 0, 1, 1, 2, 3, 4, 3 + int(np.log(1000) ** 2), 432]


def test_a_number_may_be_dense_and_bucketized_at_once(write: Write) -> None:
    features = FeaturesConfig.model_validate(
        {
            "dense": {"columns": ["age"]},
            "sparse": {"columns": ["age"], "dim": 4, "buckets": [18.0, 65.0]},
        }
    )
    path = write("a.csv", "age,label\n17.9,1\n18,0\n,1\n99,0\n")
    file = open_data(path, DataConfig(format="csv", train="-"), features)
    batch = encode(next(file.raw_batches(9)), features)
    assert batch.sparse["age"].keys.tolist() == [0, 1, MISSING_BUCKET, 2]
    np.testing.assert_array_equal(batch.dense[:, 0], np.array([17.9, 18, np.nan, 99], np.float32))


@settings(deadline=None)
@given(
    texts=st.lists(st.text(st.sampled_from("ab|"), max_size=6), min_size=1),
    start=st.integers(0, 2),
)
def test_a_separated_text_is_split_as_in_a_graph(texts: list[str], start: int) -> None:
    array = pa.array(texts).slice(start)
    parts, row_splits = split_parts(array, "|")
    rows = [[part for part in text.split("|") if part] for text in texts[start:]]
    assert parts.to_pylist() == [part for row in rows for part in row]
    assert row_splits.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
    if rows:
        ragged = tf.strings.split(tf.constant(texts[start:]), "|")
        graph = tf.ragged.boolean_mask(ragged, tf.not_equal(ragged, ""))
        assert row_splits.tolist() == graph.row_splits.numpy().tolist()
        assert [part.encode() for row in rows for part in row] == graph.flat_values.numpy().tolist()


@pytest.mark.parametrize("hashed", [True, False], ids=["hashed", "integers"])
def test_a_multi_valued_column_is_ragged(write: Write, hashed: bool) -> None:
    group = {"columns": ["tags"], "dim": 4, "separator": "|", "hash": hashed}
    features = FeaturesConfig.model_validate({"sparse": group})
    path = write("a.csv", "tags,label\n7|-8,1\n,0\n7||9|,1\n")
    file = open_data(path, DataConfig(format="csv", train="-"), features)
    raw = next(file.raw_batches(9))
    assert raw.array("tags").tolist() == [b"7|-8", b"", b"7||9|"]
    keys = encode(raw, features).sparse["tags"]
    expected = [7, -8, 7, 9]
    if hashed:
        expected = tf_fingerprint([b"%d" % key for key in expected], b"tags\x1f")
    assert keys.keys.tolist() == expected
    assert keys.row_splits is not None
    assert keys.row_splits.tolist() == [0, 2, 2, 4]


def test_columns_that_share_a_table_give_a_value_one_key() -> None:
    features = FeaturesConfig.model_validate(
        {"sparse": {"columns": ["last", "next"], "dim": 4, "table": "items"}}
    )
    column = np.array([b"shoe", b""], dtype=object)
    raw = RawBatch({"last": column, "next": column}, labels=None, size=2)
    batch = encode(raw, features)
    expected = tf_fingerprint([b"shoe", b""], b"items\x1f")
    assert batch.sparse["last"].keys.tolist() == expected
    assert batch.sparse["next"].keys.tolist() == expected
    assert batch.labels is None


def test_blanks_around_separated_integers_mean_nothing(tmp_path: Path) -> None:
    features = FeaturesConfig.model_validate(
        {"sparse": {"columns": ["id"], "dim": 4, "hash": False, "separator": "|"}}
    )
    (tmp_path / "rows.csv").write_text("label,id\n1,7 | 8|\n0, \n1, -9\n")
    data = DataConfig.model_validate({"format": "csv", "train": "-"})
    (raw,) = open_data(tmp_path / "rows.csv", data, features).raw_batches(10)
    keys = encode(raw, features).sparse["id"]
    assert keys.keys.tolist() == [7, 8, -9]
    assert keys.row_splits is not None
    assert keys.row_splits.tolist() == [0, 2, 2, 3]
