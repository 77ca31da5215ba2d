"""Event times are seconds, milliseconds or ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hotrow.trainer.online.event_times import event_times

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("values", "times"),
    [
        ([int(NOON), int(NOON) + 1], [NOON, NOON + 1]),
        ([NOON + 0.25], [NOON + 0.25]),
        ([int(NOON * 1000) + 7], [NOON + 0.007]),
        ([str(NOON), str(int(NOON * 1000) + 500)], [NOON, NOON + 0.5]),
        (["2026-03-01T12:00:00Z", "2026-03-01 12:00:00.5"], [NOON, NOON + 0.5]),
        (["2026-03-01T13:00:00+01:00", "20260301T120000"], [NOON, NOON]),
        ([f" {int(NOON)} ", "2026-03-01T12:00:01Z "], [NOON, NOON + 1]),
        ([0, None], [0.0, np.nan]),
    ],
    ids=str,
)
def test_times(values: list[Any], times: list[float]) -> None:
    np.testing.assert_array_equal(event_times(pa.array(values)), times)


@pytest.mark.parametrize(
    "value", ["", "noon", "nan", "inf", "-1", "4102444800", "2101-01-01T00:00:00Z", "1e30"]
)
def test_what_is_no_time(value: str) -> None:
    assert np.isnan(event_times(pa.array([value, "1"])))[0]
    assert np.isnan(event_times(pa.array([value, "2026-03-01T12:00:00Z"])))[0]
