"""Records that are damaged, or that a newer Hotrow wrote: what goes on, and what is said."""

from __future__ import annotations

import json
import logging
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from stored_rows import ArrayRows, exported, float_rows, some_keys

from hotrow.cli.main import main
from hotrow.errors import DataLossError, FailedPreconditionError, HotrowError
from hotrow.inspection import inspect_store
from hotrow.ops.export.live_version import point_to_existing
from hotrow.store.cuts import cuts_of, discard_unfinished
from hotrow.store.deletion import delete_generation, delete_model, delete_unneeded
from hotrow.store.full_export import Exported, write_generation
from hotrow.store.generations import Generations
from hotrow.store.leases import lock_exports
from hotrow.store.readers import readers, use
from hotrow.store.spec import Generation
from hotrow.store.undo import undo_of
from hotrow.store.withdrawn_cuts import withdrawn_from
from hotrow.version_layout import FILE_NAME
from hotrow.version_states import states_in_store

DAMAGED = '{"model": "other", "generation": 7'
NEWER = json.dumps({"format": 2, "model": "other", "rows_in": "a way that is not known yet"})
BAD = pytest.mark.parametrize(
    ("text", "why"),
    [(DAMAGED, "is damaged"), (NEWER, r"record format 2, this one reads up to 1\); upgrade")],
    ids=["damaged", "newer"],
)


def export(store: Any, version: int = 1) -> Generation:
    rows = [ArrayRows("a", some_keys(50), float_rows(50, 4, version), pieces=2)]
    what = exported(version)
    assert isinstance(what, Exported)
    with lock_exports(store.records, "m") as lock:
        generations = Generations(store.records)
        writer = generations.next_epoch("m")
        generation = write_generation(store, what, rows, lock, shards=16, writer=writer)
        generations.make_live(generation, writer)
    return generation


@BAD
def test_a_record_of_another_model_is_skipped_with_one_warning(
    store: Any, store_url: str, text: str, why: str, caplog: Any
) -> None:
    name = f"generation/{uuid.uuid4().hex}"
    assert store.records.swap(name, None, text)
    caplog.set_level(logging.WARNING)
    first, second = export(store, 1), export(store, 2)
    assert delete_unneeded(store, "m", 1) == []
    inspection = inspect_store(store_url)
    assert [g["generation"] for g in inspection.facts["generations"]] == [
        first.generation,
        second.generation,
    ]
    (unreadable,) = inspection.facts["unreadable"]
    assert unreadable["record"] == name
    assert [len(model["versions"]) for model in states_in_store(store)] == [2]
    delete_model(store, "m", lambda generation: None)
    assert Generations(store.records).all("m") == []
    (warning,) = [r.getMessage() for r in caplog.records if name in r.getMessage()]
    assert re.search(why, warning)
    assert store.records.get(name) == text


@BAD
def test_the_models_own_record_stops_that_model_alone(
    store: Any, store_url: str, text: str, why: str
) -> None:
    export(store)
    assert store.records.swap("model/other", None, text)
    with pytest.raises(HotrowError, match=f"record model/other .*{why}"):
        Generations(store.records).next_epoch("other")
    (unreadable,) = inspect_store(store_url).facts["unreadable"]
    assert unreadable["record"] == "model/other"
    assert [model["model"] for model in states_in_store(store)] == ["m"]
    export(store, 2)


@BAD
def test_a_lease_that_cannot_be_read_is_a_user(store: Any, text: str, why: str) -> None:
    old = export(store)
    export(store, 2)
    name = f"lease/{old.generation}/server-7"
    assert store.records.swap(name, None, text)
    with pytest.raises(FailedPreconditionError, match="in use by server-7"):
        delete_generation(store, old)
    assert Generations(store.records).get(old.generation) == old
    with pytest.raises(HotrowError, match=f"record {name} .*{why}"):
        readers(store.records, old.generation)
    assert delete_unneeded(store, "m", 0) == []


def test_a_server_writes_its_own_damaged_lease_anew(store: Any) -> None:
    generation = export(store)
    with use(store.records, generation.generation, "server", seconds=0.3) as lease:
        (name,) = store.records.names("lease/")
        while not store.records.swap(name, store.records.get(name), DAMAGED):
            pass
        lease.note_cut(7)
        assert [r.cut for r in readers(store.records, generation.generation)] == [7]


@BAD
def test_the_live_pointer_does_not_leave_a_generation_whose_record_is_bad(
    store: Any, tmp_path: Path, text: str, why: str
) -> None:
    first, second = export(store, 1), export(store, 2)
    name = f"generation/{second.generation}"
    assert store.records.swap(name, store.records.get(name), text)
    for number, generation in ((1, first), (2, second)):
        write_manifest(tmp_path / str(number), generation)
    generations = Generations(store.records)
    with lock_exports(store.records, "m"):
        point_to_existing(generations, "m", tmp_path)
    assert generations.model("m").live == second.generation
    with pytest.raises(HotrowError, match=f"record {name} .*{why}"):
        generations.get(second.generation)
    assert delete_unneeded(store, "m", 0) == []
    third = export(store, 3)
    assert generations.model("m").live == third.generation, "a full export goes on from it"
    assert delete_unneeded(store, "m", 0) == [first]
    assert store.records.get(name) == text


