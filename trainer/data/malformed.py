"""Lines that cannot be read: fail at the first one, or skip and count them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from hotrow.trainer.data.errors import DataError

MAX_SHOWN_CHARACTERS = 60


class Problem(NamedTuple):
    """A line (1-based; a row in Parquet) and what is wrong with it."""

    line: int
    what: str


@dataclass(frozen=True)
class Malformed:
    """The lines that were skipped.

    Attributes:
        count: number of lines.
        first_line: the number of the first of them; None: unknown.
        path: its file; None: unknown.
        reason: why it is malformed; None: unknown.
        unit: the counted unit: "line", or "row" in Parquet.
    """

    count: int = 0
    first_line: int | None = None
    path: str | None = field(default=None, compare=False)
    reason: str | None = field(default=None, compare=False)
    unit: str = field(default="line", compare=False)

    def __str__(self) -> str:
        """Returns a message with the count, the first malformed line and the reason."""
        if not self.count:
            return f"no malformed {self.unit}s"
        several = f"{self.count:,} malformed {self.unit}{'s' if self.count > 1 else ''}"
        return f"{several}, the first is {self.unit} {self.first_line}: {self.reason}"


def all_malformed(several: Sequence[Malformed]) -> Malformed:
    """Returns the malformed lines of several passes together; the first of them is shown."""
    first = next((one for one in several if one.count), several[0] if several else Malformed())
    return replace(first, count=sum(one.count for one in several))


class MalformedLog:
    """Applies the policy to the problems of one pass over one file."""

    def __init__(
        self,
        path: str,
        policy: Literal["fail", "skip"],
        unit: str = "line",
        lines_before: Callable[[], int] = int,
    ) -> None:
        """Starts a pass with nothing counted.

        Args:
            path: the file, for messages.
            policy: `data.on_malformed`.
            unit: "line" or "row".
            lines_before: returns what to add to the number of a line; called for the first problem
                only, because it may take long.
        """
        self._lines_before = lines_before
        self._path = path
        self._policy = policy
        self._unit = unit
        self.seen = Malformed(unit=unit)

    def add(self, problems: Iterable[Problem]) -> None:
        """Counts problems, or raises the first one when the policy is `fail`.

        Raises:
            DataError: the policy is `fail` and there is a problem.
        """
        ordered = sorted(problems)
        if not ordered:
            return
        first = ordered[0]
        if self._policy == "fail":
            raise DataError(
                f"{self._path}: {self._unit} {first.line + self._lines_before()}: {first.what} "
                "(on_malformed: skip leaves such lines out and counts them)"
            )
        count = self.seen.count + len(ordered)
        if self.seen.count:
            self.seen = replace(self.seen, count=count)
        else:
            line = first.line + self._lines_before()
            self.seen = Malformed(count, line, reason=first.what, unit=self._unit)


class CollectedProblems(MalformedLog):
    """Keeps all problems, for who does something else with them.

    Attributes:
        problems: in the order in which they were found.
    """

    def __init__(self) -> None:
        """Starts without any."""
        super().__init__("", "skip")
        self.problems: list[Problem] = []

    def add(self, problems: Iterable[Problem]) -> None:
        """Keeps problems."""
        self.problems += sorted(problems)


def shown(text: str) -> str:
    """Returns `text` quoted for a message, cut after `MAX_SHOWN_CHARACTERS`."""
    if len(text) > MAX_SHOWN_CHARACTERS:
        text = text[:MAX_SHOWN_CHARACTERS] + "..."
    return repr(text)
