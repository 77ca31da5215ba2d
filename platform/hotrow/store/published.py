"""What was published to the servers of a version, as its exporters remember it outside the store.

A store that goes back in time has forgotten it (docs/design/0008-cuts.md).
"""

from __future__ import annotations

import json
from pathlib import Path

import pydantic

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

    Args:
        path: of the file; created with the first cut. None: nothing is remembered.
        generation: name of the generation.
    """

    def __init__(self, path: Path | None, generation: str) -> None:
        self._path = path
        self._generation = generation

    @classmethod
    def beside(cls, directory: Path, generation: str) -> PublishedLog:
        """Returns the log of a version, in a file beside its directory."""
        return cls(directory.parent / f"published-{directory.name}.json", generation)

    def states(self) -> list[PublishedState]:
        """Returns the cuts, the oldest first; none without the file, or if it is damaged.

        Raises:
            NewerRecordError: a newer version of Hotrow wrote the file.
        """
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
        before = [old.model_copy(update={"norms": ()}) for old in self.states()]
        cuts = [*before, state][-_MOST_STATES:]
        text = json.dumps(
            {
                "format": RECORD_FORMAT,
                "generation": self._generation,
                "cuts": [state.model_dump() for state in cuts],
            }
        )
        unfinished = self._path.with_name(f".{self._path.name}")
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(self._path)
