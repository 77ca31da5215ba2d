"""The two servables of a version: both are freed, whatever one of them says."""

from __future__ import annotations

from typing import Any

import pytest

from hotrow.protos import control_pb2
from hotrow.serving.updates.double_buffer import DoubleBuffer
from hotrow.serving.wire.status import Code, RequestError


class Executable:
    """Unloads all but some."""

    def __init__(self, refused: set[int]) -> None:
        self.refused = refused
        self.asked: list[int] = []

    def unload(self, servable: int) -> None:
        self.asked.append(servable)
        if servable in self.refused:
            raise RequestError(Code.FAILED_PRECONDITION, f"routes lead to servable {servable}")


def double_buffer(executable: Any) -> DoubleBuffer:
    def load_second(first: int, shown: control_pb2.ShownCut) -> int:
        raise AssertionError

    return DoubleBuffer(executable, [3, 5], 3, load_second, lambda: None)


def test_the_one_with_the_tables_is_freed_last() -> None:
    executable = Executable(set())
    double_buffer(executable).close()
    assert executable.asked == [5, 3]


def test_one_that_is_not_freed_keeps_no_other() -> None:
    executable = Executable({5})
    with pytest.raises(RequestError, match="routes lead to servable 5"):
        double_buffer(executable).close()
    assert executable.asked == [5, 3]
