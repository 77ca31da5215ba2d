"""Cuts become files: what a killed process left, slow stores, cuts that go while they are read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from stored_rows import ArrayRows, exported, float_rows, make_live, some_keys

from hotrow.errors import DataLossError, UnavailableError
from hotrow.serving.updates.cut_counts import CutCounts
from hotrow.serving.updates.cut_files import CutFiles
from hotrow.serving.updates.cut_follower import CutFollower
from hotrow.serving.updates.store_silence import StoreSilence
from hotrow.serving.updates.wanted_cuts import wanted_cuts
from hotrow.store import cut_dense, open_store
from hotrow.store.access import StoreAccess
from hotrow.store.bound_rows import BoundRows
from hotrow.store.cut_folding import fold
from hotrow.store.cut_writing import write_cut
from hotrow.store.cuts import CutRecord, TableChanges, cuts_of, forget_cuts, row_block_bytes
from hotrow.store.full_export import write_generation
from hotrow.store.leases import lock_exports

DENSE_BYTES = 20 << 20  # several answers of the store


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[BoundRows]:
    """Rows of a table in a store of their own."""
    url = f"file://{tmp_path}/store"
    store = open_store(url, create=True)
    rows = ArrayRows("a", some_keys(3000), float_rows(3000, 4))
    with lock_exports(store.records, "m") as lock:
        generation = write_generation(store, exported(), [rows], lock, shards=32)
        make_live(store, generation)
    store.close()
    made = BoundRows(url, generation.generation, StoreAccess())
    yield made
    made.close()


def weights(folder: Path, size: int) -> bytes:
    """Returns weights of a cut with arbitrary content of this many bytes."""
    folder.mkdir()
    values = tf.range(size // 4, dtype=tf.float32)
    prefix = folder / "variables"
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=["w"], shape_and_slices=[""], tensors=[values]
    )
    return cut_dense.pack(prefix)


def write(bound: BoundRows, step: int, dense: bytes | CutRecord) -> CutRecord:
    keys = some_keys(3000)
    rows = float_rows(3000, 4, step).view(np.uint8)
    with lock_exports(bound.store.records, "m") as lock:
        return write_cut(
            bound.store,
            bound.generation,
            lock,
            changes=[(0, TableChanges(keys, rows, np.empty(0, np.int64)))],
            dense=dense,
            step=step,
            clocks=[step],
        )


def test_files_have_all_that_the_store_has_and_are_written_once(
    bound: BoundRows, tmp_path: Path
) -> None:
    dense = weights(tmp_path / "w", DENSE_BYTES)
    cuts = [write(bound, 8, dense), write(bound, 9, dense)]
    files = CutFiles(tmp_path / "cuts")
    wanted = wanted_cuts(bound.generation, cuts, None)
    shown = files.write(bound, wanted, contextlib.nullcontext)
    assert [layer.version for layer in shown.layers] == [cut.version for cut in cuts[::-1]]
    for layer, cut in zip(shown.layers, cuts[::-1], strict=True):
        blocks = list(row_block_bytes(bound.store, bound.generation, cut))
        assert len(blocks) == 32
        assert Path(layer.blocks).read_bytes() == b"".join(blocks)
    for name in ("variables.index", "variables.data-00000-of-00001"):
        assert (Path(shown.dense).parent / name).read_bytes() == (
            tmp_path / "w" / name
        ).read_bytes()
    assert len(list((tmp_path / "cuts").iterdir())) == 3
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cuts").iterdir()}
    assert files.write(bound, wanted, contextlib.nullcontext) == shown
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cuts").iterdir()} == before


def test_dense_weights_that_stay_the_same_are_read_once(bound: BoundRows, tmp_path: Path) -> None:
    dense = weights(tmp_path / "w", 2560)
    first = write(bound, 8, dense)
    files = CutFiles(tmp_path / "cuts")
    shown = files.write(bound, wanted_cuts(bound.generation, [first], None), contextlib.nullcontext)
    for same in (write(bound, 9, first), write(bound, 10, dense)):
        bound.store.unstage(bound.generation, same.version, same.dense_places, others_stay=True)
        wanted = wanted_cuts(bound.generation, [same], None)
        assert files.write(bound, wanted, contextlib.nullcontext).dense == shown.dense
    assert len(list((tmp_path / "cuts").glob("*.dense"))) == 1


def test_dense_weights_that_are_not_those_of_the_record_are_refused(
    bound: BoundRows, tmp_path: Path
) -> None:
    cut = write(bound, 8, weights(tmp_path / "w", 2560))
    other = cut.model_copy(update={"dense_sha256": "0" * 64})
    files = CutFiles(tmp_path / "cuts")
    with pytest.raises(DataLossError, match="are not those of its record"):
        files.write(bound, wanted_cuts(bound.generation, [other], None), contextlib.nullcontext)
    assert not list((tmp_path / "cuts").glob("*.dense*"))


@pytest.mark.parametrize("suffix", [".unfinished", ".rows.unfinished", ".dense.unfinished"])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_removed(
    suffix: str, kind: str, bound: BoundRows, tmp_path: Path
) -> None:
    cut = write(bound, 8, weights(tmp_path / "w", 2560))
    left = tmp_path / "cuts" / f"{cut.version:016x}{suffix}"
    left.parent.mkdir()
    if kind == "file":
        left.write_bytes(b"half")
    else:
        left.mkdir()
        (left / "variables.index").write_bytes(b"half")
    files = CutFiles(tmp_path / "cuts")
    shown = files.write(bound, wanted_cuts(bound.generation, [cut], None), contextlib.nullcontext)
    assert Path(shown.layers[0].blocks).stat().st_size > 3000 * 16
    assert len(list(Path(shown.dense).parent.iterdir())) == 2
    assert len(list((tmp_path / "cuts").iterdir())) == 2


def test_damaged_cuts_leave_no_files(bound: BoundRows, tmp_path: Path) -> None:
    cut = write(bound, 8, weights(tmp_path / "w", DENSE_BYTES))
    files = CutFiles(tmp_path / "cuts")
    wanted = wanted_cuts(bound.generation, [cut], None)
    for place in (cut.places[-1], cut.dense_places[-1]):  # rows are written first
        (content,) = bound.store.staged(bound.generation, cut.version, [place])
        assert content is not None
        damaged = content[:-1] + bytes([content[-1] ^ 1])
        bound.store.stage(bound.generation, cut.version, {place: damaged})
        with pytest.raises(DataLossError, match="is damaged"):
            files.write(bound, wanted, contextlib.nullcontext)
        assert not list((tmp_path / "cuts").glob("*.unfinished"))
        bound.store.stage(bound.generation, cut.version, {place: content})
    assert files.write(bound, wanted, contextlib.nullcontext).version == cut.version


def test_a_cut_that_is_read_for_long_is_no_silence(
    bound: BoundRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = write(bound, 8, weights(tmp_path / "w", DENSE_BYTES))
    staged = bound.store.staged

    def slowly(generation: Any, version: int, places: Any, *size: int) -> Any:
        time.sleep(0.04 * len(places))
        return staged(generation, version, places, *size)

    monkeypatch.setattr(bound.store, "staged", slowly)
    reported: list[bool] = []
    silence = StoreSilence(reported.append)
    began = time.monotonic()
    files = CutFiles(tmp_path / "cuts")
    files.write(bound, wanted_cuts(bound.generation, [cut], None), silence.asking)
    assert time.monotonic() - began > 1.8
    silence.close()
    assert True not in reported


class Rows:
    """What a follower needs of a version's rows."""

    def __init__(self, bound: BoundRows) -> None:
        self._bound = bound

    def bound(self) -> BoundRows:
        return self._bound


