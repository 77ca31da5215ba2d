"""`hotrow.bind`: batch scoring in Python with the rows wherever they are."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from integration.store.half_folded import fold_all_but_the_records_of
from redis_servers.tls import access_with
from waiting import wait_until

import hotrow
from hotrow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from hotrow.manifest import read_manifest
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.generations import Generations
from hotrow.store.readers import use, users

ROOT = Path(__file__).resolve().parents[2]
KEYS = np.arange(200, dtype=np.int64) * 7919


def train(model, seed):
    """Trains on half of KEYS."""
    wanted = np.random.default_rng(seed).random(100)
    model.fit({"key": KEYS[::2]}, wanted, epochs=3, verbose=0)


def trained_model(seed):
    """Returns a model with half of KEYS in its table."""
    table = hotrow.TableConfig("keys", 8)
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("key", table)])
    keys = keras.Input((), dtype="int64", name="key")
    outputs = keras.layers.Dense(1)(layer({"key": keys})["key"])
    made = keras.Model({"key": keys}, outputs)
    made.compile("adam", "mse")
    train(made, seed)
    return made


def scores_as_exported(model, folder, name):
    """Returns the scores of KEYS by an export of a model with rows in its own folder."""
    directory = hotrow.export_model(model, folder, name)
    return scores(tf.saved_model.load(directory))


@pytest.fixture(scope="module")
def model():
    """A trained model."""
    return trained_model(seed=0)


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    """The scores of KEYS with rows in the version's own folder, which are those of training."""
    directory = hotrow.export_model(model, tmp_path_factory.mktemp("own"), "m")
    with hotrow.bind(directory):
        found = scores(tf.saved_model.load(directory))
    trained = model.predict({"key": KEYS}, verbose=0)
    np.testing.assert_allclose(found, trained, rtol=0, atol=1e-6)
    assert len(np.unique(found)) > 100
    return found


def scores(loaded):
    return loaded.signatures["serving_default"](key=tf.constant(KEYS))["outputs"].numpy()


def manifest_of(directory):
    return read_manifest(directory / "assets" / "hotrow_manifest.json")


def test_rows_in_files_that_were_moved_score_as_before(model, expected, tmp_path):
    directory = hotrow.export_model(model, tmp_path, "m")
    shutil.move(directory / "rows", tmp_path / "elsewhere")
    loaded = tf.saved_model.load(directory)
    with pytest.raises(tf.errors.NotFoundError):
        scores(loaded)
    with hotrow.bind(directory, f"file://{tmp_path}/elsewhere"):
        np.testing.assert_array_equal(scores(loaded), expected)
    with pytest.raises(tf.errors.NotFoundError):
        scores(loaded)
    shutil.move(tmp_path / "elsewhere", directory / "rows")
    np.testing.assert_array_equal(scores(loaded), expected)


@pytest.mark.parametrize("kind", ["alone", "password", "cluster", "tls", "tls cluster"])
def test_rows_in_redis_score_as_those_in_files(
    kind, model, expected, redis_servers, tmp_path, monkeypatch
):
    password = "s3cret@:/" if kind == "password" else ""
    monkeypatch.setenv("HOTROW_STORE_PASSWORD", password)
    tls = kind.startswith("tls")
    if kind.endswith("cluster"):
        redis = redis_servers.cluster(replicas=False, tls=tls)
    else:
        redis = redis_servers.standalone(password=password, tls=tls, tls_clients=tls)
    access = access_with(redis.certificates) if tls else None
    directory = hotrow.export_model(model, tmp_path, "m", store=redis.url, access=access)
    with hotrow.bind(directory, access=access):
        loaded = tf.saved_model.load(directory)
        np.testing.assert_array_equal(scores(loaded), expected)
    with hotrow.bind(directory, access=access, cache_rows=50, cache_policy="lru"):
        for _ in range(3):
            np.testing.assert_array_equal(scores(loaded), expected)
    if password:
        with pytest.raises(PermissionDeniedError, match="refuses the default user"):
            hotrow.bind(directory, access=StoreAccess())


