"""What schedules showed, one by one and together."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

SOON = 5.0
"""Seconds in which all should be well again once all processes answer."""
_OF_TRAINERS = ("starts", "refused_trainers", "takeovers", "rewinds")


@dataclass
class Verdict:
    """What a world saw of a schedule.

    Attributes:
        answers, failures: how many requests had which end.
        announced: wrong or older answers that said so.
        rewinds: older answers after a trainer was started.
        violations: what may not happen, as text.
        state: of all after a bad schedule.
        cuts: how many different ones the servers showed, together.
        came_up: seconds from the last fault until all processes answered, where that counts apart.
        converged: seconds from then, or from the last fault, until both servers showed the last
            step; None: they did not in time.
        stored: seconds from the same time until the rows of the store were those, too, where that
            counts apart.
        counts: further values of `Result`.
    """

    answers: int = 0
    failures: int = 0
    announced: int = 0
    rewinds: int = 0
    cuts: int = 0
    violations: list[str] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    came_up: float = 0.0
    converged: float | None = None
    stored: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not self.violations and self.converged is not None


@dataclass(frozen=True)
class Result:
    """What a schedule showed.

    Attributes:
        seed: its seed.
        faults: as text. kinds: of them.
        answers, refused, stale: how many requests had which end; stale ones said so.
        exports, failed_exports: how many of each, with an exporter. full_exports: likewise.
        events: how many the trainer had to train since the start of its world.
        starts: how often a trainer was started. refused_trainers: second ones that ended as they
            must. takeovers: by second ones. rewinds: older answers after a start.
        cuts: how many different ones the servers showed, together.
        wrong: answers that may not be, as text.
        came_up: seconds until all processes answered again. converged: seconds from then; None: it
            did not in time. stored: seconds from then until the store had the last rows.
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
    events: int = 0
    starts: int = 0
    refused_trainers: int = 0
    takeovers: int = 0
    rewinds: int = 0
    cuts: int = 0
    wrong: Sequence[str] = ()
    came_up: float = 0.0
    converged: float | None = None
    stored: float = 0.0
    messages: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.wrong and self.converged is not None

    def __str__(self) -> str:
        took = "not" if self.converged is None else f"in {self.converged:.1f} s"
        if self.events:
            did = f"{self.events} events, {self.starts} starts, {self.full_exports} full exports"
            took = f"{took}, {self.came_up:.1f} s after the faults"
        else:
            did = f"{self.exports} exports ({self.failed_exports} failed, {self.full_exports} full)"
        lines = [
            f"seed {self.seed}: {', '.join(self.kinds)}: {did}, {self.answers} answers, "
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
        **{name: total(name) for name in _OF_TRAINERS},
        "cuts": total("cuts"),
        "wrong": sum(len(result.wrong) for result in results),
        "unconverged": sum(result.converged is None for result in results),
        "slowest_convergence_seconds": max(times, default=None),
        "slowest_store_seconds": max((result.stored for result in results), default=0.0),
        "converged_within_5_seconds": sum(seconds <= SOON for seconds in times),
        "bad_seeds": [result.seed for result in results if not result.is_good],
    }