def write_manifest(directory: Path, generation: Generation) -> None:
    from hotrow.manifest import Manifest, ManifestTable

    table = generation.tables[0]
    manifest = Manifest(
        model="m",
        version=generation.version,
        step=1,
        generation=generation.generation,
        store="redis://elsewhere",
        tables=(
            ManifestTable(
                name=table.name,
                dim=table.dim,
                dtype="float32",
                rows=table.rows,
                default_value=0.0,
                digest=table.digest,
            ),
        ),
        features=(),
        schema_hash="",
    )
    (directory / "assets").mkdir(parents=True)
    (directory / "assets" / FILE_NAME).write_text(manifest.to_json())


@BAD
@pytest.mark.parametrize("kind", ["cut", "undo", "withdrawn", "staging", "export", "progress"])
def test_each_other_record_of_a_model_is_named(store: Any, kind: str, text: str, why: str) -> None:
    generation = export(store)
    id_ = generation.generation
    records = store.records
    suffix = "/0000000000000001" if kind in ("cut", "undo", "staging") else ""
    name = f"{kind}/{'m' if kind == 'export' else id_}{suffix}"
    if kind == "progress":
        unfinished = Generations(records).begin(
            model="m", version=9, step=1, source="s", schema_hash="", tables=[], shards=16
        )
        name = f"progress/{unfinished.generation}"
    assert records.swap(name, records.get(name), text)
    calls = {
        "cut": lambda: cuts_of(records, generation),
        "undo": lambda: undo_of(records, generation, 1),
        "withdrawn": lambda: withdrawn_from(records, generation),
        "staging": lambda: discard_unfinished(store, generation),
        "export": lambda: lock_exports(records, "m"),
        "progress": lambda: resume(store),
    }
    with pytest.raises(HotrowError, match=f"record {name} .*{why}"):
        calls[kind]()


def resume(store: Any) -> None:
    what = Exported(model="m", version=9, step=1, source="s", schema_hash="")
    with lock_exports(store.records, "m") as lock:
        write_generation(store, what, [], lock, shards=16)


@BAD
def test_a_bad_record_leaves_a_store_by_its_name(
    store: Any, store_url: str, text: str, why: str, capsys: Any
) -> None:
    generation = export(store)
    bad = f"generation/{'e' * 32}"
    good = f"generation/{generation.generation}"
    assert store.records.swap(bad, None, text)
    assert main(["delete", store_url, "--generation", "e" * 32]) == 1
    assert f"the record {bad} is" in capsys.readouterr().err
    assert main(["delete", store_url, "--record", good]) == 1
    assert "can be read" in capsys.readouterr().err
    assert main(["delete", store_url, "--record", bad]) == 0
    assert main(["inspect", store_url]) == 0
    assert "unreadable" not in capsys.readouterr().out
    assert store.records.names("generation/") == [good]


def test_inspect_prints_what_it_cannot_read(store: Any, store_url: str, capsys: Any) -> None:
    export(store)
    assert store.records.swap(f"generation/{'f' * 32}", None, NEWER)
    assert main(["inspect", store_url]) == 0
    assert f"unreadable: the record generation/{'f' * 32} is newer" in capsys.readouterr().out


def test_records_without_a_format_are_those_of_format_1(store: Any) -> None:
    generation = export(store)
    for name in (f"generation/{generation.generation}", "model/m"):
        text = store.records.get(name)
        found = json.loads(text)
        assert found.pop("format") == 1
        assert store.records.swap(name, text, json.dumps(found))
    assert Generations(store.records).all("m") == [generation]
    assert Generations(store.records).model("m").live == generation.generation
    until = store.records.now_ms() + 5000
    name = f"lease/{generation.generation}/old"
    assert store.records.swap(name, None, f'{{"holder": "old", "until": {until}}}')
    assert [r.holder for r in readers(store.records, generation.generation)] == ["old"]


def test_marks_of_a_newer_format_in_files_are_said_as_that(tmp_path: Path) -> None:
    from hotrow.store import open_store

    store = open_store(f"file://{tmp_path}/store", create=True)
    generation = export(store)
    name = f"whole/{generation.generation}"
    assert store.records.swap(name, store.records.get(name), NEWER)
    with pytest.raises(HotrowError, match=f"record {name} .*upgrade"):
        store.watermarks(generation)
    assert store.records.swap(name, NEWER, "[1, ")
    with pytest.raises(DataLossError, match=f"record {name} is damaged"):
        store.watermarks(generation)
    store.close()
