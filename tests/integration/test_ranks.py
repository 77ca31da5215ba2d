"""Ranks as processes of MPI: collectives, failures, late and dead ranks, and how processes end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from mpi_program import run_ranks

_START = """
import os, signal, sys, time
import numpy as np
from hotrow.errors import *
from hotrow.ops.ranks import start_ranks
"""


def _run(count, body, timeout=60, ranks_timeout=20.0, **options):
    """Runs a body with `ranks` of a run; returns its results."""
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    program = f"{_START}\nwith start_ranks({ranks_timeout}) as ranks:\n{lines}\n"
    return run_ranks(count, program, timeout=timeout, **options)


@pytest.mark.parametrize("count", [1, 2, 3, 4], ids=lambda n: f"{n} ranks")
def test_every_collective_is_right_on_all_ranks(count):
    result = _run(
        count,
        """
r, n = ranks.rank, ranks.size
for step in range(30):
    what = f"step {step}"
    rows = np.arange(r * step, dtype=np.int64)[:, None] * [1, 2] + r
    for other, got in enumerate(ranks.all_gather(rows, what)):
        assert got.dtype == np.int64
        wanted = np.arange(other * step)[:, None] * [1, 2] + other
        np.testing.assert_array_equal(got, wanted)
    for kind, size in ((np.float32, 3 * step), (np.float64, 1000 * step)):
        parts = [np.random.default_rng([step, k]).standard_normal(size) ** 9 for k in range(n)]
        wanted = parts[0].astype(kind)
        for more in parts[1:]:
            wanted = wanted + more.astype(kind)
        got = ranks.all_reduce(parts[r].astype(kind).reshape(-1, 1), what)
        assert got.shape == (size, 1) and got.tobytes() == wanted.tobytes()
    news = bytes([step]) * (step * 1000)
    assert ranks.broadcast(news if ranks.is_first else None, what) == news
    ranks.barrier(what)
assert ranks.is_first == (r == 0)
print(r, n)
""",
    )
    assert result.errors == [""] * count
    assert result.outputs == [f"{rank} {count}\n" for rank in range(count)]
    assert result.exit_code == 0
    assert result.launcher == ""


@pytest.mark.slow
def test_messages_of_many_megabytes_arrive():
    result = _run(
        3,
        """
values = np.arange(9_000_001, dtype=np.float32) % 1000
assert (ranks.all_reduce(values, "large") == values * 3).all()
gathered = ranks.all_gather(np.full(5_000_000 * ranks.rank, ranks.rank, np.int64), "large")
assert [(g == r).all() and len(g) == 5_000_000 * r for r, g in enumerate(gathered)] == [True] * 3
""",
    )
    assert (result.exit_code, result.errors) == (0, ["", "", ""])


def test_one_process_needs_no_mpi():
    result = run_ranks(
        1,
        f"{_START}\nranks = start_ranks(1.0)\n"
        "print(ranks.rank, ranks.size, repr(ranks.handle), 'mpi4py' in sys.modules)",
    )
    assert result.outputs == ["0 1 '' False\n"]
    assert result.exit_code == 0


def test_an_exception_of_one_rank_ends_all_with_its_class_and_words():
    result = _run(
        3,
        """
ranks.barrier("the first step")
if ranks.rank == 1:
    raise DataLossError("train.tsv is damaged")
ranks.barrier("the second step")
print("not reached")
""",
    )
    assert result.outputs == ["", "", ""]
    assert result.errors[1].splitlines()[-1] == (
        "hotrow.errors.DataLossError: train.tsv is damaged"
    )
    for rank in (0, 2):
        assert result.errors[rank].splitlines()[-1] == (
            "hotrow.errors.DataLossError: rank 1: train.tsv is damaged"
        )
    assert result.exit_code == 1


def test_exit_codes_are_those_that_the_ranks_give():
    result = run_ranks(
        2,
        f"""{_START}
try:
    with start_ranks(20.0) as ranks:
        if ranks.rank == 1:
            raise InvalidArgumentError("--steps 0: 1 or more")
        ranks.barrier("a step")
except HotrowError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
""",
    )
    assert result.errors == ["rank 1: --steps 0: 1 or more\n", "--steps 0: 1 or more\n"]
    assert result.exit_code == 2


def test_an_error_of_python_is_reported_with_its_type():
    result = _run(
        2,
        """
