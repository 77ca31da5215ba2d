"""Files that grow, are rotated and appear are read once, whatever happens to them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from event_runs import START, Reader, config, event, letters, lines, reading
from waiting import wait_until

from hotrow.errors import DataLossError, HotrowError, InvalidArgumentError
from hotrow.trainer.online.sources import files, text_file
from hotrow.trainer.online.sources.file_list import FileList


def append(path: Path, *events: Any) -> None:
    with path.open("a") as file:
        file.write(lines(*events))


def write_parquet(path: Path, *events: dict[str, Any], groups: int = 2) -> None:
    partial = path.with_name(f".{path.name}")
    pq.write_table(pa.Table.from_pylist(list(events)), partial, row_group_size=groups)
    partial.rename(path)


def error_of(reader: Reader) -> HotrowError:
    """Reads until the stream raises; returns the error."""
    raised: list[HotrowError] = []

    def fails() -> bool:
        try:
            reader.stream.next(0.1)
        except HotrowError as err:
            raised.append(err)
        return bool(raised)

    wait_until(fails)
    return raised[0]


def resumed_everywhere(run: Any, folder: Path, every: list[int]) -> None:
    """Reads all, and from behind each batch."""
    with reading(run, folder / "dead0") as whole:
        assert whole.read(len(every)) == every
    assert len(whole.batches) > 2
    read = 0
    for number, batch in enumerate(whole.batches):
        read += batch.rows.num_rows
        with reading(run, folder / f"dead{number + 1}", batch.position) as rest:
            assert rest.read(len(every) - read) == every[read:]
            assert rest.stream.next(0.05).rows.num_rows == 0


@pytest.mark.parametrize("block", [40, 200, 1 << 20], ids="blocks of {} bytes".format)
def test_a_log_is_read_on_from_behind_any_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(text_file, "BLOCK_BYTES", block)
    log = tmp_path / "events.jsonl"
    some: list[Any] = [event(number) for number in range(20)]
    some[7:7] = ["{", "", '{"click": 3}']
    some += ["bad at the end"]
    log.write_text(lines(*some))
    resumed_everywhere(config(f"file:{log}"), tmp_path, list(range(20)))


def test_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    with reading(config(f"file:{log}", batch_size=1), tmp_path / "dead") as reader:
        assert reader.stream.next(0.05).rows.num_rows == 0  # the file does not exist yet
        text = lines(event(0), event(1))
        first = len(lines(event(0)))
        for start, end, items in ((0, 10, []), (10, first - 1, []), (first - 1, first + 20, [0])):
            with log.open("a") as file:
                file.write(text[start:end])
            assert reader.read(len(items)) == items
            assert reader.stream.next(0.05).rows.num_rows == 0
        with log.open("a") as file:
            file.write(text[first + 20 :])
        assert reader.read(2) == [0, 1]


def test_lines_of_a_csv_have_its_header(tmp_path: Path) -> None:
    log = tmp_path / "events.csv"
    names = "ts,item,user,price,click"
    rows = [f"{START + i},{i},u,0.5,{i % 2}" for i in range(9)]
    log.write_text("\r\n".join([names, *rows[:4], "1,2", *rows[4:]]) + "\r\n")
    resumed_everywhere(config(f"file:{log}", format="data"), tmp_path, list(range(9)))
    (letter,) = letters(tmp_path / "dead0")
    assert letter["event"] == "1,2"
    assert letter["reason"].startswith("2 fields, not 5")


class Log:
    """A log that is rotated by renaming: the newest old one is `.1`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "events.jsonl"
        self.count = 0

    def append(self, count: int) -> None:
        append(self.path, *map(event, range(self.count, self.count + count)))
        self.count += count

    def rotate(self) -> None:
        names = sorted(self.path.parent.glob("events.jsonl.?"), reverse=True)
        for old in names:
            old.rename(old.with_suffix(f".{int(old.suffix[1:]) + 1}"))
        self.path.rename(self.path.with_name("events.jsonl.1"))


