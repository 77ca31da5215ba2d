"""Generated files and the truth beside them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hotrow.config import DataConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data import DataError, open_data
from hotrow.trainer.data.synthetic import Parameters, generate
from hotrow.trainer.data.synthetic.files import truth_path

CRITEO = DataConfig(format="criteo", train="-")


def test_files_hold_the_same_rows_whatever_their_compression(tmp_path: Path) -> None:
    texts = {}
    for ending in ("tsv", "tsv.gz", "tsv.zst"):
        path = tmp_path / f"rows.{ending}"
        generate({path: 500}, Parameters(seed=4))
        texts[ending] = path.read_bytes()
    assert gzip.decompress(texts["tsv.gz"]) == texts["tsv"]
    size = len(texts["tsv"])
    assert pa.decompress(texts["tsv.zst"], size, "zstd", asbytes=True) == texts["tsv"]
    generate({tmp_path / "rows.tsv.gz": 500}, Parameters(seed=4))
    assert (tmp_path / "rows.tsv.gz").read_bytes() == texts["tsv.gz"], "the same bytes again"


def test_the_reader_reads_what_was_drawn(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv.gz"
    generation = generate({path: 3000}, Parameters())
    batches = list(open_data(path, CRITEO, require_labels=True).raw_batches(1000))
    labels = np.concatenate([batch.labels for batch in batches if batch.labels is not None])
    assert len(labels) == 3000
    assert labels.mean() == pytest.approx(generation.files[0].label_rate)
    assert any(np.isnan(batches[0].array(f"I{i}")).any() for i in range(1, 14))


def test_the_truth_is_written_beside_the_first_file(tmp_path: Path) -> None:
    train, valid = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    done: list[int] = []
    generation = generate({train: 70_000, valid: 2000}, Parameters(seed=9), done.append)
    truth = json.loads(truth_path(train).read_text())
    assert truth == json.loads(json.dumps(generation.as_dict()))
    assert [file["rows"] for file in truth["files"]] == [70_000, 2000]
    assert 0.75 < truth["true_auc"] < 0.80
    assert truth["parameters"] == {"seed": 9, "keys": 100_000, "skew": 1.05, "noise": 0.05}
    assert sum(done) == 72_000
    assert train.read_text().count("\n") == 70_000


def test_an_auc_without_both_labels_is_none(tmp_path: Path) -> None:
    generation = generate({tmp_path / "one.tsv": 1}, Parameters())
    assert generation.true_auc is None
    assert generation.files[0].true_auc is None


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "rows.tsv"
    with pytest.raises(DataError, match=r"rows.tsv cannot be written: No such file or directory"):
        generate({path: 10}, Parameters())


def test_an_interrupted_file_does_not_appear(tmp_path: Path) -> None:
    def stop(rows: int) -> None:
        raise KeyboardInterrupt

    old = tmp_path / "rows.tsv.gz"
    old.write_text("what was there")
    with pytest.raises(KeyboardInterrupt):
        generate({old: 10}, Parameters(), stop)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.tsv.gz"]
    assert old.read_text() == "what was there"


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="rows is 0; it must be at least 1"):
        generate({tmp_path / "rows.tsv": 0}, Parameters())