if ranks.is_first:
    ranks.barrier("a step")
{}["missing"]
""",
    )
    assert (
        result.errors[0].splitlines()[-1]
        == "hotrow.errors.HotrowError: rank 1: KeyError: 'missing'"
    )


def test_a_late_rank_is_named_by_all_that_wait_for_it():
    result = _run(
        4,
        """
ranks.barrier("the first step")
if ranks.rank == 2:
    time.sleep(3)
if ranks.rank == 3:
    time.sleep(0.9)
ranks.all_reduce(np.ones(3, np.float32), "loss of step 7")
""",
        ranks_timeout=1.0,
    )
    said = [errors.splitlines()[-1] for errors in result.errors if errors]
    assert said
    for line in said:
        who = line.partition("hotrow.errors.DeadlineExceededError: rank ")[2]
        waiting, _, late = who.partition(': waited 1 s in all_gather of "loss of step 7" for ')
        assert waiting in ("0", "1", "3")
        assert late == "rank 2, which did not come: stuck, or slower than the timeout allows"
    assert result.exit_code != 0


def test_ranks_in_different_collectives_are_reported_so():
    started = time.monotonic()
    result = _run(
        2,
        """
ranks.barrier("the first step")
if ranks.is_first:
    ranks.barrier("the second step")
else:
    ranks.broadcast(None, "the third step")
""",
        ranks_timeout=30.0,
    )
    assert time.monotonic() - started < 20
    for errors in result.errors:
        last = errors.splitlines()[-1]
        assert last.startswith("hotrow.errors.HotrowError: rank ")
        assert 'barrier of "the second step"' in last
        assert 'broadcast of "the third step"' in last
        assert last.endswith("; all ranks must make the same calls in the same order")


def test_arrays_that_do_not_fit_together_are_refused_on_all_ranks_which_go_on():
    result = _run(
        2,
        """
for call in (
    lambda: ranks.all_reduce(np.ones(3 + ranks.rank, np.float32), "a"),
    lambda: ranks.all_reduce(np.ones(2, [np.float32, np.float64][ranks.rank]), "b"),
    lambda: ranks.all_gather(np.ones((2, 3 + ranks.rank)), "c"),
    lambda: ranks.all_reduce(np.ones(2, np.int64), "d"),
):
    try:
        call()
    except InvalidArgumentError as error:
        print(error)
ranks.barrier("the end")
""",
    )
    expected = [
        'all_reduce of "a": rank 0 has 3 values of 32 bits, rank 1 has 4 values of 32 bits; '
        "all must have the same",
        'all_reduce of "b": rank 0 has 2 values of 32 bits, rank 1 has 2 values of 64 bits; '
        "all must have the same",
        'all_gather of "c": rank 0 has float64 [N, 3], rank 1 float64 [N, 4]; only the first axis '
        "may differ",
        'all_reduce of "d": type int64; legal: float32, float64',
    ]
    assert [output.splitlines() for output in result.outputs] == [expected, expected]
    assert result.exit_code == 0


def test_a_killed_rank_ends_all_at_once():
    started = time.monotonic()
    result = _run(
        3,
        """
ranks.barrier("the first step")
if ranks.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
ranks.barrier("the second step")
""",
        ranks_timeout=300.0,
    )
    assert time.monotonic() - started < 30
    assert result.exit_code != 0


def test_a_rank_that_never_learns_of_a_failure_ends_too():
    started = time.monotonic()
    result = _run(
        2,
        """
if ranks.is_first:
    raise InvalidArgumentError("no such column")
time.sleep(600)
""",
    )
    assert time.monotonic() - started < 30
    assert result.exit_code == 2


def test_a_program_that_ends_before_its_ranks_are_closed_ends_all():
    result = run_ranks(
        2,
        f"""{_START}
ranks = start_ranks(20.0)
ranks.barrier("a step")
if ranks.rank == 1:
    sys.exit(0)
try:
    ranks.barrier("another step")
except HotrowError as error:
    print(error)
""",
    )
    assert result.outputs[0] == "rank 1: the program ended before it closed its ranks\n"


def test_who_leaves_first_is_not_waited_for_and_who_stays_may_work_on():
    result = _run(
        2,
        """
ranks.barrier("the last step")
ranks.close()
if ranks.is_first:
    time.sleep(1.5)
    print("wrote the model")
""",
    )
    assert result.outputs == ["wrote the model\n", ""]
    assert (result.exit_code, result.errors) == (0, ["", ""])


def test_ranks_begin_and_end_several_times():
    result = run_ranks(
        2,
        f"""{_START}
