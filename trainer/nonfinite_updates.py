"""Ends a run when too many updates of a table's rows are not finite."""

from __future__ import annotations

from collections.abc import Callable

from hotrow.config import RunConfig
from hotrow.errors import FailedPreconditionError
from hotrow.trainer.table_metrics import Statistics


class NonfiniteUpdates:
    """Compares the updates that tables left out, from one report to the next, with the bounds.

    Statistics are those of all ranks, so that all ranks decide alike.
    """

    def __init__(self, config: RunConfig, say: Callable[[str], None]) -> None:
        """Stores its arguments.

        Args:
            config: has `tables.<name>.max_nonfinite_share`.
            say: called with a line when a table leaves out its first updates.
        """
        self._config = config
        self._say = say
        self._step = 0
        self._before: Statistics | None = None
        self._said: set[str] = set()

    @property
    def has_begun(self) -> bool:
        """Whether `begin` was called."""
        return self._before is not None

    def begin(self, statistics: Statistics, step: int) -> None:
        """Starts the first window, after this step."""
        self._before, self._step = statistics, step

    def check(self, statistics: Statistics, step: int) -> None:
        """Ends the window with this step, and starts the next one.

        Args:
            statistics: of each table, by name, after this step.
            step: the run's step.

        Raises:
            FailedPreconditionError: a table left out a larger share than it may; raised on all
                ranks.
        """
        before, first = self._before, self._step + 1
        self.begin(statistics, step)
        if before is None:
            return
        for name, now in statistics.items():
            left_out = now["nonfinite_updates"] - before[name]["nonfinite_updates"]
            updates = now["updates"] - before[name]["updates"]
            if left_out <= 0:
                continue
            bound = self._config.table_settings(name).max_nonfinite_share
            found = (
                f"table {name!r}: {left_out:,} of {updates:,} updates of rows "
                f"({left_out / max(updates, 1):.2%}) from step {first} to {step} were not finite"
            )
            if left_out > bound * updates:
                error = FailedPreconditionError(
                    f"{found}, more than tables.{name}.max_nonfinite_share allows ({bound:.2%}); "
                    "the rows stay as they were; lower optimizer.learning_rate or the table's "
                    "learning_rate, or check the dense columns"
                )
                error.on_all_ranks = True  # all ranks compare the numbers of all
                raise error
            if name not in self._said:
                self._said.add(name)
                self._say(f"{found}; these rows stay as they were, training goes on")
