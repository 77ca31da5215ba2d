"""A resumed pass counts the rows before its position and reads only those after it."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.config import RunConfig, parse_config
from hotrow.trainer.data import BatchStream, DataError, Part, delimited, libsvm, lines, parquet
from hotrow.trainer.data.data_files import DataFiles
from hotrow.trainer.data.row_count import rows_of_lines

ROWS, BATCH = 600, 20
SPARSE = {
    "csv": {"dense": {"columns": ["x"]}, "sparse": {"columns": ["name"], "dim": 2}},
    "libsvm": {"sparse": {"columns": ["ids"], "dim": 2, "hash": False}},
    "criteo": {"dense": {"columns": ["I1"]}, "sparse": {"columns": ["C1"], "dim": 2}},
}
SPARSE["parquet"] = SPARSE["csv"]


def csv_lines(end: str = "\n", quotes: bool = False) -> str:
    """Rows with blank lines between them, the last without an end."""
    draw = random.Random(1)
    rows = ["x,name,label"]
    for i in range(ROWS):
        name = f'"a, ""{i % 7}"""' if quotes and draw.random() < 0.5 else f" n{i % 7} "
        rows += [f"{i},{name},{i % 2}"]
        rows += ["", "  ", "\t"][: draw.choice([0, 0, 0, 1, 3])]
    return end.join(rows)


def csv_lines_with_returns() -> str:
    """Rows that end in a return, every 20th in a newline."""
    header, *rows = csv_lines().split("\n")
    groups = ["\r".join(rows[start : start + 20]) for start in range(0, len(rows), 20)]
    return "\n".join([header, *groups])


def libsvm_lines() -> str:
    draw = random.Random(2)
    rows = []
    for i in range(ROWS):
        rows.append(f"{'  ' * draw.randrange(2)}{i % 2} {i}:1 {i % 5}:0.5 # {i}")
        rows += ["# a comment", "   # one more", "", " \r"][: draw.choice([0, 0, 1, 4])]
    return "\n".join(rows) + "\n"


def criteo_lines() -> str:
    return "".join(f"{i % 2}" + f"\t{i}" * 13 + f"\tc{i % 9}" * 26 + "\n" for i in range(ROWS))


TEXTS: dict[str, tuple[str, bytes]] = {
    "Criteo": ("a.tsv", criteo_lines().encode()),
    "CSV": ("a.csv", csv_lines().encode()),
    "CSV of another system": ("a.csv", b"\xef\xbb\xbf" + csv_lines("\r\n").encode()),
    "CSV of an old system": ("a.csv", csv_lines_with_returns().encode()),
    "CSV with quotes": ("a.csv", csv_lines(quotes=True).encode()),
    "gzip": ("a.csv.gz", gzip.compress(csv_lines().encode())),
    "LibSVM": ("a.libsvm", libsvm_lines().encode()),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines.line_blocks, "__defaults__", (0, 500, None, None))
    monkeypatch.setattr(parquet, "BATCH_ROWS", 64)


def config_of(data_format: str, policy: str = "fail", window: int = 70) -> RunConfig:
    data = {"train": "-", "batch_size": BATCH, "format": data_format, "on_malformed": policy}
    return parse_config(
        {
            "name": "s",
            "data": data,
            "features": SPARSE[data_format],
            "model": {"arch": "logistic"},
            "train": {"shuffle_buffer": window},
        }
    )


