"""What the load of a version needs of memory at least, against what is left of its bounds.

A load that goes beyond the limit of a cgroup ends the executable, and with it every model. So it is
looked at first. The need is what is known from files and options; a load takes more than that.
Loads side by side need their memory together: one that does not fit beside others waits for them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from hotrow.errors import ResourceExhaustedError
from hotrow.manifest import ManifestTable, read_manifest
from hotrow.memory_bounds import MemoryBound, memory_bounds
from hotrow.protos import control_pb2
from hotrow.serving.config.row_options import RowOptions
from hotrow.store.spec import row_bytes

_LOG = logging.getLogger(__name__)

VARIABLES = "variables"
GRAPH = "the graph"
CACHE = "the cache of rows"

# Of `core/serving/hot_rows.cc`: bytes of a slot beside its row, which fills words; slots of a set;
# slots for each stored row at most.
_SLOT_BYTES = 24
_WORD_BYTES = 8
_WAYS = 16
_ROOM_OVER_STORED = 2


def needed_bytes(version_dir: Path, manifest: str, rows: RowOptions) -> dict[str, int]:
    """Returns the bytes that a version takes at least, by what takes them.

    Args:
        version_dir: the SavedModel.
        manifest: path of the manifest of its tables; "": it has none.
        rows: how its rows are cached.

    Raises:
        HotrowError: the manifest is damaged.
    """
    needs = {
        VARIABLES: sum(_size(path) for path in version_dir.glob("variables/variables.data-*")),
        GRAPH: _size(version_dir / "saved_model.pb"),
    }
    if manifest:
        needs[CACHE] = _cache_bytes(read_manifest(Path(manifest)).tables, rows)
    return needs


class LoadMemory:
    """What loads that are under way need together; safe for several threads.

    Args:
        rows: how the rows of versions are cached.
        bounds: returns those of the memory; the executable has those of this process.
    """

    def __init__(
        self, rows: RowOptions, bounds: Callable[[], Sequence[MemoryBound]] = memory_bounds
    ) -> None:
        self._rows = rows
        self._bounds = bounds
        self._changed = threading.Condition()
        self._reserved: list[int] = []

    @contextlib.contextmanager
    def reserve(self, request: control_pb2.LoadRequest) -> Iterator[None]:
        """Surrounds a load; waits while only loads beside it keep it from fitting.

        What they have taken already counts twice, as taken and as reserved, so that this may wait
        longer than it must; it refuses nothing that fits alone.

        Raises:
            ResourceExhaustedError: it needs more memory than is left, with the numbers.
            HotrowError: the manifest is damaged.
        """
        path = Path(request.path)
        if request.shares:
            # It shares graph and cache with the first session.
            what = f"the second session of {path}, for incremental exports,"
            needs = {VARIABLES: needed_bytes(path, "", self._rows)[VARIABLES]}
        else:
            what, needs = str(path), needed_bytes(path, request.manifest, self._rows)
        needed = sum(needs.values())
        with self._changed:
            if not self._may_begin(what, needs):
                _LOG.info(
                    f"{what} needs at least {_mib(needed)} of memory, and loads when those that "
                    "are under way have ended"
                )
                self._changed.wait_for(lambda: self._may_begin(what, needs))
            self._reserved.append(needed)
        try:
            yield
        finally:
            with self._changed:
                self._reserved.remove(needed)
                self._changed.notify_all()

    def _may_begin(self, what: str, needs: Mapping[str, int]) -> bool:
        bounds = self._bounds()
        needed = sum(needs.values()) + sum(self._reserved)
        if all(needed <= bound.free_bytes + bound.active_file_bytes for bound in bounds):
            return True
        if not self._reserved:
            check_memory(what, needs, bounds)
        return False


def check_memory(what: str, needs: Mapping[str, int], bounds: Sequence[MemoryBound]) -> None:
    """Refuses a load that needs more memory than is left.

    Args:
        what: is loaded, for the message.
        needs: bytes by what takes them.
        bounds: of the memory.

    Raises:
        ResourceExhaustedError: with the numbers.
    """
    needed = sum(needs.values())
    for bound in bounds:
        left = bound.free_bytes + bound.active_file_bytes
        if needed > left:
            parts = ", ".join(f"{name} {_mib(size)}" for name, size in needs.items() if size)
            raise ResourceExhaustedError(
                f"{what} needs at least {_mib(needed)} of memory ({parts}), and {bound.name} has "
                f"{_mib(left)} of its {_mib(bound.most_bytes)} left; raise the limit, lower "
                "--cache_rows or --cache_bytes, or serve fewer versions at a time "
                "(--check_load_memory=false loads it all the same)"
            )


def _cache_bytes(tables: Sequence[ManifestTable], rows: RowOptions) -> int:
    """Returns the bytes of a full cache; tables share it in proportion to what they store."""
    stored = {table: max(table.rows, 1) for table in tables}
    slot = {t: _SLOT_BYTES + _whole_words(row_bytes(t.dtype, t.dim)) for t in tables}
    most = sum((_ROOM_OVER_STORED * stored[table] + _WAYS) * slot[table] for table in tables)
    if not rows.cache_rows:
        return min(rows.cache_bytes, most)
    share = rows.cache_rows / max(sum(stored.values()), 1)
    return min(int(sum(share * stored[table] * slot[table] for table in tables)), most)


def _whole_words(size: int) -> int:
    return -(-size // _WORD_BYTES) * _WORD_BYTES


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
