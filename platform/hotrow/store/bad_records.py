"""Removes a control record that cannot be read, by its name."""

from __future__ import annotations

from hotrow.errors import FailedPreconditionError, NotFoundError
from hotrow.store.cuts import CutRecord
from hotrow.store.generations import ModelRecord
from hotrow.store.readers import check_lease
from hotrow.store.record_format import UNREADABLE, StoredRecord, read_json, read_record
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation
from hotrow.store.undo import UndoRecord
from hotrow.store.withdrawn_cuts import Withdrawn

_KINDS: dict[str, type[StoredRecord]] = {
    "generation": Generation,
    "model": ModelRecord,
    "cut": CutRecord,
    "undo": UndoRecord,
    "withdrawn": Withdrawn,
}


def remove_bad_record(store: RowStore, name: str) -> str:
    """Removes a record that cannot be read; returns why it could not.

    Rows and blocks that only this record names stay in the store.

    Raises:
        NotFoundError: there is no such record.
        FailedPreconditionError: it can be read, or it changes meanwhile.
        UnavailableError: the store does not answer.
    """
    text = store.records.get(name)
    if text is None:
        raise NotFoundError(f"{store.url} has no record {name}")
    try:
        _check(text, name)
    except UNREADABLE as err:
        if not store.records.swap(name, text, None):
            raise FailedPreconditionError(f"{name} was just changed; look at it again") from err
        return str(err)
    raise FailedPreconditionError(
        f"the record {name} can be read, and is not removed alone; --generation or --model delete "
        "what it describes"
    )


def _check(text: str, name: str) -> None:
    kind = name.partition("/")[0]
    if kind in _KINDS:
        read_record(_KINDS[kind], text, name)
    elif kind in ("lease", "export"):
        check_lease(text, name)
    else:
        read_json(text, name)