class NoExecutable:
    """What a follower needs of it before it follows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


def follower(bound: BoundRows, folder: Path) -> CutFollower:
    rows: Any = Rows(bound)
    executable: Any = NoExecutable(folder)
    return CutFollower("m", 1, rows, executable, CutCounts())


def test_who_begins_while_a_cut_is_forgotten_begins_with_those_that_are_left(
    bound: BoundRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = weights(tmp_path / "w", 2560)
    old, new = write(bound, 8, dense), write(bound, 9, dense)
    staged = bound.store.staged
    forgotten: list[int] = []

    def after_forgetting(generation: Any, version: int, places: Any, *size: int) -> Any:
        if version == old.version and not forgotten:
            forgotten.append(version)
            fold(bound.store, bound.generation, [old])
            forget_cuts(bound.store, bound.generation, [old])
        return staged(generation, version, places, *size)

    monkeypatch.setattr(bound.store, "staged", after_forgetting)
    shown = follower(bound, tmp_path).newest()
    assert forgotten == [old.version]
    assert shown.version == new.version
    assert [layer.version for layer in shown.layers] == [new.version]


def test_who_begins_with_a_damaged_cut_says_so(bound: BoundRows, tmp_path: Path) -> None:
    cut = write(bound, 8, weights(tmp_path / "w", 2560))
    bound.store.unstage(bound.generation, cut.version, cut.places[:1])
    with pytest.raises(UnavailableError, match="is missing; the version loads after the next"):
        follower(bound, tmp_path).newest()
    assert cuts_of(bound.store.records, bound.generation) == [cut]