@pytest.mark.parametrize("where", ["redis", "files"])
@pytest.mark.parametrize("folded", [True, False])
def test_a_bound_version_is_loaded_with_its_newest_changes_or_with_none(
    where, folded, redis_servers, tmp_path
):
    store = redis_servers.standalone().url if where == "redis" else f"file://{tmp_path}/store"
    model = trained_model(seed=1)
    directory = hotrow.export_model(model, tmp_path, "m", store=store)
    exported = scores_as_exported(model, tmp_path, "before")
    with contextlib.closing(open_store(store)) as opened:
        generation = manifest_of(directory).generation
        # A user that does not take cuts, so that they are not folded.
        other = None if folded else use(opened.records, generation, "other")
        with hotrow.bind(directory, cache_rows=60) as bound:
            np.testing.assert_array_equal(scores(bound.load()), exported)
        for step in (1, 2):
            train(model, seed=step)
            outcome = hotrow.export_changes(model, tmp_path, "m", wait_seconds=0).outcome
            assert bool(outcome.waiting_for) != folded
            changed = scores_as_exported(model, tmp_path, f"after{step}")
        assert not np.isclose(changed, exported).all()
        for cache_rows in (0, 60):
            with hotrow.bind(directory, cache_rows=cache_rows) as bound:
                alone = tf.saved_model.load(directory)
                if folded:
                    # Its weights are those of the full export, and rows of others fail.
                    message = "was not loaded by the binding's load"
                    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
                        scores(alone)
                else:
                    np.testing.assert_array_equal(scores(alone), exported)
                np.testing.assert_array_equal(scores(bound.load()), changed)
                np.testing.assert_array_equal(scores(bound.load()), changed)
        if other is not None:
            other.release()
    with pytest.raises(FailedPreconditionError, match="is closed; bind it again"):
        bound.load()


def test_a_binding_hides_no_row_of_a_folded_cut_by_an_earlier_one(redis_server, tmp_path):
    model = trained_model(seed=1)
    directory = hotrow.export_model(model, tmp_path, "m", store=redis_server.url)
    with contextlib.closing(open_store(redis_server.url)) as store:
        generation = Generations(store.records).get(manifest_of(directory).generation)
        other = use(store.records, generation.generation, "other")  # nothing is folded meanwhile
        for step in (1, 2):
            train(model, seed=step)
            hotrow.export_changes(model, tmp_path, "m", wait_seconds=0)
        fold_all_but_the_records_of(store, generation, [0])
        with hotrow.bind(directory) as bound:
            changed = scores_as_exported(model, tmp_path, "after")
            np.testing.assert_array_equal(scores(bound.load()), changed)
        other.release()


def test_a_binding_stays_with_the_changes_that_it_began_with(redis_server, tmp_path):
    model = trained_model(seed=2)
    directory = hotrow.export_model(model, tmp_path, "m", store=redis_server.url)
    train(model, seed=3)
    hotrow.export_changes(model, tmp_path, "m")
    before = scores_as_exported(model, tmp_path, "before")
    with hotrow.bind(directory) as bound:
        loaded = bound.load()
        np.testing.assert_array_equal(scores(loaded), before)
        train(model, seed=4)
        (waiting,) = hotrow.export_changes(model, tmp_path, "m", wait_seconds=600).outcome.held_by
        assert waiting.cut > 0
        np.testing.assert_array_equal(scores(loaded), before)
        np.testing.assert_array_equal(scores(bound.load()), before)
    outcome = hotrow.export_changes(model, tmp_path, "m", wait_seconds=0).outcome
    assert (outcome.committed, outcome.waiting_for) == (False, ())
    with hotrow.bind(directory) as bound:
        after = scores_as_exported(model, tmp_path, "after")
        assert not np.isclose(after, before).all()
        np.testing.assert_array_equal(scores(bound.load()), after)


