"""The format of control records: reads one, or says by name why it cannot be read.

A record has the number of its format, 1 if it has none. A newer Hotrow raises it when an older one
could not use the record safely; keys that may be ignored come without that.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic

from hotrow.errors import DataLossError, FailedPreconditionError

RECORD_FORMAT = 1
"""The newest format of a record that this Hotrow reads; it writes this one."""

_Record = TypeVar("_Record", bound="StoredRecord")
_log = logging.getLogger(__name__)
_warned: set[tuple[str, str]] = set()


class NewerRecordError(FailedPreconditionError):
    """A newer version of Hotrow wrote a record."""


UNREADABLE = (DataLossError, NewerRecordError)
"""What reading a record raises when it is damaged or too new."""


class StoredRecord(pydantic.BaseModel):
    """A control record; keys that it does not know are ignored.

    Attributes:
        format: number of its format.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

    format: int = RECORD_FORMAT


@dataclass(frozen=True)
class Unreadable:
    """A record that cannot be read.

    Attributes:
        record: its name.
        reason: why, in a sentence that names it.
        model: the model that it names; "": it names none.
    """

    record: str
    reason: str
    model: str = ""


def read_record(kind: type[_Record], text: str, name: str) -> _Record:
    """Returns a record.

    Args:
        kind: its class.
        text: its text.
        name: its name in the store, for messages.

    Raises:
        NewerRecordError: a newer version of Hotrow wrote it.
        DataLossError: it is damaged.
    """
    found = read_object(text, name)
    try:
        return kind.model_validate_json(text)
    except pydantic.ValidationError as err:
        first = err.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise damaged(name, f"{place}: {first['msg']}; it has {sorted(found)}") from err


def read_object(text: str, name: str) -> dict[str, Any]:
    """Returns the keys of a record that has no class.

    Raises:
        NewerRecordError, DataLossError: as for `read_record`.
    """
    found = read_json(text, name)
    if not isinstance(found, dict):
        raise damaged(name, f"it is {type(found).__name__}, not an object")
    return found


def read_json(text: str, name: str) -> Any:
    """Returns a record in JSON types; only objects have a format.

    Raises:
        NewerRecordError, DataLossError: as for `read_record`.
    """
    try:
        found = json.loads(text)
    except ValueError as err:
        raise damaged(name, str(err)) from err
    wanted = found.get("format", RECORD_FORMAT) if isinstance(found, dict) else RECORD_FORMAT
    if not isinstance(wanted, int):
        raise damaged(name, f"its format is {wanted!r}")
    if wanted > RECORD_FORMAT:
        raise NewerRecordError(newer(f"the record {name}", wanted))
    return found


def newer(what: str, found: int) -> str:
    """Returns the message about something that a newer version of Hotrow wrote."""
    return (
        f"{what} is newer than this Hotrow (record format {found}, this one reads up to "
        f"{RECORD_FORMAT}); upgrade Hotrow here, or go on with the version that wrote it"
    )


def damaged(name: str, reason: str) -> DataLossError:
    """Returns the error of a damaged record."""
    return DataLossError(
        f"the record {name} is damaged: {reason}; restore the store from a backup, or remove the "
        f"record: platform delete STORE_URL --record {name}"
    )


def unreadable(text: str, name: str, err: Exception) -> Unreadable:
    """Returns what is known of a record that cannot be read."""
    try:
        model = json.loads(text)["model"]
    except (ValueError, KeyError, TypeError):
        model = ""
    return Unreadable(name, str(err), model if isinstance(model, str) else "")


def warn_skipped(skipped: Unreadable) -> None:
    """Logs that a record is left out; once in a process for each reason."""
    if (skipped.record, skipped.reason) not in _warned:
        _warned.add((skipped.record, skipped.reason))
        _log.warning("left out: %s", skipped.reason)
