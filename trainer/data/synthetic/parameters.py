"""The parameters that determine the generated rows, besides their number."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hotrow.errors import InvalidArgumentError

MAX_KEYS = 2**32  # a key is 8 hexadecimal digits


@dataclass(frozen=True)
class Parameters:
    """The parameters of the true model; the defaults give it an AUC of about 0.78.

    Attributes:
        seed: seed of the model and of every row.
        keys: distinct keys of the largest column; other columns have `keys ** 0.2` or more.
        skew: exponent of the keys' popularity: the key of rank r has odds r ** -skew.
        noise: share of the rows whose label ignores the features.
    """

    seed: int = 0
    keys: int = 100_000
    skew: float = 1.05
    noise: float = 0.05

    def __post_init__(self) -> None:
        """Checks the ranges.

        Raises:
            InvalidArgumentError: a value is out of its range.
        """
        for name, legal, allowed in (
            ("seed", self.seed >= 0, "at least 0"),
            ("keys", 16 <= self.keys <= MAX_KEYS, f"between 16 and {MAX_KEYS}"),
            ("skew", math.isfinite(self.skew) and 0 <= self.skew <= 4, "between 0 and 4"),
            ("noise", 0 <= self.noise < 1, "at least 0 and below 1"),
        ):
            if not legal:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)}; it must be {allowed}")
