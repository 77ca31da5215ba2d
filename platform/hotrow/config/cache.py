"""The `cache` section: the device tier of every table, and prefetching into it."""

from __future__ import annotations

import dataclasses
from typing import Literal

from pydantic import Field, model_validator

from hotrow.config.section import Section, from_spec
from hotrow.spec import Cache


class CacheConfig(Section):
    """A cache of hot rows before each table; without one of the sizes there is none.

    With any of these values the rows are the same, bit for bit.

    Attributes:
        rows: rows in the cache of a table.
        bytes: memory of the cache of a table.
        ratio: share of a table's `vocabulary_size`.
        policy: the eviction policy.
        prefetch: number of batches in a window, whose rows are prefetched; 0: none. On several
            ranks 0 or 1; with 1, keys of a batch go to their owners early, also without a cache.
        warmup: share of each cache to fill before the first step; 0: no warm-up.
        warmup_batches: number of batches in which the most frequent rows are counted.
        device: location of the caches: "cpu" in RAM, "gpu" or "gpu:N" in the memory of a GPU.
        disk: directory for the lines of rows outside the caches; None: they are in memory.
    """

    rows: int | None = Field(default=None, ge=1)
    bytes: int | None = Field(default=None, ge=1)
    ratio: float | None = Field(default=None, gt=0, le=1)
    policy: Literal["lfu", "lru"] = "lfu"
    prefetch: int = Field(default=1, ge=0, le=1024)
    warmup: float = Field(default=0.7, ge=0, le=1)
    warmup_batches: int = Field(default=64, ge=1)
    device: str = "cpu"
    disk: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _fits_spec(self) -> CacheConfig:
        self.as_spec()
        return self

    def as_spec(self) -> Cache | None:
        """Returns the cache in the form of the tables; None: no cache."""
        if self.rows is None and self.bytes is None and self.ratio is None:
            for name, unset in (("disk", None), ("device", "cpu")):
                if getattr(self, name) != unset:
                    raise ValueError(
                        f"{name} is {getattr(self, name)!r} without a cache; set rows, "
                        "bytes or ratio, too"
                    )
            return None
        options = {field.name for field in dataclasses.fields(Cache)}
        return from_spec(Cache, self.model_dump(include=options))
