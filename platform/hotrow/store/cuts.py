"""Cuts of a generation: staged beside its rows, committed at once, folded into them later.

Docs/design/0008-cuts.md. N rows, B bytes of a stored row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from hotrow.errors import DataLossError
from hotrow.norms import Norm
from hotrow.store.cut_blocks import Block, check_block, read_block
from hotrow.store.record_format import StoredRecord, damaged, read_object, read_record
from hotrow.store.row_store import BLOCK_BYTES, Change, Keys, Place, Records, Rows, RowStore
from hotrow.store.spec import Generation, row_version

_CUT = "cut/"
_STAGING = "staging/"
BLOCKS_AT_ONCE = 64
_parsed: WeakKeyDictionary[Records, dict[str, dict[str, CutRecord]]] = WeakKeyDictionary()
"""The cuts that were found last, by their texts, of each generation of a store."""


@dataclass(frozen=True)
class TableChanges:
    """The changes of a table.

    Attributes:
        keys: int64 [N], distinct, keys of new or changed rows.
        rows: uint8 [N, B].
        removed: int64 [M], keys that no longer have a row; none of `keys`.
    """

    keys: Keys
    rows: Rows
    removed: Keys


class CutRecord(StoredRecord):
    """The control record of a committed cut.

    Attributes:
        generation: the generation that it changes.
        epoch, seq: its number.
        identity: random: a store that went back in time cannot have another cut with it. "": an
            older version of Hotrow wrote it.
        step: training step that it shows.
        clocks: clocks of the tables at that step; the next cut starts after them.
        lineage: id of the last start of training behind it.
        dense_sha256: SHA-256 of its dense weights, in hex.
        rows, removed: numbers of rows, over all tables.
        previous: version of the generation's cut before it; 0: it is the first one. A reader at
            another version needs earlier cuts, too; if they no longer exist, it must read rows
            again.
        places: places of its blocks of rows.
        dense_places: places of its blocks of dense weights, in their order.
        dense_version: version of the cut whose blocks these are, whether or not that one still
            exists; 0: they are its own.
        folded: whether all of its rows are merged into the generation's own.
        norms: sizes of tables and dense weights, which the next export is compared with.
        forced: whether servers take it even if a value is not finite.
        bytes: size of its blocks; 0: an older version of Hotrow wrote it.
        committed_ms: when it was committed, by the store's clock; 0: likewise.
        event_ms: time of the newest event behind it, in Unix milliseconds; 0: not known.
    """

    generation: str
    epoch: int
    seq: int
    identity: str = ""
    step: int
    clocks: tuple[int, ...]
    lineage: str = ""
    dense_sha256: str = ""
    rows: int
    removed: int
    previous: int = 0
    places: tuple[Place, ...]
    dense_places: tuple[Place, ...] = ()
    dense_version: int = 0
    folded: bool = False
    norms: tuple[Norm, ...] = ()
    forced: bool = False
    bytes: int = 0
    committed_ms: int = 0
    event_ms: int = 0

    @property
    def version(self) -> int:
        """The version of its rows."""
        return row_version(self.epoch, self.seq)

    @property
    def all_places(self) -> tuple[Place, ...]:
        """The places of all of its own blocks."""
        return self.places if self.dense_version else self.places + self.dense_places

    @property
    def block_bytes(self) -> int:
        """The size of a block of rows, about."""
        return self.bytes // len(self.all_places) + 1 if self.bytes else BLOCK_BYTES

    @property
    def dense_staged(self) -> int:
        """The version under which its dense weights are staged."""
        return self.dense_version or self.version


def cuts_of(records: Records, generation: Generation) -> list[CutRecord]:
    """Returns the committed cuts of a generation, the oldest first.

    A text that the last call found, too, is not parsed again: parsing holds Python's lock, and
    trainers and servers look at their cuts many times a second.
    """
    name = generation.generation
    texts = records.texts(f"{_CUT}{name}/")
    of_store = _parsed.setdefault(records, {})
    before = of_store.get(name, {})
    found = {
        text: before.get(text) or read_record(CutRecord, text, record)
        for record, text in texts.items()
    }
    if found:
        of_store[name] = found
    else:
        of_store.pop(name, None)
    return sorted(found.values(), key=lambda cut: cut.version)


def folded_to(cuts: Sequence[CutRecord]) -> int:
    """Returns the version to which every shard's rows are folded, unless the store has lost some.

    Args:
        cuts: committed cuts of a generation, the oldest first.

    Returns:
        0 if no cut, and none before them, is folded.
    """
    folded = [cut.version for cut in cuts if cut.folded]
    return max([*folded, *(cut.previous for cut in cuts[:1])], default=0)


def laid_cuts(
    cuts: Sequence[CutRecord], needs_layer: Callable[[CutRecord], bool]
) -> tuple[CutRecord, ...]:
    """Returns the cuts whose rows must lie over those of the store, the newest first.

    These are the oldest cut that needs a layer and all cuts after it, folded or not: the layer of a
    cut hides newer rows in the store. A folded cut may follow one that is not: each record is read
    by itself while an exporter changes them, and an exporter that folds cuts anew says first that
    the oldest ones are not folded any more.

    If a cut between two others is missing, those before it are left out: it was folded and
    forgotten while the records were read, so they are folded, too.

    Args:
        cuts: committed cuts of a generation, the oldest first.
        needs_layer: whether the store may lack a cut's rows, or a cache may have older ones.
    """
    chain: list[CutRecord] = []
    laid = 0
    for cut in reversed(cuts):
        if chain and chain[-1].previous not in (0, cut.version):
            break
        chain.append(cut)
        if needs_layer(cut):
            laid = len(chain)
    return tuple(chain[:laid])


def read_blocks(
    store: RowStore,
    generation: Generation,
    cut: CutRecord,
    places: Sequence[Place] | None = None,
) -> Iterator[Block]:
    """Yields the blocks of a cut: those of rows, then those of dense weights, in their order.

    Args:
        store: the store.
        generation: the generation that the cut changes.
        cut: a cut whose blocks are not deleted.
        places: some of the cut's places of rows; None: all, and those of dense weights.

    Raises:
        DataLossError: a block is missing or damaged.
    """
    for _, block in checked_row_blocks(store, generation, cut, places):
        yield block
    if places is None:
        yield from _dense_blocks(store, generation, cut)


def check_blocks(store: RowStore, generation: Generation, cut: CutRecord) -> None:
    """Reads all blocks of a cut and checks that they are whole.

    Raises:
        DataLossError: a block is missing or damaged.
    """
    for version, places in ((cut.version, cut.places), (cut.dense_staged, cut.dense_places)):
        for place, block in _staged_blocks(store, generation, version, places, cut.block_bytes):
            check_block(block, generation, version, place)


def row_block_bytes(store: RowStore, generation: Generation, cut: CutRecord) -> Iterator[bytes]:
    """Yields the blocks of rows of a cut as stored, after a check of each.

    Raises:
        DataLossError: a block is missing or damaged.
    """
    for content, _ in checked_row_blocks(store, generation, cut):
        yield content


def checked_row_blocks(
    store: RowStore,
    generation: Generation,
    cut: CutRecord,
    places: Sequence[Place] | None = None,
) -> Iterator[tuple[bytes, Block]]:
    """Yields the blocks of rows of a cut as stored, and what they hold.

    Args:
        store: the store.
        generation: the generation that the cut changes.
        cut: a cut whose blocks are not deleted.
        places: some of the cut's places of rows; None: all.

    Raises:
        DataLossError: a block is missing or damaged.
    """
    some = cut.places if places is None else places
    return _checked_blocks(store, generation, cut.version, some, cut.block_bytes)


def _dense_blocks(store: RowStore, generation: Generation, cut: CutRecord) -> Iterator[Block]:
    for _, block in _checked_blocks(store, generation, cut.dense_staged, cut.dense_places):
        yield block


def _checked_blocks(
    store: RowStore,
    generation: Generation,
    version: int,
    places: Sequence[Place],
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[tuple[bytes, Block]]:
    for place, block in _staged_blocks(store, generation, version, places, block_bytes):
        yield block, read_block(block, generation, version, place)


def _staged_blocks(
    store: RowStore,
    generation: Generation,
    version: int,
    places: Sequence[Place],
    block_bytes: int,
) -> Iterator[tuple[Place, bytes]]:
    for first in range(0, len(places), BLOCKS_AT_ONCE):
        some = places[first : first + BLOCKS_AT_ONCE]
        found = store.staged(generation, version, some, block_bytes)
        for place, block in zip(some, found, strict=True):
            if block is None:
                raise DataLossError(
                    f"{store.url}: block {place[1]} of shard {place[0]} of cut {version:016x} "
                    "is missing"
                )
            yield place, block


def dense_of(store: RowStore, generation: Generation, cut: CutRecord) -> bytes:
    """Returns the dense weights of a cut; b"" if it has none.

    Raises:
        DataLossError: a block is missing or damaged.
    """
    return b"".join(block.rows.tobytes() for block in _dense_blocks(store, generation, cut))


def forget_cuts(store: RowStore, generation: Generation, cuts: Sequence[CutRecord]) -> None:
    """Deletes the records of cuts and their blocks; no server may need them any more.

    Dense weights stay as long as another cut has them. If the process is killed meanwhile, blocks
    remain as after an unfinished export, but never a cut without blocks.
    """
    if not cuts:
        return
    gone = {cut.version for cut in cuts}
    others = [cut for cut in cuts_of(store.records, generation) if cut.version not in gone]
    kept = {other.dense_staged for other in others}
    numbers: dict[int, dict[int, int]] = {version: {} for version in gone}
    for cut in cuts:
        for version, places in ((cut.version, cut.places), (cut.dense_staged, cut.dense_places)):
            if version not in gone and version in kept:
                continue
            counts = numbers.setdefault(version, {})
            for shard, number in places:
                counts[shard] = max(counts.get(shard, 0), number + 1)
    names = [cut_name(generation, cut.version) for cut in cuts]
    notes = {staging_name(generation, v): json.dumps(counts) for v, counts in numbers.items()}
    changes: list[Change] = [(name, store.records.get(name), None) for name in names]
    changes += [(staging, None, note) for staging, note in notes.items()]
    if store.records.swap_all(changes):
        for staging in notes:
            _discard(store, generation, staging, others)


def discard_unfinished(store: RowStore, generation: Generation) -> None:
    """Deletes what killed exports have staged. The caller holds the exporter's lease."""
    for name in store.records.names(f"{_STAGING}{generation.generation}/"):
        _discard(store, generation, name, cuts_of(store.records, generation))


