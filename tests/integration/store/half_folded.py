"""Folded cuts whose records do not all say so."""

from __future__ import annotations

from collections.abc import Collection

from hotrow.store.cut_folding import fold
from hotrow.store.cuts import cut_name, cuts_of
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation


def fold_all_but_the_records_of(
    store: RowStore, generation: Generation, unfolded: Collection[int]
) -> None:
    """Folds all cuts; the records of some, by their place, say that they are not folded.

    Cuts look like this while they are folded again, and to who reads one record after the other
    while they are folded.
    """
    cuts = fold(store, generation, cuts_of(store.records, generation))
    for place in unfolded:
        cut = cuts[place]
        text = cut.model_copy(update={"folded": False}).model_dump_json()
        name = cut_name(generation, cut.version)
        assert store.records.swap(name, cut.model_dump_json(), text)
