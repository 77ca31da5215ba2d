"""A stream gives full batches of events with positions from which another one goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from event_runs import START, config, event, letters, lines, reading
from waiting import wait_until

from hotrow.config import parse_config
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data import open_data
from hotrow.trainer.data.encode import encode
from hotrow.trainer.online.stream import open_stream


def test_encoded_rows_are_those_of_a_file(tmp_path: Path) -> None:
    log, csv = tmp_path / "events", tmp_path / "rows.csv"
    some = [event(i, price=None if i == 3 else i / 7) for i in range(8)]
    log.write_text(lines(*some))
    fields = ["click", "user", "item", "price"]
    texts = [["" if one[f] is None else str(one[f]) for f in fields] for one in some]
    csv.write_text("\n".join([",".join(fields), *(",".join(one) for one in texts)]) + "\n")
    run = config(f"file:{log}", batch_size=8)
    file = open_data(csv, run.data, run.features, require_labels=True)
    (raw,) = file.raw_batches(8)
    expected = encode(raw, run.features)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(8)
        batch = reader.stream.encode(reader.batches[0].rows)
    assert reader.batches[0].rows.schema.names == ["click", "price", "user", "item"]
    np.testing.assert_array_equal(batch.dense, expected.dense)
    np.testing.assert_array_equal(batch.labels, expected.labels)
    for name in ("user", "item"):
        np.testing.assert_array_equal(batch.sparse[name].keys, expected.sparse[name].keys)


def test_weights_are_those_of_the_events(tmp_path: Path) -> None:
    log = tmp_path / "events"
    log.write_text(lines(*(event(i, w=i / 2) for i in range(3))))
    with reading(config(f"file:{log}", data__weight="w"), tmp_path / "dead") as reader:
        reader.read(3)
        weights = reader.stream.encode(reader.batches[0].rows).weights
    np.testing.assert_array_equal(weights, np.float32([0, 0.5, 1]))


def test_a_batch_is_full_while_there_are_events(tmp_path: Path) -> None:
    log = tmp_path / "events"
    log.write_text(lines(*map(event, range(6))))
    run = config(f"file:{log}", batch_size=4, max_batch_seconds=60.0)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(4)
        assert reader.stream.next(0.3).rows.num_rows == 0
        assert reader.stream.next(0.0).position == reader.batches[0].position
        with log.open("a") as file:
            file.write(lines(event(6), event(7)))
        reader.read(8)
    assert [batch.rows.num_rows for batch in reader.batches] == [4, 4]
    assert [batch.newest for batch in reader.batches] == [START + 3, START + 7]


def test_a_batch_does_not_wait_longer_than_it_may(tmp_path: Path) -> None:
    log = tmp_path / "events"
    log.write_text(lines(*map(event, range(6))))
    run = config(f"file:{log}", batch_size=4, max_batch_seconds=0.01)
    with reading(run, tmp_path / "dead") as reader:
        assert reader.read(6) == list(range(6))
    assert [batch.rows.num_rows for batch in reader.batches] == [4, 2]


def test_bad_events_are_counted_and_kept(tmp_path: Path) -> None:
    log = tmp_path / "events"
    first = lines(event(0), "{", event(1, click=7), event(2))
    log.write_text(first + lines(event(3, ts="?"), event(4)))
    reports: list[str] = []
    with reading(config(f"file:{log}"), tmp_path / "dead", reports=reports) as reader:
        assert reader.read(3) == [0, 2, 4]
        counts = reader.stream.counts()
    assert (counts["events"], counts["bad"], counts["late"]) == (3, 3, 0)
    found = letters(tmp_path / "dead")
    assert [one["reason"].partition(",")[0].partition(":")[0] for one in found] == [
        "is not JSON",
        "click is '7'",
        "ts is '?'",
    ]
    assert found[0]["place"] == {"file": str(log), "byte": len(lines(event(0)))}
    assert json.loads(found[1]["event"]) == event(1, click=7)
    assert reports == [f"3 events are bad and not trained; see {tmp_path / 'dead'}"]


def test_without_a_time_column_events_have_the_time_of_reading(tmp_path: Path) -> None:
    log = tmp_path / "events"
    log.write_text(lines(event(0), event(1)))
    before = time.time()
    with reading(config(f"file:{log}", time=None), tmp_path / "dead") as reader:
        reader.read(2)
    assert before <= reader.batches[0].newest <= time.time()


def test_late_events_are_decided_alike_after_a_resume(tmp_path: Path) -> None:
    log = tmp_path / "events"
    times = [0, 50, 30, 60, 41, 70, 45, 61, 20, 71, 80, 60, 90]
    log.write_text(lines(*(event(i, ts=START + at) for i, at in enumerate(times))))
    run = config(f"file:{log}", batch_size=2, late_seconds=15, late="dead_letter")
    with reading(run, tmp_path / "dead") as whole:
        kept = whole.read(8)
        counts = whole.stream.counts()
    assert kept == [0, 1, 3, 5, 7, 9, 10, 12]
    assert (counts["events"], counts["late"]) == (13, 5)
    for cut, batch in enumerate(whole.batches[:-1], start=1):
        with reading(run, tmp_path / "again", batch.position) as rest:
            assert rest.read(8 - 2 * cut) == kept[2 * cut :]


def test_an_error_of_the_source_reaches_the_caller_again_and_again(tmp_path: Path) -> None:
    log = tmp_path / "events"
    log.write_text(lines(event(0), event(1), event(2)))
    with reading(config(f"file:{log}"), tmp_path / "none" / "dead") as reader:
        reader.read(3)
        with log.open("a") as file:
            file.write("{\n")

        def error() -> str:
            try:
                reader.stream.next(0.1)
            except Exception as err:
                return str(err)
            return ""

        wait_until(lambda: "none/dead cannot be written" in error(), error)
        assert "none/dead cannot be written" in error()


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (None, "online.source: there is none"),
        ("kafak://x", "online.source kafak:...: no URL of events"),
        ("events.jsonl", "online.source 'events.jsonl': no URL of events; legal: file:PATH"),
        ("file:", "no path of this machine"),
        ("file://host/x", "no path of this machine"),
        ("file:/none/x/y", "online.source: /none/x is no folder"),
        ("replay:x.csv?sped=1", "unknown parameter 'sped'"),
        ("replay:x.csv?speed=0", "speed '0': must be max, or a number above 0"),
        ("replay:x.csv?speed=fast", "speed 'fast': must be max, or a number above 0"),
    ],
)
def test_an_url_that_is_not_legal_is_refused(
    tmp_path: Path, source: str | None, error: str
) -> None:
    run = config("file:x")
    run = run.model_copy(update={"online": run.online.model_copy(update={"source": source})})
    with pytest.raises(InvalidArgumentError) as caught:
        open_stream(run, tmp_path / "dead", {}, print)
    assert error in str(caught.value)


def test_weights_of_ids_are_no_json(tmp_path: Path) -> None:
    raw = {
        "name": "x",
        "data": {"format": "libsvm", "train": "x", "weights": True},
        "features": {"sparse": [{"columns": ["ids"], "dim": 2, "combiner": "sum"}]},
        "model": {"arch": "logistic"},
        "online": {"source": f"file:{tmp_path / 'events'}"},
    }
    with pytest.raises(InvalidArgumentError, match=r"data\.weights: JSON events have ids without"):
        open_stream(parse_config(raw, source="test"), tmp_path / "dead", {}, print)
