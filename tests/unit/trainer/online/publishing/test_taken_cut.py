"""Norms of a cut, and what they are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hotrow.norms import GateError, Measured, Norm
from hotrow.store.cut_writing import StagedPart
from hotrow.trainer.online.publishing.journal import Entry
from hotrow.trainer.online.publishing.part import CutPart, norms_of
from hotrow.trainer.online.publishing.taken_cut import TakenCut

WHOLE, CHANGED = "table 't'", "changed rows of table 't'"
RATIO = 10.0


def norms(**sizes: float) -> dict[str, Norm]:
    names = {"whole": WHOLE, "changed": CHANGED}
    return {names[k]: Norm(name=names[k], rms=size, largest=size) for k, size in sizes.items()}


def cut_of(*rows: float) -> TakenCut:
    """Returns a cut whose changed rows have these weights."""
    measured = Measured(CHANGED)
    measured.add(np.arange(len(rows), dtype=np.int64), np.array(rows, np.float32)[:, None])
    part = CutPart(StagedPart("staging"), norms_of([measured]), "")
    entry = Entry(version=2, identity="b", previous="a", generation="g", step=1)
    begun: Any = None  # neither is looked at
    view: Any = None
    return TakenCut(begun, view, entry, 0.0, 0.0, None, {0: part})


def test_a_cut_without_rows_of_a_table_keeps_the_norm_of_the_cut_before() -> None:
    before = norms(changed=5.0)
    none = cut_of().checked_norms(before, RATIO, force=False)
    assert none == before
    after = cut_of(20.0).checked_norms(none, RATIO, force=False)
    assert after[CHANGED].largest == 20.0


def test_changed_rows_may_be_as_large_as_those_of_the_whole_table() -> None:
    before = norms(whole=30.0, changed=0.1)
    assert cut_of(25.0).checked_norms(before, RATIO, force=False)[CHANGED].rms == 25.0
    with pytest.raises(GateError, match="in the cut before 30"):
        cut_of(301.0).checked_norms(before, RATIO, force=False)
    with pytest.raises(GateError, match=r"in the cut before 0\.1"):
        cut_of(25.0).checked_norms(norms(changed=0.1), RATIO, force=False)
