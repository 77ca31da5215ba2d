"""Our own exports in the server: their rows come from a store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from integration.serving.trained_run import export, offline_scores, scores_of


@pytest.fixture(scope="module")
def trained(trained: Path) -> Path:
    """The folder with the trained run, exported without a store, too, as `alone`."""
    export(trained, trained / "models", "alone", "--standalone")
    return trained


def test_an_export_scores_the_same_with_its_store_another_store_and_none(
    trained: Path, tmp_path: Path, start_server: Any
) -> None:
    models = trained / "models"
    own = start_server("own", models / "own")
    own.wait_ready()
    expected = scores_of(own, trained, tmp_path)
    assert len(expected) == 300
    assert len(set(expected)) > 250
    # Without a server: the run itself, the version, and the version with stock ops only.
    for place in (trained / "run", models / "own" / "1", models / "alone" / "1"):
        assert offline_scores(place, trained, tmp_path) == pytest.approx(expected, abs=1e-6)
    alone = start_server("alone", models / "alone")
    alone.wait_ready()
    assert scores_of(alone, trained, tmp_path) == pytest.approx(expected, abs=1e-6)
    moved = tmp_path / "moved"
    shutil.copytree(models / "own", moved)
    (moved / "1" / "rows").rename(tmp_path / "store")
    store = f"--store=file://{tmp_path}/store"
    assert offline_scores(moved / "1", trained, tmp_path, store) == pytest.approx(
        expected, abs=1e-6
    )
    other = start_server("own", moved, store)
    other.wait_ready()
    assert scores_of(other, trained, tmp_path) == expected


def test_an_export_answers_over_rest(trained: Path, tmp_path: Path, start_server: Any) -> None:
    server = start_server("own", trained / "models" / "own")
    server.wait_ready()
    expected = scores_of(server, trained, tmp_path)
    fields = (trained / "valid.tsv").read_text().split("\n")[0].split("\t")
    row = {f"I{i}": float(fields[i] or "nan") for i in (1, 2, 3)}
    words = {f"C{i}": fields[13 + i] for i in (1, 2, 3)}
    status, body = server.rest_predict({"instances": [{**row, **words}]})
    assert status == 200
    assert json.loads(body)["predictions"][0] == pytest.approx(expected[0], abs=1e-6)


def test_a_version_whose_store_is_gone_leaves_the_older_one_serving(
    trained: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "own"
    shutil.copytree(trained / "models" / "own", base)
    server = start_server("own", base, "--max_num_load_retries=0")
    server.wait_ready()
    expected = scores_of(server, trained, tmp_path)
    shutil.copytree(base / "1", base / "tmp")
    shutil.rmtree(base / "tmp" / "rows")
    (base / "tmp").rename(base / "2")
    server.wait_for_log(
        f"version 2 failed to load (attempt 1 of 1, gave up): {base}/2/rows/data.mdb"
    )
    assert scores_of(server, trained, tmp_path) == expected
