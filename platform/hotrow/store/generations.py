"""The life cycle of generations (begun, complete, live, deleted) in the records of any store."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from hotrow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from hotrow.store.record_format import (
    UNREADABLE,
    StoredRecord,
    Unreadable,
    read_record,
    unreadable,
    warn_skipped,
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
# Tries to change a record that other processes change at the same time.
_MOST_TRIES = 100


class ModelRecord(StoredRecord):
    """A store's record of a model.

    Attributes:
        live: the generation that servers should use; "" before the first one is complete.
        previous: the generation that was live before; "" if there was none.
        epoch, seq: fencing numbers; each writer of the model takes the next ones (`next_token`),
            and the commit of a cut increments `seq`.
        token: random, new with each change of epoch or seq: a store that went back in time and on
            again has another one. "": an older version of Hotrow wrote it.
    """

    live: str = ""
    previous: str = ""
    epoch: int = 0
    seq: int = 0
    token: str = ""


class Generations:
    """The generations of a store.

    All methods raise UnavailableError when the store does not answer, and DataLossError or
    NewerRecordError when a record that they need cannot be read.
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
        writer: ModelRecord | None = None,
    ) -> Generation:
        """Writes the record of a new generation; `writer` is None for the next epoch of its model.

        Raises:
            InvalidArgumentError: an illegal number of shards, or too many tables.
        """
        check_shards("shards", shards)
        if len(tables) > MOST_TABLES:
            raise InvalidArgumentError(f"{len(tables)} tables; a store takes {MOST_TABLES}")
        writer = self.next_epoch(model) if writer is None else writer
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
        return read_record(Generation, text, _GENERATION + generation)

    def all(self, model: str | None = None) -> list[Generation]:
        """Returns all generations, or those of a model, in the order of their numbers.

        Those whose record cannot be read are left out, with a warning.
        """
        found, skipped = self.listed()
        for left_out in skipped:
            warn_skipped(left_out)
        return [g for g in found if model is None or g.model == model]

    def listed(self) -> tuple[list[Generation], list[Unreadable]]:
        """Returns all generations in the order of their numbers, and records that are unreadable.

        A generation whose record cannot be read may be of any model, and in use.
        """
        found, skipped = [], []
        for name in self._records.names(_GENERATION):
            text = self._records.get(name)
            if text is None:  # deleted meanwhile
                continue
            try:
                found.append(read_record(Generation, text, name))
            except UNREADABLE as err:
                skipped.append(unreadable(text, name, err))
        return sorted(found, key=lambda generation: generation.number), skipped

    def is_unreadable(self, generation: str) -> bool:
        """Returns whether a generation has a record that cannot be read."""
        _, skipped = self.listed()
        return _GENERATION + generation in {left_out.record for left_out in skipped}

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
        """Marks a generation for deletion: from now on it can be neither read nor resumed.

        Returns it; `unused` is set if no process can have read it.

        Raises:
            FailedPreconditionError: it is live.
        """
        current = self.get(generation.generation)
        if current.state is State.DELETING:
            return current
        name = _MODEL + generation.model

        def not_live() -> list[Change]:
            text = self._records.get(name)
            if text is None:
                return []
            if read_record(ModelRecord, text, name).live == generation.generation:
                raise FailedPreconditionError(
                    f"generation {generation.generation} is live; export another one first, or "
                    "delete the whole model"
                )
            return [(name, text, text)]

        return self._change(
            generation,
            generation.state,
            beside=not_live,
            state=State.DELETING,
            unused=generation.state is State.WRITING,
        )

    def note_unused(self, generation: Generation) -> Generation:
        """Records that a generation marked for deletion has no readers; its rows may go now."""
        return self._change(generation, State.DELETING, unused=True)

    def keep(self, generation: Generation) -> Generation:
        """Reverts the mark of a complete generation; none of its rows may be deleted yet."""
        return self._change(generation, State.DELETING, state=State.COMPLETE)

    def forget(self, generation: Generation) -> None:
        """Removes the record of a generation whose rows were deleted."""
        name = _GENERATION + generation.generation
        self._records.swap(name, self._records.get(name), None)

    def model(self, model: str) -> ModelRecord:
        """Returns the record of a model; defaults for an unknown one."""
        text = self._records.get(_MODEL + model)
        return ModelRecord() if text is None else read_record(ModelRecord, text, _MODEL + model)

    def models(self) -> tuple[dict[str, ModelRecord], list[Unreadable]]:
        """Returns the records of all models by name, and those that cannot be read."""
        found, skipped = {}, []
        for name in self._records.names(_MODEL):
            text = self._records.get(name)
            if text is None:  # deleted meanwhile
                continue
            try:
                found[name.removeprefix(_MODEL)] = read_record(ModelRecord, text, name)
            except UNREADABLE as err:
                skipped.append(unreadable(text, name, err))
        return found, skipped

    def make_live(self, generation: Generation, writer: ModelRecord) -> ModelRecord:
        """Makes a complete generation its model's live one; the former one becomes `previous`.

        Args:
            generation: the generation.
            writer: the result of `next_epoch`, taken before the generation was written or chosen.

        Raises:
            FailedPreconditionError: it is not complete, or another writer took a later epoch.
        """
        name = _GENERATION + generation.generation

        def complete() -> list[Change]:
            if self.get(generation.generation).state is not State.COMPLETE:
                raise FailedPreconditionError(
                    f"generation {generation.generation} is not complete and cannot be live"
                )
            text = self._records.get(name)
            return [(name, text, text)]

        def point(record: ModelRecord) -> dict[str, Any]:
            if not _is_writer(writer, record):
                raise FailedPreconditionError(
                    f"model {generation.model}: another export has begun since (epoch "
                    f"{record.epoch}, seq {record.seq}; this one has epoch {writer.epoch}, seq "
                    f"{writer.seq}); generation {generation.generation} does not become live"
                )
            if record.live == generation.generation:
                return {}
            return {"live": generation.generation, "previous": record.live}

        return self._change_model(generation.model, point, complete)

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
            record = read_record(ModelRecord, text, name)
            if not _is_writer(taken, record):
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

    def _change(
        self,
        generation: Generation,
        expected: State,
        beside: Callable[[], list[Change]] = list,
        **changes: Any,
    ) -> Generation:
        name = _GENERATION + generation.generation
        for _ in range(_MOST_TRIES):
            text = self._records.get(name)
            if text is None:
                raise NotFoundError(f"the store has no generation {generation.generation}")
            current = read_record(Generation, text, name)
            if current.state is not expected:
                raise FailedPreconditionError(
                    f"generation {generation.generation} is {current.state}, not {expected}; "
                    "another process changed it"
                )
            changed = current.model_copy(update=changes)
            if self._records.swap_all([(name, text, changed.model_dump_json()), *beside()]):
                return changed
        raise FailedPreconditionError(f"{name} keeps changing")

    def _change_model(
        self,
        model: str,
        change: Callable[[ModelRecord], dict[str, Any]],
        beside: Callable[[], list[Change]] = list,
    ) -> ModelRecord:
        name = _MODEL + model
        for _ in range(_MOST_TRIES):
            text = self._records.get(name)
            record = ModelRecord() if text is None else read_record(ModelRecord, text, name)
            also = beside()
            changed = record.model_copy(update=change(record))
            if self._records.swap_all([(name, text, changed.model_dump_json()), *also]):
                return changed
        raise FailedPreconditionError(f"{name} keeps changing")


def _is_writer(writer: ModelRecord, record: ModelRecord) -> bool:
    """Returns whether no other writer of a model has begun since, and the store still knows it."""
    taken = (writer.epoch, writer.seq, writer.token)
    return taken == (record.epoch, record.seq, record.token)


def new_identity() -> str:
    """Returns 128 random bits in hex: unlike a number, they cannot come again."""
    return secrets.token_hex(16)