def test_a_forgotten_binding_is_overruled_and_fails_where_rows_have_changed(redis_server, tmp_path):
    model = trained_model(seed=5)
    directory = hotrow.export_model(model, tmp_path, "m", store=redis_server.url)
    bound = hotrow.bind(directory, cache_rows=20, on_failure="default")
    loaded = bound.load()
    before = scores(loaded)
    for step in (1, 2, 3):
        train(model, seed=step)
        outcome = hotrow.export_changes(
            model, tmp_path, "m", wait_seconds=0, max_hold_bytes=20_000
        ).outcome
        if outcome.overruled:
            break
        np.testing.assert_array_equal(scores(loaded), before)
    (hold,) = outcome.overruled
    assert "(hotrow.bind) holds up" in str(hold)
    assert step > 1, "the first one is below the bound"
    # Default rows would be no answer: nothing would say that they are.
    with pytest.raises(tf.errors.FailedPreconditionError, match="bind the version again"):
        scores(loaded)
    same = loaded.signatures["serving_default"](key=tf.constant(KEYS[1::2]))["outputs"].numpy()
    np.testing.assert_array_equal(same, before[1::2])
    with pytest.raises(FailedPreconditionError, match=r"was overruled: .* bind the version again"):
        bound.load()
    bound.close()
    after = scores_as_exported(model, tmp_path, "after")
    with hotrow.bind(directory) as bound:
        np.testing.assert_array_equal(scores(bound.load()), after)


def test_without_a_binding_rows_in_redis_name_it(model, redis_server, tmp_path):
    directory = hotrow.export_model(model, tmp_path, "m", store=redis_server.url)
    loaded = tf.saved_model.load(directory)
    message = rf"store {redis_server.url}: not in files, .* `with hotrow\.bind\(\"{directory}\"\)"
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        scores(loaded)
    with hotrow.bind(directory):
        scores(loaded)
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        scores(loaded)


def test_two_versions_are_bound_at_once_and_each_once(model, expected, redis_server, tmp_path):
    first = hotrow.export_model(model, tmp_path, "m", store=redis_server.url)
    second = hotrow.export_model(model, tmp_path, "m", store=f"file://{tmp_path}/rows")
    one, two = hotrow.bind(first), hotrow.bind(f"{second}/../2/")
    with pytest.raises(AlreadyExistsError, match="close the other binding"):
        hotrow.bind(second)
    loaded = [tf.saved_model.load(first), tf.saved_model.load(f"{tmp_path}/./m/2")]
    for found in loaded:
        np.testing.assert_array_equal(scores(found), expected)
    one.close()
    one.close()
    with pytest.raises(tf.errors.FailedPreconditionError):
        scores(loaded[0])
    np.testing.assert_array_equal(scores(loaded[1]), expected)
    two.close()
    with hotrow.bind(first):
        np.testing.assert_array_equal(scores(loaded[0]), expected)


def test_a_generation_is_not_deleted_while_it_is_bound(model, expected, redis_server, tmp_path):
    url = redis_server.url
    directory = hotrow.export_model(model, tmp_path, "m", store=url)
    generation = manifest_of(directory).generation
    store = open_store(url)
    try:
        with hotrow.bind(directory):
            assert len(users(store.records, generation)) == 1
            loaded = tf.saved_model.load(directory)
            for _ in range(3):
                hotrow.export_model(model, tmp_path, "m", store=url)
            np.testing.assert_array_equal(scores(loaded), expected)
        assert users(store.records, generation) == []
        hotrow.export_model(model, tmp_path, "m", store=url)
        assert generation not in [g.generation for g in Generations(store.records).all("m")]
    finally:
        store.close()
    with pytest.raises(NotFoundError, match="no generation"):
        hotrow.bind(directory)


def test_a_redis_that_is_down_fails_in_time_until_it_is_back(
    model, expected, redis_servers, tmp_path
):
    redis = redis_servers.standalone(settings={"appendonly": "yes"})
    directory = hotrow.export_model(model, tmp_path, "m", store=redis.url)
    with hotrow.bind(directory, timeout_ms=300) as binding:
        loaded = tf.saved_model.load(directory)
        np.testing.assert_array_equal(scores(loaded), expected)
        redis.freeze()
        started = time.monotonic()
        with pytest.raises(tf.errors.UnavailableError, match=redis.address):
            scores(loaded)
        assert 0.2 < time.monotonic() - started < 1.5
        redis.thaw()
        redis.stop()
        started = time.monotonic()
        with pytest.raises(tf.errors.UnavailableError, match=redis.address):
            scores(loaded)
        assert time.monotonic() - started < 1.0
        redis.restart()

        def answers():
            try:
                np.testing.assert_array_equal(scores(loaded), expected)
            except tf.errors.UnavailableError:
                return False
            return True

        wait_until(answers)
        redis.stop()
        binding.close()
    with pytest.raises(UnavailableError, match=redis.address):
        hotrow.bind(directory)
    redis.restart()
    with hotrow.bind(directory, timeout_ms=300, on_failure="default"):
        redis.stop()
        assert len(np.unique(scores(loaded))) == 1


