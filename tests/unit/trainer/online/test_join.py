"""Rows wait for labels that come later; what is trained follows from the events alone."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from event_runs import START, config, letters, reading

from hotrow.config import RunConfig
from hotrow.errors import DataLossError, InvalidArgumentError
from hotrow.trainer.online import join, waiting_file
from hotrow.trainer.online.source import TrainingEvents
from hotrow.trainer.online.stream import open_stream

Trained = list[tuple[int, int]]


def row(item: int, at: float, key: str | None = None) -> dict[str, Any]:
    key = f"k{item}" if key is None else key
    return {"user": "u", "item": item, "price": 0.5, "ts": START + at, "show": key}


def label(key: str, at: float, value: int | None = 1) -> dict[str, Any]:
    return {"show": key, "click": value, "ts": START + at}


def joining(source: str, window: float = 10.0, **options: Any) -> RunConfig:
    waits = {"key": "show", "window_seconds": window}
    for name in ("most_rows", "most_disk_rows"):
        if name in options:
            waits[name] = options.pop(name)
    return config(source, join=waits, **options)


def write(path: Path, *events: dict[str, Any]) -> str:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in events))
    return f"file:{path}"


def trained(batches: Iterable[TrainingEvents]) -> Trained:
    """Returns item and label of each row."""
    return [
        (item, int(value))
        for batch in batches
        for item, value in zip(
            batch.rows["item"].to_pylist(), batch.rows["click"].to_pylist(), strict=True
        )
    ]


def read(run: RunConfig, folder: Path, rows: int) -> tuple[Trained, dict[str, int]]:
    with reading(run, folder / "dead") as reader:
        reader.read(rows)
        assert reader.stream.next(0.1).rows.num_rows == 0
        return trained(reader.batches), reader.stream.counts()


def test_a_row_leaves_with_its_label_or_when_its_window_is_over(tmp_path: Path) -> None:
    events = [
        row(1, 0),
        row(2, 1),
        row(3, 2),
        label("k2", 5),
        row(4, 9),
        label("k1", 10),  # the end of its window
        row(5, 12),  # that of 3
        row(6, 12.5),
        label("k3", 12.6),  # too late
        label("k9", 13),  # unknown
        label("k2", 14),  # twice
        label("k5", 14, 0),  # says that there will be none
    ]
    run = joining(write(tmp_path / "events", *events), batch_size=1)
    rows, counts = read(run, tmp_path, 4)
    assert rows == [(2, 1), (1, 1), (3, 0), (5, 0)]
    assert counts == {
        "events": 12,
        "bad": 0,
        "late": 0,
        "joined": 3,
        "expired": 1,
        "early": 0,
        "unmatched": 3,
    }
    found = letters(tmp_path / "dead")
    assert [(letter["kind"], letter["event"]["show"]) for letter in found] == [
        ("label", "k3"),
        ("label", "k9"),
        ("label", "k2"),
    ]
    assert found[0]["event"] == {"show": "k3", "click": 1.0, "time": START + 12.6}
    assert found[0]["reason"].startswith("no row with this key waits")


def test_a_late_row_leaves_at_once(tmp_path: Path) -> None:
    run = joining(write(tmp_path / "events", row(1, 100), row(2, 89), row(3, 90)), batch_size=1)
    rows, counts = read(run, tmp_path, 1)
    assert rows == [(2, 0)]
    assert counts["expired"] == 1


def test_a_label_is_that_of_the_newest_row_with_its_key(tmp_path: Path) -> None:
    events = [row(1, 0, "a"), row(2, 1, "a"), row(3, 2, "a"), label("a", 3), label("a", 4)]
    events += [label("a", 5), label("a", 6), row(4, 7, "a"), label("a", 8)]
    run = joining(write(tmp_path / "events", *events), batch_size=1)
    rows, counts = read(run, tmp_path, 4)
    assert rows == [(3, 1), (2, 1), (1, 1), (4, 1)]
    assert counts["unmatched"] == 1


def test_bad_labels_and_rows_are_bad_events(tmp_path: Path) -> None:
    events = [row(1, 0), label("k1", 1, 7), {"show": "k1", "click": 1}, row(2, 2, "")]
    events += [{"click": 1, "ts": START}, row(3, 3) | {"price": "x"}, label("k1", 4)]
    run = joining(write(tmp_path / "events", *events), batch_size=1)
    rows, counts = read(run, tmp_path, 1)
    assert rows == [(1, 1)]
    assert counts["bad"] == 5
    assert sorted(one["reason"].partition(",")[0] for one in letters(tmp_path / "dead")) == [
        "click is '7'",
        "price is 'x'",
        "show is ''",
        "show is ''",
        "ts is ''",
    ]


def test_a_row_has_its_weight_and_a_label_has_none(tmp_path: Path) -> None:
    events = [row(1, 0) | {"w": 3}, row(2, 0), label("k1", 1), row(3, 1) | {"w": -1}]
    run = joining(write(tmp_path / "events", *events), batch_size=1, data__weight="w")
    with reading(run, tmp_path / "dead") as reader:
        reader.read(1)
        batch = reader.stream.encode(reader.batches[0].rows)
        assert reader.stream.counts()["bad"] == 2
    assert (batch.labels.tolist(), batch.weights.tolist()) == ([1.0], [3.0])


def test_lines_of_a_csv_join_too(tmp_path: Path) -> None:
    log = tmp_path / "events.csv"
    log.write_text("show,click,user,item,price,ts\na,,u,1,0.5,100\nb,,u,2,,101\na,1,,,,105\n")
    rows, _ = read(joining(f"file:{log}", format="data", batch_size=1), tmp_path, 1)
    assert rows == [(1, 1)]
    with reading(joining(f"replay:{log}", format="data"), tmp_path / "dead") as reader:
        reader.read_to_end()
        assert trained(reader.batches) == [(1, 1), (2, 0)]


@pytest.mark.parametrize(("memory", "disk"), [(3, 0), (1, 2), (2, 1)])
def test_without_room_the_oldest_rows_leave_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, disk: int
) -> None:
    monkeypatch.setattr(join, "_READ_EVENTS", 2)
    events = [*(row(i, 0) for i in range(5)), label("k0", 1), label("k3", 1), row(5, 2)]
    source = write(tmp_path / "events", *events)
    run = joining(source, batch_size=1, most_rows=memory, most_disk_rows=disk)
    rows, counts = read(run, tmp_path, 3)
    assert rows == [(0, 0), (1, 0), (3, 1)]
    assert (counts["early"], counts["unmatched"]) == (2, 1)
    assert not (tmp_path / "waiting_rows").exists()


def random_events(seed: int, count: int = 80) -> list[dict[str, Any]]:
    """Returns rows and labels: late, unknown, twice, with keys that repeat, out of order."""
    rng = random.Random(seed)
    keys: list[str] = []
    events: list[dict[str, Any]] = []
    for number in range(count):
        at = number / 2 + rng.choice([0, 0, 0, -3, -8, -20, 2])
        if rng.random() < 0.6 or not keys:
            keys.append(rng.choice(keys) if keys and rng.random() < 0.1 else f"k{number}")
            events.append(row(number, at, keys[-1]))
        else:
            key = "none" if rng.random() < 0.1 else rng.choice(keys[-12:])
            events.append(label(key, at, rng.choice([1, 1, 0])))
    return events


def expected(events: list[dict[str, Any]], window: float, most: int, late: float) -> Trained:
    """Joins one event at a time, in the plainest way."""
    waiting: list[tuple[float, int, str]] = []
    newest = float("-inf")
    out: Trained = []
    for one in events:
        at = one["ts"] - START
        if at < newest - late:
            continue
        newest = max(newest, at)
        over = [w for w in waiting if w[0] < newest]
        for w in sorted(over, key=lambda w: (w[0], waiting.index(w))):
            out.append((w[1], 0))
            waiting.remove(w)
        if "item" in one:
            if at + window < newest:
                out.append((one["item"], 0))
                continue
            waiting.append((at + window, one["item"], one["show"]))
            if len(waiting) > most:
                out.append((waiting.pop(0)[1], 0))
        else:
            mine = [w for w in waiting if w[2] == one["show"]]
            if mine:
                waiting.remove(mine[-1])
                out.append((mine[-1][1], one["click"]))
    out += [(w[1], 0) for w in sorted(waiting, key=lambda w: (w[0], waiting.index(w)))]
    return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("memory", "disk", "events_a_read"),
    [(1000, 0, 4096), (7, 0, 5), (4, 3, 3), (1, 1000, 4), (1, 6, 1)],
    ids=str,
)
def test_any_cut_of_the_stream_gives_the_same_batches(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    memory: int,
    disk: int,
    events_a_read: int,
) -> None:
    monkeypatch.setattr(join, "_READ_EVENTS", events_a_read)
    monkeypatch.setattr(join, "_AGAIN_EVENTS", 1 + seed)
    monkeypatch.setattr(waiting_file, "_ROWS_AT_ONCE", 1 + seed)
    late = 15.0 if seed % 2 else 1e9
    events = random_events(seed)
    path = tmp_path / "events.parquet"
    write_rows(path, events)
    run = joining(
        f"replay:{path}",
        most_rows=memory,
        most_disk_rows=disk,
        batch_size=2 + seed % 4,
        late_seconds=late,
        late="dead_letter",
    )
    with reading(run, tmp_path / "dead") as whole:
        whole.read_to_end()
        counts = whole.stream.counts()
    every = trained(whole.batches)
    assert every == expected(events, 10.0, memory + disk, late)
    kinds = [letter["kind"] for letter in letters(tmp_path / "dead")]
    assert (kinds.count("label"), kinds.count("late")) == (counts["unmatched"], counts["late"])
    done = 0
    for batch in whole.batches:
        done += batch.rows.num_rows
        position = json.loads(json.dumps(batch.position))
        again = tmp_path / f"dead{done}"
        with reading(run, again, position) as rest:
            rest.read_to_end()
            assert trained(rest.batches) == every[done:], done
            # Events that are read again are not reported again.
            rows = {letter["event"].get("show") for letter in letters(again)}
            assert (
                len(letters(again))
                == rest.stream.counts()["unmatched"] + (rest.stream.counts()["late"])
            ), rows


def write_rows(path: Path, events: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["show", "click", "user", "item", "price", "ts"]
    rows = [{name: one.get(name) for name in names} for one in events]
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize("seed", range(4))
def test_files_that_grow_side_by_side_are_cut_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(join, "_READ_EVENTS", 3)
    rng = random.Random(seed)
    folder = tmp_path / "events"
    folder.mkdir()
    run = joining(f"file:{folder}", batch_size=2, max_batch_seconds=0.01)
    events = [one for one in random_events(seed, 60) if one["ts"] > START]
    left = list(events)
    with reading(run, tmp_path / "dead") as whole:
        while left:
            part, left = left[:7], left[7:]
            for one in part:
                name = folder / f"{rng.randrange(3)}.jsonl"
                with name.open("a") as file:
                    file.write(json.dumps(one) + "\n")
            batch = whole.stream.next(0.03)
            if batch is not None and batch.rows.num_rows:
                whole.batches.append(batch)
        # Event time passes all windows.
        with (folder / "0.jsonl").open("a") as file:
            file.write(json.dumps(row(999, 900)) + "\n" + json.dumps(label("k999", 901)) + "\n")
        whole.read(1 + sum("item" in one for one in events))
    every = trained(whole.batches)
    assert every[-1] == (999, 1)
    done = 0
    for batch in whole.batches:
        done += batch.rows.num_rows
        with reading(run, tmp_path / f"dead{done}", batch.position) as rest:
            rest.read(len(every) - done)
            # What was in memory is decided alike; what follows may be merged in another order.
            assert sorted(item for item, _ in trained(rest.batches)) == sorted(
                item for item, _ in every[done:]
            )


def test_settings_of_waiting_rows_stay(tmp_path: Path) -> None:
    source = write(tmp_path / "events", row(1, 0), row(2, 1), label("k2", 2))
    with reading(joining(source, batch_size=1), tmp_path / "dead") as reader:
        reader.read(1)
        position = reader.batches[0].position
    with pytest.raises(
        InvalidArgumentError, match=r"window_seconds: rows wait that were read with 10\.0, now"
    ):
        open_stream(joining(source, window=20.0), tmp_path / "dead", position, print)
    with pytest.raises(DataLossError, match=r"online\.join: the checkpoint's position is of a run"):
        open_stream(config(source), tmp_path / "dead", position, print)


def test_a_run_without_waiting_rows_may_begin_to_join(tmp_path: Path) -> None:
    log = tmp_path / "events"
    source = write(log, row(1, 0) | {"click": 1}, row(2, 1) | {"click": 0})
    with reading(config(source, batch_size=2), tmp_path / "dead") as reader:
        reader.read(2)
        position = reader.batches[0].position
    with log.open("a") as file:
        file.write(json.dumps(row(3, 5)) + "\n" + json.dumps(label("k3", 6)) + "\n")
    with reading(joining(source, batch_size=1), tmp_path / "dead", position) as reader:
        reader.read(1)
        assert trained(reader.batches) == [(3, 1)]


def test_changed_events_are_noticed(tmp_path: Path) -> None:
    log = tmp_path / "events"
    source = write(log, row(1, 0), row(2, 1), label("k1", 2), label("k9", 3))
    with reading(joining(source, batch_size=1), tmp_path / "dead") as reader:
        reader.read(1)
        position = reader.batches[0].position
    assert position["join"]["taken"] == 1
    position = json.loads(json.dumps(position))
    position["join"]["taken"] = 2
    with log.open("a") as file:
        file.write(json.dumps(label("k2", 4)) + "\n")
    with (
        reading(joining(source, batch_size=1), tmp_path / "dead", position) as reader,
        pytest.raises(DataLossError, match="1 rows that were trained are not among the events"),
    ):
        reader.read(1)