@pytest.mark.parametrize("rotations", [1, 2, 3])
@pytest.mark.parametrize("read_before", [2, 4])
def test_a_log_that_was_rotated_while_the_trainer_was_stopped_is_read_on(
    tmp_path: Path, rotations: int, read_before: int
) -> None:
    log = Log(tmp_path)
    log.append(4)
    run = config(f"file:{log.path}", batch_size=2)
    with reading(run, tmp_path / "dead") as reader:
        before = reader.read(read_before)
        position = next(
            batch.position
            for batch in reader.batches
            if batch.rows["item"][-1].as_py() + 1 == read_before
        )
    before = before[:read_before]
    for _ in range(rotations):
        log.append(1)
        log.rotate()
        log.append(2)
    with reading(run, tmp_path / "dead", position) as reader:
        assert before + reader.read(log.count - read_before) == list(range(log.count))
        assert reader.stream.next(0.05).rows.num_rows == 0


def test_a_log_that_is_rotated_under_the_reader_is_read_on(tmp_path: Path) -> None:
    log = Log(tmp_path)
    (tmp_path / "events.jsonl.8").write_text(lines(event(99)))  # older than the first start
    log.append(3)
    with reading(config(f"file:{log.path}", batch_size=2), tmp_path / "dead") as reader:
        reader.read(3)
        for _ in range(4):
            log.append(2)
            log.rotate()
            log.append(1)
            assert reader.read(log.count) == list(range(log.count))
        (tmp_path / "events.jsonl.4").unlink()  # it was read to its end

        def is_forgotten() -> bool:
            log.append(1)
            assert reader.read(log.count) == list(range(log.count))
            return len(reader.batches[-1].position["source"]) == 4

        wait_until(is_forgotten)


