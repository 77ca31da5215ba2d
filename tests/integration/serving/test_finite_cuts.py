"""Servers do not take cuts with values that are not finite."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.serving.cut_servers import CACHE, metrics
from integration.serving.marked_rows import MarkedModel, cut_of, marked_load
from integration.serving.metrics_page import samples_of
from waiting import wait_until

LABELS = '{model_name="m",version="1"}'


@pytest.fixture
def model(redis_server: Any, tmp_path: Path) -> Iterator[MarkedModel]:
    """A marked model with its rows in a Redis."""
    made = MarkedModel(tmp_path / "models", redis_server.url)
    yield made
    made.close()


def refused(server: Any) -> tuple[float, float]:
    """Returns the metrics of refused cuts."""
    found = samples_of(server)
    code = LABELS.replace("}", ',code="DATA_LOSS"}')
    total = found.get(f"hotrow_cut_failures_total{code}", 0.0)
    return total, found[f"hotrow_cut_is_refused{LABELS}"]


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        ("row", "table 'items': 1 rows of cut {cut} are not finite (NaN or an infinity), the fir"),
        ("dense", "the dense weight dense_variables/1 of cut {cut} is not finite (NaN or an inf"),
    ],
)
def test_a_cut_that_is_not_finite_is_not_taken(
    spoiled: str, said: str, model: MarkedModel, start_server: Any, tmp_path: Path
) -> None:
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    model.wait_until_noted(model.write(1))
    with marked_load(server) as load:
        assert refused(server) == (0, 0)
        cut = model.write(2, spoiled=spoiled)
        server.wait_for_log(f"cut {cut.version:016x} is not taken: ")
        time.sleep(1.0)
        (line,) = (line for line in server.log if "is not taken" in line)
        assert said.format(cut=f"{cut.version:016x}") in line
        assert load.cuts() <= {0, 1}
        assert refused(server) == (1, 1)
        # It begins with what the others show.
        later = start_server("m", model.path, *CACHE)
        later.wait_ready()
        later.wait_for_log(f"cut {cut.version:016x} is not taken: ")
        assert cut_of(later) == 1
        # The next one replaces all that was wrong.
        model.write(3, since=1)
        load.wait_for(3)
        wait_until(lambda: refused(server) == (1, 0))
        wait_until(lambda: cut_of(later) == 3)
    assert load.failures() == []
    assert load.cuts() <= {0, 1, 3}


def test_a_good_cut_before_the_refused_one_is_taken(model: MarkedModel, start_server: Any) -> None:
    model.write(1)
    model.write(2)
    bad = model.write(3, spoiled="row")
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    server.wait_for_log(f"cut {bad.version:016x} is not taken: ")
    assert cut_of(server) == 2
    model.write(4)  # without the row that is wrong
    wait_until(lambda: sum("is not taken" in line for line in server.log) == 2)
    assert cut_of(server) == 2


def test_a_forced_cut_is_taken(model: MarkedModel, start_server: Any) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    model.wait_until_noted(model.write(1, spoiled="row", forced=True))
    model.wait_until_noted(model.write(2, spoiled="dense", forced=True))
    status, text = server.rest_predict({"instances": [{"id": [0]}]})
    assert status == 200
    assert "Infinity" in json.dumps(json.loads(text))
