"""What the online demo prints: a live table, the results, a plot."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from hotrow.cli.metrics_page import quantile, read_page
from hotrow.errors import HotrowError
from hotrow.protos import online_pb2

if TYPE_CHECKING:
    from hotrow.cli.demo.online_answers import Answers

_VISIBLE, _EVENT_VISIBLE = "hotrow_cut_visible_seconds", "hotrow_event_visible_seconds"
_HEAD = "seconds  events/s   lag   cuts  rows/s  visible p50  online  hourly  frozen (AUC so far)"


class OnlineReport:
    """Rows of the table and the results of one demo.

    Args:
        folder: where `online.png` and `report.json` go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows = 0
        self._results: dict[str, Any] = {}

    def row(
        self,
        seconds: float,
        answers: Answers,
        status: online_pb2.TrainerStatus,
        metrics: Sequence[str],
    ) -> None:
        """Prints one row of the live table."""
        if self._rows % 10 == 0:
            click.echo(_HEAD)
        self._rows += 1
        stream, publishing = status.stream, status.publishing
        visible = quantile_of(metrics, _VISIBLE, 0.5)
        aucs = answers.aucs()
        rate = publishing.rows / seconds if seconds else 0.0
        click.echo(
            f"{seconds:7.0f} {stream.events_per_second:9.0f} {stream.lag_events:5d} "
            f"{publishing.cuts:6d} {rate:7.0f} {visible:11.3f}s  "
            + "  ".join(f"{aucs[model]:6.4f}" for model in ("clicks", "hourly", "frozen"))
        )

    def compare(
        self,
        status: online_pb2.TrainerStatus,
        answers: Answers,
        digests: dict[str, str],
        metrics: Sequence[str],
    ) -> None:
        """Keeps the results of the end."""
        aucs = answers.aucs()
        self._results = {
            "events": answers.events,
            "cuts": status.publishing.cuts,
            "rows": status.publishing.rows,
            "visible_p50_seconds": quantile_of(metrics, _VISIBLE, 0.5),
            "visible_p99_seconds": quantile_of(metrics, _VISIBLE, 0.99),
            "event_visible_p50_seconds": quantile_of(metrics, _EVENT_VISIBLE, 0.5),
            "event_visible_p99_seconds": quantile_of(metrics, _EVENT_VISIBLE, 0.99),
            "predict_p50_ms": float(np.percentile(answers.milliseconds, 50)),
            "predict_p99_ms": float(np.percentile(answers.milliseconds, 99)),
            "auc": {"online": aucs["clicks"], "hourly": aucs["hourly"], "frozen": aucs["frozen"]},
            "digests": digests,
        }
        self._plot(answers)

    def finish(self) -> None:
        """Prints the results and checks them.

        Raises:
            HotrowError: digests differ.
        """
        found = self._results
        (self._folder / "report.json").write_text(json.dumps(found, indent=2) + "\n")
        auc, digests = found["auc"], found["digests"]
        click.echo(
            "\n".join(
                [
                    "",
                    f"{found['events']:,} events, {found['cuts']} cuts, {found['rows']:,} rows",
                    f"commit to shown   p50 {found['visible_p50_seconds']:.3f} s, "
                    f"p99 {found['visible_p99_seconds']:.3f} s (from histograms)",
                    f"event to shown    p50 {found['event_visible_p50_seconds']:.3f} s, "
                    f"p99 {found['event_visible_p99_seconds']:.3f} s",
                    f"a prediction      p50 {found['predict_p50_ms']:.1f} ms, "
                    f"p99 {found['predict_p99_ms']:.1f} ms",
                    f"progressive AUC   online {auc['online']:.4f}  hourly {auc['hourly']:.4f}  "
                    f"frozen {auc['frozen']:.4f}",
                    "digests of rows   "
                    + "  ".join(f"{name} {digest}" for name, digest in digests.items()),
                    f"plot              {self._folder / 'online.png'}",
                ]
            )
        )
        if len(set(digests.values())) > 1:
            raise HotrowError("trainer, store and servers do not have the same rows")

    def _plot(self, answers: Answers) -> None:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(8, 4))
        times = [seconds for seconds, _ in answers.windows]
        for model, label in (("clicks", "online"), ("hourly", "hourly"), ("frozen", "frozen")):
            axes.plot(times, [aucs[model] for _, aucs in answers.windows], marker="o", label=label)
        axes.set_xlabel("seconds")
        axes.set_ylabel("AUC of 10 s, scored before training")
        axes.legend()
        figure.tight_layout()
        figure.savefig(self._folder / "online.png", dpi=120)
        pyplot.close(figure)


def quantile_of(pages: Sequence[str], name: str, share: float) -> float:
    """Returns a quantile of a histogram on several pages of metrics; NaN if it is empty."""
    counts: Counter[float] = Counter()
    for page in pages:
        counts.update(read_page(page, "", None).buckets(name))
    found = quantile(share, counts)
    return math.nan if found is None else found
