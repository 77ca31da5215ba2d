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


def test_the_default_row_is_what_the_type_of_the_table_holds():
    for dtype, value in (("float32", np.float32(0.1)), ("float16", np.float16(0.1))):
        t = table(default_value=0.1, dtype=dtype)
        assert t.default_value == t.lookup(keys(1))[0, 0] == np.float32(value)


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
    clocks = dict(zip(exported.keys.tolist(), exported.clocks.tolist(), strict=True))
    assert clocks == {5: 1, 6: 1, 7: 2}  # 5 was created in the first step and never updated
    assert t.step == 2


def test_a_count_is_the_number_of_lookups_in_the_steps_that_updated_the_row():
    t = table()
    ones = np.ones((3, 4), np.float32)
    t.lookup(keys(5, 5, 5), insert=True)
    t.update(keys(6, 7, 6), ones)
    t.update(keys(6, 7, 7), ones)
    (exported,) = t.export_batches()
    counts = dict(zip(exported.keys.tolist(), exported.counts.tolist(), strict=True))
    assert counts == {5: 0, 6: 3, 7: 3}


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
        assert len(batch.keys) <= batch_rows
        places = batch.places if before == after else None
        target.import_rows(batch.keys, batch.lines, batch.clocks, batch.counts, places)
    assert target.digest() == source.digest()
    np.testing.assert_array_equal(target.lookup(keys(*values)), source.lookup(keys(*values)))


def test_the_digest_sees_weights_and_all_else_apart():
    fresh, trained = table(), table()
    fresh.lookup(keys(1), insert=True)
    trained.lookup(keys(1), insert=True)
    assert trained.digest() == fresh.digest()
    trained.update(keys(1), np.zeros((1, 4), np.float32))
    assert trained.digest() != fresh.digest()  # clock and count
    assert trained.digest(weights_only=True) == fresh.digest(weights_only=True)
    trained.update(keys(1), np.full((1, 4), 1e-3, np.float32))
    assert trained.digest(weights_only=True) != fresh.digest(weights_only=True)


def test_the_digest_of_weights_is_of_their_values_as_float32():
    ones = {"initializer": hotrow.Constant(1.5)}
    digests = set()
    for dtype in ("float32", "bfloat16", "float16"):
        t = table(dtype=dtype, **ones)
        t.lookup(keys(1), insert=True)
        digests.add(t.digest(weights_only=True))
    assert len(digests) == 1


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
    one, line = np.ones(1, np.uint32), np.ones((1, 32), np.uint8)
    with pytest.raises(ValueError, match="width of the gradients: length 3, must be 4"):
        t.update(keys(1), np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match="lines: length 2, must be 1"):
        t.import_rows(keys(1), np.ones((2, 32), np.uint8), one, one)
    with pytest.raises(ValueError, match="bytes of a line: length 31, must be 32"):
        t.import_rows(keys(1), line[:, 1:], one, one)
    with pytest.raises(ValueError, match="places: length 2, must be 1"):
        t.import_rows(keys(1), line, one, one, np.ones(2, np.uint32))
    assert t.size == 0


def test_a_schedule_needs_the_learning_rate_of_the_step():
    schedule = hotrow.Schedule("CosineDecay", {"initial_learning_rate": 1.0, "decay_steps": 2})
    t = table(optimizer=hotrow.SGD(schedule), initializer=hotrow.Constant(0.0))
    ones = np.ones((1, 4), np.float32)
    with pytest.raises(InvalidArgumentError, match="'t' has a learning-rate schedule; give the"):
        t.update(keys(1), ones)
    t.update(keys(1), ones, 0.25)
    np.testing.assert_array_equal(t.lookup(keys(1)), -0.25 * ones)


def test_a_handle_is_taken_once_and_given_back(monkeypatch):
    options = {}
    native = _native.Table

    def noted(**given):
        options.update(given)
        return native(**given)

    monkeypatch.setattr(_native, "Table", noted)
    t = table()
    with pytest.raises(AlreadyExistsError, match="exists already"):
        native(**options)
    del t
    native(**options)
    _native.drop_table(options["handle"])


def test_a_cursor_that_was_not_given_out_is_refused():
    t = table()
    t.lookup(keys(1, 2), insert=True)
    with pytest.raises(OutOfRangeError, match="cursor 281474976710656 is not one that export_"):
        t._native.export_rows(2**48, 1)
    with pytest.raises(ValueError, match="max_rows is 0; must be in"):
        t._native.export_rows(0, 0)


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
