"""The life cycle of generations (begun, complete, live, deleted) in the records of any store."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Sequence
from typing import Any, TypeVar

import pydantic

from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from hotrow.store.row_store import Change, Records
from hotrow.store.spec import (
    DEFAULT_SHARDS,
    MOST_TABLES,
    Generation,
    Origin,
    State,
    StoredTable,
    check_shards,
    next_token,
)

_GENERATION = "generation/"
_MODEL = "model/"
_Record = TypeVar("_Record", bound=pydantic.BaseModel)
# Tries to change a record that other processes change at the same time.
_MOST_TRIES = 100


class ModelRecord(pydantic.BaseModel):
    """A store's record of a model.

    Attributes:
        live: the generation that servers should use; "" before the first one is complete.
        previous: the generation that was live before; "" if there was none.
        epoch, seq: fencing numbers; each writer of the model takes the next ones (`next_token`),
            and the commit of a cut increments `seq`.
        token: random, new with each change of epoch or seq: a store that went back in time and on
            again has another one. "": an older version of Hotrow wrote it.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

    live: str = ""
    previous: str = ""
    epoch: int = 0
    seq: int = 0
    token: str = ""


class Generations:
    """The generations of a store.

    All methods raise UnavailableError when the store does not answer, and DataLossError when a
    record is damaged.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    def begin(
        self,
        *,
        model: str,
        version: int,
        step: int,
        source: str,
        schema_hash: str,
        tables: Sequence[StoredTable],
        shards: int = DEFAULT_SHARDS,
    ) -> Generation:
        """Writes the record of a new generation, with the next epoch of its model.

        Raises:
            InvalidArgumentError: an illegal number of shards, or too many tables.
        """
        check_shards("shards", shards)
        if len(tables) > MOST_TABLES:
            raise InvalidArgumentError(f"{len(tables)} tables; a store takes {MOST_TABLES}")
        writer = self.next_epoch(model)
        generation = Generation(
            generation=uuid.uuid4().hex,
            number=self._records.next_number(),
            model=model,
            version=version,
            step=step,
            source=source,
            state=State.WRITING,
            shards=shards,
            schema_hash=schema_hash,
            created_ms=self._records.now_ms(),
            epoch=writer.epoch,
            seq=writer.seq,
            tables=tuple(tables),
        )
        text = generation.model_dump_json()
        if not self._records.swap(_GENERATION + generation.generation, None, text):
            raise FailedPreconditionError(f"generation {generation.generation} exists already")
        return generation

    def get(self, generation: str) -> Generation:
        """Returns a generation.

        Raises:
            NotFoundError: no generation has this name.
        """
        text = self._records.get(_GENERATION + generation)
        if text is None:
            raise NotFoundError(f"the store has no generation {generation}")
        return _parse(Generation, text, f"generation {generation}")

    def all(self, model: str | None = None) -> list[Generation]:
        """Returns all generations, or those of a model, in the order of their numbers."""
        found = []
        for name in self._records.names(_GENERATION):
            text = self._records.get(name)
            if text is not None:  # else deleted meanwhile
                found.append(_parse(Generation, text, name))
        found.sort(key=lambda generation: generation.number)
        return [g for g in found if model is None or g.model == model]

    def complete(
        self,
        generation: Generation,
        tables: Sequence[StoredTable],
        origin: Origin | None = None,
    ) -> Generation:
        """Records that all rows are written and verified; `tables` have their rows and digests."""
        return self._change(
            generation,
            State.WRITING,
            state=State.COMPLETE,
            tables=tuple(tables),
            origin=origin,
        )

    def note_origin(self, generation: Generation, origin: Origin) -> Generation:
        """Records another state of training that a complete generation equals, bit for bit."""
        return self._change(generation, State.COMPLETE, origin=origin)

    def begin_deleting(self, generation: Generation) -> Generation:
        """Records that rows are being deleted: from now on it can be neither read nor resumed.

        Raises:
            FailedPreconditionError: it is live.
        """
        if self.model(generation.model).live == generation.generation:
            raise FailedPreconditionError(
                f"generation {generation.generation} is live; export another one first, or delete "
                "the whole model"
            )
        if generation.state is State.DELETING:
            return generation
        return self._change(generation, generation.state, state=State.DELETING)

    def keep(self, generation: Generation) -> Generation:
        """Reverts the deletion of a complete generation; none of its rows may be deleted yet."""
        return self._change(generation, State.DELETING, state=State.COMPLETE)

    def forget(self, generation: Generation) -> None:
        """Removes the record of a generation whose rows were deleted."""
        name = _GENERATION + generation.generation
        self._records.swap(name, self._records.get(name), None)

    def model(self, model: str) -> ModelRecord:
        """Returns the record of a model; defaults for an unknown one."""
        text = self._records.get(_MODEL + model)
        return ModelRecord() if text is None else _parse(ModelRecord, text, f"model {model}")

    def models(self) -> list[str]:
        """Returns the names of all models."""
        return [name.removeprefix(_MODEL) for name in self._records.names(_MODEL)]

    def make_live(self, generation: Generation) -> ModelRecord:
        """Makes a complete generation its model's live one; the former one becomes `previous`.

        Raises:
            FailedPreconditionError: it is not complete.
        """
        if self.get(generation.generation).state is not State.COMPLETE:
            raise FailedPreconditionError(
                f"generation {generation.generation} is not complete and cannot be live"
            )

        def point(record: ModelRecord) -> dict[str, Any]:
            if record.live == generation.generation:
                return {}
            return {"live": generation.generation, "previous": record.live}

        return self._change_model(generation.model, point)

    def next_epoch(self, model: str, above: int = 0) -> ModelRecord:
        """Takes the next epoch and seq of a model; the store then refuses commits of earlier ones.

        Args:
            model: the model's name.
            above: the greatest version known, also from elsewhere than the model's record, which a
                store that went back in time may have forgotten.
        """

        def next_writer(record: ModelRecord) -> dict[str, Any]:
            # The exporter's clock, too: that of a replica that took over may be behind.
            now_ms = max(self._records.now_ms(), time.time_ns() // 1_000_000)
            epoch, seq = next_token(record.epoch, record.seq, now_ms, above)
            return {"epoch": epoch, "seq": seq, "token": new_identity()}

        return self._change_model(model, next_writer)

    def commit(self, model: str, taken: ModelRecord, changes: Sequence[Change]) -> bool:
        """Changes records together with an increment of a model's seq, atomically.

        Args:
            model: the model's name.
            taken: the result of `next_epoch`.
            changes: changes of other records.

        Returns:
            True if done; False if another writer took a later epoch, or a record was not as
            expected.
        """
        name = _MODEL + model
        for _ in range(_MOST_TRIES):
            text = self._records.get(name)
            if text is None:
                return False
            record = _parse(ModelRecord, text, name)
            if (record.epoch, record.seq, record.token) != (taken.epoch, taken.seq, taken.token):
                return False
            following = {"seq": record.seq + 1, "token": new_identity()}
            done = record.model_copy(update=following).model_dump_json()
            if self._records.swap_all([(name, text, done), *changes]):
                return True
            if self._records.get(name) == text:
                return False
        raise FailedPreconditionError(f"{name} keeps changing")

    def retire(self, model: str) -> ModelRecord:
        """Removes a model's live generation; its numbers continue from their values."""
        return self._change_model(model, lambda _: {"live": "", "previous": ""})

    def _change(self, generation: Generation, expected: State, **changes: Any) -> Generation:
        name = _GENERATION + generation.generation
        for _ in range(_MOST_TRIES):
            text = self._records.get(name)
            if text is None:
                raise NotFoundError(f"the store has no generation {generation.generation}")
            current = _parse(Generation, text, name)
            if current.state is not expected:
                raise FailedPreconditionError(
                    f"generation {generation.generation} is {current.state}, not {expected}; "
                    "another process changed it"
                )
            changed = current.model_copy(update=changes)
            if self._records.swap(name, text, changed.model_dump_json()):
                return changed
        raise FailedPreconditionError(f"{name} keeps changing")

    def _change_model(self, model: str, change: Any) -> ModelRecord:
        name = _MODEL + model
        for _ in range(_MOST_TRIES):
            text = self._records.get(name)
            record = ModelRecord() if text is None else _parse(ModelRecord, text, name)
            changed = record.model_copy(update=change(record))
            if self._records.swap(name, text, changed.model_dump_json()):
                return changed
        raise FailedPreconditionError(f"{name} keeps changing")


def new_identity() -> str:
    """Returns 128 random bits in hex: unlike a number, they cannot come again."""
    return secrets.token_hex(16)


def _parse(kind: type[_Record], text: str, what: str) -> _Record:
    try:
        return kind.model_validate_json(text)
    except pydantic.ValidationError as err:
        reason = str(err).splitlines()[0]
        raise DataLossError(f"the record of {what} is damaged: {reason}") from err
