"""Recorded files are replayed once, in their order, as fast as is asked for."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from event_runs import START, config, event, letters, reading

from hotrow.config import RunConfig, parse_config
from hotrow.errors import DataLossError, InvalidArgumentError
from hotrow.trainer.data import parquet
from hotrow.trainer.online.stream import open_stream

NAMES = ["click", "user", "item", "price", "ts"]


def csv(*events: dict[str, Any] | str) -> str:
    rows = [
        one if isinstance(one, str) else ",".join(str(one[name]) for name in NAMES)
        for one in events
    ]
    return "\n".join([",".join(NAMES), *rows]) + "\n"


def resumed_everywhere(run: RunConfig, folder: Path, every: list[int], bad: int = 0) -> None:
    with reading(run, folder / "dead") as whole:
        assert whole.read_to_end() == every
        assert whole.stream.next(0.0) is None
        assert whole.stream.counts()["bad"] == bad
    assert len(whole.batches) > 2
    read = bad_letters = 0
    for number, batch in enumerate(whole.batches):
        read += batch.rows.num_rows
        with reading(run, folder / f"dead{number}", batch.position) as rest:
            assert rest.read_to_end() == every[read:]
            bad_letters = rest.stream.counts()["bad"]
            assert bad_letters <= bad
    assert bad_letters == 0


@pytest.mark.parametrize("on_malformed", ["fail", "skip"])
def test_csv_files_are_replayed_from_any_position(tmp_path: Path, on_malformed: str) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv.gz"
    bad = ["1,a", "7,u,1,1,5", "1,u,3,0.5,never"]
    one.write_text(csv(*map(event, range(7)), *bad, *map(event, range(7, 10))))
    two.write_bytes(gzip.compress(csv("x", *map(event, range(10, 15))).encode()))
    run = config(f"replay:{one},{two}", data__on_malformed=on_malformed)
    resumed_everywhere(run, tmp_path, list(range(15)), bad=4)
    places = [
        (Path(one["place"].pop("file")).name, one["place"]) for one in letters(tmp_path / "dead")
    ]
    assert sorted(places, key=str) == [
        ("one.csv", {"line": 10}),
        ("one.csv", {"line": 9}),
        ("one.csv", {"row": 8}),
        ("two.csv.gz", {"line": 2}),
    ]


@pytest.mark.parametrize("bad", [False, True], ids=["good rows", "a bad row"])
def test_a_parquet_file_is_replayed_from_any_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bool
) -> None:
    monkeypatch.setattr(parquet, "BATCH_ROWS", 4)
    path = tmp_path / "rows.parquet"
    rows = [event(number) for number in range(20)]
    if bad:
        rows.insert(2, event(99, click=5))
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=5)
    resumed_everywhere(config(f"replay:{path}"), tmp_path, list(range(20)), bad=int(bad))


def test_times_may_be_stored_as_timestamps(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.Table.from_pylist([event(number) for number in range(3)])
    seconds = table.column("ts")
    index = table.schema.get_field_index("ts")
    for kind in (pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "+02:00")):
        stored = pa.compute.cast(seconds, pa.timestamp("s")).cast(pa.timestamp("s", "UTC"))
        pq.write_table(table.set_column(index, "ts", stored.cast(kind)), path)
        with reading(config(f"replay:{path}"), tmp_path / "dead") as reader:
            assert reader.read_to_end() == [0, 1, 2]
        assert reader.batches[0].newest == START + 2, kind


def test_libsvm_and_criteo_are_replayed(tmp_path: Path) -> None:
    svm, tsv = tmp_path / "rows.svm", tmp_path / "rows.tsv"
    svm.write_text("".join(f"{i % 2} {i}:1 7:1\n" for i in range(5)))
    tsv.write_text("".join("\t".join([str(i % 2), str(i), *[""] * 38]) + "\n" for i in range(5)))
    libsvm = {"sparse": [{"columns": ["ids"], "dim": 2, "combiner": "sum"}]}
    criteo = {"dense": [{"columns": ["I1"]}], "sparse": [{"columns": ["C1"], "dim": 2}]}
    for path, name, features in ((svm, "libsvm", libsvm), (tsv, "criteo", criteo)):
        raw = {
            "name": "x",
            "data": {"format": name, "train": "x", "batch_size": 2},
            "features": features,
            "model": {"arch": "logistic"},
            "online": {"source": f"replay:{path}", "format": "data"},
        }
        with reading(parse_config(raw, source="test"), tmp_path / "dead") as reader:
            labels = []
            while (batch := reader.stream.next(30.0)) is not None:
                labels += reader.stream.encode(batch.rows).labels.tolist()
        assert labels == [0, 1, 0, 1, 0]


def test_events_come_at_the_speed_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    times = [0.0, 10.0, 5.0, 20.0]
    path.write_text(csv(*(event(i, ts=START + at) for i, at in enumerate(times))))
    run = config(f"replay:{path}?speed=50", batch_size=10, max_batch_seconds=0.01)
    begun = time.monotonic()
    with reading(run, tmp_path / "dead") as reader:
        came = []
        for rows in range(1, 5):
            reader.read(rows)
            came.append(time.monotonic() - begun)
    assert reader.items == [0, 1, 2, 3]
    # Never earlier; how much later depends on the machine.
    assert came[1] >= 0.2
    assert came[3] >= 0.4


def test_a_speed_needs_times(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(csv(event(0)))
    run = config(f"replay:{path}?speed=2", time=None)
    with pytest.raises(InvalidArgumentError, match="a speed needs the time of events"):
        open_stream(run, tmp_path / "dead", {}, print)


def test_other_files_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(csv(*map(event, range(6))))
    run = config(f"replay:{path}", batch_size=2)
    with reading(run, tmp_path / "dead") as reader:
        reader.read_to_end()
    path.write_text(csv(*map(event, range(8))))
    with (
        reading(run, tmp_path / "dead", reader.batches[0].position) as again,
        pytest.raises(DataLossError, match="file 1 of the replay is not the one that was read"),
    ):
        again.read_to_end()
