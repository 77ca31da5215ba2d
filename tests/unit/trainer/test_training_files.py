"""A resumed run reads the files that it began with, wherever they are now."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.config import RunConfig, parse_config
from hotrow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from hotrow.trainer.data import file_identity
from hotrow.trainer.data.file_identity import identity_of
from hotrow.trainer.loop import train
from hotrow.trainer.trained_run import load_run
from hotrow.trainer.training_files import FILES

ROWS, BATCH = 96, 16
STEPS = ROWS // BATCH


def write_rows(path: Path, seed: int = 0, rows: int = ROWS // 2) -> Path:
    """Writes a CSV of `rows` rows, each line of one length."""
    draw = np.random.default_rng(seed)
    lines = [f"{draw.integers(10, 99)},k{draw.integers(100, 999)},{i % 2}" for i in range(rows)]
    path.write_text("x,key,label\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of two training files."""
    folder = tmp_path / "data"
    folder.mkdir()
    write_rows(folder / "a.csv", 1)
    write_rows(folder / "b.csv", 2)
    return folder


def config(folder: Path, files: tuple[str, ...] = ("a.csv", "b.csv"), **train: Any) -> RunConfig:
    return parse_config(
        {
            "name": "m",
            "data": {
                "format": "csv",
                "train": [str(folder / name) for name in files],
                "batch_size": BATCH,
            },
            "features": {
                "dense": {"columns": ["x"]},
                "sparse": {"columns": ["key"], "dim": 4},
            },
            "model": {"arch": "wide_deep", "hidden": [4]},
            "train": {"shuffle_buffer": 32, **train},
        }
    )


@pytest.fixture
def begun(data: Path, tmp_path: Path) -> Path:
    """The directory of a run that stopped after 2 of 6 steps."""
    train(config(data, max_steps=2), tmp_path / "run")
    return tmp_path / "run"


def digests(run: Path) -> dict[str, str]:
    return {name: table.digest() for name, table in load_run(run).model.tables().items()}


def test_a_run_that_was_moved_with_its_data_ends_like_one_that_was_not(
    begun: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(config(data), tmp_path / "straight")
    moved, run = tmp_path / "elsewhere", tmp_path / "moved"
    shutil.move(data, moved)
    shutil.move(begun, run)
    capsys.readouterr()
    assert train(config(moved), run, resume=True).steps == STEPS
    assert "record" not in capsys.readouterr().err
    assert digests(run) == digests(tmp_path / "straight")
    # The new paths are recorded, too.
    shutil.rmtree(moved)
    assert load_run(run).config.data.train == tuple(str(moved / n) for n in ("a.csv", "b.csv"))


def replaced(data: Path) -> tuple[str, ...]:
    size = (data / "b.csv").stat().st_size
    assert write_rows(data / "b.csv", 3).stat().st_size == size
    return ("a.csv", "b.csv")


def appended(data: Path) -> tuple[str, ...]:
    with (data / "b.csv").open("a") as file:
        file.write("10,k100,1\n")
    return ("a.csv", "b.csv")


def cut(data: Path) -> tuple[str, ...]:
    write_rows(data / "a.csv", 1, rows=ROWS // 2 - 1)
    return ("a.csv", "b.csv")


def reordered(data: Path) -> tuple[str, ...]:
    return ("b.csv", "a.csv")


def one_more(data: Path) -> tuple[str, ...]:
    write_rows(data / "c.csv", 3)
    return ("a.csv", "b.csv", "c.csv")


def one_less(data: Path) -> tuple[str, ...]:
    return ("a.csv",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(
            replaced, r"data/b\.csv has other content than when the run", id="another file"
        ),
        pytest.param(appended, r"data/b\.csv has grown from 492 to 502 bytes", id="rows appended"),
        pytest.param(cut, r"data/a\.csv has 482 bytes, it had 492 ", id="rows cut away"),
        pytest.param(
            reordered, r"file 1 is \S+/b\.csv, it was \S+/a\.csv; give the files", id="reordered"
        ),
        pytest.param(one_more, r"it has 3 files, it had 2; new: \S+/c\.csv", id="one file more"),
        pytest.param(one_less, r"it has 1 file, it had 2; missing: \S+/b\.csv", id="one less"),
    ],
)
def test_a_run_is_not_continued_with_other_data(
    begun: Path, data: Path, change: Callable[[Path], tuple[str, ...]], said: str
) -> None:
    before = (begun / FILES).read_text()
    files = change(data)
    with pytest.raises(FailedPreconditionError, match=rf"^data\.train: .*{said}") as refused:
        train(config(data, files), begun, resume=True)
    assert "\n" not in str(refused.value)
    assert f"--from {begun}" in str(refused.value)
    assert (begun / FILES).read_text() == before


def test_a_run_without_a_checkpoint_starts_over_with_other_data(begun: Path, data: Path) -> None:
    shutil.rmtree(begun / "checkpoints")
    train(config(data, replaced(data), max_steps=1), begun, resume=True)
    train(config(data), begun, resume=True)  # the new files are those of the run now


def test_a_run_of_an_older_version_continues_with_one_line(
    begun: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (begun / FILES).unlink()
    capsys.readouterr()
    train(config(data, max_steps=3), begun, resume=True)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "record" in line]
    assert line.startswith(f"{begun} has no record of its training files")
    train(config(data, max_steps=4), begun, resume=True)
    assert "no record" not in capsys.readouterr().err


def test_a_run_of_an_older_version_keeps_its_paths(begun: Path, data: Path) -> None:
    (begun / FILES).unlink()
    with pytest.raises(InvalidArgumentError, match=r"^data\.train: the run in .* has"):
        train(config(data, ("b.csv", "a.csv")), begun, resume=True)


def test_a_damaged_record_is_named(begun: Path, data: Path) -> None:
    (begun / FILES).write_text('{"format": 1, "train": [{"path": 3}]}')
    with pytest.raises(DataLossError, match=rf"{FILES} is damaged"):
        train(config(data), begun, resume=True)
    (begun / FILES).write_text('{"format": 7}')
    with pytest.raises(FailedPreconditionError, match=rf"{FILES} has format 7, this version"):
        train(config(data), begun, resume=True)


def test_an_identity_is_size_head_and_tail_wherever_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_identity, "END_BYTES", 10)
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(bytes(range(40)))
    for place, is_seen in ((0, True), (9, True), (15, False), (30, True), (39, True)):
        content = bytearray(range(40))
        content[place] ^= 1
        other.write_bytes(content)
        assert (identity_of(one) != identity_of(other)) == is_seen, place
    other.write_bytes(bytes(range(40)) + b"more")
    assert identity_of(one) != identity_of(other)
    assert identity_of(one) == identity_of(other, first_bytes=40)
    for size in (0, 1, 19, 20, 21):
        one.write_bytes(bytes(size))
        other.write_bytes(bytes(size))
        assert identity_of(one) == identity_of(other)


def test_the_identity_of_a_parquet_file_covers_its_whole_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_identity, "END_BYTES", 16)
    table = pa.table({"a": list(range(1000))})
    pq.write_table(table.replace_schema_metadata({"a": "x"}), tmp_path / "one.parquet")
    pq.write_table(table.replace_schema_metadata({"a": "y"}), tmp_path / "other.parquet")
    one, other = (identity_of(tmp_path / f"{name}.parquet") for name in ("one", "other"))
    assert one.bytes == other.bytes
    assert one != other
