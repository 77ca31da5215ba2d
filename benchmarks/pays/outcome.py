"""The quality of three models in a replay, and how fresh the online one was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hotrow.cli.metrics_page import quantile, read_page
from hotrow.trainer.metrics import BinaryMetrics, Quality
from pays.events import Events, Floats, Ints
from pays.replay import HOUR, Replayed
from pays.system import MODELS, ONLINE, System


def quality_of(labels: Ints, scores: Floats) -> Quality:
    """Returns AUC and logloss of probabilities."""
    metrics = BinaryMetrics()
    metrics.update_probabilities(labels, np.clip(scores, 0.0, 1.0))
    return metrics.result()


def outcome(
    events: Events, begin: float, found: Replayed, system: System, speed: float
) -> dict[str, Any]:
    """Returns all measurements of a replay, ready for JSON."""
    scores = dict(found.scores)
    if events.truth is not None:
        scores["oracle"] = 1.0 / (1.0 + np.exp(-events.truth))
    answered = ~np.any([np.isnan(found.scores[model]) for model in MODELS], axis=0)
    hours = ((events.times - begin) // HOUR).astype(np.int64)
    total = {
        name: quality_of(events.labels[answered], own[answered]) for name, own in scores.items()
    }
    by_hour = []
    for hour in range(int(hours.max()) + 1):
        rows = answered & (hours == hour)
        by_hour.append(
            {
                "events": int(rows.sum()),
                **{n: quality_of(events.labels[rows], own[rows]).auc for n, own in scores.items()},
            }
        )
    return {
        "events": len(events),
        "positives": int(events.labels.sum()),
        "auc": {name: quality.auc for name, quality in total.items()},
        "logloss": {name: quality.logloss for name, quality in total.items()},
        "auc_by_hour": by_hour,
        "requests": found.requests,
        "failed_requests": found.failed,
        "freshness": freshness_of(begin, found, system),
        "replay": {
            "seconds": found.seconds,
            "speed_asked": speed,
            "speed": float(events.times[-1] - begin) / found.seconds,
            "events_per_second": len(events) / found.seconds,
            "hourly_update_seconds": found.update_seconds,
            "waited_seconds": found.waited_seconds,
            "tick_ms_p50": float(np.percentile(found.milliseconds, 50)),
            "tick_ms_p99": float(np.percentile(found.milliseconds, 99)),
            "lag_events_p50": float(np.percentile(found.lags, 50)),
            "lag_events_p99": float(np.percentile(found.lags, 99)),
            "lag_events_most": max(found.lags),
        },
    }


def freshness_of(begin: float, found: Replayed, system: System) -> dict[str, Any]:
    """Returns how old the online model was, in seconds of event time.

    Before the first cut it is as old as the base, whose events end at `begin`.
    """
    page = read_page(system.metrics, "", None)
    visible = quantile(0.5, page.buckets("hotrow_cut_visible_seconds", model_name=ONLINE)) or 0.0
    cuts = [system.watch.cuts[version] for version in sorted(system.watch.cuts)]
    times = [begin, *(max(begin, cut.event_ms / 1000.0) for cut in cuts)]
    shown = [-np.inf, *(cut.committed_ms / 1000.0 + visible for cut in cuts)]
    ages = ages_of(found.asked, shown, times)
    between = np.diff(times)[np.diff(times) > 0]
    status = system.status()
    return {
        "cuts": int(status.publishing.cuts),
        "cuts_seen": len(cuts),
        "failed_cuts": int(status.publishing.failures_total),
        "rows": int(status.publishing.rows),
        "commit_to_visible_p50_seconds": visible,
        "event_seconds_between_cuts_p50": float(np.percentile(between, 50)),
        "event_seconds_between_cuts_p99": float(np.percentile(between, 99)),
        "age_event_seconds_p50": float(np.percentile(ages, 50)),
        "age_event_seconds_p99": float(np.percentile(ages, 99)),
    }


def ages_of(
    asked: Sequence[tuple[float, float]], shown: Sequence[float], times: Sequence[float]
) -> list[float]:
    """Returns by how much the newest event of each tick is newer than that of what was shown.

    Args:
        asked: (Unix seconds, newest event time) of each tick.
        shown: Unix seconds from which on each state answers, rising; the first one from ever.
        times: of the newest event behind each state.
    """
    places = np.searchsorted(shown, [moment for moment, _ in asked], side="right") - 1
    return [event - times[place] for (_, event), place in zip(asked, places.tolist(), strict=True)]
