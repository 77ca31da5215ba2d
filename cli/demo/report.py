"""The demo's measurements: printed for people, and as `report.json`."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hotrow.errors import HotrowError

MAX_DIFFERENCE = 1e-5
AUC_DIFFERENCE = 1e-6


class Report:
    """Metrics by name and seconds by stage."""

    def __init__(self) -> None:
        self._metrics: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}

    def set(self, **metrics: Any) -> None:
        """Adds metrics."""
        self._metrics.update(metrics)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measures the wall time of a stage; a stage inside another is not counted twice."""
        click.echo(f"== {name}")
        start, inner = time.monotonic(), sum(self._seconds.values())
        yield
        inner = sum(self._seconds.values()) - inner
        self._seconds[name] = time.monotonic() - start - inner

    def write(self, path: Path) -> None:
        """Writes `report.json`."""
        seconds = {name: round(value, 2) for name, value in self._seconds.items()}
        path.write_text(json.dumps({**self._metrics, "seconds": seconds}, indent=2) + "\n")

    def text(self) -> str:
        """Returns the report for people."""
        f = self._metrics
        stages = "  ".join(f"{name} {value:.1f}" for name, value in self._seconds.items())
        return "\n".join(
            [
                "",
                f"trained        {f['train_samples_per_second']:,.0f} samples/s",
                f"validation     AUC {f['valid_auc']:.6f}, logloss {f['valid_logloss']:.6f} "
                f"({f['valid_rows']:,} rows)",
                f"exported       {f['rows_exported']:,} rows",
                f"served         AUC {f['served_auc']:.6f} over gRPC",
                f"served - offline      max |difference| {f['max_abs_diff']:.1e}",
                f"standalone - offline  max |difference| {f['max_abs_diff_standalone']:.1e}",
                f"seconds        {stages}",
            ]
        )

    def check(self) -> None:
        """Raises HotrowError when the served model is not the trained one."""
        f = self._metrics
        for name in ("max_abs_diff", "max_abs_diff_standalone"):
            if not f[name] <= MAX_DIFFERENCE:
                raise HotrowError(f"{name} is {f[name]:.2e}; must be at most {MAX_DIFFERENCE:.0e}")
        if not abs(f["served_auc"] - f["valid_auc"]) <= AUC_DIFFERENCE:
            raise HotrowError(f"served AUC {f['served_auc']} is not offline AUC {f['valid_auc']}")
