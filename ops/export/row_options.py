"""Options of an export for the rows: store and encoding."""

from __future__ import annotations

from dataclasses import dataclass, field

from hotrow.errors import InvalidArgumentError
from hotrow.store.access import StoreAccess
from hotrow.store.spec import DEFAULT_SHARDS, RowType, check_shards
from hotrow.store.url import parse_store_url

_MOST_GROWTH = 1000.0


@dataclass(frozen=True)
class RowOptions:
    """The store of a version's rows, and their encoding.

    Attributes:
        store: URL of a store; None: one inside the version directory.
        access: credentials for the store.
        row_type: how weights are stored; None: in each table's own type.
        top: at most this many rows of each table, the most frequent ones; None: all.
        shards: virtual shards of the generation, a power of two.
        growth: for how many times its rows a table is laid out in the store; above 1 for at least
            65,536 rows.
        keep_generations: complete generations of the model that stay in the store.
        lender: the holder of the export lock that lends it to this export; "": the lock is free.
    """

    store: str | None = None
    access: StoreAccess = field(default_factory=StoreAccess)
    row_type: RowType | None = None
    top: int | None = None
    shards: int = DEFAULT_SHARDS
    growth: float = 1.0
    keep_generations: int = 2
    lender: str = ""

    def check(self, standalone: bool) -> None:
        """Checks the options that need no model.

        Raises:
            InvalidArgumentError: a value that is not legal.
        """
        if self.store is not None:
            parse_store_url("--store", self.store)
        if standalone:
            for option, value in (
                ("--store", self.store),
                ("--row_type", self.row_type),
                ("--top", self.top),
            ):
                if value is not None:
                    raise InvalidArgumentError(
                        f"{option} with --standalone: a standalone export has no store"
                    )
        if self.top is not None and self.top < 0:
            raise InvalidArgumentError(f"--top {self.top}: must be 0 or more")
        check_shards("--store_shards", self.shards)
        if not 1 <= self.growth <= _MOST_GROWTH:
            raise InvalidArgumentError(
                f"--store_growth {self.growth:g}: must be from 1 to {_MOST_GROWTH:g}"
            )
        if self.keep_generations < 2:
            raise InvalidArgumentError(
                f"--keep_generations {self.keep_generations}: must be 2 or more, this one and the "
                "one before"
            )
