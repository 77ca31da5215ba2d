"""`FileList`: the files of a folder or a log, each under a name that renaming does not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from hotrow.errors import DataLossError, InvalidArgumentError, UnavailableError
from hotrow.trainer.data.parquet import is_parquet
from hotrow.trainer.online.sources.file_marks import FileMark, head_of, mark_of_head, mark_of_whole

_TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".inprogress", ".crdownload", ".swp", "~")
_COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".zip", ".lz4")
_PARQUET = b"PAR1"
_REPORT_SECONDS = 30.0
_DOUBT_SECONDS = 0.3


class FileList:
    """Finds the files to read, by name and mark. The key of a file is `NAME#CRC`.

    NAME is its name when it was first found, CRC that of its mark.
    """

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        """Binds a path.

        Args:
            path: a folder, or a text file; it may appear later, but its own folder exists.
            report: called with a line for who runs the trainer.

        Raises:
            InvalidArgumentError: the folder of the path does not exist.
        """
        if not path.parent.is_dir():
            raise InvalidArgumentError(
                f"online.source: {path.parent} is no folder; give the path of a file or folder"
            )
        self._path = path
        self._report = report
        self._marks: dict[str, FileMark] = {}
        self._sizes: dict[str, int] = {}
        self._doubts: dict[tuple[str, str], float] = {}  # since when a file looks wrong
        self._unfinished: dict[Path, tuple[int, float]] = {}

    def look(
        self, offsets: Mapping[str, Any], busy: Collection[str]
    ) -> tuple[dict[str, Path], list[str]]:
        """Returns the files by key, and the keys of those that were read and exist no more.

        Args:
            offsets: how far each was read; see `TextFile` and `RowFile`.
            busy: files whose events are in memory.

        Raises:
            DataLossError: a file was cut, replaced or removed before it was read to its end.
            InvalidArgumentError: a file is compressed.
            UnavailableError: the folder cannot be read.
        """
        try:
            new, old = self._candidates()
            return self._matched(offsets, busy, new, old)
        except FileNotFoundError:  # a file was renamed a moment ago
            return {}, []
        except OSError as err:
            raise UnavailableError(f"online.source: {err.filename}: {err.strerror}") from err

    def sizes(self) -> dict[str, int]:
        """Returns the sizes that the files had when they were last looked at. Thread-safe."""
        return dict(self._sizes)

    def size_of(self, key: str) -> int:
        """Returns the size that a file had when it was last looked at."""
        return self._sizes.get(key, 0)

    def _candidates(self) -> tuple[list[Path], list[Path]]:
        """Returns the files to read, and those that may be earlier ones under another name."""
        if self._path.is_dir():
            files = [path for path in self._path.iterdir() if _is_visible(path)]
            return sorted(path for path in files if path.is_file()), []
        prefix = self._path.name
        siblings = [
            path
            for path in self._path.parent.iterdir()
            if path.name.startswith((f"{prefix}.", f"{prefix}-"))
            and _is_visible(path)
            and path.suffix not in _COMPRESSED
            and path.is_file()
        ]
        return [self._path] if self._path.exists() else [], sorted(siblings)

    def _matched(
        self, offsets: Mapping[str, Any], busy: Collection[str], new: list[Path], old: list[Path]
    ) -> tuple[dict[str, Path], list[str]]:
        """Matches keys and files by name first, then by what the files hold."""
        for key, offset in offsets.items():
            self._marks[key] = _mark_in(key, offset)
        found: dict[str, Path] = {}
        free = dict.fromkeys([*new, *old])
        for key, mark in self._marks.items():
            path = self._folder / key.rpartition("#")[0]
            if path in free and mark.fits(path):
                found[key] = path
                del free[path]
        gone, awaited = [], False
        for key in [key for key in self._marks if key not in found]:
            moved = next((path for path in free if self._marks[key].fits(path)), None)
            if moved is not None:
                found[key] = moved
                del free[moved]
                if moved in old:  # those that were rotated after it are not read yet
                    since = moved.stat().st_mtime_ns
                    new += [
                        path for path in old if path in free and path.stat().st_mtime_ns >= since
                    ]
            elif key not in busy and self._lasts(key, "missing"):
                self._require_read(key, offsets.get(key))
                gone.append(key)
                del self._marks[key]
                self._sizes.pop(key, None)
            else:
                awaited = True
        if awaited and not self._path.is_dir():
            # It was rotated while the folder was listed: its lines come before those of a new file.
            new = []
        for path in new:
            if path in free and (fresh := self._mark_of(path, found)) is not None:
                key = f"{path.name}#{fresh.crc:08x}"
                found[key] = path
                self._marks[key] = fresh
        for key, path in found.items():
            self._sizes[key] = path.stat().st_size
            self._doubts.pop((key, "missing"), None)
            self._require_not_cut(key, path, offsets.get(key))
        return found, gone

    def _lasts(self, key: str, doubt: str) -> bool:
        """Returns whether a file has looked wrong for a while: renaming takes several steps."""
        now = time.monotonic()
        return now - self._doubts.setdefault((key, doubt), now) > _DOUBT_SECONDS

    @property
    def _folder(self) -> Path:
        return self._path if self._path.is_dir() else self._path.parent

    def mark(self, key: str) -> FileMark:
        """Returns the mark of a file that `look` found."""
        return self._marks[key]

    def _mark_of(self, path: Path, found: Mapping[str, Path]) -> FileMark | None:
        """Returns the mark of a file that is new; None: it is not ready, or not new after all."""
        if path.suffix in _COMPRESSED:
            raise InvalidArgumentError(
                f"online.source: {path} is compressed, so it does not grow; unpack it, or read "
                f"recorded files with replay:{path}"
            )
        if not is_parquet(path):
            head = head_of(path)
            for key, mark in self._marks.items():
                # A copy of another file is new; that file under another name is not.
                if mark.fits_head(head) and not (key in found and mark.fits(found[key])):
                    return None
            return mark_of_head(head)
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(-min(size, len(_PARQUET)), 2)
            if size > 2 * len(_PARQUET) and file.read() == _PARQUET:
                self._unfinished.pop(path, None)
                return mark_of_whole(path)
        before, since = self._unfinished.get(path, (-1, 0.0))
        now = time.monotonic()
        if before != size:
            self._unfinished[path] = size, now
        elif now - since > _REPORT_SECONDS:
            self._unfinished[path] = size, float("inf")
            self._report(f"{path} is not read: it is named .parquet and has no footer yet")
        return None

    def _require_read(self, key: str, offset: Any) -> None:
        """Checks that a file that is not there any more was read to its end."""
        size = self._sizes.get(key)
        at = None if offset is None else offset.get("at")
        if offset is not None and offset["end"] and (at is None or size is None or size <= at):
            return
        name = self._folder / key.rpartition("#")[0]
        raise DataLossError(
            f"online.source: {name} was removed, cut or replaced before all of it was read "
            f"({_shown(offset)}); bring it back under any name in its folder, or begin a new run. "
            "Rotate logs by renaming them, and delete them later"
        )

    def _require_not_cut(self, key: str, path: Path, offset: Any) -> None:
        at = 0 if offset is None else offset.get("at", 0)
        if self._sizes[key] >= at:
            self._doubts.pop((key, "cut"), None)
        elif self._lasts(key, "cut"):
            raise DataLossError(
                f"online.source: {path} was cut: it has {self._sizes[key]:,} bytes, and {at:,} "
                "were read; rotate logs by renaming them, not by cutting them"
            )


def _mark_in(key: str, offset: Any) -> FileMark:
    """Returns the mark of a file from its key and an offset in it."""
    return FileMark(int(key.rpartition("#")[2], 16), offset.get("first"), offset.get("bytes"))


def _shown(offset: Any) -> str:
    if offset is None:
        return "nothing was"
    return f"{offset['at']:,} bytes were" if "at" in offset else f"{offset['row']:,} rows were"


def _is_visible(path: Path) -> bool:
    return not path.name.startswith((".", "_")) and not path.name.endswith(_TEMPORARY)
