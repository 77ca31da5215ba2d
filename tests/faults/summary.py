"""What schedules showed, one by one and together."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """What a schedule showed.

    Attributes:
        seed: its seed.
        faults: as text. kinds: of them.
        answers, refused, stale: how many requests had which end; stale ones said so.
        exports, failed_exports, full_exports: how many of each.
        cuts: how many different ones the servers showed, together.
        wrong: answers that may not be, as text.
        converged: seconds; None: it did not in time.
        messages: of exports that failed, some; and the state of all that did not converge.
        seconds: it took altogether.
    """

    seed: int
    faults: Sequence[str]
    kinds: Sequence[str]
    answers: int = 0
    refused: int = 0
    stale: int = 0
    exports: int = 0
    failed_exports: int = 0
    full_exports: int = 0
    cuts: int = 0
    wrong: Sequence[str] = ()
    converged: float | None = None
    messages: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.wrong and self.converged is not None

    def __str__(self) -> str:
        took = "not" if self.converged is None else f"in {self.converged:.1f} s"
        lines = [
            f"seed {self.seed}: {', '.join(self.kinds)}: {self.exports} exports "
            f"({self.failed_exports} failed, {self.full_exports} full), {self.answers} answers, "
            f"{self.refused} refused, {self.stale} stale; converged {took} ({self.seconds:.0f} s)"
        ]
        if not self.is_good:
            lines += [f"    {line}" for line in (*self.faults, *self.wrong[:5], *self.messages)]
        return "\n".join(lines)

    def as_json(self) -> str:
        """Returns one line, for `from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Result:
        """Returns what `as_json` wrote."""
        return cls(**json.loads(line))


def summary(results: Iterable[Result]) -> dict[str, Any]:
    """Returns sums, by their names in words."""
    results = sorted(results, key=lambda result: result.seed)
    kinds = Counter(kind for result in results for kind in result.kinds)
    times = [result.converged for result in results if result.converged is not None]

    def total(name: str) -> int:
        return sum(getattr(result, name) for result in results)

    return {
        "schedules": len(results),
        "faults": dict(sorted(kinds.items())),
        "answers": total("answers"),
        "refused": total("refused"),
        "stale": total("stale"),
        "exports": total("exports"),
        "failed_exports": total("failed_exports"),
        "full_exports": total("full_exports"),
        "cuts": total("cuts"),
        "wrong": sum(len(result.wrong) for result in results),
        "unconverged": sum(result.converged is None for result in results),
        "slowest_convergence_seconds": max(times, default=None),
        "bad_seeds": [result.seed for result in results if not result.is_good],
    }