@pytest.mark.slow
def test_slots_that_move_to_another_node_are_followed(model, expected, redis_servers, tmp_path):
    cluster = redis_servers.cluster(replicas=False, tls=True)
    access = access_with(cluster.certificates)
    directory = hotrow.export_model(model, tmp_path, "m", store=cluster.url, access=access)
    with hotrow.bind(directory, access=access):
        loaded = tf.saved_model.load(directory)
        source, target = cluster.primaries()[:2]
        cluster.move_slots(2000, source, target)
        np.testing.assert_array_equal(scores(loaded), expected)


def test_a_binding_leaves_nothing_behind(model, redis_servers, tmp_path, monkeypatch):
    redis = redis_servers.standalone(tls=True)
    access = access_with(redis.certificates)
    directory = hotrow.export_model(model, tmp_path, "m", store=redis.url, access=access)
    home = Path(f"{redis.folder}-sockets")
    home.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(home))
    before = set(threading.enumerate())  # of which others may end meanwhile
    with hotrow.bind(directory, access=access):
        assert list(home.iterdir()) == []
    assert list(home.iterdir()) == []
    assert set(threading.enumerate()) <= before
    # Even when the program does not close it before the interpreter ends.
    program = (
        "import hotrow, sys; from hotrow.store.access import StoreAccess\n"
        "bound = hotrow.bind(sys.argv[1], access=StoreAccess('', '', *sys.argv[2:]))"
    )
    files = [access.ca_file, access.cert_file, access.key_file]
    done = subprocess.run(
        [sys.executable, "-c", program, directory, *files],
        env={"TMPDIR": str(home), "PYTHONPATH": f"{ROOT}/platform", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert list(home.iterdir()) == []
    store = open_store(redis.url, access)
    try:
        assert users(store.records, manifest_of(directory).generation) == []
    finally:
        store.close()


def test_what_is_not_legal_is_reported(model, tmp_path):
    directory = hotrow.export_model(model, tmp_path, "m")
    for arguments, message in (
        ({"timeout_ms": 0}, "timeout_ms 0: must be 1 or more"),
        ({"on_failure": "defaults"}, "did you mean 'default'"),
        ({"cache_policy": "x"}, "legal: lfu, lru"),
        ({"cache_rows": -1}, "must be 0"),
        ({"cache_rows": 1, "cache_bytes": 1}, "give one of the two"),
        ({"store": "rows"}, "store 'rows': no URL of a store"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            hotrow.bind(directory, **arguments)
    with pytest.raises(NotFoundError, match="give the directory of a version"):
        hotrow.bind(tmp_path)
    with pytest.raises(NotFoundError):
        hotrow.bind(directory, f"file://{tmp_path}/none")
    standalone = hotrow.export_model(model, tmp_path, "s", standalone=True)
    with pytest.raises(NotFoundError, match="needs no bind"):
        hotrow.bind(standalone)
    with hotrow.bind(directory):
        pass


def test_the_program_of_the_page_runs(model, expected, redis_server, tmp_path):
    hotrow.export_model(model, tmp_path / "models", "shop", store=redis_server.url)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "serving.md").read_text(), re.S)
    (program,) = [block for block in blocks if "hotrow.bind" in block]
    given = "import tensorflow as tf\nbatch = {'key': tf.constant([0, 7919], tf.int64)}\n"
    printing = "\nprint(*scores['outputs'].numpy().ravel())"
    done = subprocess.run(
        [sys.executable, "-c", given + program + printing],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(
        [float(word) for word in done.stdout.split()], expected[:2].ravel(), atol=1e-6
    )
