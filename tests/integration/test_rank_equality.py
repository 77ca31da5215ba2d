"""Ranks train what one process trains: every sharding with every optimizer; 300 steps take minutes.

The program has a shared table, ragged weighted keys, keys without a combiner, hashed owners, a
batch without samples, one with a single sample, and one whose keys one rank owns.
"""

from __future__ import annotations

import numpy as np
import pytest
from mpi_program import REPOSITORY, run_ranks

from hotrow.spec import OPTIMIZERS, SHARDINGS

TOLERANCE = 1e-6


def trained(ranks, steps, out):
    program = [str(REPOSITORY / "tests" / "integration" / "equality_program.py"), str(out), steps]
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
    ("ranks", "steps"),
    [(3, 30), *(pytest.param(ranks, 300, marks=pytest.mark.slow) for ranks in (2, 3, 4))],
)
def test_every_sharding_and_optimizer_gives_what_one_process_gives(ranks, steps, alone, tmp_path):
    alone = alone(steps)
    found = trained(ranks, steps, tmp_path / "ranks.npz")
    worst = {}
    for kind in OPTIMIZERS:
        for sharding in SHARDINGS:
            name = f"{sharding}/{kind.__name__}"
            one = f"{SHARDINGS[0]}/{kind.__name__}"
            # The sum of the first losses may round, what they are sums of does not.
            assert found[f"{name}/losses"][0] == pytest.approx(alone[f"{one}/losses"][0], rel=2e-7)
            for table in ("shared", "ragged"):
                expected = alone[f"{one}/{table}/keys"]
                np.testing.assert_array_equal(found[f"{name}/{table}/keys"], expected)
            for what in ("losses", "dense", "shared/rows", "ragged/rows"):
                worst[f"{name}/{what}"] = apart(alone[f"{one}/{what}"], found[f"{name}/{what}"])
    too_far = {name: far for name, far in worst.items() if far > TOLERANCE}
    assert not too_far
