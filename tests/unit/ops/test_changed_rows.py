"""What training changed since an export: the rows at the boundary, and in bounded pieces."""

from __future__ import annotations

import numpy as np

from hotrow import Expiry, TableConfig
from hotrow.ops.export.changed_rows import changed_rows
from hotrow.ops.table import Table


def trained(**options):
    """Returns a table, and a function that makes one step of some keys."""
    table = Table(TableConfig("t", 4, **options), seed=1)
    table.keep_tombstones()

    def step(*keys):
        of_step = np.array(keys, np.int64)
        table.lookup(of_step, insert=True)
        table.update(of_step, np.ones((len(keys), 4), np.float32))

    return table, step


def keys_of(table, since, row_type="float32"):
    changes = list(changed_rows(table, row_type, since))
    return (
        sorted(int(key) for change in changes for key in change.keys),
        sorted(int(key) for change in changes for key in change.removed),
    )


def test_rows_of_later_steps_are_reported_and_those_of_the_step_itself_are_not():
    table, step = trained()
    step(1, 2)
    step(2, 3)
    since = table.step
    assert since == 2
    assert keys_of(table, since) == ([], [])
    assert keys_of(table, since - 1) == ([2, 3], [])
    step(3, 4)
    assert keys_of(table, since) == ([3, 4], [])
    assert keys_of(table, 0) == ([1, 2, 3, 4], [])


def test_a_row_without_a_step_yet_is_reported_until_an_export_of_a_later_step():
    table, step = trained()
    step(1)
    table.lookup(np.array([9]), insert=True)
    assert keys_of(table, table.step) == ([9], [])
    step(2)
    assert keys_of(table, table.step) == ([], [])
    table.lookup(np.array([9]), insert=True)
    table.lookup(np.array([1]))
    assert keys_of(table, table.step) == ([], []), "lookups change no row"


def test_expired_keys_are_reported_once_and_not_when_they_are_back():
    table, step = trained(expiry=Expiry(after_steps=2, sweep_steps=1))
    step(1, 2, 3)
    since = table.step
    for _ in range(3):
        step(3)
    assert keys_of(table, since) == ([3], [1, 2])
    later = table.step
    step(2)
    assert keys_of(table, later) == ([2], [])
    assert keys_of(table, since) == ([2, 3], [1])


def test_rows_come_in_pieces_of_bounded_size_in_the_row_type_of_the_store():
    table, step = trained(expiry=Expiry(after_steps=1, sweep_steps=1))
    step(*range(70_000))
    pieces = list(changed_rows(table, "int8", 0, piece_bytes=8 * 1000))
    assert [len(piece.keys) for piece in pieces] == [65536, 70_000 - 65536]
    assert {piece.rows.shape[1] for piece in pieces} == {8}
    step(-1)
    step(-1)
    pieces = list(changed_rows(table, "int8", 1, piece_bytes=8 * 1000))
    assert [len(piece.removed) for piece in pieces] == [0, *[1000] * 70]
    assert len({int(key) for piece in pieces for key in piece.removed}) == 70_000
