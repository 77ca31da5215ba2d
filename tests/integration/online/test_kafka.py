"""Kafka's partitions are read once from any position; what was deleted unread is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from event_runs import config, event, letters, reading
from kafka_broker import KafkaBroker, bounded_broker, kafka_broker, produce
from waiting import wait_until

from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    HotrowError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from hotrow.trainer.online.sources import kafka
from hotrow.trainer.online.stream import open_stream


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker that the tests share; each has a topic of its own."""
    with kafka_broker() as running:
        yield running


def url_of(broker: KafkaBroker, topic: str, more: str = "") -> str:
    return f"kafka://{broker.address}/{topic}{more}"


def test_a_topic_is_read_on_from_behind_any_batch(broker: KafkaBroker, tmp_path: Path) -> None:
    broker.create_topic("any", 3)
    events: list[tuple[int, Any]] = [(number % 3, event(number)) for number in range(20)]
    events[9:9] = [(1, "{"), (2, None)]
    produce(broker.address, "any", *events)
    run = config(url_of(broker, "any"), batch_size=4)
    with reading(run, tmp_path / "dead") as whole:
        whole.read(20)
        produce(broker.address, "any", (2, event(20)), (0, event(21)))
        assert sorted(whole.read(22)) == list(range(22))
        assert whole.stream.counts()["bad"] == 2
    found = {letter.get("event"): letter["place"] for letter in letters(tmp_path / "dead")}
    assert found == {
        "{": {"topic": "any", "partition": 1, "offset": 3},
        "": {"topic": "any", "partition": 2, "offset": 3},
    }
    done = 0
    for batch in whole.batches:
        done += batch.rows.num_rows
        with reading(run, tmp_path / "dead", batch.position) as rest:
            assert sorted(rest.read(22 - done)) == sorted(whole.items[done:])
            assert rest.stream.next(0.1).rows.num_rows == 0


def test_messages_have_a_time_of_their_own(broker: KafkaBroker, tmp_path: Path) -> None:
    broker.create_topic("times", 1)
    produce(broker.address, "times", (0, event(0)))
    with reading(
        config(url_of(broker, "times"), time=None, batch_size=1), tmp_path / "d"
    ) as reader:
        reader.read(1)
    assert reader.batches[0].newest == 1_700_000_000.5


def test_a_group_has_the_offsets_of_checkpoints(broker: KafkaBroker, tmp_path: Path) -> None:
    broker.create_topic("group", 1)
    produce(broker.address, "group", *((0, event(number)) for number in range(10)))
    run = config(url_of(broker, "group", "?group=trainer"), batch_size=4)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(10)
        assert broker.committed("group", "trainer", 0) < 0  # nothing is saved by itself
        reader.stream.note_saved(reader.batches[0].position)
        wait_until(lambda: broker.committed("group", "trainer", 0) == 4)
    with reading(run, tmp_path / "dead") as again:  # the position decides, not the group
        assert again.read(10) == list(range(10))


def test_rows_and_labels_join_after_a_resume(broker: KafkaBroker, tmp_path: Path) -> None:
    broker.create_topic("join", 2)
    rows = [
        (
            number % 2,
            {name: value for name, value in event(number, show=number).items() if name != "click"},
        )
        for number in range(30)
    ]
    labels = [(n % 2, {"show": n, "click": 1, "ts": event(n)["ts"] + 3}) for n in range(0, 30, 4)]
    both = sorted([*rows, *labels], key=lambda one: one[1]["ts"])
    produce(broker.address, "join", *both)
    wait = {"key": "show", "window_seconds": 10.0}
    run = config(url_of(broker, "join"), join=wait, batch_size=3)
    with reading(run, tmp_path / "dead") as whole:
        items = whole.read(20)
    batches = [batch for batch in whole.batches if batch.position["join"]["taken"]]
    assert len(batches) > 3
    for batch in whole.batches[:-1]:
        done = items.index(batch.rows["item"][-1].as_py()) + 1
        with reading(run, tmp_path / "dead", batch.position) as rest:
            assert sorted(rest.read(20 - done)[: 20 - done]) == sorted(items[done:20])


