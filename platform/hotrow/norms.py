"""Gates of an export: values that are not finite, and norms that jump against the export before.

N rows, D weights. The statistics cost one pass over values that the export reads anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pydantic

from hotrow.errors import FailedPreconditionError, InvalidArgumentError

MAX_NORM_RATIO = 10.0
"""How many times a norm may grow or shrink from one export to the next, unless it is set."""

_FLOOR = 0.1
"""Smaller norms count as this one: weights that start at zero grow by any factor."""

_Floats = npt.NDArray[np.floating]
_Mask = npt.NDArray[np.bool_]


class GateError(FailedPreconditionError):
    """A gate refuses what would be exported."""


class Norm(pydantic.BaseModel):
    """The size of the finite values of a table or of a dense weight.

    Attributes:
        name: of the table or weight, as messages show it.
        rms: root mean square of all values.
        largest: largest absolute value.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

    name: str
    rms: float
    largest: float


class Measured:
    """Measures the rows of a table, or a dense weight, piece by piece.

    Args:
        name: of the table or weight.
        limit: larger absolute values become infinite where they are stored.
        of_table: whether the values are rows with keys.
    """

    def __init__(self, name: str, limit: float = np.inf, *, of_table: bool = True) -> None:
        self.name = name
        self._limit = limit
        self._of_table = of_table
        self._squares = 0.0
        self._values = 0
        self._largest = 0.0
        self._exported = 0
        self._wrong = 0
        self._first: int | None = None

    def add(
        self, keys: npt.NDArray[np.int64], rows: _Floats, exported: _Mask | None = None
    ) -> None:
        """Adds rows.

        Args:
            keys: int64 [N].
            rows: floating point [N, D].
            exported: bool [N], which rows are exported and must be finite; None: all.
        """
        self._exported += len(keys) if exported is None else int(exported.sum())
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("nd,nd->n", rows, rows).astype(np.float64)
        if not np.isfinite(squares).all():
            finite: _Mask = np.asarray(np.isfinite(rows).all(axis=1))
            self._note_wrong(keys, ~finite, exported)
            rows = rows[finite].astype(np.float64)  # squares of large float32 are infinite
            squares, keys = np.einsum("nd,nd->n", rows, rows), keys[finite]
            exported = None if exported is None else exported[finite]
        if not rows.size:
            return
        largest = max(float(rows.max()), -float(rows.min()))
        if largest > self._limit:
            over: _Mask = np.asarray((np.abs(rows) > self._limit).any(axis=1))
            self._note_wrong(keys, over, exported)
        self._squares += float(squares.sum())
        self._values += rows.size
        self._largest = max(self._largest, largest)

    @property
    def is_empty(self) -> bool:
        """Whether there was no finite value so far."""
        return not self._values

    def norm(self) -> Norm:
        """Returns the norm of all finite values so far."""
        rms = float(np.sqrt(self._squares / self._values)) if self._values else 0.0
        return Norm(name=self.name, rms=rms, largest=self._largest)

    def problem(self) -> str | None:
        """Returns a text about exported values that are not finite; None: all are."""
        if not self._wrong:
            return None
        what = "not finite (NaN or an infinity)"
        if self._limit < np.inf:
            what += f" or above {self._limit:.5g}, the largest value that is stored"
        if not self._of_table:
            return f"{self.name}: its values are {what}"
        return (
            f"{self.name}: {self._wrong} of {self._exported} rows to export are {what}, the first "
            f"of them key {self._first}"
        )

    def _note_wrong(
        self, keys: npt.NDArray[np.int64], wrong: _Mask, exported: _Mask | None
    ) -> None:
        found = keys[wrong if exported is None else wrong & exported]
        self._wrong += len(found)
        if self._first is None and len(found):
            self._first = int(found[0])


@dataclass(frozen=True)
class Gates:
    """What an export must keep to.

    Attributes:
        max_norm_ratio: how many times a norm may grow or shrink from one export to the next; None:
            any number of times.
        force: whether to export what the gates would refuse.
    """

    max_norm_ratio: float | None = MAX_NORM_RATIO
    force: bool = False

    def __post_init__(self) -> None:
        """Checks the ratio.

        Raises:
            InvalidArgumentError: it is 1 or less.
        """
        if self.max_norm_ratio is not None and not self.max_norm_ratio > 1:
            raise InvalidArgumentError(
                f"--max_norm_ratio {self.max_norm_ratio}: must be more than 1"
            )

    def check_finite(self, measured: Measured) -> None:
        """Checks that all exported values are finite.

        Raises:
            GateError: some are not; the message has the table, the numbers and the option.
        """
        problem = measured.problem()
        if problem is not None and not self.force:
            raise GateError(
                f"{problem}; nothing was exported. Find out why training diverged and export an "
                "earlier checkpoint (--step N), or give --force to export it as it is"
            )

    def check_jumps(self, before: Sequence[Norm], now: Sequence[Norm]) -> None:
        """Compares norms with those of the export before; new tables and weights may have any.

        Raises:
            GateError: one jumps; the message has its name, the numbers, the threshold, the option.
        """
        if self.force or self.max_norm_ratio is None:
            return
        known = {norm.name: norm for norm in before}
        for norm in now:
            if norm.name in known:
                self._check_jump(known[norm.name], norm)

    def _check_jump(self, before: Norm, now: Norm) -> None:
        most = self.max_norm_ratio
        assert most is not None  # else nothing is compared
        for what, old, new, ratio in _ratios(before, now):
            shrinks = what == "root mean square" and ratio < 1 / most
            if ratio > most or shrinks:
                raise GateError(
                    f"{now.name}: the {what} of its values is {new:.4g}, in the export before "
                    f"{old:.4g}; it may grow or shrink {most:g} times (export.max_norm_ratio, "
                    "--max_norm_ratio). Nothing was exported. Find out why it jumps, raise the "
                    "ratio, or give --force to export it as it is"
                )


def check_growth(before: Sequence[Norm], now: Sequence[Norm], most: float | None) -> None:
    """Compares norms of changed rows with those of the cut before; new ones may have any.

    Unlike a full export's, a cut's rows are others each time, so they may have smaller norms.

    Args:
        before: of the cut before.
        now: of the cut.
        most: how many times a norm may grow; None: any number of times.

    Raises:
        GateError: one grows more.
    """
    known = {norm.name: norm for norm in before}
    for norm in now if most is not None else ():
        for what, old, new, ratio in _ratios(known.get(norm.name, norm), norm):
            if most is not None and ratio > most:
                raise GateError(
                    f"{norm.name}: the {what} of its values is {new:.4g}, in the cut before "
                    f"{old:.4g}; it may grow {most:g} times (export.max_norm_ratio)"
                )


def _ratios(before: Norm, now: Norm) -> Iterator[tuple[str, float, float, float]]:
    """Yields (what, before, now, how many times as large) of the two sizes of a norm."""
    for what, old, new in (
        ("root mean square", before.rms, now.rms),
        ("largest absolute value", before.largest, now.largest),
    ):
        yield what, old, new, max(new, _FLOOR) / max(old, _FLOOR)
