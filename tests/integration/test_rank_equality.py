"""Ranks train what one process trains: every optimizer and every sharding.

It is slow. `make test` shows it with threads, ops/native/tests/rank_step_test.cc and
tests/unit/trainer/test_ranked_training.py, and once with processes, test_train_ranks.py.

The program has a shared table, ragged weighted keys, keys without a combiner, hashed owners, a
batch without samples, one with a single sample, and one whose keys one rank owns.
"""

from __future__ import annotations

import numpy as np
import pytest
from mpi_program import REPOSITORY, run_ranks

from hotrow.spec import OPTIMIZERS, SHARDINGS

TOLERANCE = 1e-6

pytestmark = pytest.mark.slow


def trained(ranks, steps, out, *what):
    program = [str(REPOSITORY / "tests" / "integration" / "equality_program.py"), out, steps, *what]
    done = run_ranks(ranks, program, timeout=1800)
    assert done.exit_code == 0, done.errors
    return dict(np.load(out))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Returns what one process gives after so many steps."""
    found = {}

    def give(steps):
        if steps not in found:
            out = tmp_path_factory.mktemp("alone") / "alone.npz"
            found[steps] = trained(1, steps, out)
        return found[steps]

    return give


def apart(expected, found):
    """Returns how far values are apart, relative to the largest of their array."""
    return np.abs(expected - found).max() / np.abs(expected).max()


@pytest.mark.parametrize(
    ("ranks", "steps", "what"),
    [(3, 30, ()), *((ranks, 300, ("all",)) for ranks in (2, 3, 4))],
    ids=["30 steps, each once", *(f"300 steps on {ranks} ranks, all" for ranks in (2, 3, 4))],
)
def test_every_sharding_and_optimizer_gives_what_one_process_gives(
    ranks, steps, what, alone, tmp_path
):
    alone = alone(steps)
    found = trained(ranks, steps, tmp_path / "ranks.npz", *what)
    shown = {tuple(name.split("/")[:2]) for name in found}
    assert {sharding for sharding, _ in shown} == set(SHARDINGS)
    assert {kind for _, kind in shown} == {kind.__name__ for kind in OPTIMIZERS}
    assert len(shown) == (len(SHARDINGS) * len(OPTIMIZERS) if what else len(OPTIMIZERS))
    worst = {}
    for sharding, kind in sorted(shown):
        name, one = f"{sharding}/{kind}", f"{SHARDINGS[0]}/{kind}"
        # The sum of the first losses may round, what they are sums of does not.
        assert found[f"{name}/losses"][0] == pytest.approx(alone[f"{one}/losses"][0], rel=2e-7)
        for table in ("shared", "ragged"):
            expected = alone[f"{one}/{table}/keys"]
            np.testing.assert_array_equal(found[f"{name}/{table}/keys"], expected)
        for values in ("losses", "dense", "shared/rows", "ragged/rows"):
            worst[f"{name}/{values}"] = apart(alone[f"{one}/{values}"], found[f"{name}/{values}"])
    too_far = {name: far for name, far in worst.items() if far > TOLERANCE}
    assert not too_far
