"""Limits of rows on disk, with small limits in place of 4 billion rows."""

import numpy as np
import pytest

import hotrow
from hotrow.errors import ResourceExhaustedError
from hotrow.ops.table import Table
from hotrow.trainer import disk_rows


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(disk_rows, "MOST_ROWS", 1000)


def table_of(disk, rows):
    table = Table(hotrow.TableConfig("clicks", 4, cache=hotrow.Cache(rows=100, disk=disk)), seed=1)
    table.lookup(np.arange(rows), insert=True)
    return table


def test_a_table_on_disk_warns_at_80_percent_of_its_rows(tmp_path):
    table = table_of(str(tmp_path), 799)
    assert disk_rows.warning({"clicks": table}) is None
    table.lookup(np.array([10**6]), insert=True)
    warning = disk_rows.warning({"clicks": table})
    assert warning is not None
    assert "table 'clicks' has 800 rows on disk" in warning


def test_a_table_in_memory_has_no_such_limit():
    table = table_of(None, 2000)
    assert disk_rows.warning({"clicks": table}) is None
    disk_rows.check_fits("clicks", table, {"size": 10**6}, 1)


def test_a_checkpoint_of_more_rows_than_a_file_holds_is_refused_by_name(tmp_path):
    table = table_of(str(tmp_path), 1)
    disk_rows.check_fits("clicks", table, {"size": 1000}, 1)
    disk_rows.check_fits("clicks", table, {"size": 2000}, 2)
    everywhere = {"size": 2000, "sharding": "column", "parts": [{}, {}]}
    disk_rows.check_fits("clicks", table, everywhere, 1)
    with pytest.raises(ResourceExhaustedError, match="'clicks' has 1,001 rows for a rank"):
        disk_rows.check_fits("clicks", table, {"size": 1001}, 1)
