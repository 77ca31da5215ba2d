"""The modules of protos/*.proto are those that `make protos` generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_modules_are_generated_from_the_protos(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / ".ci" / "protos", sys.executable, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    generated = {path.name: path.read_text() for path in (tmp_path / "hotrow/protos").iterdir()}
    there = {path.name: path.read_text() for path in (ROOT / "protos").glob("*_pb2*")}
    assert sorted(there) == sorted(generated)
    assert there == generated, "run `make protos`"
