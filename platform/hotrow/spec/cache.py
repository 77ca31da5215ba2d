"""The device tier of a table: a cache of its hot rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from hotrow.spec.checks import is_integer, require, require_one_of

POLICIES = ("lfu", "lru")
"""Legal policies."""

_DEVICE = re.compile(r"cpu|gpu(:(0|[1-9][0-9]{0,3}))?")


@dataclass(frozen=True)
class Cache:
    """A bounded cache of row lines (weights and optimizer state) before the table's other rows.

    With any cache the rows are the same, bit for bit. Give exactly one of the sizes. A batch may
    have more distinct rows than the cache.

    Attributes:
        rows: rows in the cache; rounded up to whole sets of 16 ways in 32 partitions.
        bytes: memory of the cache: lines, and 28 bytes of metadata a row.
        ratio: share of the table's `vocabulary_size`, in (0, 1].
        policy: the eviction policy. "lfu" evicts the least frequently used row, by counts that
            decay, and only for a row with a higher count; "lru" evicts the least recently used row.
        disk: directory for the lines of rows outside the cache, for tables larger than memory;
            memory then holds 28 bytes a row besides the cache. The file has no name and disappears
            when the process ends; checkpoints are stored as usual. None: lines are in memory.
        device: location of the cache. "gpu" or "gpu:N": the memory of TensorFlow's GPU N, where the
            table's lookups and updates run, too; its other rows are in RAM. "cpu": RAM.
    """

    rows: int | None = None
    bytes: int | None = None
    ratio: float | None = None
    policy: Literal["lfu", "lru"] = "lfu"
    disk: str | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        sizes = (self.rows, self.bytes, self.ratio)
        given = sum(size is not None for size in sizes)
        require(
            given == 1,
            "Cache(rows, bytes, ratio)",
            sizes,
            "exactly one that is not None",
        )
        for name in ("rows", "bytes"):
            value = getattr(self, name)
            require(value is None or is_integer(value, 1), f"Cache.{name}", value, "1 or more")
        ratio = self.ratio
        is_share = ratio is None or (isinstance(ratio, int | float) and 0 < ratio <= 1)
        require(is_share, "Cache.ratio", ratio, "in (0, 1]")
        require_one_of("Cache.policy", self.policy, POLICIES)
        is_path = self.disk is None or (isinstance(self.disk, str) and self.disk != "")
        require(is_path, "Cache.disk", self.disk, "None or the path of a directory")
        is_device = isinstance(self.device, str) and _DEVICE.fullmatch(self.device)
        require(bool(is_device), "Cache.device", self.device, "'cpu', 'gpu' or 'gpu:N'")
        require(
            self.disk is None or self.gpu is None,
            "Cache.disk",
            self.disk,
            "None with a cache on a GPU: rows on disk need one in RAM",
        )

    @property
    def gpu(self) -> int | None:
        """The number of TensorFlow's GPU that has the cache; None: it is in RAM."""
        if self.device == "cpu":
            return None
        return int(self.device.partition(":")[2] or 0)