def test_a_new_log_waits_until_the_rotated_one_is_found(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append(3)
    found = FileList(log.path, print)
    assert len(found.look({}, ())[0]) == 1
    log.path.rename(tmp_path / "renamed later")  # a folder is listed while its files are renamed
    log.append(1)
    assert found.look({}, ()) == ({}, [])
    (tmp_path / "renamed later").rename(tmp_path / "events.jsonl.1")
    paths = found.look({}, ())[0].values()
    assert sorted(path.name for path in paths) == ["events.jsonl", "events.jsonl.1"]


def test_a_log_that_vanished_unread_is_missed(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append(4)
    run = config(f"file:{log.path}", batch_size=2)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(4)
        positions = [batch.position for batch in reader.batches]
    log.path.rename(tmp_path / "gone")
    log.append(1)
    with reading(run, tmp_path / "dead", positions[0]) as reader:
        error = error_of(reader)
    assert isinstance(error, DataLossError)
    size = len(lines(event(0), event(1)))
    assert f"was removed, cut or replaced before all of it was read ({size} bytes were)" in str(
        error
    )
    with reading(run, tmp_path / "dead", positions[1]) as reader:  # it was read to its end
        assert reader.read(1) == [4]


@pytest.mark.parametrize("runs", [True, False], ids=["while it is read", "while it is not"])
def test_a_log_that_was_cut_is_noticed(tmp_path: Path, runs: bool) -> None:
    log = Log(tmp_path)
    log.append(60)  # the first 1024 bytes are the same afterwards
    run = config(f"file:{log.path}", batch_size=60)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(60)
        position = reader.batches[-1].position
        if runs:
            os.truncate(log.path, 2000)
            error = error_of(reader)
    if not runs:
        os.truncate(log.path, 2000)
        with reading(run, tmp_path / "dead", position) as reader:
            error = error_of(reader)
    assert isinstance(error, DataLossError)
    assert "was cut: it has 2,000 bytes" in str(error)


def test_a_log_that_was_emptied_after_it_was_read_begins_anew(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append(3)
    with reading(config(f"file:{log.path}"), tmp_path / "dead") as reader:
        reader.read(3)
        os.truncate(log.path, 0)
        reader.stream.next(0.1)
        log.append(2)
        assert reader.read(5) == list(range(5))


def test_files_of_a_folder_are_merged_by_time(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    for name, numbers in {"b": [0, 2, 4, 10], "a": [1, 3, 11], "c": [5, 6]}.items():
        append(folder / f"{name}.jsonl", *map(event, numbers))
    for name in (".hidden", "_SUCCESS", "new.tmp", "x.partial", "y~"):
        (folder / name).write_text("no event\n")
    write_parquet(folder / "d.parquet", *map(event, [7, 8, 9, 12]))
    run = config(f"file:{folder}", batch_size=2)
    resumed_everywhere(run, tmp_path, list(range(13)))
    with reading(run, tmp_path / "dead") as reader:
        reader.read(13)
        append(folder / "a.jsonl", event(13))
        assert reader.read(14)[13:] == [13]
        write_parquet(folder / "0.parquet", event(14), event(15, click=3), event(16))
        append(folder / "0.jsonl", event(17))
        assert sorted(reader.read(17)[14:]) == [14, 16, 17]
        (folder / "d.parquet").unlink()
        (folder / "b.jsonl").rename(folder / "z.jsonl")
        append(folder / "z.jsonl", event(18))
        assert reader.read(18)[17:] == [18]
    (letter,) = letters(tmp_path / "dead")
    assert letter["place"] == {"file": str(folder / "0.parquet"), "line": 2}


@pytest.mark.parametrize("most", [1, 2, 3])
def test_many_files_are_read_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(files, "_MOST_FILES", most)
    folder = tmp_path / "events"
    folder.mkdir()
    for number in range(12):
        append(folder / f"{number:02}.jsonl", *map(event, range(3 * number, 3 * number + 3)))
    resumed_everywhere(config(f"file:{folder}", batch_size=5), tmp_path, list(range(36)))


def test_a_copy_of_a_file_is_a_file_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    append(folder / "a.jsonl", event(0))
    run = config(f"file:{folder}", batch_size=1)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(1)
        shutil.copy(folder / "a.jsonl", folder / "b.jsonl")
        assert reader.read(2) == [0, 0]
        append(folder / "b.jsonl", event(1))
        assert reader.read(3) == [0, 0, 1]


def test_a_parquet_file_is_read_when_it_has_its_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotrow.trainer.online.sources.file_list._REPORT_SECONDS", 0.0)
    folder = tmp_path / "events"
    folder.mkdir()
    write_parquet(tmp_path / "whole.parquet", event(0))
    data = (tmp_path / "whole.parquet").read_bytes()
    reports: list[str] = []
    run = config(f"file:{folder}", batch_size=1)
    with reading(run, tmp_path / "dead", reports=reports) as reader:
        (folder / "a.parquet").write_bytes(data[:-1])
        wait_until(lambda: reader.stream.next(0.05).rows.num_rows == 0 and bool(reports))
        assert "a.parquet is not read: it is named .parquet and has no footer yet" in reports[0]
        (folder / "a.parquet").write_bytes(data)
        assert reader.read(1) == [0]
    assert len(reports) == 1


def test_a_replaced_parquet_file_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    write_parquet(folder / "a.parquet", *map(event, range(6)))
    run = config(f"file:{folder}", batch_size=2)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(2)
        position = reader.batches[0].position
    write_parquet(folder / "a.parquet", *map(event, range(9, 15)))
    with reading(run, tmp_path / "dead", position) as reader:
        assert "was removed, cut or replaced before all of it was read (2 rows" in str(
            error_of(reader)
        )


def test_a_compressed_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "a.jsonl.gz").write_bytes(b"x")
    with reading(config(f"file:{folder}"), tmp_path / "dead") as reader:
        error = error_of(reader)
    assert isinstance(error, InvalidArgumentError)
    assert "a.jsonl.gz is compressed, so it does not grow; unpack it, or read recorded" in str(
        error
    )


def test_the_lag_is_whether_anything_is_left(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append(2)
    run = config(f"file:{log.path}", batch_size=100, max_batch_seconds=0.01)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(2)
        wait_until(lambda: reader.stream.lag().events == 0)
        log.append(1)
        wait_until(lambda: reader.stream.lag().events is None)
        reader.read(3)
        wait_until(lambda: reader.stream.lag().events == 0)