def format_of(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    return {".tsv": "criteo", ".csv": "csv", ".libsvm": "libsvm", ".parquet": "parquet"}[
        Path(name).suffix
    ]


def write_parquet(path: Path) -> Path:
    """Writes row groups of different sizes, also an empty one."""
    rows = {"x": np.arange(ROWS), "name": [f"n{i % 7}" for i in range(ROWS)]}
    table = pa.table({**rows, "label": np.arange(ROWS) % 2})
    start = 0
    with pq.ParquetWriter(path, table.schema) as writer:
        for size in (100, 150, 0, 50, 200, 100):
            writer.write_table(table.slice(start, size))
            start += size
    return path


def write(folder: Path, name: str) -> Path:
    if name == "Parquet":
        return write_parquet(folder / "a.parquet")
    file, content = TEXTS[name]
    (folder / file).write_bytes(content)
    return folder / file


def facts(batches: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            batch.dense.tolist(),
            batch.labels.tolist(),
            [keys.keys.tolist() for keys in batch.sparse.values()],
        )
        for batch in batches
    ]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that readers converted."""
    rows: list[int] = []

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            batch = method(*arguments)
            rows.append(0 if batch is None else batch.num_rows)
            return batch

        return call

    for source, name in (
        (delimited.DelimitedSource, "_fast"),
        (delimited.DelimitedSource, "_slow"),
        (libsvm.LibsvmSource, "_convert"),
        (parquet.ParquetSource, "_legal"),
    ):
        monkeypatch.setattr(source, name, counting(getattr(source, name)))
    return rows


@pytest.mark.parametrize("name", [*TEXTS, "Parquet"])
def test_rows_before_the_position_are_counted_not_parsed(
    tmp_path: Path, parsed: list[int], name: str
) -> None:
    path = write(tmp_path, name)
    config = config_of(format_of(path))
    whole = facts(list(BatchStream(path, config)))
    assert sum(parsed) >= ROWS
    for start in (0, 1, 2, 15, 27, 29, 30, 40):
        parsed.clear()
        rest = facts(list(BatchStream(path, config, start_batch=start)))
        assert rest == whole[start:], start
        # The piece that the position lies in is read whole.
        assert sum(parsed) <= max(0, ROWS - start * BATCH) + 64, start


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("name", [*TEXTS, "Parquet"])
def test_batches_after_a_position_in_several_files_are_those_of_a_whole_pass(
    tmp_path: Path, name: str, seed: int | None
) -> None:
    (tmp_path / "b").mkdir()
    paths = [write(tmp_path, name), write(tmp_path / "b", name)]
    config = config_of(format_of(paths[0]))
    whole = facts(list(BatchStream(paths, config, seed)))
    assert sum(len(labels) for _, labels, _ in whole) == 2 * ROWS
    for start in (1, 29, 30, 31, 59, 60, 61):
        assert facts(list(BatchStream(paths, config, seed, start))) == whole[start:], start
    for rank in range(2):
        part = Part(rank, 2)
        slices = facts(list(BatchStream(paths, config, seed, part=part)))
        assert facts(list(BatchStream(paths, config, seed, 31, part=part))) == slices[31:]


@pytest.mark.parametrize("name", ["CSV", "Parquet"])
def test_a_limit_counts_the_rows_before_the_position(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name)
    config = config_of(format_of(path))
    limited = facts(list(BatchStream(path, config, limit=250)))
    assert len(limited) == 13
    for start in (0, 5, 12, 13, 20):
        rest = facts(list(BatchStream(path, config, start_batch=start, limit=250)))
        assert rest == limited[start:], start


def test_where_malformed_rows_are_left_out_all_are_checked(
    tmp_path: Path, parsed: list[int]
) -> None:
    path = write_parquet(tmp_path / "a.parquet")
    table = pq.read_table(path)
    labels = table["label"].to_pylist()
    labels[3] = 7
    pq.write_table(table.set_column(2, "label", pa.array(labels)), path, row_group_size=100)
    config = config_of("parquet", "skip")
    whole = facts(list(BatchStream(path, config)))
    parsed.clear()
    stream = BatchStream(path, config, start_batch=20)
    assert facts(list(stream)) == whole[20:]
    assert sum(parsed) == ROWS - 1
    assert stream.malformed.count == 1


@pytest.mark.parametrize("name", ["CSV", "Parquet"])
def test_a_malformed_row_after_the_position_has_its_number(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.csv"
    rows = [f"{i},n,{i % 2}" for i in range(ROWS)]
    rows[500] = "1,n,7"
    path.write_text("x,name,label\n" + "\n".join(rows) + "\n")
    number = "line 502"
    if name == "Parquet":
        labels = [*(i % 2 for i in range(ROWS))]
        labels[500] = 7
        table = {"x": range(ROWS), "name": ["n"] * ROWS, "label": labels}
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({k: list(v) for k, v in table.items()}), path, row_group_size=100)
        number = "row 501"
    with pytest.raises(DataError, match=f"{number}: label is '7'"):
        list(BatchStream(path, config_of(format_of(path)), start_batch=21))


@pytest.mark.parametrize(
    "line", [b'"a","b"', b'a"b,n,1', b'1,"n', b'"\xff","\xfe"', b"x", b"1,n,"], ids=repr
)
@pytest.mark.parametrize("quotes", [True, False], ids=["quoted", "plain"])
def test_a_malformed_line_right_after_the_position_is_found(
    tmp_path: Path, line: bytes, quotes: bool
) -> None:
    row = b'1,"n",1\n' if quotes else b"1,n,1\n"
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,name,label\n" + row * 40 + line + b"\n")
    assert len(list(BatchStream(path, config_of("csv"), start_batch=1, limit=20))) == 0
    with pytest.raises(DataError, match="line 42: "):
        list(BatchStream(path, config_of("csv"), start_batch=2))


def test_a_part_of_a_pass_is_not_judged_for_positive_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,name,label\n" + "1,n,yes\n" + "1,n,no\n" * 50)
    config = config_of("csv")
    data = config.data.model_copy(update={"positive": "yes"})
    files = DataFiles(path, data, config.features)
    assert sum(batch.num_rows for batch in files.record_batches(skip_rows=40)) == 11
    assert not list(files.record_batches(skip_rows=51))
    assert not list(files.record_batches(skip_rows=500))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b"", 0),
        (b"\n", 0),
        (b"a", 1),
        (b"a\nb", 2),
        (b"a\nb\n", 2),
        (b"\n\na\n \n\t\n\x0b\x0c\n b\n", 2),
        (b"a\r\nb\r\n\r\n", 2),
        (b"a\rb\r\rc\r\n\nd", 4),
        (b"\ra\r", 1),
    ],
    ids=repr,
)
def test_lines_that_are_not_blank_are_rows(text: bytes, rows: int) -> None:
    assert rows_of_lines(text) == rows


def test_a_comment_is_no_row() -> None:
    text = b"#\n # x\na # b\n\r\n1\r2\n"
    assert rows_of_lines(text, comment=b"#", returns_end_lines=False) == 2
