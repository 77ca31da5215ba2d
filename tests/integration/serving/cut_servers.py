"""Servers that follow cuts: their files, their metrics, their pauses."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from integration.serving.metrics_page import samples_of
from integration.serving.server_processes import control_of

KILLS = 2  # of a control process; after more it starts again later and later


CACHE = ("--cache_rows=100",)  # of 360


@contextlib.contextmanager
def paused(server: Any) -> Iterator[None]:
    """Stops the clock of a server's control process; its executable goes on."""
    control = control_of(server)
    os.kill(control, signal.SIGSTOP)
    yield
    os.kill(control, signal.SIGCONT)


def metrics(folder: Path) -> str:
    """Returns the flag for a page of metrics."""
    (folder / "monitoring").write_text("prometheus_config { enable: true }")
    return f"--monitoring_config_file={folder}/monitoring"


def looks(server: Any, cause: str) -> int:
    """Returns how often version 1 of model `m` has looked for cuts; cause: "push" or "poll"."""
    labels = f'{{model_name="m",version="1",cause="{cause}"}}'
    return int(samples_of(server).get(f"hotrow_cut_looks_total{labels}", 0))


def layers_of(server: Any) -> int:
    """Returns how many layers a lookup in version 1 of model `m` probes."""
    return int(samples_of(server)['hotrow_cut_layers{model_name="m",version="1"}'])


def private_folder(server: Any) -> Path:
    """Returns the folder of its processes."""
    arguments = Path(f"/proc/{control_of(server)}/cmdline").read_bytes().decode().split("\0")
    (folder,) = (a.partition("=")[2] for a in arguments if a.startswith("--control_folder="))
    return Path(folder)


def folders_of(server: Any) -> list[Path]:
    """Returns the folders with files of cuts, one for each version."""
    cuts = private_folder(server) / "cuts"
    return sorted(cuts.iterdir()) if cuts.exists() else []
