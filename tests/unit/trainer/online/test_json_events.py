"""JSON events become the rows that a file with the same values has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_runs import config

from hotrow.config import RunConfig, parse_config
from hotrow.trainer.data.opening import open_data
from hotrow.trainer.online.event_columns import columns_of_events
from hotrow.trainer.online.json_events import JsonParser


def parser(run: RunConfig | None = None) -> JsonParser:
    return JsonParser(columns_of_events(run or config()))


def good(**values: Any) -> bytes:
    event = {"click": 1, "user": "a", "item": 5, "price": 0.5, "ts": 3}
    return json.dumps(event | values).encode()


TEXTS = [
    '{"click": 1, "user": "é", "item": -3, "price": 0.1, "ts": 1}',
    '{"click": 0, "user": 7, "item": 9223372036854775807, "price": 16777217, "ts": 2.5}',
    '{"click": "1", "user": true, "item": "12", "price": "1e-3", "ts": "3"}',
    '{"click": 0, "user": null, "ts": 4, "other": {"a": [1]}}',
    '{"click": 0, "user": "a b", "item": null, "price": 33554433.5, "ts": 5}',
]
LINES = [
    "1,é,-3,0.1,1",
    "0,7,9223372036854775807,16777217,2.5",
    "1,true,12,1e-3,3",
    "0,,,,4",
    "0,a b,,33554433.5,5",
]


@pytest.mark.parametrize("chosen", [[0, 1, 2, 3, 4], [0], [1], [2], [3], [4]], ids=str)
def test_rows_are_those_of_a_file_with_the_same_texts(tmp_path: Path, chosen: list[int]) -> None:
    parsed = parser().parse([TEXTS[i].encode() for i in chosen])
    assert parsed.problems == {}
    assert parsed.kept.tolist() == list(range(len(chosen)))
    path = tmp_path / "rows.csv"
    path.write_text("click,user,item,price,ts\n" + "".join(f"{LINES[i]}\n" for i in chosen))
    run = config()
    columns = columns_of_events(run).to_parse
    file = open_data(path, run.data, columns=columns, require_labels=True)
    (rows,) = file.record_batches()
    times = [float(text) for text in rows.column("ts").to_pylist()]
    assert parsed.rows.column("ts").to_pylist() == times
    assert parsed.rows.drop_columns("ts").equals(rows.drop_columns("ts"))


def test_a_block_with_a_bad_event_gives_the_others_the_same_rows() -> None:
    payloads = [good(item=i, price=i / 7) for i in range(9)]
    alone = parser().parse(payloads)
    mixed = parser().parse([*payloads[:4], b"{", *payloads[4:]])
    assert mixed.rows.equals(alone.rows)
    assert mixed.kept.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert list(mixed.problems) == [4]


@pytest.mark.parametrize("count", [1, 3, 60, 1000])
def test_few_bad_events_among_many_are_found(count: int) -> None:
    rng = np.random.default_rng(count)
    payloads = [good(item=i, price=i / 7, ts=i + 0.5) for i in range(1000)]
    bad = sorted(rng.choice(1000, count, replace=False).tolist())
    for index in bad:
        payloads[index] = [b"{", good(item="x"), good(ts="never"), b""][index % 4]
    parsed = parser().parse(payloads)
    assert sorted(parsed.problems) == bad
    left = [index for index in range(1000) if index not in bad]
    assert parsed.kept.tolist() == left
    assert parsed.rows.column("item").to_pylist() == left
    assert parsed.rows.column("ts").to_pylist() == [index + 0.5 for index in left]


def test_good_events_are_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = columns_of_events(config(join={"key": "show"}))
    rows = [
        b'{"ts": 1.5, "show": "a", "user": "u", "item": 1}',
        b'{"ts": 2, "show": 7, "click": 1}',
    ]
    both = JsonParser(joined)
    monkeypatch.setattr(JsonParser, "_slow", lambda *_: pytest.fail("parsed one by one"))
    assert both.parse(rows[:1] * 3).rows.num_rows == 3
    assert both.parse([rows[0], rows[0]]).rows.column("show").to_pylist() == ["a", "a"]
    assert both.parse([rows[1], rows[1]]).rows.column("click").to_pylist() == ["1", "1"]
    plain = parser()
    assert plain.parse([good(ts=i / 3) for i in range(9)]).rows.num_rows == 9
    assert plain.parse([good(ts="2026-03-01T12:00:00Z")] * 9).rows.num_rows == 9


def test_types_may_change_from_block_to_block() -> None:
    both = parser()
    assert both.parse([good(user="a")]).rows.column("user").to_pylist() == ["a"]
    assert both.parse([good(user=3)]).rows.column("user").to_pylist() == ["3"]
    assert both.parse([good(user="b"), good(user=4)]).rows.column("user").to_pylist() == ["b", "4"]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[1]", "is a list, not an object of"),
        (b"7", "is one value, not an object"),
        (good() + good(), "is not JSON: Extra data"),
        (good(user="\ud800"), "is not UTF-8 text"),
        (b"\xff", "is not UTF-8 text"),
        (good(click=None), "click is '', not 0 or 1"),
        (good(click=2), "click is '2', not 0 or 1"),
        (good(click="yes"), "click is 'yes', not 0 or 1"),
        (good(price="cheap"), "price is 'cheap', not a finite number"),
        (good(price=1e39), "price is '1e+39', not a finite number"),
        (good(price=[1]), "price is a list, not one value"),
        (good(user={"id": 1}), "user is an object, not one value"),
        (good(item=1.5), "item is '1.5', not a 64-bit integer"),
        (good(item=2**63), "item is '9223372036854775808', not a 64-bit integer"),
        (good(item="x"), "item is 'x', not a 64-bit integer"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value,
)
@pytest.mark.parametrize("at", [0, 1])
def test_a_bad_event_is_named(payload: bytes, reason: str, at: int) -> None:
    payloads = [good()]
    payloads.insert(at, payload)
    parsed = parser().parse(payloads)
    assert parsed.rows.num_rows == 1
    assert list(parsed.problems) == [at]
    assert parsed.problems[at].startswith(reason)


def test_a_weight_is_a_finite_number() -> None:
    run = config(data__weight="w")
    payloads = [good(w=2), good(w=-1), good(), good(w="x"), good(w=0.5)]
    parsed = parser(run).parse(payloads)
    assert parsed.rows.column("w").to_pylist() == [2.0, 0.5]
    assert {index: reason[:12] for index, reason in parsed.problems.items()} == {
        1: "w is '-1', n",
        2: "w is '', not",
        3: "w is 'x', no",
    }


def test_the_positive_label_may_be_a_text_or_true() -> None:
    run = config(data__positive="true")
    parsed = parser(run).parse([good(click=True), good(click="true"), good(click="no"), b"{}"])
    assert parsed.rows.column("click").to_pylist() == [1.0, 1.0, 0.0]
    assert parsed.problems == {3: "click is '', not a label"}


def test_lists_are_lists_of_ids_or_texts() -> None:
    raw = {"format": "parquet", "train": "x", "label": "click"}
    sparse = [
        {"columns": ["ids"], "dim": 2, "hash": False, "lists": True, "combiner": "sum"},
        {"columns": ["tags"], "dim": 2, "hash": True, "lists": True, "combiner": "sum"},
    ]
    run = parse_config(
        {"name": "x", "data": raw, "features": {"sparse": sparse}, "model": {"arch": "logistic"}},
        source="test",
    )
    payloads = [
        b'{"click": 1, "ids": [1, 2], "tags": ["a", ""]}',
        b'{"click": 0, "ids": [], "tags": null}',
        b'{"click": 0, "ids": 5}',
        b'{"click": 0, "ids": ["x"]}',
        b'{"click": 0, "ids": [[1]]}',
        b'{"click": 1, "ids": ["3", null], "tags": [7]}',
    ]
    parsed = parser(run).parse(payloads)
    assert parsed.rows.column("ids").to_pylist() == [[1, 2], [], [3]]
    assert parsed.rows.column("tags").to_pylist() == [["a"], [], ["7"]]
    assert [parsed.problems[index].partition(",")[0] for index in (2, 3, 4)] == [
        "ids is one value",
        "ids is \"['x']\"",
        "ids has a list or object in its list",
    ]
    assert parser(run).parse(payloads[:2]).rows.equals(parsed.rows.slice(0, 2))


def test_no_event_gives_the_columns() -> None:
    parsed = parser().parse([])
    assert parsed.rows.schema.names == ["click", "price", "user", "item", "ts"]
    assert parsed.rows.num_rows == 0
    assert np.array_equal(parsed.kept, [])