def test_a_partition_that_a_resume_reads_ahead_is_read_once(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    broker.create_topic("ahead", 2)
    row = {name: value for name, value in event(0, show=0).items() if name != "click"}
    produce(broker.address, "ahead", *((0, row | {"show": n, "item": n}) for n in range(4)))
    labels = [(0, {"show": n, "click": 1, "ts": row["ts"]}) for n in range(2)]
    produce(broker.address, "ahead", *labels)
    run = config(url_of(broker, "ahead"), join={"key": "show", "window_seconds": 1e6}, batch_size=1)
    with reading(run, tmp_path / "dead") as whole:
        assert whole.read(2) == [0, 1]
    # The first batch knows nothing of the other partition, whose events come first now.
    more = [(1, row | {"show": n, "item": n, "ts": row["ts"] - 1}) for n in range(10, 14)]
    more += [(1, {"show": n, "click": 0, "ts": row["ts"]}) for n in range(10, 14)]
    produce(broker.address, "ahead", *more)
    position = whole.batches[0].position
    assert position["join"]["source"].keys() <= {"0"}
    assert position["join"]["taken"] == 1
    with reading(run, tmp_path / "dead", position) as rest:
        assert sorted(rest.read(5)) == [1, 10, 11, 12, 13]


def test_an_outage_is_reported(tmp_path: Path) -> None:
    with kafka_broker() as broker:
        broker.create_topic("away", 1)
        produce(broker.address, "away", (0, event(0)))
        reports: list[str] = []
        run = config(url_of(broker, "away"), batch_size=1)
        with reading(run, tmp_path / "dead", reports=reports) as reader:
            reader.read(1)
            broker.kill()
            wait_until(lambda: reader.stream.next(0.1).rows.num_rows == 0 and bool(reports))
            assert "no events while no broker answers" in reports[0]


def test_a_broker_that_may_be_away_is_awaited(tmp_path: Path) -> None:
    with kafka_broker() as broker:
        address = broker.address
    reports: list[str] = []
    run = config(f"kafka://{address}/late", batch_size=1)
    with reading(run, tmp_path / "dead", reports=reports, may_be_away=True) as reader:
        assert reader.stream.next(0.1).rows.num_rows == 0
        assert "no events until it answers: " in reports[0]
        wait_until(lambda: "does a broker run there?" in reader.trouble())
    assert len(reports) == 1


@pytest.mark.parametrize("fails", [True, False], ids=["fail", "report"])
def test_messages_that_were_deleted_unread_are_noticed(tmp_path: Path, fails: bool) -> None:
    with bounded_broker() as address:
        large = "x" * 200_000
        produce(address, "bounded", *((0, event(number)) for number in range(4)))
        source = f"kafka://{address}/bounded?gaps={'fail' if fails else 'report'}"
        run = config(source, batch_size=2)
        with reading(run, tmp_path / "dead") as reader:
            reader.read(4)
            wait_until(lambda: reader.stream.lag().events == 0)
            position = reader.batches[0].position
        produce(address, "bounded", *((0, event(4, other=large)) for _ in range(60)))
        produce(address, "bounded", *((0, event(number)) for number in range(5, 8)))
        reports: list[str] = []
        with reading(run, tmp_path / "dead", position, reports) as reader:
            if fails:
                with pytest.raises(DataLossError, match="messages from offset 2 on were deleted"):
                    while reader.stream.next(10.0) is not None:
                        pass
                return
            while 7 not in reader.items:
                reader.batches.append(reader.stream.next(10.0))
            assert set(reader.items) <= {4, 5, 6, 7}
        assert len(reports) == 1
        assert "gaps=report goes on without them" in reports[0]


def test_the_lag_is_the_number_of_unread_messages(tmp_path: Path) -> None:
    with bounded_broker() as address:
        produce(address, "lag", *((number % 4, event(number)) for number in range(10)))
        with reading(config(f"kafka://{address}/lag"), tmp_path / "dead") as reader:
            wait_until(lambda: reader.stream.lag().events == 10)
            reader.read(10)
            wait_until(lambda: reader.stream.lag().events == 0)
            wait_until(lambda: reader.stream.lag().seconds == 0)


@pytest.mark.parametrize(
    ("url", "kind", "error"),
    [
        ("kafka://127.0.0.1:1/x", UnavailableError, "does a broker run there?"),
        ("kafka:x", InvalidArgumentError, "name brokers and topic (kafka://BROKER:PORT"),
        ("kafka://x:1", InvalidArgumentError, "name brokers and topic"),
        ("kafka://x:1/a/b", InvalidArgumentError, "name brokers and topic"),
        ("kafka://u:p@x:1/a", InvalidArgumentError, "go to the file of config=FILE"),
        ("kafka://x:1/a?gruop=g", InvalidArgumentError, "unknown parameter 'gruop' (did you mean"),
        ("kafka://x:1/a?config=/none", NotFoundError, "config=/none: No such file"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, kind: type[HotrowError], error: str
) -> None:
    monkeypatch.setattr(kafka, "_ANSWER_SECONDS", 1.0)
    with pytest.raises(kind) as caught:
        open_stream(config(url), tmp_path / "dead", {}, print)
    assert error in str(caught.value)


def test_a_topic_that_is_not_there_is_named(broker: KafkaBroker, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="create the topic 'none'"):
        open_stream(config(url_of(broker, "none")), tmp_path / "dead", {}, print)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("sasl.mechanism PLAIN\n", "line 1 is not name=value"),
        ("# no\n\nauto.offset.reset = latest\n", "line 3 is not name=value, or names one of"),
        ("no.such.setting=1\n", 'No such configuration property: "no.such.setting"'),
    ],
)
def test_a_file_of_settings_is_checked(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "client").write_text(text)
    run = config(f"kafka://127.0.0.1:1/x?config={tmp_path / 'client'}")
    with pytest.raises(InvalidArgumentError) as caught:
        open_stream(run, tmp_path / "dead", {}, print)
    assert error in str(caught.value)


def test_without_the_client_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "kafka", None)
    with pytest.raises(FailedPreconditionError, match=r"install hotrow\[kafka\]"):
        open_stream(config("kafka://127.0.0.1:1/x"), tmp_path / "dead", {}, print)
