"""The pages of the first day run as they are written, in one directory, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from free_ports import free_port

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(bash|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("first-day")


def without_metrics(line: str) -> str:
    """Returns a line without numbers, paths before a checkpoint, and widths of columns."""
    line = re.sub(r"\S*/(step-\d+)", r"\1", line)
    return " ".join(re.sub(r"[\d.,:]+", "0", line).replace("T0Z", "").split())


def run_page(name: str, folder: Path) -> None:
    """Runs the shell blocks of a page in one shell; the page's text blocks must be its output."""
    blocks = _BLOCK.findall((DOCS / name).read_text())
    grpc_port, rest_port = free_port(), free_port()
    # A reply of curl ends without a new line.
    script = "echo\n".join(text for kind, text in blocks if kind == "bash")
    script = script.replace("8500", str(grpc_port)).replace("8501", str(rest_port))
    # Background processes end with the page, even when one of its commands fails.
    done = subprocess.run(
        ["bash", "-e", "-c", f"trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n{script}"],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    log = folder / "serve.log"
    served = log.read_text()[-4000:] if log.exists() else ""
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:] + served
    printed = [without_metrics(line) for line in done.stdout.splitlines()]
    shown = [line for kind, text in blocks if kind == "text" for line in text.splitlines()]
    place = 0
    for line in map(without_metrics, shown):
        assert line in printed[place:], f"{line!r} of {name} is not printed there"
        place += printed[place:].index(line) + 1


def test_from_a_csv_to_a_served_model_and_a_daily_update(folder: Path) -> None:
    run_page("first_csv.md", folder)
    run_page("daily_update.md", folder)
