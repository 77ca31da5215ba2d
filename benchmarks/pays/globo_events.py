"""Clicks of Globo.com's news (G1) with sampled negatives, as `Events`.

The data set is for academic use only: nothing of it may leave the machine but measurements.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from pays.events import Events
from pays.recent_negatives import draw_negatives

FILE = "data/globo_news/clicks_sorted.csv.zst"
_COLUMNS = {
    "user": "user_id",
    "article": "click_article_id",
    "environment": "click_environment",
    "device": "click_deviceGroup",
    "os": "click_os",
    "country": "click_country",
    "region": "click_region",
    "referrer": "click_referrer_type",
}
COLUMNS = tuple(_COLUMNS)
BEGIN = 1_506_826_800.0  # 2017-10-01 03:00 UTC, midnight in Brazil: the first click
HOUR = 3600.0
_WINDOW_MILLIS = 3_600_000


def read_events(
    path: Path, first_hour: float, last_hour: float, seed: int, negatives: int
) -> Events:
    """Returns the clicks of some hours, each followed by its negatives.

    Args:
        path: the file of clicks.
        first_hour: hours after `BEGIN`; negatives may be articles of the hour before it.
        last_hour: hours after `BEGIN`, exclusive.
        seed: of the negatives.
        negatives: how many a click has.
    """
    names = ["click_timestamp", *_COLUMNS.values()]
    with pa.input_stream(path, compression="zstd") as stream:
        table = pa.csv.read_csv(
            stream, convert_options=pa.csv.ConvertOptions(include_columns=names)
        )
    times = table["click_timestamp"].to_numpy()
    begin = int((BEGIN + HOUR * first_hour) * 1000)
    first, last = np.searchsorted(
        times, [begin - _WINDOW_MILLIS, int((BEGIN + HOUR * last_hour) * 1000)]
    )
    table, times = table.slice(first, last - first), times[first:last]
    articles = table[_COLUMNS["article"]].to_numpy()
    clicks, drawn = draw_negatives(times, articles, negatives, _WINDOW_MILLIS, seed)
    rows = np.concatenate([np.arange(len(times)), clicks])
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    columns = {own: table[theirs].to_numpy()[rows] for own, theirs in _COLUMNS.items()}
    columns["article"] = np.concatenate([articles, drawn])[order]
    labels = np.repeat([1, 0], [len(times), len(drawn)])[order]
    events = Events(times[rows] / 1000.0, labels.astype(np.int64), columns)
    return events.between(begin / 1000.0, np.inf)