def _discard(
    store: RowStore, generation: Generation, staging: str, cuts: Sequence[CutRecord]
) -> None:
    """Deletes the record of an uncommitted cut, and the blocks that it names.

    Args:
        store: the store.
        generation: the generation.
        staging: name of the record.
        cuts: the committed cuts; dense weights that one of them has stay.
    """
    text = store.records.get(staging)
    numbers = read_object(text or "{}", staging)
    try:
        places = [(int(shard), n) for shard, count in numbers.items() for n in range(count)]
    except (ValueError, TypeError) as err:
        raise damaged(staging, str(err)) from err
    version = int(staging.rpartition("/")[2], 16)
    needed = {place for cut in cuts if cut.dense_staged == version for place in cut.dense_places}
    gone = [place for place in places if place not in needed]
    store.unstage(generation, version, gone, others_stay=bool(needed))
    store.records.swap(staging, text, None)


def cut_name(generation: Generation, version: int) -> str:
    """Returns the name of a cut's record."""
    return f"{_CUT}{generation.generation}/{version:016x}"


def staging_name(generation: Generation, version: int, part: int = 0) -> str:
    """Returns the name of the record of what a process stages of a cut.

    Args:
        generation: the generation.
        version: version of the cut.
        part: number of the process among those that stage it.
    """
    of_part = f"{part}/" if part else ""
    return f"{_STAGING}{generation.generation}/{of_part}{version:016x}"
