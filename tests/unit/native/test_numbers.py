"""Numbers of the core's enums: every legal name has one, and those of files stay what they are."""

from __future__ import annotations

from hotrow._native import NUMBERS
from hotrow.line_layout import ROW_TYPES
from hotrow.ops.device_collectives import DEVICE_COLLECTIVES
from hotrow.spec import COMBINERS, FILTERS, OPTIMIZERS, POLICIES, SHARDINGS
from hotrow.store.spec import STORED_TYPES


def test_every_legal_name_has_a_number() -> None:
    assert set(NUMBERS["admission"]) == {"always", *FILTERS}
    assert set(NUMBERS["cache_policy"]) == set(POLICIES)
    assert set(NUMBERS["combiner"]) == {combiner or "none" for combiner in COMBINERS}
    assert set(NUMBERS["device_collectives"]) == set(DEVICE_COLLECTIVES)
    assert set(NUMBERS["optimizer"]) == {kind.__name__ for kind in OPTIMIZERS}
    assert set(NUMBERS["sharding"]) == set(SHARDINGS)


def test_files_have_types_by_position() -> None:
    assert NUMBERS["row_type"] == {name: number for number, name in enumerate(ROW_TYPES)}
    assert NUMBERS["stored_type"] == {name: number for number, name in enumerate(STORED_TYPES)}
