"""The table: rows by key, first values, clocks, export and import, digests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hotrow
from hotrow import _native
from hotrow.errors import AlreadyExistsError, InvalidArgumentError, OutOfRangeError
from hotrow.ops.table import Table


def table(seed=1, **options):
    return Table(hotrow.TableConfig(**{"name": "t", "embedding_dim": 4, **options}), seed=seed)


def keys(*values):
    return np.array(values, np.int64)


def test_an_unknown_key_reads_the_default_row_and_is_not_inserted():
    t = table(default_value=0.5)
    np.testing.assert_array_equal(t.lookup(keys(1, -1)), np.full((2, 4), 0.5, np.float32))
    assert t.size == 0


def test_the_first_value_depends_on_seed_table_and_key_only():
    a, b = table(), table()
    forward = a.lookup(keys(*range(1000)), insert=True)
    backward = b.lookup(keys(*reversed(range(1000))), insert=True)
    np.testing.assert_array_equal(forward, backward[::-1])
    assert a.digest() == b.digest()
    others = (table(seed=2), table(name="u"))
    for other in others:
        assert not np.array_equal(other.lookup(keys(1), insert=True), forward[1:2])


@pytest.mark.parametrize(
    ("initializer", "mean", "deviation"),
    [
        pytest.param(hotrow.Uniform(0.1), 0.0, 0.1 / np.sqrt(3), id="uniform"),
        pytest.param(hotrow.Normal(0.2), 0.0, 0.2, id="normal"),
        pytest.param(hotrow.Constant(0.3), 0.3, 0.0, id="constant"),
    ],
)
def test_first_values_have_the_distribution_of_the_initializer(initializer, mean, deviation):
    values = table(initializer=initializer).lookup(np.arange(20000, dtype=np.int64), insert=True)
    # 80,000 draws: five standard errors.
    assert abs(values.mean() - mean) <= 5 * deviation / np.sqrt(values.size) + 1e-6
    assert abs(values.std() - deviation) <= 0.02 * deviation + 1e-6
    if isinstance(initializer, hotrow.Uniform):
        assert np.abs(values).max() <= initializer.scale


def test_extreme_keys_are_rows_like_any_other():
    t = table()
    extreme = keys(0, -1, 2**63 - 1, -(2**63))
    rows = t.lookup(extreme, insert=True)
    assert t.size == 4
    assert len(np.unique(rows, axis=0)) == 4
    np.testing.assert_array_equal(t.lookup(extreme), rows)


def test_rows_keep_their_values_while_the_table_grows():
    t = table()
    first = t.lookup(keys(*range(100)), insert=True)
    t.lookup(np.arange(100, 300_000, dtype=np.int64), insert=True)
    np.testing.assert_array_equal(t.lookup(keys(*range(100))), first)
    assert t.size == 300_000


def test_a_clock_is_the_step_of_the_last_update():
    t = table()
    ones = np.ones((1, 4), np.float32)
    t.lookup(keys(5, 6, 7), insert=True)
    t.update(keys(6), ones)
    t.update(keys(7), ones)
    (exported,) = t.export_batches()
    assert dict(zip(exported[0].tolist(), exported[2].tolist(), strict=True)) == {5: 0, 6: 1, 7: 2}
    assert t.step == 2


@settings(deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=60),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 7),
)
def test_export_and_import_move_every_line_between_any_numbers_of_shards(
    values, before, after, batch_rows
):
    source, target = table(shards=before), table(shards=after)
    source.update(keys(*values), np.ones((len(values), 4), np.float32))
    for batch in source.export_batches(batch_rows):
        assert len(batch[0]) <= batch_rows
        target.import_rows(*batch)
    assert target.digest() == source.digest()
    np.testing.assert_array_equal(target.lookup(keys(*values)), source.lookup(keys(*values)))


def test_the_digest_sees_weights_and_state_apart():
    sgd_like, trained = table(), table()
    sgd_like.lookup(keys(1), insert=True)
    trained.lookup(keys(1), insert=True)
    trained.update(keys(1), np.zeros((1, 4), np.float32))
    assert trained.digest() == sgd_like.digest()  # a zero gradient changes neither
    trained.update(keys(1), np.full((1, 4), 1e-3, np.float32))
    assert trained.digest() != sgd_like.digest()
    assert trained.digest(weights_only=True) != sgd_like.digest(weights_only=True)


def test_a_key_outside_of_the_vocabulary_is_refused_by_name_and_range():
    t = table(vocabulary_size=10)
    t.lookup(keys(0, 9), insert=True)
    for bad in (10, -1):
        with pytest.raises(
            OutOfRangeError, match=rf"key {bad}; its vocabulary_size allows \[0, 10\)"
        ):
            t.lookup(keys(bad), insert=True)
    assert t.size == 2


def test_wrong_shapes_are_refused():
    t = table()
    with pytest.raises(ValueError, match="width of the gradients: length 3, must be 4"):
        t.update(keys(1), np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match="lines: length 2, must be 1"):
        t.import_rows(keys(1), np.ones((2, 8), np.float32), np.ones(1, np.uint32))
    assert t.size == 0


def test_a_handle_is_taken_once_and_given_back():
    t = table()
    options = {
        "handle": t.handle, "name": "t", "width": 1, "vocabulary_size": -1,
        "default_value": 0.0, "init_kind": 0, "init_scale": 0.0, "seed": 0, "optimizer_kind": 0,
        "learning_rate": 0.1, "initial_accumulator": 0.1, "epsilon": 1e-7, "shards": 1,
        "hashed": False,
    }  # fmt: skip
    with pytest.raises(AlreadyExistsError, match="exists already"):
        _native.Table(**options)
    del t
    _native.Table(**options)
    _native.drop_table(options["handle"])


def test_rows_past_the_end_are_refused_whatever_their_number():
    t = table()
    t.lookup(keys(1, 2), insert=True)
    for first, count in ((0, 3), (3, 0), (2**64 - 1, 2)):
        with pytest.raises(OutOfRangeError, match="of a table of 2 rows"):
            t._native.export_rows(0, first, count)


def test_updates_from_several_threads_are_all_applied():
    import concurrent.futures

    t = table(optimizer=hotrow.SGD(1.0), initializer=hotrow.Constant(0.0))
    ones = np.ones((1, 4), np.float32)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: t.update(keys(5), ones), range(400)))
    assert t.step == 400
    np.testing.assert_array_equal(t.lookup(keys(5)), np.full((1, 4), -400, np.float32))


@pytest.mark.parametrize("bad", [np.array([1.5]), np.array([2**63], np.uint64), np.array([True])])
def test_keys_that_would_change_their_value_are_refused(bad):
    with pytest.raises(InvalidArgumentError, match="must be signed integers"):
        table().lookup(bad)
