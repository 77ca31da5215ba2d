"""The keys of published cuts, in the run directory, until a checkpoint covers them.

Servers may show a cut that is newer than the checkpoint from which a killed trainer resumes. The
keys of that cut are then known here, so that the resumed trainer publishes their rows again. It
keeps these files: a store that goes back in time may show that cut once more.

One file a cut and rank, written before the cut is committed. N keys.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.errors import DataLossError
from hotrow.sealed_directory import flush
from hotrow.trainer.checkpoint.array_file import read_arrays, write_arrays

Keys = npt.NDArray[np.int64]

FOLDER = "published"
"""The journal's folder in a run directory."""
_CUT = "cut"  # the array with the entry's values, as JSON
_SUFFIX = ".safetensors"
_UNFINISHED = ".unfinished"
# Of earlier processes. A run that is killed every few minutes leaves about a hundred each time.
_MOST_EARLIER = 1000


@dataclass(frozen=True)
class Entry:
    """A cut that was about to be committed.

    Attributes:
        version: of its rows.
        identity: of its record.
        previous: identity of the cut before it; "": it is the first one of its generation.
        generation: name of the generation.
        step: training step that it shows.
        ranks: how many ranks have a file of it.
    """

    version: int
    identity: str
    previous: str
    generation: str
    step: int
    ranks: int = 1


class Journal:
    """The files of one rank, and for reading those of all ranks.

    Args:
        run_dir: the run directory.
        rank: this rank.
    """

    def __init__(self, run_dir: Path, rank: int = 0) -> None:
        self._folder = run_dir / FOLDER
        self._rank = rank
        self._earlier = set(self._own_files())

    def write(self, entry: Entry, keys: Mapping[str, Keys]) -> None:
        """Writes this rank's keys of a cut; they are on the disk when it returns.

        Args:
            entry: the cut.
            keys: by table, int64 [N]: of changed rows and of removed ones.

        Raises:
            OSError: the disk is full or refuses.
        """
        self._folder.mkdir(exist_ok=True)
        path = self._path(entry.version)
        unfinished = path.with_name(path.name + _UNFINISHED)
        text = np.frombuffer(json.dumps(asdict(entry)).encode(), np.uint8)
        arrays = {f"keys/{table}": np.ascontiguousarray(own) for table, own in keys.items()}
        try:
            unfinished.unlink(missing_ok=True)
            write_arrays(unfinished, {_CUT: text, **arrays})
            os.replace(unfinished, path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        flush(self._folder)

    def forget_before(self, version: int) -> None:
        """Deletes this rank's files of earlier cuts: a checkpoint covers them.

        It keeps the newest files that were there before this process. Their cuts may be newer than
        the checkpoint from which it was resumed, and no later checkpoint has their rows.
        """
        self._earlier = set(sorted(self._earlier)[-_MOST_EARLIER:])
        for path in self._own_files():
            if _version_of(path) < version and path not in self._earlier:
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Deletes the files of all ranks: after a full export, nothing shows their cuts any more.

        No rank may be writing one.
        """
        for path in self._all_files():
            path.unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """Returns the cuts of which all ranks have a file, the oldest first.

        Raises:
            DataLossError: a file is damaged.
        """
        found: dict[int, list[Entry]] = {}
        for path in self._all_files():
            entry = _entry_of(read_arrays(path), path)
            found.setdefault(entry.version, []).append(entry)
        return [
            entries[0] for _, entries in sorted(found.items()) if len(entries) == entries[0].ranks
        ]

    def keys_since(self, version: int) -> dict[str, Keys]:
        """Returns, by table, the distinct keys int64 [N] of all later cuts, of all ranks.

        Raises:
            DataLossError: a file is damaged.
        """
        pieces: dict[str, list[Keys]] = {}
        for path in self._all_files():
            if _version_of(path) <= version:
                continue
            for name, keys in read_arrays(path).items():
                if name.startswith("keys/"):
                    pieces.setdefault(name.removeprefix("keys/"), []).append(keys)
        return {table: np.unique(np.concatenate(some)) for table, some in pieces.items()}

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:016x}@{self._rank}{_SUFFIX}"

    def _own_files(self) -> list[Path]:
        return sorted(self._folder.glob(f"*@{self._rank}{_SUFFIX}"))

    def _all_files(self) -> list[Path]:
        return sorted(self._folder.glob(f"*@*{_SUFFIX}"))


def leads_from(
    entries: Iterable[Entry], identity: str, version: int, to: str, generation: str
) -> bool:
    """Returns whether a journal has all cuts between one and a later one.

    Entries on other ways do not matter: of cuts whose commit failed, and of cuts that the store has
    lost, from which no other goes on.

    Args:
        entries: of a journal.
        identity: of the earlier cut; "": the generation's rows as exported.
        version: of that cut, or of the exported rows.
        to: identity of the later cut.
        generation: name of the generation; entries of others do not count.
    """
    later = {e.identity: e for e in entries if e.generation == generation and e.version > version}
    at = later.pop(to, None)
    while at is not None and at.previous != identity:
        at = later.pop(at.previous, None)
    return at is not None


def _version_of(path: Path) -> int:
    try:
        return int(path.name.partition("@")[0], 16)
    except ValueError as err:
        raise DataLossError(f"{path} is not a file of published keys; remove it") from err


def _entry_of(arrays: Mapping[str, Any], path: Path) -> Entry:
    try:
        return Entry(**json.loads(arrays[_CUT].tobytes()))
    except (KeyError, TypeError, ValueError) as err:
        raise DataLossError(f"{path} does not hold a published cut: {err}") from err
