"""Which keys get a row, and when rows are removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hotrow.spec.checks import is_integer, require, require_one_of

FILTERS = ("counter", "bloom")
MOST_TOMBSTONES = 4_000_000
"""Tombstones that a table keeps if nothing else is configured: at most 128 MB."""
_UINT32 = 2**32 - 1


@dataclass(frozen=True)
class Admission:
    """A key gets a row at its n-th occurrence in training.

    An occurrence is one appearance of the key in a lookup with `training=True`; a key that appears
    three times in a batch counts three times. Until it has a row, the key reads the table's default
    row and its gradients are dropped.

    Attributes:
        occurrences: n; 1 admits every key at once.
        filter: "counter" keeps an exact count for each waiting key (about 24 bytes). "bloom" is a
            counting Bloom filter of fixed size: it never admits a key late, but may admit one
            early.
        expected_keys: for "bloom": number of waiting keys for which the filter is sized.
        error_rate: for "bloom": probability that a new key is admitted early, at `expected_keys`
            keys.
    """

    occurrences: int
    filter: Literal["counter", "bloom"] = "counter"
    expected_keys: int | None = None
    error_rate: float = 0.01

    def __post_init__(self) -> None:
        require(
            is_integer(self.occurrences, 1, _UINT32),
            "Admission.occurrences",
            self.occurrences,
            "an integer of 1 or more",
        )
        require_one_of("Admission.filter", self.filter, FILTERS)
        rate = self.error_rate
        is_rate = isinstance(rate, int | float) and 0 < rate < 1
        require(is_rate, "Admission.error_rate", rate, "in (0, 1)")
        if self.filter == "bloom":
            require(
                is_integer(self.expected_keys, 1),
                "Admission.expected_keys",
                self.expected_keys,
                "1 or more with filter 'bloom', which is sized for so many waiting keys",
            )
        else:
            require(
                self.expected_keys is None,
                "Admission.expected_keys",
                self.expected_keys,
                "None with filter 'counter', which grows as it needs",
            )


@dataclass(frozen=True)
class Expiry:
    """When a row is removed: by age, by rarity, or both.

    A row's age is the number of the table's steps since its last update. Its count is the number of
    its key's occurrences in the steps that updated it. Once the model was exported to a store,
    tombstones record expired keys until an export has removed them there; a key that gets a row
    again loses its tombstone.

    Attributes:
        after_steps: a row expires when it is older than this; None: no expiry by age alone.
        rare_count: a row with a smaller count expires when it is older than `rare_after_steps`.
        rare_after_steps: set it together with `rare_count`.
        sweep_steps: every step checks 1/sweep_steps of the rows, so a row is removed at most this
            many steps after it expires.
        tombstones: the most tombstones that a table keeps, on each rank, of 16 to 32 bytes each.
            Beyond it the table drops the older half; the next export must then be a full one.
    """

    after_steps: int | None = None
    rare_count: int | None = None
    rare_after_steps: int | None = None
    sweep_steps: int = 1000
    tombstones: int = MOST_TOMBSTONES

    def __post_init__(self) -> None:
        for name in ("after_steps", "rare_count", "rare_after_steps"):
            value = getattr(self, name)
            legal = value is None or is_integer(value, 1, _UINT32)
            require(legal, f"Expiry.{name}", value, "an integer of 1 or more, or None")
        require(
            (self.rare_count is None) == (self.rare_after_steps is None),
            "Expiry.rare_after_steps",
            self.rare_after_steps,
            "given with rare_count, and only with it",
        )
        require(
            self.after_steps is not None or self.rare_count is not None,
            "Expiry.after_steps",
            self.after_steps,
            "given, or rare_count and rare_after_steps; else nothing expires",
        )
        require(
            is_integer(self.sweep_steps, 1, _UINT32),
            "Expiry.sweep_steps",
            self.sweep_steps,
            "an integer of 1 or more",
        )
        require(
            is_integer(self.tombstones, 0, _UINT32),
            "Expiry.tombstones",
            self.tombstones,
            "an integer of 0 or more",
        )
