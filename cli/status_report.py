"""What `platform status` has found: its parts, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hotrow.cli.failures import EXIT_FAILURE, EXIT_NOT_TAKEN

FORMAT = 1
"""Of the JSON; grows when a field changes its meaning or goes."""


@dataclass(frozen=True)
class Bounds:
    """What counts as wrong.

    Attributes:
        behind_seconds: how long a server may be behind the newest cut.
        lag_seconds: how far the trainer may be behind its source.
        memory_share: share of `maxmemory` that a node may use.
    """

    behind_seconds: float = 5.0
    lag_seconds: float = 30.0
    memory_share: float = 0.9


@dataclass(frozen=True)
class Problem:
    """Something that an operator should look at.

    Attributes:
        part: "trainer", "store" or "servers".
        text: what it is.
        unanswered: whether it is that the part, or one of the servers, does not answer.
    """

    part: str
    text: str
    unanswered: bool = False


@dataclass
class Report:
    """The parts as JSON types; a part that does not answer has only `answers` and `why`.

    Attributes:
        time: when it was made, Unix seconds.
        trainer: None: there is none to ask.
        store: None: no store is known.
        servers: one of each.
        problems: of all parts.
    """

    time: float
    trainer: dict[str, Any] | None = None
    store: dict[str, Any] | None = None
    servers: list[dict[str, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0: all is well; 1: a part does not answer; 3: something is behind, closed or paused."""
        if any(problem.unanswered for problem in self.problems):
            return EXIT_FAILURE
        return EXIT_NOT_TAKEN if self.problems else 0

    def as_dict(self) -> dict[str, Any]:
        """Returns everything as JSON types."""
        return {
            "kind": "status",
            "format": FORMAT,
            "time": self.time,
            "exit_code": self.exit_code,
            "problems": [
                {"part": problem.part, "text": problem.text, "unanswered": problem.unanswered}
                for problem in self.problems
            ],
            "trainer": self.trainer,
            "store": self.store,
            "servers": self.servers,
        }


def counted(number: int, name: str) -> str:
    """Returns "1 cut" or "5 cuts"."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def unanswered(why: object) -> dict[str, Any]:
    """Returns a part that does not answer."""
    return {"answers": False, "why": " ".join(str(why).split())}
