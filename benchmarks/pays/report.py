"""Tables, means and the plot of freshness_pays.py."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pays.system import FROZEN, HOURLY, MODELS, ONLINE

Result = dict[str, Any]
_PAIRS = ((ONLINE, HOURLY), (HOURLY, FROZEN))
_HEAD = (
    "case       seed  events  online  hourly  frozen  oracle (AUC)  cut, event s: p50   p99"
    "  age p50   p99  lag most  failed  seconds"
)


def conditions(hours: int, speed: float, publish_seconds: float) -> dict[str, Any]:
    """Returns what the numbers depend on."""
    return {
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.date.today().isoformat(),
        "hours": hours,
        "speed": speed,
        "publish_seconds": publish_seconds,
        **{name: importlib.metadata.version(name) for name in ("hotrow", "tensorflow")},
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def table(results: Sequence[Result]) -> str:
    """Returns a line for each run."""
    lines = [_HEAD]
    for one in results:
        auc, fresh, replayed = one["auc"], one["freshness"], one["replay"]
        oracle = f"{auc['oracle']:.4f}" if "oracle" in auc else "     -"
        lines.append(
            f"{one['case']:10s} {one['seed']:4d} {one['events']:7,d}  "
            + "  ".join(f"{auc[model]:.4f}" for model in MODELS)
            + f"  {oracle:>6s}        {fresh['event_seconds_between_cuts_p50']:16.0f} "
            f"{fresh['event_seconds_between_cuts_p99']:5.0f}"
            f"  {fresh['age_event_seconds_p50']:7.0f} {fresh['age_event_seconds_p99']:5.0f}"
            f"  {replayed['lag_events_most']:8,d}  {one['failed_requests']:6d}"
            f"  {one['seconds']:7.0f}"
        )
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> dict[str, Result]:
    """Returns means and standard deviations over seeds, by data set; one seed deviates by 0."""
    found: dict[str, Result] = {}
    for case in dict.fromkeys(one["case"] for one in results):
        own = [one for one in results if one["case"] == case]
        metrics = {
            metric: {name: spread([one[metric][name] for one in own]) for name in own[0][metric]}
            for metric in ("auc", "logloss")
        }
        differences = {
            f"{better} - {worse}": spread([one["auc"][better] - one["auc"][worse] for one in own])
            for better, worse in _PAIRS
        }
        means = [metrics["auc"][model]["mean"] for model in MODELS]
        found[case] = {
            "seeds": len(own),
            **metrics,
            "auc_differences": differences,
            "in_order": means[0] > means[1] > means[2],
        }
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns mean, standard deviation (n - 1), least and greatest value."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {
        "mean": statistics.fmean(values),
        "deviation": deviation,
        "least": min(values),
        "most": max(values),
    }


def means(summaries: dict[str, Result]) -> str:
    """Returns mean ± standard deviation of each metric, a line each."""
    lines = []
    for case, own in summaries.items():
        for metric in ("auc", "logloss", "auc_differences"):
            lines += [
                f"{case:10s} {metric:16s} {name:16s} {one['mean']:+.4f} ± {one['deviation']:.4f}, "
                f"{one['least']:+.4f} to {one['most']:+.4f}"
                for name, one in own[metric].items()
            ]
    return "\n".join(lines)


def rounded(value: Any) -> Any:
    """Returns a JSON value with 6 significant digits."""
    if isinstance(value, dict):
        return {key: rounded(own) for key, own in value.items()}
    if isinstance(value, list):
        return [rounded(own) for own in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def plot(results: Sequence[Result], path: Path) -> None:
    """Draws the AUC of each hour, the mean over seeds and the range, a panel for each data set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = list(dict.fromkeys(one["case"] for one in results))
    figure, panels = pyplot.subplots(1, len(cases), figsize=(4.5 * len(cases), 3.4), squeeze=False)
    for axes, case in zip(panels[0], cases, strict=True):
        own = [one["auc_by_hour"] for one in results if one["case"] == case]
        names = [name for name in (*MODELS, "oracle") if name in own[0][0]]
        for name in names:
            hours = list(zip(*[[hour[name] for hour in run] for run in own], strict=True))
            places = range(1, len(hours) + 1)
            style = {"color": "grey", "linestyle": ":"} if name == "oracle" else {"marker": "o"}
            (line,) = axes.plot(places, [statistics.fmean(h) for h in hours], label=name, **style)
            axes.fill_between(
                places, [min(h) for h in hours], [max(h) for h in hours],
                color=line.get_color(), alpha=0.2, linewidth=0,
            )  # fmt: skip
        axes.set_title(case)
        axes.set_xlabel("hour of event time")
        axes.set_ylabel("AUC, scored before training")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=4, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
