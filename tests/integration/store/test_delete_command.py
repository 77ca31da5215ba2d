"""`platform delete`: models and generations leave a store when no server uses them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stored_rows import make_live

from hotrow.cli.main import main
from hotrow.store import open_store
from hotrow.store.generations import Generations
from hotrow.store.readers import use
from hotrow.store.spec import StoredTable


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Of a store in files."""
    return f"file://{tmp_path}/store"


def complete(url: str, live: bool = False) -> str:
    """Writes a generation of model m; returns its name."""
    table = StoredTable(name="t", dim=4, row_type="float32", default_value=0.0, rows=2)
    with contextlib.closing(open_store(url, create=True)) as store:
        generations = Generations(store.records)
        generation = generations.begin(
            model="m", version=1, step=0, source="", schema_hash="", tables=[table], shards=4
        )
        store.begin(generation)
        store.write(generation, 0, np.array([3, 4], np.int64), np.zeros((2, 16), np.uint8))
        generations.complete(generation, generation.tables)
        if live:
            make_live(store, generation)
        return generation.generation


def left(url: str) -> list[str]:
    with contextlib.closing(open_store(url)) as store:
        return [generation.generation for generation in Generations(store.records).all()]


def test_a_generation_goes_and_the_live_one_stays(url: str, capsys: Any) -> None:
    old, live = complete(url), complete(url, live=True)
    assert main(["delete", url, "--generation", live]) == 1
    assert f"generation {live} is the live one of model" in capsys.readouterr().err
    assert main(["delete", url, "--generation", old]) == 0
    assert f"Deleted generation {old}: " in capsys.readouterr().out
    assert left(url) == [live]
    assert main(["delete", url, "--generation", old]) == 1
    assert f"the store has no generation {old}" in capsys.readouterr().err


def test_a_model_goes_when_no_server_uses_it(url: str, capsys: Any) -> None:
    names = [complete(url), complete(url, live=True)]
    with contextlib.closing(open_store(url)) as store, use(store.records, names[0], "server-7"):
        assert main(["delete", url, "--model", "m"]) == 1
    assert "is in use by server-7; end these servers first" in capsys.readouterr().err
    assert left(url) == names
    assert main(["delete", url, "--model", "m"]) == 0
    assert capsys.readouterr().out.count("Deleted generation ") == 2
    assert left(url) == []
    assert main(["delete", url, "--model", "m"]) == 1
    assert "has no rows of model 'm'; its models: none" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--model", "m", "--generation", "g"]])
def test_one_of_model_and_generation_is_needed(url: str, flags: list[str], capsys: Any) -> None:
    assert main(["delete", url, *flags]) == 2
    assert "give --model NAME or --generation ID" in capsys.readouterr().err
