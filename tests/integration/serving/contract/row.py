"""One promise of TensorFlow Serving, its state here, and the tests that show it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of a promise here."""

    KEPT = "kept"
    DIFFERS = "differs"
    ADDED = "added"
    NOT_BUILT = "not built"


@dataclass(frozen=True)
class Row:
    """A row of the page.

    Attributes:
        what: the promise in a few words, as Markdown.
        state: its state here.
        why: the reason for a difference or a missing feature; empty otherwise.
        tests: the tests that show it. `test_file.py::test_name`, or `...[id]`, is in
            tests/integration/serving, `room/test_file.py::...` in tests/unit/serving,
            `x_test.cc::case` in serving/native/tests.
            The page marks a row without tests.
    """

    what: str
    state: State
    tests: tuple[str, ...] = ()
    why: str = ""

    def __post_init__(self) -> None:
        """Refuses a row that could mislead.

        Raises:
            ValueError: a difference without its reason, a reason without a difference, or an
                addition without a test.
        """
        needs_reason = self.state in (State.DIFFERS, State.NOT_BUILT)
        if needs_reason != bool(self.why):
            raise ValueError(f"{self.what!r} is {self.state}: its reason is {self.why!r}")
        if self.state is State.ADDED and not self.tests:
            raise ValueError(f"{self.what!r} is added; name the tests that show it")


def kept(what: str, *tests: str) -> Row:
    """Returns a row for behaviour that is the same as in TensorFlow Serving."""
    return Row(what, State.KEPT, tests)


def differs(what: str, why: str, *tests: str) -> Row:
    """Returns a row for behaviour that differs here; `why` is how."""
    return Row(what, State.DIFFERS, tests, why)


def added(what: str, *tests: str) -> Row:
    """Returns a row for a feature that TensorFlow Serving does not have."""
    return Row(what, State.ADDED, tests)


def not_built(what: str, why: str, *tests: str) -> Row:
    """Returns a row for a missing feature; its tests show how it is refused."""
    return Row(what, State.NOT_BUILT, tests, why)
