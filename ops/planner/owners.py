"""The owner of a key: the arithmetic of `core/base/dispatch.h`, in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def owners_of(keys: Ints, ranks: int, hashed: bool) -> Ints:
    """Returns the rank that owns each key, int64 [N] in [0, ranks).

    Args:
        keys: int64 [N].
        ranks: number of ranks that share the table.
        hashed: mix the key before the modulus.
    """
    if not hashed:
        return np.mod(keys, ranks)
    mixed = mix64(mix64(keys.astype(np.uint64)))
    return (mixed % np.uint64(ranks)).astype(np.int64)


def mix64(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Returns a bijection of uint64 [N] whose bits all depend on each other: `core/base/hash.h`."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