for run in range(3):
    with start_ranks(20.0) as ranks:
        print(ranks.handle, ranks.all_reduce(np.ones(1, np.float32), "a")[0])
""",
    )
    assert result.outputs[1].split() == [
        *("mpi-ranks-0", "2.0"),
        *("mpi-ranks-1", "2.0"),
        *("mpi-ranks-2", "2.0"),
    ]
    assert result.exit_code == 0


@pytest.mark.parametrize("end", ["pass", "raise ValueError()", "os.kill(os.getpid(), 9)"])
def test_no_shared_memory_is_left_however_a_run_ends(end):
    result = _run(
        2,
        f"""
for line in open("/proc/self/maps"):
    if "/dev/shm/mpich_shm_" in line:
        print(line.split()[5])
sys.stdout.flush()
ranks.barrier("a step")
{end}
""",
    )
    # Only those that these ranks have mapped: other programs may run meanwhile.
    used = {path for output in result.outputs for path in output.split()}
    assert used
    assert [path for path in used if Path(path).exists()] == []


@pytest.mark.slow
def test_dense_gradients_have_the_same_bits_on_all_ranks_whatever_order_ops_run_in():
    result = run_ranks(
        3,
        f"""{_START}
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(4)
from hotrow.ops.dense_gradients import sum_over_ranks

with start_ranks(60.0) as ranks:
    def given(rank, step):
        random = np.random.default_rng([rank, step])
        return [(random.standard_normal((i * 700, 3)) ** 7).astype(np.float32) for i in range(15)]

    # Every gradient is made by ops of its own, which run in any order.
    @tf.function
    def step(gradients):
        return sum_over_ranks([tf.negative(-g) for g in gradients], ranks, bucket_bytes=20_000)

    for number in range(30):
        got = step([tf.constant(g) for g in given(ranks.rank, number)])
        wanted = given(0, number)
        for rank in range(1, ranks.size):
            wanted = [a + b for a, b in zip(wanted, given(rank, number))]
        for a, b in zip(got, wanted):
            assert a.numpy().tobytes() == b.tobytes()
    print(ranks.stage_counts()["dense"]["calls"] // 30)
""",
        timeout=100,
    )
    assert result.exit_code == 0, result.errors
    assert len(set(result.outputs)) == 1
    assert int(result.outputs[0]) > 3


def test_a_model_with_tables_and_dense_weights_trains_alike_on_all_ranks():
    result = run_ranks(
        3,
        f"""{_START}
import hotrow, keras, tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(2)
from hotrow.ops.dense_gradients import sum_over_ranks
keras.utils.set_random_seed(1)

with start_ranks(60.0) as ranks:
    features = [
        hotrow.FeatureConfig(name, hotrow.TableConfig(name, 8, sharding=kind))
        for name, kind in (("users", "row"), ("items", "table"))
    ]
    layer = hotrow.DistributedEmbedding(features, ranks=ranks, seed=3)
    dense = [keras.layers.Dense(8) for _ in range(6)]
    for one in dense:
        one.build((None, 8))
    weights = [w for one in dense for w in one.trainable_weights]

    @tf.function
    def step(keys):
        with tf.GradientTape() as tape:
            rows = layer(dict(users=keys, items=keys * 7), training=True)
            values = rows["users"] + rows["items"]
            for one in dense:
                values = one(values)
            loss = tf.reduce_sum(values**2)
        trained = [*[w.value for w in weights], layer.anchor.value]
        *gradients, commit_token = tape.gradient(loss, trained)
        for weight, total in zip(weights, sum_over_ranks(gradients, ranks, bucket_bytes=600)):
            weight.assign_sub(0.001 * total)
        layer.anchor.assign(commit_token)
        return loss

    random = np.random.default_rng(ranks.rank)
    for number in range(100):
        step(tf.constant(random.integers(0, 50, 20)))
    mine = np.concatenate([np.ravel(w.numpy()) for w in weights])
    assert np.isfinite(mine).all()
    for other in ranks.all_gather(mine, "weights"):
        assert other.tobytes() == mine.tobytes()
    print(ranks.stage_counts()["dense"]["calls"] // 100)
""",
        timeout=100,
    )
    assert (result.exit_code, result.errors[0].count("Error")) == (0, 0), result.errors
    assert len(set(result.outputs)) == 1
    assert int(result.outputs[0]) > 1
