"""What was published to the servers of a version, as its exporters remember it outside the store.

A store that goes back in time has forgotten it (docs/design/0008-cuts.md).
"""

from __future__ import annotations

import json
from pathlib import Path

import pydantic

from hotrow.atomic_text import write_atomically
from hotrow.norms import Norm
from hotrow.store.cuts import CutRecord
from hotrow.store.record_format import RECORD_FORMAT, NewerRecordError, newer

# Older ones are forgotten: what a store lost before them is exported again from the full export on.
_MOST_STATES = 1000


class PublishedState(pydantic.BaseModel):
    """A cut that servers could read.

    Attributes:
        version: of its rows.
        identity: of its record.
        step: of the training.
        clocks: of the tables.
        lineage: id of the last start of training behind it.
        norms: of the newest cut alone, which the next export is compared with.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

    version: int
    identity: str
    step: int
    clocks: tuple[int, ...]
    lineage: str
    norms: tuple[Norm, ...] = ()


class PublishedLog:
    """The cuts of one generation, in a file.

    It is read once: the writer holds the model's export lock.

    Args:
        path: of the file; created with the first cut. None: nothing is remembered.
        generation: name of the generation.
    """

    def __init__(self, path: Path | None, generation: str) -> None:
        self._path = path
        self._generation = generation
        self._known: list[PublishedState] | None = None

    @classmethod
    def beside(cls, directory: Path, generation: str) -> PublishedLog:
        """Returns the log of a version, in a file beside its directory."""
        return cls(directory.parent / f"published-{directory.name}.json", generation)

    @property
    def is_whole(self) -> bool:
        """Whether no cut has been forgotten because there were too many."""
        return len(self.states()) < _MOST_STATES

    def states(self) -> list[PublishedState]:
        """Returns the cuts, the oldest first; none without the file, or if it is damaged.

        Raises:
            NewerRecordError: a newer version of Hotrow wrote the file.
        """
        if self._known is None:
            self._known = self._read()
        return list(self._known)

    def _read(self) -> list[PublishedState]:
        if self._path is None:
            return []
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            if found["format"] > RECORD_FORMAT:
                raise NewerRecordError(newer(str(self._path), found["format"]))
            if found["generation"] != self._generation:
                return []
            return [PublishedState.model_validate(state) for state in found["cuts"]]
        except (OSError, ValueError, TypeError, KeyError):
            return []

    def append(self, cut: CutRecord) -> None:
        """Adds a cut.

        Raises:
            OSError: the disk is full, or the folder is not writable.
        """
        if self._path is None:
            return
        state = PublishedState.model_validate(cut.model_dump() | {"version": cut.version})
        before = self.states()
        if before:
            before[-1] = before[-1].model_copy(update={"norms": ()})
        states = [*before, state][-_MOST_STATES:]
        head = json.dumps({"format": RECORD_FORMAT, "generation": self._generation})[:-1]
        text = f'{head}, "cuts": [{", ".join(known.model_dump_json() for known in states)}]}}'
        write_atomically(self._path, text + "\n")
        self._known = states
